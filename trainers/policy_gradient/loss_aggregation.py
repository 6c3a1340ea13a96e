"""Loss aggregation: how the losses l of tokens become one number, as weights w with L = sum(w * l).

An option is `option(mask, sequence, max_tokens) -> weights`:

    mask        (rows, tokens) bool   tokens that count
    sequence    (rows,) long          which sequence a row belongs to: its own, or its trajectory's
    max_tokens  int                   the configured limit of a response, T_max
    weights     (rows, tokens) float  0 outside the mask

N counts sequences with at least one token; a row without any leaves every denominator. Weights are computed
on the whole mini-batch, so a loss summed over micro-batches is the mini-batch's whatever the split. Without
any token all weights are 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from trainers.policy_gradient.parameters import AggregationSettings

Aggregation = Callable[[Tensor, Tensor, int], Tensor]


def token_mean(mask: Tensor, sequence: Tensor, max_tokens: int) -> Tensor:
    """Every token weighs the same: 1 / sum T (DAPO, Yu et al. 2025, arXiv 2503.14476, eq. 8)."""
    return mask.float() / mask.sum().clamp(min=1)


def seq_mean_token_mean(mask: Tensor, sequence: Tensor, max_tokens: int) -> Tensor:
    """Every sequence weighs the same, every token of it too: 1 / (N T) (GRPO, arXiv 2402.03300, eq. 3)."""
    tokens, sequences = _sequence_tokens(mask, sequence)
    return mask.float() / (tokens.clamp(min=1) * sequences)[:, None]


def seq_mean_token_sum(mask: Tensor, sequence: Tensor, max_tokens: int) -> Tensor:
    """Sum over a sequence's tokens, mean over sequences: 1 / N."""
    _, sequences = _sequence_tokens(mask, sequence)
    return mask.float() / sequences


def seq_mean_token_sum_norm(mask: Tensor, sequence: Tensor, max_tokens: int) -> Tensor:
    """The sum over tokens over a constant length: 1 / (N T_max) (Dr. GRPO, Liu et al. 2025, 2503.20783)."""
    return seq_mean_token_sum(mask, sequence, max_tokens) / max_tokens


def _sequence_tokens(mask: Tensor, sequence: Tensor) -> tuple[Tensor, Tensor]:
    """(rows,) tokens of the row's whole sequence, and the number of sequences with a token (at least 1)."""
    _, index = torch.unique(sequence, return_inverse=True)
    tokens = torch.zeros(len(sequence), dtype=torch.float32, device=mask.device)
    tokens.index_add_(0, index, mask.sum(1).float())
    return tokens[index], (tokens > 0).sum().clamp(min=1)


def token_weights(
    aggregation: Aggregation,
    mask: Tensor,
    trajectory: Tensor,
    *,
    settings: AggregationSettings,
    max_tokens: int,
    micro_batches: Sequence[slice] = (slice(None),),
) -> Tensor:
    """(rows, tokens) weights of a mini-batch under an option and what the axis' options share.

    mask: (rows, tokens) bool; trajectory: (rows,) long; micro_batches: row slices that cover the mini-batch,
    which matter to `scope: microbatch` only: there each is aggregated alone and weighs the same.
    """
    if settings.sequence == "trajectory":
        sequence = trajectory
    else:
        sequence = torch.arange(len(trajectory), device=trajectory.device)
    if settings.scope == "minibatch" or len(micro_batches) == 1:
        return aggregation(mask, sequence, max_tokens)
    parts = [aggregation(mask[rows], sequence[rows], max_tokens) for rows in micro_batches]
    return torch.cat(parts) / len(parts)
