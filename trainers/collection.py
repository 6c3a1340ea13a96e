"""Collecting the episodes of a step: rollouts, tried again while dynamic filtering leaves too few groups."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from trainers.policy_gradient.dynamic_filtering import another_try, none, select_groups
from trainers.policy_gradient.parameters import FilteringSettings
from trainers.rollout import Episodes, Rollout
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
        keeps.append(rule(*group_signals(rollout.episodes, group_size)))
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


def group_signals(episodes: Episodes, group_size: int) -> tuple[Tensor, Tensor]:
    """Returns (float) and success (bool) of every group's episodes, both (groups, G), for filters.

    An episode whose environment failed says nothing: it is given the mean return of its group's others and
    the success of the first of them, which makes no group more or less uniform than it is.
    """
    returns, success = (values.view(-1, group_size) for values in (episodes.returns, episodes.success))
    played = episodes.played.view(-1, group_size)
    if bool(played.all()):
        return returns, success
    count = played.sum(1, keepdim=True).clamp(min=1)
    mean = torch.where(played, returns, 0.0).sum(1, keepdim=True) / count
    first = success.gather(1, played.int().argmax(1, keepdim=True))
    return torch.where(played, returns, mean), torch.where(played, success, first)
