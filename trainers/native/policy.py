"""The tiny policy as a `Policy`: sampling with a key-value cache, and scoring of packed rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from trainers.config import ModelConfig
from trainers.native.kernels import token_log_probs
from trainers.native.llama import Slots, TinyLlama
from trainers.native.sampling import room, sample
from trainers.native.tokenizer import WordTokenizer
from trainers.policy import Generated, Sampling, choose_device, distinct_prompts, pad, unpack
from trainers.rows import Rows


@dataclass
class _Rows:
    """Rows being continued: their slots, of which `filled` are used, and what of them is visible."""

    model: TinyLlama
    slots: Slots
    position: Tensor
    filled: int
    visible: Tensor | None

    def append(self, tokens: Tensor) -> Tensor:
        """Logits after one more token per row."""
        logits = self.model.decode(self.slots, tokens, self.position, self.filled, self.visible)
        self.position, self.filled = self.position + 1, self.filled + 1
        return logits

    def keep(self, rows: Tensor) -> None:
        """Go on with these rows only."""
        self.slots = [(keys[rows], values[rows]) for keys, values in self.slots]
        self.position = self.position[rows]
        self.visible = None if self.visible is None else self.visible[rows]


class TinyPolicy:
    """A `TinyLlama` and its word-level tokenizer."""

    def __init__(self, model: TinyLlama, tokenizer: WordTokenizer) -> None:
        self.model, self.tokenizer = model, tokenizer

    @classmethod
    def create(cls, config: ModelConfig, tokenizer: WordTokenizer, generator: torch.Generator) -> TinyPolicy:
        """A policy with random weights."""
        model = TinyLlama(config, len(tokenizer), generator)
        return cls(model.to(choose_device(config)), tokenizer)

    @classmethod
    def load(cls, folder: Path, config: ModelConfig) -> TinyPolicy:
        """The policy that `save` wrote."""
        tokenizer = WordTokenizer.load(folder)
        model = TinyLlama(config, len(tokenizer))
        model.load(folder)
        return cls(model.to(choose_device(config)), tokenizer)

    @property
    def module(self) -> nn.Module:
        """What the optimiser trains."""
        return self.model

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.model.lm_head.device

    def save(self, folder: Path) -> None:
        """Write model and tokenizer in transformers' format."""
        self.model.save(folder, pad_id=self.tokenizer.pad_id, end_id=self.tokenizer.end_id)
        self.tokenizer.save(folder)

    def export(self, folder: Path) -> None:
        """The same: nothing here needs merging."""
        self.save(folder)

    def restore(self, folder: Path) -> None:
        """Read the weights that `save` wrote into this model."""
        self.model.load(folder)

    def encode(self, prompt: str) -> list[int]:
        """Token ids of a prompt, ending with the token that opens a response."""
        return [*self.tokenizer.encode(prompt), self.tokenizer.response_id]

    def encode_response(self, text: str) -> list[int]:
        """Token ids of a response, its end included."""
        return [*self.tokenizer.encode(text), self.tokenizer.end_id]

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of a response."""
        return self.tokenizer.decode(tokens)

    @torch.inference_mode()
    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        row_prompt: Sequence[int],
        sampling: Sampling,
        generator: torch.Generator,
    ) -> Generated:
        """Sample one response for every entry of `row_prompt`, an index into the distinct `prompts`."""
        model, device = self.model, self.device
        context, lengths = pad([prompt[:-1] for prompt in prompts], self.tokenizer.pad_id)
        context, lengths = context.to(device), lengths.to(device)
        rows = torch.tensor(row_prompt, device=device)
        prompt_tokens = context.shape[1]
        limit = room(prompt_tokens, model.max_positions, sampling)
        position = lengths[rows]
        visible = None
        if bool((lengths < prompt_tokens).any()):
            number = torch.arange(prompt_tokens + limit, device=device)
            visible = (number < position[:, None]) | (number >= prompt_tokens)
        slots = model.slots(model.prefill(context), rows, limit)
        return sample(
            _Rows(model, slots, position, prompt_tokens, visible),
            torch.tensor([prompt[-1] for prompt in prompts], device=device)[rows],
            sampling,
            limit=limit,
            ends=(self.tokenizer.end_id,),
            pad_id=self.tokenizer.pad_id,
            generator=generator,
        )

    def score(
        self, rows: Rows, temperature: float, *, entropy_gradient: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Log-probs and entropies of the rows' response tokens, (N, T) each, 0 outside the mask."""
        device = self.device
        rows = rows.to(device)
        row_prompt, first = distinct_prompts(rows)
        lengths = rows.prompt_lengths[first] - 1
        context = rows.prompts[first, : int(lengths.max())]
        last = rows.prompts.gather(1, rows.prompt_lengths[:, None] - 1)
        inputs = torch.cat([last, rows.responses[:, :-1]], 1)
        tokens = rows.mask.shape[1]
        last_written = (rows.mask.int() * torch.arange(1, tokens + 1, device=device)).amax(1)
        valid = torch.arange(tokens, device=device) < last_written[:, None]
        hidden = self.model.respond(self.model.prefill(context), row_prompt, lengths, inputs, valid)
        written = rows.mask[valid]
        if not bool(written.all()):
            hidden = hidden[written]
        place = rows.mask.reshape(-1).nonzero().squeeze(1)
        chosen, entropy = token_log_probs(
            F.linear(hidden, self.model.lm_head),
            rows.responses.reshape(-1)[place],
            temperature,
            entropy_gradient=entropy_gradient,
        )
        return unpack(chosen, place, rows.mask), unpack(entropy, place, rows.mask)
