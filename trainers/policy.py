"""What rollouts and updates need of a policy, whatever model is behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor, nn

from trainers.rows import Rows


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn. `log_probs` of what was drawn are at `temperature`, before top-p and top-k."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    max_tokens: int = 32


@dataclass(frozen=True)
class Generated:
    """Responses to n prompts, right-padded to T tokens, the end-of-sequence token included.

    tokens (n, T) long; lengths (n,) long; log_probs (n, T) float and token_entropies (n, T) float, in nats,
    both 0 on padding.
    """

    tokens: Tensor
    lengths: Tensor
    log_probs: Tensor
    token_entropies: Tensor


class Policy(Protocol):
    """A causal language model with its tokenizer."""

    @property
    def module(self) -> nn.Module:
        """What the optimiser trains."""

    def encode(self, prompt: str) -> list[int]:
        """Token ids of a prompt, ready to be continued by the response."""

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of a response, without its end-of-sequence token."""

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        row_prompt: Sequence[int],
        sampling: Sampling,
        generator: torch.Generator,
    ) -> Generated:
        """Sample one response for every entry of `row_prompt`, an index into the distinct `prompts`."""

    def score(
        self, rows: Rows, temperature: float, *, entropy_gradient: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Log-probs and entropies (nats) of the rows' response tokens, both (N, T), 0 outside the mask.

        With gradients when they are enabled; entropies carry one only when asked to.
        """

    def save(self, folder: Path) -> None:
        """Write the policy in transformers' format."""


def pad(sequences: Sequence[Sequence[int]], value: int) -> tuple[Tensor, Tensor]:
    """Right-pad: (n, longest) long and lengths (n,) long."""
    lengths = [len(sequence) for sequence in sequences]
    longest = max(lengths, default=0)
    flat = [[*sequence, *([value] * (longest - len(sequence)))] for sequence in sequences]
    return torch.tensor(flat, dtype=torch.long).view(len(sequences), longest), torch.tensor(lengths)
