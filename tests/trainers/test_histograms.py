"""Counting into fixed bins."""

from __future__ import annotations

import numpy as np
import torch

from trainers.histograms import ADVANTAGE_EDGES, LOG_RATIO_EDGES, count


def test_edges_rise_and_are_symmetric() -> None:
    for edges in (LOG_RATIO_EDGES, ADVANTAGE_EDGES):
        assert list(edges) == sorted(set(edges))
        assert [-edge for edge in reversed(edges)] == list(edges)


def test_counts_are_those_of_numpy() -> None:
    values = torch.randn(2000, generator=torch.Generator().manual_seed(0))
    counts = count(values, torch.zeros(2000, dtype=torch.long), LOG_RATIO_EDGES, histograms=1)
    expected, _ = np.histogram(values.numpy(), np.array(LOG_RATIO_EDGES, dtype=np.float32))
    assert counts[0, :-1].tolist() == expected.tolist()


def test_what_lies_beyond_falls_into_the_outer_bins() -> None:
    values = torch.tensor([-100.0, -1.5, 0.5, 2.0, torch.inf])
    counts = count(values, torch.zeros(5, dtype=torch.long), (-2.0, -1.0, 0.0, 1.0), histograms=1)
    assert counts.tolist() == [[2, 0, 3, 0]]


def test_exact_zeros_are_counted_apart() -> None:
    values = torch.tensor([0.0, 1e-9, -1e-9, 0.5])
    counts = count(values, torch.zeros(4, dtype=torch.long), (-1.0, 0.0, 1.0), histograms=1, exact=1e-6)
    assert counts.tolist() == [[0, 1, 3]]


def test_each_value_goes_to_its_histogram_or_to_none() -> None:
    values = torch.tensor([0.5, 0.5, -0.5, 0.0])
    counts = count(values, torch.tensor([0, 1, 1, -1]), (-1.0, 0.0, 1.0), histograms=2, exact=1e-6)
    assert counts.tolist() == [[0, 1, 0], [1, 1, 0]]
