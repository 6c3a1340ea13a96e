"""Bins that are the same for every trial, so that histograms of steps and trials can be laid side by side."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

_SIDE = tuple(float(f"{10 ** (exponent / 4):.3g}") for exponent in range(-16, 5))
LOG_RATIO_EDGES = (*(-edge for edge in reversed(_SIDE)), 0.0, *_SIDE)
ADVANTAGE_EDGES = tuple(edge / 4 for edge in range(-20, 21))


def count(
    values: Tensor, histogram: Tensor, edges: Sequence[float], *, histograms: int, exact: float = 0.0
) -> Tensor:
    """(histograms, bins + 1) long: how many values are in each bin and, last, how many are exactly 0.

    histogram: long, broadcast with the values: which histogram a value belongs to, -1 for none; edges:
    one more than bins, the outer bins also hold what lies beyond; exact: values closer to 0 than this count
    as exact and are in no bin.
    """
    bins = len(edges) - 1
    inner = torch.tensor(edges[1:-1], dtype=values.dtype, device=values.device)
    place = torch.bucketize(values, inner, right=True).masked_fill(values.abs() < exact, bins)
    # what is in no histogram falls into a row of its own, ahead of the others
    place = torch.where(histogram < 0, 0, place + (histogram + 1) * (bins + 1))
    counts = torch.bincount(place.reshape(-1), minlength=(histograms + 1) * (bins + 1))
    return counts.view(histograms + 1, bins + 1)[1:]
