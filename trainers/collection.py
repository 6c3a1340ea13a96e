"""Collecting the episodes of a step: rollouts, tried again while dynamic filtering leaves too few groups."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from trainers.policy_gradient.dynamic_filtering import another_try, none, select_groups
from trainers.policy_gradient.parameters import FilteringSettings
from trainers.rollout import Rollout
from trainers.rows import Rows, concatenate


@dataclass(frozen=True)
class Collected:
    """What a step has to learn from.

    rollouts: all of them, before filtering; used: per rollout (rows,) bool, which rows the update gets;
    rows: those rows as one batch, None when no group is left.
    """

    rollouts: tuple[Rollout, ...]
    used: tuple[Tensor, ...]
    rows: Rows | None


def collect(
    play: Callable[[int], Rollout],
    keep: Callable[[Tensor, Tensor], Tensor],
    settings: FilteringSettings,
    *,
    step: int,
    groups: int,
    group_size: int,
) -> Collected:
    """Play batches of `groups` groups until enough are kept or the tries are used up.

    play(try) rolls out a full batch of new initial states. Whole groups are kept, in order, the surplus cut.
    """
    rule = none if step <= settings.cold_start_steps else keep
    rollouts: list[Rollout] = []
    keeps: list[Tensor] = []
    while not keeps or another_try(keeps, groups, max_tries=settings.max_tries):
        rollout = play(len(rollouts))
        rollouts.append(rollout)
        shape = (groups, group_size)
        keeps.append(rule(rollout.episodes.returns.view(shape), rollout.episodes.success.view(shape)))
    chosen = select_groups(keeps, groups, fill=settings.fill)
    used = tuple(
        torch.isin(rollout.rows.group, torch.tensor([group for at, group in chosen if at == number]))
        for number, rollout in enumerate(rollouts)
    )
    return collected(rollouts, used)


def collected(rollouts: Sequence[Rollout], used: Sequence[Tensor]) -> Collected:
    """Rollouts with the rows that the update gets, as one batch."""
    parts = [
        rollout.rows.select(rows) for rollout, rows in zip(rollouts, used, strict=True) if bool(rows.any())
    ]
    return Collected(tuple(rollouts), tuple(used), concatenate(parts) if parts else None)
