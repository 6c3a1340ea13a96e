"""Modifiers of any clipping option: masks that drop terms of the policy loss, and void turns likewise."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from trainers.config import VoidTurnsConfig
from trainers.policy_gradient.is_clipping import difference, sequence_log_ratio
from trainers.policy_gradient.parameters import ClippingSettings


@dataclass(frozen=True)
class Kept:
    """What the masks leave of a mini-batch, both (rows, tokens) bool.

    terms    tokens whose policy-loss term stays
    counted  tokens the aggregation's denominator counts (masks with `denominator: all` take none away)
    """

    terms: Tensor
    counted: Tensor


def kept_tokens(
    log_probs: Tensor,
    old_log_probs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    settings: ClippingSettings,
    generator: torch.Generator | None = None,
) -> Kept:
    """Apply the masks of a clipping option to a whole mini-batch; without any, everything is kept.

    log_probs, old_log_probs: (rows, tokens); advantages: (rows,); mask: (rows, tokens) bool. A sequence
    mask (ARLArena, arXiv 2602.21534) drops the rows with A < 0 and s < exp(-delta), a token mask the tokens
    with A < 0 and w < exp(-delta), a random mask as many random rows with A < 0 as a sequence mask of its
    delta would: its control. Raises ValueError for a random mask without a generator.
    """
    terms = counted = mask
    for drop, configured in (
        (dropped_rows, settings.sequence_mask),
        (dropped_tokens, settings.token_mask),
        (_dropped_at_random, settings.random_mask),
    ):
        if configured is None:
            continue
        dropped = drop(log_probs.detach(), old_log_probs, advantages, mask, configured.delta, generator)
        terms = terms & ~dropped
        if configured.denominator == "kept":
            counted = counted & ~dropped
    return Kept(terms, counted)


def without_void(kept: Kept, void: Tensor, settings: VoidTurnsConfig) -> Kept:
    """What is kept when the tokens of void turns, (rows, tokens) bool, are dropped too."""
    counted = kept.counted & ~void if settings.denominator == "kept" else kept.counted
    return Kept(kept.terms & ~void, counted)


def void_trajectories(void: Tensor, mask: Tensor, trajectory: Tensor) -> Tensor:
    """(rows, tokens) bool: all tokens of the trajectories that have a void one.

    void, mask: (rows, tokens) bool of a whole step's rows; trajectory: (rows,) long.
    """
    _, index = torch.unique(trajectory, return_inverse=True)
    touched = torch.zeros(len(index), dtype=torch.long, device=index.device)
    touched.index_add_(0, index, void.any(1).long())
    return mask & (touched[index] > 0)[:, None]


def dropped_rows(
    log_probs: Tensor,
    old_log_probs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    delta: float,
    generator: torch.Generator | None = None,
) -> Tensor:
    """(rows, 1) bool: A < 0 and mean_t(log pi_old - log pi) > delta."""
    return ((advantages < 0) & (-sequence_log_ratio(log_probs, old_log_probs, mask) > delta))[:, None]


def dropped_tokens(
    log_probs: Tensor,
    old_log_probs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    delta: float,
    generator: torch.Generator | None = None,
) -> Tensor:
    """(rows, tokens) bool: A < 0 and log pi_old - log pi > delta."""
    return (advantages[:, None] < 0) & (-difference(log_probs, old_log_probs, mask) > delta)


def _dropped_at_random(
    log_probs: Tensor,
    old_log_probs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    delta: float,
    generator: torch.Generator | None,
) -> Tensor:
    if generator is None:
        raise ValueError("random_mask draws rows and needs a generator")
    wanted = dropped_rows(log_probs, old_log_probs, advantages, mask, delta).sum()
    candidates = (advantages < 0) & mask.any(1)
    # drawn on the generator's device, so that a draw is the same wherever the rows are
    draw = torch.rand(len(advantages), generator=generator, device=generator.device).to(mask.device)
    rank = draw.masked_fill(~candidates, 2.0).argsort().argsort()
    return (candidates & (rank < wanted))[:, None]
