"""The tiny policy as a `Policy`: sampling with a key-value cache, and scoring of packed rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from trainers.config import ModelConfig
from trainers.native.llama import TinyLlama
from trainers.native.tokenizer import WordTokenizer
from trainers.policy import Generated, Sampling, pad
from trainers.rows import Rows

COMPACT_BELOW = 0.6  # share of unfinished rows at which finished ones are dropped from the batch


class TinyPolicy:
    """A `TinyLlama` and its word-level tokenizer."""

    def __init__(self, model: TinyLlama, tokenizer: WordTokenizer) -> None:
        self.model, self.tokenizer = model, tokenizer

    @classmethod
    def create(cls, config: ModelConfig, tokenizer: WordTokenizer, generator: torch.Generator) -> TinyPolicy:
        """A policy with random weights."""
        return cls(TinyLlama(config, len(tokenizer), generator), tokenizer)

    @classmethod
    def load(cls, folder: Path, config: ModelConfig) -> TinyPolicy:
        """The policy that `save` wrote."""
        tokenizer = WordTokenizer.load(folder)
        model = TinyLlama(config, len(tokenizer))
        model.load(folder)
        return cls(model, tokenizer)

    @property
    def module(self) -> nn.Module:
        """What the optimiser trains."""
        return self.model

    def save(self, folder: Path) -> None:
        """Write model and tokenizer in transformers' format."""
        self.model.save(folder, pad_id=self.tokenizer.pad_id, end_id=self.tokenizer.end_id)
        self.tokenizer.save(folder)

    def encode(self, prompt: str) -> list[int]:
        """Token ids of a prompt, ending with the token that opens a response."""
        return [*self.tokenizer.encode(prompt), self.tokenizer.response_id]

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
        model, end = self.model, self.tokenizer.end_id
        context, lengths = pad([prompt[:-1] for prompt in prompts], self.tokenizer.pad_id)
        rows = torch.tensor(row_prompt)
        n, prompt_tokens = len(rows), context.shape[1]
        limit = min(sampling.max_tokens, model.max_positions - prompt_tokens)
        slots = model.slots(model.prefill(context), rows, limit)
        position = lengths[rows]
        visible = None
        if bool((lengths < prompt_tokens).any()):
            number = torch.arange(prompt_tokens + limit)
            visible = (number < position[:, None]) | (number >= prompt_tokens)
        tokens = torch.full((n, limit), self.tokenizer.pad_id)
        log_probs, entropies = torch.zeros(n, limit), torch.zeros(n, limit)
        active = torch.arange(n)
        token = torch.tensor([prompt[-1] for prompt in prompts])[rows]
        running = torch.ones(n, dtype=torch.bool)
        for step in range(limit):
            logits = model.decode(slots, token, position, prompt_tokens + step, visible)
            log_p = F.log_softmax(logits / sampling.temperature, -1)
            token = _draw(log_p, sampling, generator)
            chosen = log_p.gather(1, token[:, None]).squeeze(1)
            entropy = -(log_p.exp() * log_p).sum(1)
            if not bool(running.all()):
                token = token.where(running, self.tokenizer.pad_id)
                chosen, entropy = chosen * running, entropy * running
            tokens[active, step], log_probs[active, step], entropies[active, step] = token, chosen, entropy
            running = running & (token != end)
            left = int(running.sum())
            if left == 0:
                break
            position = position + 1
            if left <= COMPACT_BELOW * len(active):
                keep = running.nonzero().squeeze(1)
                slots = [(keys[keep], values[keep]) for keys, values in slots]
                active, token, position, running = active[keep], token[keep], position[keep], running[keep]
                visible = None if visible is None else visible[keep]
        ended = tokens == end
        lengths_out = torch.where(ended.any(1), ended.int().argmax(1) + 1, limit)
        longest = int(lengths_out.max())
        return Generated(
            tokens[:, :longest],
            lengths_out,
            log_probs[:, :longest],
            entropies[:, :longest],
        )

    def score(
        self, rows: Rows, temperature: float, *, entropy_gradient: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Log-probs and entropies of the rows' response tokens, (N, T) each, 0 outside the mask."""
        device = self.model.lm_head.device
        rows = rows.to(device)
        _, row_prompt = torch.unique(rows.prompt_id, return_inverse=True)
        first = _first_of_each(row_prompt)
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
        log_p = F.log_softmax(F.linear(hidden, self.model.lm_head) / temperature, -1)
        place = rows.mask.reshape(-1).nonzero().squeeze(1)
        chosen = log_p.gather(1, rows.responses.reshape(-1)[place, None]).squeeze(1)
        spread = log_p if entropy_gradient else log_p.detach()
        entropy = -(spread.exp() * spread).sum(1)
        empty = chosen.new_zeros(rows.mask.numel())
        return (
            empty.index_copy(0, place, chosen).view(rows.mask.shape),
            empty.index_copy(0, place, entropy).view(rows.mask.shape),
        )


def _draw(log_p: Tensor, sampling: Sampling, generator: torch.Generator) -> Tensor:
    """One token per row by the Gumbel-max trick, restricted to top-k and the top-p nucleus when asked."""
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


def _first_of_each(index: Tensor) -> Tensor:
    """For every value 0..max of `index`, the first place where it stands."""
    count = int(index.max()) + 1
    places = torch.arange(len(index), device=index.device)
    return places.new_full((count,), len(index)).scatter_reduce(0, index, places, "amin")
