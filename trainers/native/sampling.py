"""Drawing responses token by token, whatever model gives the logits.

A policy fills a key-value cache with its prompts and hands over a `Continuation`; the loop here draws, keeps
log-probs and entropies, and drops finished rows from the batch when enough of them are finished.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from trainers.policy import Generated, Sampling

COMPACT_BELOW = 0.6  # share of unfinished rows at which finished ones are dropped from the batch


class Continuation(Protocol):
    """Rows whose text goes on, and the cache behind them."""

    def append(self, tokens: Tensor) -> tuple[Tensor, Tensor | None]:
        """Logits (m, vocabulary) float32 after one more token per row, (n,) long.

        And which of the logits are each row's, (n,) long; None: one each, in order.
        """

    def keep(self, rows: Tensor) -> None:
        """Go on with these rows only, (m,) long, in this order."""


def room(prompt_tokens: int, positions: int | None, sampling: Sampling) -> int:
    """How many tokens a response may have after the longest prompt.

    positions: of the model, None when it has no limit. Raises ValueError when no token fits.
    """
    limit = sampling.max_tokens if positions is None else min(sampling.max_tokens, positions - prompt_tokens)
    if limit < 1:
        raise ValueError(
            f"a prompt of {prompt_tokens + 1} tokens leaves no room for a response in the model's "
            f"{positions} positions; shorten observations or prompt.history, or take another model"
        )
    return limit


def sample(
    continuation: Continuation,
    first: Tensor,
    sampling: Sampling,
    *,
    limit: int,
    ends: Sequence[int],
    pad_id: int,
    generator: torch.Generator,
) -> Generated:
    """Draw one response per row, at most `limit` tokens, on the CPU afterwards.

    first: (n,) long, the last token of every prompt, not in the cache yet; ends: the tokens that end a
    response. Whatever the model's device, the draws depend on `generator`, one of the CPU, alone.
    """
    n, device = len(first), first.device
    draws = _generator_on(device, generator)
    tokens = torch.full((n, limit), pad_id, device=device)
    log_probs, entropies = torch.zeros(n, limit, device=device), torch.zeros(n, limit, device=device)
    active = torch.arange(n, device=device)
    running = torch.ones(n, dtype=torch.bool, device=device)
    token = first
    for step in range(limit):
        logits, place = continuation.append(token)
        log_p = F.log_softmax(logits / sampling.temperature, -1)
        entropy = -(log_p.exp() * log_p).sum(1)
        if place is not None:
            log_p, entropy = log_p[place], entropy[place]
        token = draw(log_p, sampling, draws)
        chosen = log_p.gather(1, token[:, None]).squeeze(1)
        if not bool(running.all()):
            token = token.where(running, pad_id)
            chosen, entropy = chosen * running, entropy * running
        tokens[active, step], log_probs[active, step], entropies[active, step] = token, chosen, entropy
        running = running & ~_among(token, ends)
        left = int(running.sum())
        if left == 0:
            break
        if left <= COMPACT_BELOW * len(active):
            kept = running.nonzero().squeeze(1)
            continuation.keep(kept)
            active, token, running = active[kept], token[kept], running[kept]
    ended = _among(tokens, ends)
    lengths = torch.where(ended.any(1), ended.int().argmax(1) + 1, limit)
    longest = int(lengths.max())
    return Generated(
        tokens[:, :longest].cpu(),
        lengths.cpu(),
        log_probs[:, :longest].cpu(),
        entropies[:, :longest].cpu(),
    )


def draw(log_p: Tensor, sampling: Sampling, generator: torch.Generator) -> Tensor:
    """One token per row by the Gumbel-max trick, restricted to top-k and the top-p nucleus when asked.

    log_p: (n, vocabulary), normalised; the generator is one of its device.
    """
    if sampling.top_k and sampling.top_k < log_p.shape[1]:
        floor = log_p.topk(sampling.top_k, 1).values[:, -1:]
        log_p = log_p.masked_fill(log_p < floor, float("-inf"))
    if sampling.top_p < 1:
        ordered, order = log_p.sort(1, descending=True)
        mass = ordered.exp()
        mass = mass / mass.sum(1, keepdim=True)
        outside = mass.cumsum(1) - mass >= sampling.top_p
        log_p = log_p.masked_fill(outside.gather(1, order.argsort(1)), float("-inf"))
    exponential = torch.empty_like(log_p).exponential_(generator=generator)
    return (log_p - exponential.log()).argmax(1)


def _among(tokens: Tensor, ends: Sequence[int]) -> Tensor:
    among = tokens == ends[0]
    for end in ends[1:]:
        among = among | (tokens == end)
    return among


def _generator_on(device: torch.device, generator: torch.Generator) -> torch.Generator:
    """The generator itself on the CPU, elsewhere one that it seeds."""
    if device.type == generator.device.type:
        return generator
    seed = int(torch.randint(2**62, (), generator=generator))
    return torch.Generator(device).manual_seed(seed)
