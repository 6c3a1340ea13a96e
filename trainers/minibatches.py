"""How the rows of a step are cut into mini-batches: this sets how stale the policy is when it is updated."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from trainers.config import TrainerConfig


@dataclass(frozen=True)
class Minibatch:
    """Rows of one update: index (n,) long into the step's rows; copies (n,) bool, rows added to fill it up.

    Copies take part in the loss as in the code they imitate, and never in statistics.
    """

    index: Tensor
    copies: Tensor


def minibatches(trajectory: Tensor, config: TrainerConfig, generator: torch.Generator) -> Iterator[Minibatch]:
    """The mini-batches of one epoch.

    trajectory (N,) long: which rows belong together under `shuffle: trajectories`, which never splits one.
    """
    n = len(trajectory)
    if config.shuffle == "trajectories":
        order = torch.randperm(int(trajectory.max()) + 1, generator=generator)[trajectory].argsort(
            stable=True
        )
    elif config.shuffle == "rows":
        order = torch.randperm(n, generator=generator)
    else:
        order = torch.arange(n)
    rows, count = config.minibatch.rows, config.minibatch.count
    if count is not None:
        cuts = [round(n * part / min(count, n)) for part in range(min(count, n) + 1)]
    else:
        assert rows is not None
        cuts = [*range(0, n, rows), n]
    if config.shuffle == "trajectories":
        cuts = _whole_trajectories(trajectory[order], cuts)
    for start, end in pairwise(cuts):
        index = order[start:end]
        copies = torch.zeros(len(index), dtype=torch.bool)
        if config.pad == "copy" and rows is not None and len(index) < rows:
            extra = torch.randint(n, (rows - len(index),), generator=generator)
            index = torch.cat([index, extra])
            copies = torch.cat([copies, torch.ones(len(extra), dtype=torch.bool)])
        yield Minibatch(index, copies)


def _whole_trajectories(ordered: Tensor, cuts: list[int]) -> list[int]:
    """Move every cut to the nearest boundary between trajectories, dropping cuts that coincide."""
    boundaries = torch.cat(
        [
            torch.tensor([0]),
            (ordered[1:] != ordered[:-1]).nonzero().squeeze(1) + 1,
            torch.tensor([len(ordered)]),
        ]
    )
    return sorted({int(boundaries[(boundaries - cut).abs().argmin()]) for cut in cuts})
