"""A mini-batch as verl's workers are given it: weights of tokens, and what rows must know of each other.

verl cuts a mini-batch into micro-batches over devices, and its loss sees one of them at a time. What belongs
to the whole mini-batch (masks, aggregation weights, trajectory ratios) is therefore computed before, here,
and travels with the rows: `micro_loss` of the parts adds up to the loss of `Objective.backward` and has its
gradient, whatever the cut.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from trainers.minibatches import Minibatch
from trainers.policy_gradient.is_clipping import difference, first_of
from trainers.policy_gradient.objective import Objective, Weights
from trainers.rows import Rows


@dataclass(frozen=True)
class Update:
    """One mini-batch of u different rows.

    index   (u,) long          into the step's rows
    copies  (u,) bool          rows that are here only to fill the mini-batch up
    weights (u, tokens) each   of the policy loss (a row that occurs twice has twice the weight), of KL and
                               entropy, what the masks kept, and draws (those of a row's first occurrence)
    rest    (u, 2) float       sum of log-ratios and number of tokens of the trajectory's other rows in the
                               mini-batch, None unless the option's ratio is the trajectory's
    """

    index: Tensor
    copies: Tensor
    weights: Weights
    rest: Tensor | None


def prepare_update(
    objective: Objective,
    rows: Rows,
    advantages: Tensor,
    log_probs: Tensor,
    batch: Minibatch,
    *,
    generator: torch.Generator | None = None,
    correction: Tensor | None = None,
) -> Update:
    """What workers need of a mini-batch.

    Of the whole step: rows, advantages (N,), log_probs (N, tokens) of the policy before the update, and
    correction (N, tokens), weights for the difference between rollout engine and trainer, on the policy loss
    alone.
    """
    chosen = rows.select(batch.index)
    size = objective.micro_rows or max(len(chosen), 1)
    splits = [slice(start, min(start + size, len(chosen))) for start in range(0, len(chosen), size)]
    known = log_probs[batch.index]
    weights = objective.weights(chosen, advantages[batch.index], known, splits, generator)
    policy = weights.policy if correction is None else weights.policy * correction[batch.index]
    index, place = torch.unique(batch.index, return_inverse=True)
    total = torch.zeros(len(index), rows.mask.shape[1], dtype=policy.dtype)
    kept = torch.zeros(len(index), rows.mask.shape[1], dtype=torch.long)
    original = torch.zeros(len(index), dtype=torch.long).index_add_(0, place, (~batch.copies).long())
    return Update(
        index=index,
        copies=original == 0,
        weights=Weights(
            policy=total.index_add(0, place, policy),
            every=total.index_add(0, place, weights.every),
            kept=kept.index_add(0, place, weights.kept.long()) > 0,
            draws=_draws(objective, weights.draws, chosen.trajectory, place, len(index)),
        ),
        rest=_rest(chosen, known, place, len(index)) if objective.whole_trajectories else None,
    )


def _draws(
    objective: Objective, draws: Tensor | None, trajectory: Tensor, place: Tensor, count: int
) -> Tensor | None:
    """(count, tokens) of every different row the draws of its first occurrence.

    Where ratios are a trajectory's, those of the trajectory's first row, which are the ones that count.
    """
    if draws is None:
        return None
    first = place.new_empty(count).index_copy(0, place, first_of(place))
    if objective.whole_trajectories:
        first = first_of(trajectory)[first]
    return draws[first]


def _rest(chosen: Rows, known: Tensor, place: Tensor, count: int) -> Tensor:
    """(count, 2) of every different row: the other occurrences' sum of log-ratios, and their tokens."""
    own = torch.stack(
        [difference(known, chosen.old_log_probs, chosen.mask).sum(1), chosen.tokens.to(known.dtype)], 1
    )
    _, trajectory = torch.unique(chosen.trajectory, return_inverse=True)
    whole = torch.zeros_like(own).index_add(0, trajectory, own)[trajectory]
    return own.new_zeros(count, 2).index_copy(0, place, whole - own)


@dataclass(frozen=True)
class Micro:
    """What a worker has of m rows: (m, tokens), but advantages (m,) and rest (m, 2) or None.

    draws: only where the clipping option draws at random.
    """

    mask: Tensor
    old_log_probs: Tensor
    ref_log_probs: Tensor | None
    advantages: Tensor
    policy: Tensor
    every: Tensor
    rest: Tensor | None
    draws: Tensor | None = None


def micro_loss(objective: Objective, micro: Micro, log_probs: Tensor, entropies: Tensor) -> Tensor:
    """() the part of a mini-batch's loss that belongs to m rows of an `Update`.

    log_probs, entropies: (m, tokens), of the policy, with gradient.
    """
    count = len(micro.mask)
    weights = Weights(micro.policy, micro.every, micro.mask, micro.draws)
    mask, old, known, advantages = micro.mask, micro.old_log_probs, log_probs.detach(), micro.advantages
    reference = micro.ref_log_probs
    if micro.rest is not None:
        others, moved = _stand_ins(micro.rest, mask.shape[1])
        width = others.shape[1] - mask.shape[1]

        def widen(tensor: Tensor) -> Tensor:
            return torch.nn.functional.pad(tensor, (0, width))

        mask = torch.cat([widen(mask), others])
        old = torch.cat([widen(old), torch.zeros_like(moved)])
        known = torch.cat([widen(known), moved])
        advantages = torch.cat([advantages, torch.zeros_like(advantages)])
        reference = None if reference is None else torch.cat([widen(reference), torch.zeros_like(moved)])
        draws = None if micro.draws is None else widen(micro.draws).repeat(2, 1)
        weights = Weights(widen(micro.policy), widen(micro.every), widen(micro.mask), draws)
        log_probs, entropies = widen(log_probs), widen(entropies)
    rows = _rows(mask, old, torch.arange(count, device=mask.device).repeat(len(mask) // max(count, 1)))
    part = slice(0, count)
    return objective.loss(rows, advantages, reference, weights, known, part, (log_probs, entropies))


def _stand_ins(rest: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Per row one that stands for its trajectory's others: its mask, and log-ratios that add up alike."""
    total, tokens = rest.unbind(1)
    longest = max(width, int(tokens.max()))
    mask = torch.arange(longest, device=rest.device) < tokens[:, None]
    return mask, torch.where(mask, (total / tokens.clamp(min=1))[:, None], 0.0)


def score_rows(score: Tensor, mask: Tensor, group: Tensor) -> Rows:
    """Rows of which an advantage reads scores: one per trajectory. score, group: (rows,)."""
    rows = _rows(mask, torch.zeros_like(mask, dtype=torch.float32), torch.arange(len(mask)))
    return replace(rows, rewards=score, group=group)


def _rows(mask: Tensor, old_log_probs: Tensor, trajectory: Tensor) -> Rows:
    """Rows of which a loss reads mask, old log-probs and trajectories; the rest is empty."""
    count = len(mask)
    nothing = torch.zeros(count, dtype=torch.long, device=mask.device)
    zero = nothing.float()
    return Rows(
        prompts=nothing[:, None],
        prompt_lengths=nothing,
        prompt_id=nothing,
        responses=torch.zeros_like(mask, dtype=torch.long),
        mask=mask,
        old_log_probs=old_log_probs,
        entropies=zero,
        group=nothing,
        trajectory=trajectory,
        turn=nothing,
        rewards=zero,
        penalties=zero,
        anchor=nothing,
        success=nothing.bool(),
    )


def engine_weights(
    old_log_probs: Tensor,
    engine_log_probs: Tensor,
    mask: Tensor,
    *,
    per: str,
    threshold: float,
) -> Tensor:
    """(rows, tokens) truncated ratios trainer / engine of what the engine sampled, 0 outside the mask.

    per: `token`, or `sequence` for the product over a row's tokens (Yao et al. 2025, truncated importance
    sampling). All log-probs are (rows, tokens).
    """
    gap = difference(old_log_probs, engine_log_probs, mask)
    if per == "sequence":
        gap = gap.sum(1, keepdim=True).expand_as(gap)
    ratio = gap.clamp(-20.0, 20.0).exp().clamp(max=threshold)
    return torch.where(mask, ratio, 0.0)
