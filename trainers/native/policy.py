"""The tiny policy as a `Policy`: sampling with a key-value cache, and scoring of packed rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from trainers.config import ModelConfig
from trainers.native.kernels import token_log_probs
from trainers.native.llama import Slots, TinyLlama
from trainers.native.sampling import room, sample
from trainers.native.tokenizer import WordTokenizer
from trainers.native.word_codec import WordCodec
from trainers.policy import Generated, Sampling, choose_device, distinct_prompts, pad, unpack
from trainers.rows import Rows


class _Branches:
    """Rows being continued: those that have the same prompt and wrote the same so far share a place.

    Places are rows of the slots, of which the first `count` and of these `filled` tokens are used. Where rows
    of one place draw different tokens, one goes on there and a copy is made for each other.
    """

    def __init__(
        self,
        model: TinyLlama,
        slots: Slots,
        place: Tensor,
        lengths: Tensor,
        filled: int,
        visible: Tensor | None,
    ) -> None:
        self.model, self.slots, self.place = model, slots, place
        self.position, self.count, self.filled, self.visible = lengths, len(lengths), filled, visible

    def append(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Logits after one more token, per place; (n,) long, the place of every row."""
        size = self.model.lm_head.shape[0]
        keys, inverse = torch.unique(self.place * size + tokens, return_inverse=True)
        before, drawn = keys // size, keys % size
        copied = torch.zeros_like(before, dtype=torch.bool)
        copied[1:] = before[1:] == before[:-1]
        if bool(copied.any()):
            before_copied = before[copied]
            self._copy(before_copied)
            before[copied] = torch.arange(self.count - len(before_copied), self.count, device=before.device)
        self.place = before[inverse]
        token = torch.zeros_like(self.position).index_copy(0, before, drawn)
        used = [(key[: self.count], value[: self.count]) for key, value in self.slots]
        logits = self.model.decode(used, token, self.position, self.filled, self.visible)
        self.position, self.filled = self.position + 1, self.filled + 1
        return logits, self.place

    def keep(self, rows: Tensor) -> None:
        """Go on with these rows only."""
        kept, self.place = torch.unique(self.place[rows], return_inverse=True)
        self.slots = [(keys[kept], values[kept]) for keys, values in self.slots]
        self.position, self.count = self.position[kept], len(kept)
        self.visible = None if self.visible is None else self.visible[kept]
        self.slots = [_roomier(pair, len(rows)) for pair in self.slots]

    def _copy(self, places: Tensor) -> None:
        start, self.count = self.count, self.count + len(places)
        for pair in self.slots:
            for whole in pair:
                whole[start : self.count, :, : self.filled] = whole[places, :, : self.filled]
        self.position = torch.cat([self.position, self.position[places]])
        if self.visible is not None:
            self.visible = torch.cat([self.visible, self.visible[places]])


class TinyPolicy:
    """A `TinyLlama` and its word-level tokenizer."""

    def __init__(self, model: TinyLlama, tokenizer: WordTokenizer) -> None:
        self.model, self.tokenizer, self.codec = model, tokenizer, WordCodec(tokenizer)

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

    @property
    def positions(self) -> int:
        """How many tokens a sequence may have."""
        return self.model.max_positions

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
        """See `WordCodec.encode`."""
        return self.codec.encode(prompt)

    def encode_response(self, text: str) -> list[int]:
        """See `WordCodec.encode_response`."""
        return self.codec.encode_response(text)

    def encode_next(self, text: str, response: Sequence[int]) -> list[int]:
        """See `WordCodec.encode_next`."""
        return self.codec.encode_next(text, response)

    def decode(self, tokens: Sequence[int]) -> str:
        """See `WordCodec.decode`."""
        return self.codec.decode(tokens)

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
        visible = None
        if bool((lengths < prompt_tokens).any()):
            number = torch.arange(prompt_tokens + limit, device=device)
            visible = (number < lengths[:, None]) | (number >= prompt_tokens)
        slots = model.slots(model.prefill(context), len(rows), limit)
        return sample(
            _Branches(model, slots, rows, lengths, prompt_tokens, visible),
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
        rows, same = _distinct_rows(rows.to(device))
        row_prompt, first = distinct_prompts(rows)
        lengths = rows.prompt_lengths[first] - 1
        context = rows.prompts[first, : int(lengths.max())]
        last = rows.prompts.gather(1, rows.prompt_lengths[:, None] - 1)
        inputs = torch.cat([last, rows.responses[:, :-1]], 1)
        tokens = rows.mask.shape[1]
        last_written = (rows.mask.int() * torch.arange(1, tokens + 1, device=device)).amax(1)
        valid = torch.arange(tokens, device=device) < last_written[:, None]
        hidden, node = self.model.respond(self.model.prefill(context), row_prompt, lengths, inputs, valid)
        chosen, entropy = token_log_probs(
            F.linear(hidden, self.model.lm_head),
            rows.responses[rows.mask],
            temperature,
            node[rows.mask],
            entropy_gradient=entropy_gradient,
        )
        place = rows.mask.reshape(-1).nonzero().squeeze(1)
        log_probs, entropies = (unpack(values, place, rows.mask) for values in (chosen, entropy))
        return F.embedding(same, log_probs), F.embedding(same, entropies)


def _distinct_rows(rows: Rows) -> tuple[Rows, Tensor]:
    """The rows without repetitions (same prompt, response and mask), and which of them each row is."""
    key = torch.cat([rows.prompt_id[:, None], rows.responses, rows.mask.long()], 1)
    distinct, same = torch.unique(key, dim=0, return_inverse=True)
    first = same.new_full((len(distinct),), len(rows))
    first.scatter_reduce_(0, same, torch.arange(len(rows), device=same.device), "amin")
    return rows.select(first), same


def _roomier(pair: tuple[Tensor, Tensor], rows: int) -> tuple[Tensor, Tensor]:
    """Slots with room for so many rows."""
    keys, values = (torch.cat([slot, slot.new_empty(rows - len(slot), *slot.shape[1:])]) for slot in pair)
    return keys, values
