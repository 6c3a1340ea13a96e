"""Advantages: what a row is worth beside its group's or its batch's other rows.

An option is `option(rows, *, ...) -> (rows,) float32`; one that needs states that recur takes them as a
second argument, `option(rows, anchors, *, ...)`. Notation: row (i, k) is turn k of trajectory i, which has
K_i rows; a group is the G trajectories that started from one state; u_ik = R_i - p_ik is the score of a
row. Statistics are in float64; standard deviations are unbiased. A group of one trajectory and a group of
equal scores have no baseline: their group-relative term is 0.

`statistics: trajectory` weighs a row 1 / K_i, so that trajectories count the same; `row` counts every row
once, so that long trajectories weigh more.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import Literal

import torch
from torch import Tensor

from trainers.config import NonNegative, Share
from trainers.rows import Rows

Advantage = Callable[..., Tensor]
Statistics = Literal["trajectory", "row"]

EPSILON = 1e-6
# scores closer than this are the same: float32 rewards summed in float64, in any order
SAME_SCORE = 1e-9


def advantages(rows: Rows, option: Advantage, *, penalty_where: Literal["reward", "advantage"]) -> Tensor:
    """(rows,) float32 advantages under a bound option, with penalties inside or outside its statistics.

    `advantage` computes A from the rewards alone and takes p_ik off it. An option whose second argument is
    `anchors` is given the rows' anchors. Raises ValueError when it needs anchors and a row has none (-1).
    """
    scored = rows if penalty_where == "reward" else replace(rows, penalties=torch.zeros_like(rows.penalties))
    if "anchors" in inspect.signature(option).parameters:
        if (rows.anchor < 0).any():
            raise ValueError(
                "this advantage compares states that recur, and rows without an anchor have none"
            )
        value = option(scored, rows.anchor)
    else:
        value = option(scored)
    return value if penalty_where == "reward" else value - rows.penalties


def grpo(rows: Rows, *, statistics: Literal["trajectory", "row"] = "trajectory") -> Tensor:
    """(u_ik - mean) / (std + 1e-6) over the group (GRPO, Shao et al. 2024, arXiv 2402.03300)."""
    return _standardised(rows, statistics).float()


def dr_grpo(rows: Rows, *, statistics: Literal["trajectory", "row"] = "trajectory") -> Tensor:
    """u_ik - mean over the group: no std, which favours easy and hard groups (Dr. GRPO, arXiv 2503.20783)."""
    return _centred(rows, statistics).float()


def rloo(rows: Rows) -> Tensor:
    """u_ik - the mean over the group's other trajectories of (1/K_j) sum_k u_jk (RLOO, arXiv 2402.14740)."""
    score, index = scores(rows), Index.of(rows)
    group_total = _sum(score * index.share, index.group)[index.group]
    own = _sum(score * index.share, index.trajectory)[index.trajectory]
    baseline = (group_total - own) / (index.group_size - 1).clamp(min=1)
    no_baseline = (index.group_size < 2) | _all_equal(score, index.group)
    return torch.where(no_baseline, 0.0, score - baseline).float()


def reinforce_pp(rows: Rows, *, over: Literal["row", "token", "trajectory"] = "token") -> Tensor:
    """(u_ik - mean) / sqrt(var + 1e-8) over the batch (REINFORCE++, Hu 2025, arXiv 2501.03262).

    `over` says what counts once in mean and variance: a row, a token of it, or a trajectory.
    """
    index = Index.of(rows)
    weight = {"row": torch.ones_like(index.share), "token": rows.tokens.double(), "trajectory": index.share}[
        over
    ]
    score, batch = scores(rows), torch.zeros_like(index.group)
    mean, variance = _moments(score, weight, batch)
    standardised = (score - mean) * torch.rsqrt(variance + 1e-8)
    no_baseline = _all_equal(score, batch) | (variance == 0)
    return torch.where(no_baseline, 0.0, standardised).float()


def lite(rows: Rows, *, statistics: Literal["trajectory", "row"] = "trajectory") -> Tensor:
    """(u_ik - group mean) / (batch std of u + 1e-6) (Lite PPO, Liu et al. 2025, arXiv 2508.08221)."""
    index = Index.of(rows)
    weight = index.share if statistics == "trajectory" else torch.ones_like(index.share)
    _, variance = _moments(scores(rows), weight, torch.zeros_like(index.group))
    return (_centred(rows, statistics) / (variance.sqrt() + EPSILON)).float()


def gigpo(
    rows: Rows,
    anchors: Tensor,
    *,
    omega: NonNegative = 1.0,
    gamma: Share = 0.95,
    norm: Literal["mean_std", "mean"] = "mean_std",
    fuzzy: Share | None = None,
    rescale: Literal["none", "match_grpo"] = "none",
    statistics: Literal["trajectory", "row"] = "trajectory",
) -> Tensor:
    """A^E + omega A^S: the advantage of the episode and of the step (GiGPO, Feng et al. 2025, 2505.10978).

    A^E is `grpo`'s. A^S compares R_ik = sum_{m>=k} gamma^(m-k) r_im - p_ik among the group's rows that saw
    the same state; a state seen once has A^S = 0. anchors: (rows,) long, rows with the same observation
    share one.

    norm: `mean` leaves the std out of both terms; fuzzy: also compare states whose texts are at least that
    similar (difflib ratio) to the first of their cluster, in row order; rescale: `match_grpo` scales A to the
    root mean square of A^E over the batch, a control for the larger scale of a sum.
    """
    episode = _standardised(rows, statistics) if norm == "mean_std" else _centred(rows, statistics)
    states = anchors if fuzzy is None else _fuzzy_clusters(rows, anchors, fuzzy)
    _, state = torch.unique(rows.group * (states.max() + 1) + states, return_inverse=True)
    value = discounted_returns(rows, gamma) - rows.penalties.double()
    mean, variance = _moments(value, torch.ones_like(value), state)
    step = value - mean
    if norm == "mean_std":
        step = step / (variance.sqrt() + EPSILON)
    step = torch.where(_all_equal(value, state), 0.0, step)
    advantage = episode + omega * step
    if rescale == "match_grpo":
        scale = advantage.square().mean().sqrt()
        advantage = advantage * (episode.square().mean().sqrt() / scale) if scale > 0 else advantage
    return advantage.float()


def empg(
    rows: Rows,
    *,
    k: NonNegative = 1.0,
    k_future: NonNegative = 1.0,
    zeta: NonNegative = 0.05,
    statistics: Literal["trajectory", "row"] = "trajectory",
) -> Tensor:
    """g A_grpo + zeta f, minus its batch mean (EMPG, Wang et al. 2025, arXiv 2509.09265).

    With H~ the row's entropy under pi_old, min-max scaled over the batch: g = exp(-k H~) / mean exp(-k H~)
    strengthens confident rows, f = exp(-k_future H~ of the next turn) is a bonus for leading to one (0 on the
    last turn).
    """
    entropy = rows.entropies.double()
    low, high = entropy.amin(), entropy.amax()
    scaled = (entropy - low) / (high - low) if high > low else torch.zeros_like(entropy)
    gain = torch.exp(-k * scaled)
    gain = gain / gain.mean()
    order, follows = _turn_order(rows)
    bonus = torch.zeros_like(scaled)
    bonus[order[:-1]] = torch.where(follows, torch.exp(-k_future * scaled[order[1:]]), 0.0)
    advantage = gain * _standardised(rows, statistics) + zeta * bonus
    return (advantage - advantage.mean()).float()


def scores(rows: Rows) -> Tensor:
    """(rows,) float64 u_ik = R_i - p_ik."""
    _, trajectory = torch.unique(rows.trajectory, return_inverse=True)
    return _sum(rows.rewards.double(), trajectory)[trajectory] - rows.penalties.double()


def discounted_returns(rows: Rows, gamma: float) -> Tensor:
    """(rows,) float64 sum_{m>=k} gamma^(m-k) r_im, without penalties; turns count by their number."""
    _, trajectory = torch.unique(rows.trajectory, return_inverse=True)
    turns = int(rows.turn.max()) + 1 if len(rows) else 1
    rewards = torch.zeros(len(rows), turns, dtype=torch.float64, device=rows.rewards.device)
    rewards.index_put_((trajectory, rows.turn), rows.rewards.double(), accumulate=True)
    running = torch.zeros_like(rewards[:, 0])
    for turn in reversed(range(turns)):
        running = rewards[:, turn] + gamma * running
        rewards[:, turn] = running
    return rewards[trajectory, rows.turn]


@dataclass(frozen=True)
class Index:
    """Where every row belongs; all (rows,).

    group, trajectory  long     numbered from 0
    share              float64  1 / K_i
    group_size         long     G, trajectories in the row's group
    """

    group: Tensor
    trajectory: Tensor
    share: Tensor
    group_size: Tensor

    @classmethod
    def of(cls, rows: Rows) -> Index:
        """Number groups and trajectories and count them."""
        _, group = torch.unique(rows.group, return_inverse=True)
        _, trajectory, count = torch.unique(rows.trajectory, return_inverse=True, return_counts=True)
        share = 1 / count[trajectory].double()
        return cls(group, trajectory, share, _sum(share, group)[group].round().long())


def _standardised(rows: Rows, statistics: Statistics) -> Tensor:
    index = Index.of(rows)
    _, variance = _moments(scores(rows), _weight(index, statistics), index.group)
    return _centred(rows, statistics) / (variance.sqrt() + EPSILON)


def _centred(rows: Rows, statistics: Statistics) -> Tensor:
    score, index = scores(rows), Index.of(rows)
    mean, _ = _moments(score, _weight(index, statistics), index.group)
    no_baseline = (index.group_size < 2) | _all_equal(score, index.group)
    return torch.where(no_baseline, 0.0, score - mean)


def _weight(index: Index, statistics: Statistics) -> Tensor:
    return index.share if statistics == "trajectory" else torch.ones_like(index.share)


def _moments(value: Tensor, weight: Tensor, group: Tensor) -> tuple[Tensor, Tensor]:
    """(rows,) weighted mean and unbiased variance of each row's group, whose size is its sum of weights.

    A group of size 1 has variance 0.
    """
    size = _sum(weight, group)
    mean = (_sum(weight * value, group) / size.clamp(min=EPSILON))[group]
    squares = _sum(weight * (value - mean).square(), group)
    return mean, (squares / (size - 1).clamp(min=EPSILON))[group].masked_fill((size < 1.5)[group], 0.0)


def _all_equal(value: Tensor, group: Tensor) -> Tensor:
    """(rows,) bool: the row's group holds one value only."""
    low = value.new_full((len(value),), torch.inf).scatter_reduce(0, group, value, "amin")
    high = value.new_full((len(value),), -torch.inf).scatter_reduce(0, group, value, "amax")
    return ((high - low) <= SAME_SCORE)[group]


def _sum(value: Tensor, group: Tensor) -> Tensor:
    """Sums over groups, (rows,) of which the first as many as there are groups are used."""
    return torch.zeros_like(value).index_add_(0, group, value)


def _turn_order(rows: Rows) -> tuple[Tensor, Tensor]:
    """(rows,) long order by trajectory and turn; (rows - 1,) bool whether the next is the next turn."""
    order = torch.argsort(rows.turn, stable=True)
    order = order[torch.argsort(rows.trajectory[order], stable=True)]
    trajectory = rows.trajectory[order]
    return order, trajectory[:-1] == trajectory[1:]


def _fuzzy_clusters(rows: Rows, anchors: Tensor, similarity: float) -> Tensor:
    """(rows,) long: the first anchor of the group, in row order, that is similar enough to the row's."""
    matchers: dict[int, list[tuple[int, SequenceMatcher[str]]]] = {}
    known: dict[tuple[int, int], int] = {}
    for key in zip(rows.group.tolist(), anchors.tolist(), strict=True):
        if key in known:
            continue
        group, anchor = key
        representatives = matchers.setdefault(group, [])
        for representative, matcher in representatives:
            matcher.set_seq1(rows.anchor_texts[anchor])
            # the first two are upper bounds of the third, and much cheaper
            if (
                matcher.real_quick_ratio() >= similarity
                and matcher.quick_ratio() >= similarity
                and matcher.ratio() >= similarity
            ):
                known[key] = representative
                break
        else:
            matcher = SequenceMatcher(None, b=rows.anchor_texts[anchor])
            representatives.append((anchor, matcher))
            known[key] = anchor
    pairs = zip(rows.group.tolist(), anchors.tolist(), strict=True)
    return torch.tensor([known[pair] for pair in pairs], dtype=torch.long, device=anchors.device)
