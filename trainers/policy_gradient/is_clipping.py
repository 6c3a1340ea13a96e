"""Clipping of importance-sampling ratios: the objective of every token, to be maximised (loss = -objective).

An option is `option(log_probs, old_log_probs, advantages, mask, trajectory, *, ...) -> objective`:

    log_probs      (rows, tokens) float   log pi_theta, with gradient
    old_log_probs  (rows, tokens) float   log pi_old
    advantages     (rows,) float          A of the row
    mask           (rows, tokens) bool    tokens the policy wrote
    trajectory     (rows,) long           which trajectory the row is a turn of
    draws          (rows, tokens) float   uniform in [0, 1): only for an option that names it as a sixth
    objective      (rows, tokens) float   0 outside the mask

Ratios: w = exp(log_ratio) per token, s = exp(sequence_log_ratio) per sequence. A parameter `lo` or `hi` is
the distance of the band's edge from 1. Where all ratios are 1 every option has the gradient A grad log pi.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from trainers.config import NonNegative, Positive
from trainers.policy_gradient.parameters import DualClip, Gate

Clip = Callable[..., Tensor]

MAX_LOG_RATIO = 20.0
MAX_SEQUENCE_LOG_RATIO = 10.0


def difference(log_probs: Tensor, old_log_probs: Tensor, mask: Tensor) -> Tensor:
    """(rows, tokens) log pi_theta - log pi_old, unclamped, 0 outside the mask."""
    return torch.where(mask, log_probs - old_log_probs, 0.0)


def log_ratio(log_probs: Tensor, old_log_probs: Tensor, mask: Tensor) -> Tensor:
    """(rows, tokens) log w of tokens, clamped to [-20, 20] so that exp stays finite; 0 outside the mask."""
    return difference(log_probs, old_log_probs, mask).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)


def sequence_log_ratio(
    log_probs: Tensor, old_log_probs: Tensor, mask: Tensor, trajectory: Tensor | None = None
) -> Tensor:
    """(rows,) log s = mean of the unclamped token log-ratios, at most 10 (GSPO, arXiv 2507.18071, eq. 7).

    The mean runs over the row's tokens or, given `trajectory` (rows,), over those of all rows of its
    trajectory. A sequence without tokens has log s = 0.
    """
    total = difference(log_probs, old_log_probs, mask).sum(1)
    tokens = mask.sum(1).to(total.dtype)
    if trajectory is not None:
        _, index = torch.unique(trajectory, return_inverse=True)
        total = torch.zeros_like(total).index_add(0, index, total)[index]
        tokens = torch.zeros_like(tokens).index_add(0, index, tokens)[index]
    return (total / tokens.clamp(min=1)).clamp(max=MAX_SEQUENCE_LOG_RATIO)


def token(
    log_probs: Tensor,
    old_log_probs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    trajectory: Tensor,
    *,
    lo: NonNegative = 0.2,
    hi: NonNegative = 0.2,
    dual_clip: DualClip | None = None,
) -> Tensor:
    """min(w A, clip(w, 1-lo, 1+hi) A); with `dual_clip: c` at least c A where A < 0.

    PPO (Schulman et al. 2017, arXiv 1707.06347, eq. 7), as GRPO uses it. Dual clip: Ye et al. 2020,
    1912.09729. Raises ValueError for a dual clip of at most 1, which would clip ratios of 1.
    """
    ratio = log_ratio(log_probs, old_log_probs, mask).exp()
    objective = _pessimistic(ratio, advantages[:, None], lo, hi)
    if dual_clip is not None:
        if dual_clip <= 1:
            raise ValueError(f"dual_clip must be greater than 1, got {dual_clip}")
        floor = dual_clip * advantages[:, None]
        objective = torch.where(advantages[:, None] < 0, torch.maximum(objective, floor), objective)
    return torch.where(mask, objective, 0.0)


def token_higher(
    log_probs: Tensor,
    old_log_probs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    trajectory: Tensor,
    *,
    lo: NonNegative = 0.2,
    hi: NonNegative = 0.28,
    dual_clip: DualClip | None = None,
) -> Tensor:
    """`token` with more room above than below: clip-higher (DAPO, arXiv 2503.14476, eq. 10)."""
    return token(log_probs, old_log_probs, advantages, mask, trajectory, lo=lo, hi=hi, dual_clip=dual_clip)


def sequence(
    log_probs: Tensor,
    old_log_probs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    trajectory: Tensor,
    *,
    lo: NonNegative = 3e-3,
    hi: NonNegative = 4e-3,
    unit: Literal["row", "trajectory"] = "row",
) -> Tensor:
    """min(s A, clip(s, 1-lo, 1+hi) A), the same for all tokens of a row (GSPO, arXiv 2507.18071, eq. 5).

    `unit: row` differentiates s itself, which spreads over the row's tokens. `unit: trajectory` takes s
    over the trajectory's rows in the mini-batch and is straight-through, s = stopgrad(s) pi / stopgrad(pi),
    so that each token has the A and the gate of its own row (GSPO-token, eq. 13).
    """
    if unit == "row":
        ratio = sequence_log_ratio(log_probs, old_log_probs, mask).exp()[:, None]
    else:
        log_s = sequence_log_ratio(log_probs, old_log_probs, mask, trajectory)
        ratio = log_s.detach().exp()[:, None] * _one(log_probs, mask)
    objective = _pessimistic(ratio, advantages[:, None], lo, hi)
    return torch.where(mask, objective, 0.0)


def soft(
    log_probs: Tensor,
    old_log_probs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    trajectory: Tensor,
    *,
    tau_pos: Positive = 1.0,
    tau_neg: Positive = 1.05,
) -> Tensor:
    """(4 / tau) sigmoid(tau (w - 1)) A, tau = tau_pos if A > 0 else tau_neg (SAPO, arXiv 2511.20347, eq. 6).

    No hard band: the weight on grad log pi is w sech^2(tau (w - 1) / 2), 1 at w = 1 and fading on both sides.
    """
    ratio = log_ratio(log_probs, old_log_probs, mask).exp()
    tau = torch.where(advantages[:, None] > 0, ratio.new_tensor(tau_pos), ratio.new_tensor(tau_neg))
    return torch.where(mask, 4 / tau * torch.sigmoid(tau * (ratio - 1)) * advantages[:, None], 0.0)


def cispo(
    log_probs: Tensor,
    old_log_probs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    trajectory: Tensor,
    *,
    lo: NonNegative = 1.0,
    hi: NonNegative = 0.2,
) -> Tensor:
    """stopgrad(clip(w, 1-lo, 1+hi)) A log pi (CISPO, MiniMax-M1, arXiv 2506.13585, eq. 4).

    The weight is truncated, never the gradient: no token is silenced. `lo: 1` is no floor.
    """
    weight = log_ratio(log_probs, old_log_probs, mask).detach().exp().clamp(1 - lo, 1 + hi)
    return weight * advantages[:, None] * torch.where(mask, log_probs, 0.0)


def gated(
    log_probs: Tensor,
    old_log_probs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    trajectory: Tensor,
    draws: Tensor | None = None,
    *,
    weight: Literal["token", "sequence", "one"] = "token",
    low: Gate | None = None,
    high: Gate | None = None,
    rule: Literal["gate", "truncate"] = "gate",
    unit: Literal["row", "trajectory"] = "row",
) -> Tensor:
    """Weight and gate apart, for controls: stopgrad(W) A pi / stopgrad(pi), W = w, s or 1.

    A token is outside on the low side if A < 0 and the ratio of the gate's level is below 1 - eps, on the
    high side if A > 0 and it is above 1 + eps. Outside, `rule: gate` gives zero gradient and `truncate`
    bounds W by the gate's edge and keeps the gradient. Straight-through at every level, so that a gate acts
    on its token alone: weight and gates at `token` have the gradient of the option `token`, all at
    `sequence` that of `sequence`.

    A gate with `share` in place of `eps` silences that share at random, of the tokens (or sequences) with
    A < 0, of those with A > 0: a control that is as tight and knows no ratio. It has no edge, so `truncate`
    leaves its tokens as they are.

    draws: (rows, tokens) float in [0, 1), drawn once for a mini-batch, for such gates. Raises ValueError for
    one without draws.
    """
    log_w = log_ratio(log_probs, old_log_probs, mask).detach()
    over = trajectory if unit == "trajectory" else None
    log_s = sequence_log_ratio(log_probs, old_log_probs, mask, over).detach()[:, None].expand_as(log_w)
    ratios = {"token": log_w.exp(), "sequence": log_s.exp(), "one": torch.ones_like(log_w)}
    ratio = ratios[weight]
    outside = torch.zeros_like(mask)
    advantage = advantages[:, None]
    for gate, sign in ((low, -1), (high, 1)):
        if gate is None:
            continue
        concerned = advantage * sign > 0
        if gate.eps is None:
            outside = outside | (concerned & (_drawn(draws, gate.level, over) < (gate.share or 0.0)))
            continue
        edge = 1 + sign * gate.eps
        beyond = concerned & ((ratios[gate.level] - edge) * sign > 0)
        bounded = ratio.clamp(max=edge) if sign > 0 else ratio.clamp(min=edge)
        ratio = torch.where(beyond, bounded, ratio) if rule == "truncate" else ratio
        outside = outside | beyond
    objective = ratio * advantage * _one(log_probs, mask)
    if rule == "gate":
        objective = torch.where(outside, objective.detach(), objective)
    return torch.where(mask, objective, 0.0)


def none(
    log_probs: Tensor, old_log_probs: Tensor, advantages: Tensor, mask: Tensor, trajectory: Tensor
) -> Tensor:
    """w A: the importance-weighted objective, unclipped."""
    return torch.where(mask, log_ratio(log_probs, old_log_probs, mask).exp() * advantages[:, None], 0.0)


def _pessimistic(ratio: Tensor, advantage: Tensor, lo: float, hi: float) -> Tensor:
    return torch.minimum(ratio * advantage, ratio.clamp(1 - lo, 1 + hi) * advantage)


def _drawn(draws: Tensor | None, level: Literal["token", "sequence"], trajectory: Tensor | None) -> Tensor:
    """The draws of a level, (rows, tokens) or (rows, 1): a sequence's is that of its first row and token."""
    if draws is None:
        raise ValueError("a gate with share draws at random and needs draws")
    if level == "token":
        return draws
    if trajectory is None:
        return draws[:, :1]
    return draws[first_of(trajectory), :1]


def first_of(labels: Tensor) -> Tensor:
    """(n,) long: for each of n labels the place at which it occurs first."""
    _, index = torch.unique(labels, return_inverse=True)
    first = index.new_full((len(index),), len(index))
    first.scatter_reduce_(0, index, torch.arange(len(index), device=index.device), "amin")
    place: Tensor = first[index]
    return place


def _one(log_probs: Tensor, mask: Tensor) -> Tensor:
    """pi / stopgrad(pi): 1, with the gradient of log pi."""
    written = torch.where(mask, log_probs, 0.0)
    return (written - written.detach()).exp()
