"""What rollouts and updates need of a policy, whatever model is behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor, nn

from trainers.config import ModelConfig
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


class Scorer(Protocol):
    """What can say how likely a response is."""

    def score(
        self, rows: Rows, temperature: float, *, entropy_gradient: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Log-probs and entropies (nats) of the rows' response tokens, both (N, T), 0 outside the mask.

        With gradients when they are enabled; entropies carry one only when asked to. The rows may be on any
        device; what is returned is on the policy's.
        """


class Policy(Scorer, Protocol):
    """A causal language model with its tokenizer."""

    @property
    def module(self) -> nn.Module:
        """What the optimiser trains."""

    @property
    def device(self) -> torch.device:
        """Where the weights are."""

    @property
    def positions(self) -> int | None:
        """How many tokens a sequence may have, prompt and response; None: no limit."""

    def encode(self, prompt: str) -> list[int]:
        """Token ids of a prompt, ready to be continued by the response."""

    def encode_response(self, text: str) -> list[int]:
        """Token ids of a response as the policy would have written it, its end-of-sequence token included."""

    def encode_next(self, text: str, response: Sequence[int]) -> list[int]:
        """Token ids of what follows a response in a transcript, ready to be continued by the next one.

        The text of the next turn, and before it the end of the response if it did not end by itself.
        """

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

    def save(self, folder: Path) -> None:
        """Write what is trained in transformers' format, for `restore`: of adapters these alone."""

    def restore(self, folder: Path) -> None:
        """Read the weights that `save` wrote into this policy, exactly."""

    def export(self, folder: Path) -> None:
        """Write the whole policy as one model in transformers' format, adapters merged."""


def pad(sequences: Sequence[Sequence[int]], value: int) -> tuple[Tensor, Tensor]:
    """Right-pad: (n, longest) long and lengths (n,) long."""
    lengths = [len(sequence) for sequence in sequences]
    longest = max(lengths, default=0)
    flat = [[*sequence, *([value] * (longest - len(sequence)))] for sequence in sequences]
    return torch.tensor(flat, dtype=torch.long).view(len(sequences), longest), torch.tensor(lengths)


def distinct_prompts(rows: Rows) -> tuple[Tensor, Tensor]:
    """The prompt of every row (N,), numbered from 0, and for every prompt the first row that has it."""
    _, row_prompt = torch.unique(rows.prompt_id, return_inverse=True)
    places = torch.arange(len(row_prompt), device=row_prompt.device)
    count = int(row_prompt.max()) + 1
    first = places.new_full((count,), len(row_prompt)).scatter_reduce(0, row_prompt, places, "amin")
    return row_prompt, first


def unpack(values: Tensor, place: Tensor, mask: Tensor) -> Tensor:
    """(N, T) with the packed `values` (n,) at the flat places (n,) of the mask, 0 elsewhere."""
    return values.new_zeros(mask.numel()).index_copy(0, place, values).view(mask.shape)


def choose_device(config: ModelConfig) -> torch.device:
    """The device a configuration asks for; `auto` is a GPU where there is one."""
    if config.device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(config.device)
