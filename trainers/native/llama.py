"""The tiny policy: a stock Llama with a forward of its own for rows of (shared prompt, response).

The weights are those of transformers' `LlamaForCausalLM` (a test proves equal logits), so that a policy
trained here loads there and in vLLM. The forward differs in layout only:

- a prompt shared by many rows is computed once, and its keys and values are gathered per row;
- the prompt's last token is fed as the first input of the response, so the last layer of the prompt needs
  keys and values only, and the output head sees response positions only;
- positions of equal past are computed once (`prefix_tree`), attention apart; padding in attention alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F

from trainers.config import ModelConfig
from trainers.native.kernels import NORM_EPSILON, rms_norm, rotate, swiglu
from trainers.native.prefix_tree import prefix_tree

ROPE_THETA = 10_000.0

Cache = list[Tensor]  # per layer (prompts, tokens, 2 x hidden): rotated keys, then values
Slots = list[tuple[Tensor, Tensor]]  # per layer keys and values (rows, heads, capacity, head)


class Block(nn.Module):
    """The weights of one layer; `qkv` and `gate_up` are stacked, as one product is faster than three."""

    def __init__(self, hidden: int, intermediate: int) -> None:
        super().__init__()
        self.attention_norm = nn.Parameter(torch.ones(hidden))
        self.qkv = nn.Parameter(torch.empty(3 * hidden, hidden))
        self.out = nn.Parameter(torch.empty(hidden, hidden))
        self.mlp_norm = nn.Parameter(torch.ones(hidden))
        self.gate_up = nn.Parameter(torch.empty(2 * intermediate, hidden))
        self.down = nn.Parameter(torch.empty(hidden, intermediate))

    def mlp(self, x: Tensor) -> Tensor:
        """Residual SwiGLU."""
        return x + F.linear(swiglu(F.linear(rms_norm(x, self.mlp_norm), self.gate_up)), self.down)


class TinyLlama(nn.Module):
    """A Llama whose shapes come from a `ModelConfig` and a vocabulary size."""

    cos: Tensor
    sin: Tensor

    def __init__(
        self, config: ModelConfig, vocabulary: int, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        self.hidden, self.heads, self.head = config.hidden, config.heads, config.hidden // config.heads
        self.intermediate, self.max_positions = config.intermediate, config.max_positions
        self.embedding = nn.Parameter(torch.empty(vocabulary, config.hidden))
        self.blocks = nn.ModuleList(Block(config.hidden, config.intermediate) for _ in range(config.layers))
        self.norm = nn.Parameter(torch.ones(config.hidden))
        self.lm_head = nn.Parameter(torch.empty(vocabulary, config.hidden))
        frequency = ROPE_THETA ** -(torch.arange(0, self.head, 2, dtype=torch.float32) / self.head)
        angle = torch.arange(config.max_positions, dtype=torch.float32)[:, None] * frequency
        self.register_buffer("cos", angle.cos()[:, None], persistent=False)
        self.register_buffer("sin", angle.sin()[:, None], persistent=False)
        self._initialise(generator)

    def _initialise(self, generator: torch.Generator | None) -> None:
        width, depth = self.hidden**-0.5, (2 * len(self.blocks)) ** -0.5
        nn.init.normal_(self.embedding, std=0.5 * width, generator=generator)
        nn.init.normal_(self.lm_head, std=0.02, generator=generator)
        for block in self.layers():
            nn.init.normal_(block.qkv, std=width, generator=generator)
            nn.init.normal_(block.out, std=width * depth, generator=generator)
            nn.init.normal_(block.gate_up, std=width, generator=generator)
            nn.init.normal_(block.down, std=self.intermediate**-0.5 * depth, generator=generator)

    def layers(self) -> Iterator[Block]:
        """The blocks, typed."""
        yield from self.blocks  # type: ignore[misc]

    def prefill(self, prompts: Tensor) -> Cache:
        """Keys and values of every layer for right-padded prompts without their last token.

        prompts: (U, P) long. Padding sits to the right and attention is causal, so it never reaches a real
        position; whoever reads the cache masks it.
        """
        unique, length = prompts.shape
        tree = prefix_tree(torch.zeros_like(prompts[:, 0]), prompts) if length else None
        cache: Cache = []
        if tree is None:
            return [self.embedding.new_empty(unique, 0, 2 * self.hidden) for _ in self.blocks]
        x = F.embedding(prompts.reshape(-1)[tree.first], self.embedding)
        cos, sin = self.cos[tree.first % length], self.sin[tree.first % length]
        for index, block in enumerate(self.layers()):
            normed = rms_norm(x, block.attention_norm)
            if index == len(self.blocks) - 1:  # nothing reads this layer's output: keys and values will do
                projected = F.linear(normed, block.qkv[self.hidden :])
                cache.append(F.embedding(tree.node, rotate(projected, cos, sin, self.heads)))
                break
            qkv = rotate(F.linear(normed, block.qkv), cos, sin, 2 * self.heads)
            whole = F.embedding(tree.node, qkv)
            cache.append(whole[:, :, self.hidden :])
            query, key, value = self._split_heads(whole)
            mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
            mixed = mixed.transpose(1, 2).reshape(unique * length, self.hidden)
            x = block.mlp(x + F.linear(F.embedding(tree.first, mixed), block.out))
        return cache

    def respond(
        self, cache: Cache, row_prompt: Tensor, lengths: Tensor, inputs: Tensor, valid: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Final hidden states after response positions, computed once where prompt and past are equal.

        cache from `prefill`; row_prompt (N,) the prompt of each row; lengths (U,) its tokens in the cache;
        inputs (N, T) the prompt's last token followed by all response tokens but the last; valid (N, T) bool,
        a prefix of every row. Returns (nodes, hidden), and (N, T) long, the node of every valid position.
        """
        rows, tokens = inputs.shape
        tree = prefix_tree(row_prompt, inputs, valid)
        positions = lengths[row_prompt][:, None] + torch.arange(tokens, device=inputs.device)
        positions = positions.view(-1)[tree.first]
        cos, sin = self.cos[positions], self.sin[positions]
        visible = self._visible(cache[0].shape[1], lengths[row_prompt], tokens)
        x = F.embedding(inputs.reshape(-1)[tree.first], self.embedding)
        for block, prompt in zip(self.layers(), cache, strict=True):
            qkv = rotate(F.linear(rms_norm(x, block.attention_norm), block.qkv), cos, sin, 2 * self.heads)
            whole = F.embedding(tree.node, qkv)
            seen = torch.cat([prompt.index_select(0, row_prompt), whole[:, :, self.hidden :]], 1)
            (query,) = self._split_heads(whole[:, :, : self.hidden])
            key, value = self._split_heads(seen)
            mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=visible)
            mixed = mixed.transpose(1, 2).reshape(rows * tokens, self.hidden)
            x = block.mlp(x + F.linear(F.embedding(tree.first, mixed), block.out))
        return rms_norm(x, self.norm), tree.node

    def decode(
        self, slots: Slots, token: Tensor, position: Tensor, filled: int, visible: Tensor | None
    ) -> Tensor:
        """Logits after one more token per row, whose key and value are written into the slots.

        Of the slots `filled` are used; token (n,), position (n,) in the sequence; visible (n, capacity) bool,
        or None when every used slot is real.
        """
        n = token.shape[0]
        cos, sin = self.cos[position], self.sin[position]
        x = F.embedding(token, self.embedding)
        scale = self.head**-0.5
        for block, (keys, values) in zip(self.layers(), slots, strict=True):
            qkv = rotate(F.linear(rms_norm(x, block.attention_norm), block.qkv), cos, sin, 2 * self.heads)
            query, key, value = qkv.view(n, 3, self.heads, self.head).unbind(1)
            keys[:, :, filled] = key
            values[:, :, filled] = value
            scores = query[:, :, None] @ keys[:, :, : filled + 1].transpose(-1, -2) * scale
            if visible is not None:
                scores = scores.masked_fill(~visible[:, None, None, : filled + 1], float("-inf"))
            mixed = torch.softmax(scores, -1) @ values[:, :, : filled + 1]
            x = block.mlp(x + F.linear(mixed.view(n, self.hidden), block.out))
        return F.linear(rms_norm(x, self.norm), self.lm_head)

    def slots(self, cache: Cache, rows: int, room: int) -> Slots:
        """The prompts' keys and values as the first of `rows` slots, with room for `room` more tokens."""
        slots: Slots = []
        for prompt in cache:
            unique, tokens, _ = prompt.shape
            pair = []
            for heads in self._split_heads(prompt):
                whole = heads.new_empty(rows, self.heads, tokens + room, self.head)
                whole[:unique, :, :tokens] = heads
                pair.append(whole)
            slots.append((pair[0], pair[1]))
        return slots

    def _split_heads(self, columns: Tensor) -> tuple[Tensor, ...]:
        """(rows, tokens, parts x hidden) as `parts` views (rows, heads, tokens, head)."""
        heads = columns.view(*columns.shape[:2], -1, self.heads, self.head)
        return tuple(part.transpose(1, 2) for part in heads.unbind(2))

    def _visible(self, prompt_tokens: int, lengths: Tensor, tokens: int) -> Tensor:
        """0 where a response position may look, -inf elsewhere: (T, P + T), or (N, 1, T, P + T)."""
        causal = torch.ones(tokens, tokens, dtype=torch.bool, device=lengths.device).tril()
        if bool((lengths == prompt_tokens).all()):
            seen = torch.cat([causal.new_ones(tokens, prompt_tokens), causal], 1)
        else:
            real = torch.arange(prompt_tokens, device=lengths.device) < lengths[:, None]
            rows = len(lengths)
            seen = torch.cat([real[:, None].expand(-1, tokens, -1), causal.expand(rows, -1, -1)], 2)[:, None]
        return torch.zeros(seen.shape, device=lengths.device).masked_fill_(~seen, float("-inf"))

    def transformers_state(self) -> dict[str, Tensor]:
        """The weights under transformers' names."""
        state: dict[str, Tensor] = {
            "model.embed_tokens.weight": self.embedding,
            "model.norm.weight": self.norm,
            "lm_head.weight": self.lm_head,
        }
        for index, block in enumerate(self.layers()):
            prefix = f"model.layers.{index}."
            query, key, value = block.qkv.chunk(3)
            gate, up = block.gate_up.chunk(2)
            state |= {
                prefix + "input_layernorm.weight": block.attention_norm,
                prefix + "self_attn.q_proj.weight": query,
                prefix + "self_attn.k_proj.weight": key,
                prefix + "self_attn.v_proj.weight": value,
                prefix + "self_attn.o_proj.weight": block.out,
                prefix + "post_attention_layernorm.weight": block.mlp_norm,
                prefix + "mlp.gate_proj.weight": gate,
                prefix + "mlp.up_proj.weight": up,
                prefix + "mlp.down_proj.weight": block.down,
            }
        return {name: tensor.detach().contiguous().clone() for name, tensor in state.items()}

    def load_transformers_state(self, state: dict[str, Tensor]) -> None:
        """Copy weights given under transformers' names."""
        with torch.no_grad():
            self.embedding.copy_(state["model.embed_tokens.weight"])
            self.norm.copy_(state["model.norm.weight"])
            self.lm_head.copy_(state["lm_head.weight"])
            for index, block in enumerate(self.layers()):
                weight = {
                    name: state[f"model.layers.{index}.{name}.weight"]
                    for name in (
                        "input_layernorm",
                        "self_attn.q_proj",
                        "self_attn.k_proj",
                        "self_attn.v_proj",
                        "self_attn.o_proj",
                        "post_attention_layernorm",
                        "mlp.gate_proj",
                        "mlp.up_proj",
                        "mlp.down_proj",
                    )
                }
                block.attention_norm.copy_(weight["input_layernorm"])
                block.qkv.copy_(torch.cat([weight[f"self_attn.{name}_proj"] for name in "qkv"]))
                block.out.copy_(weight["self_attn.o_proj"])
                block.mlp_norm.copy_(weight["post_attention_layernorm"])
                block.gate_up.copy_(torch.cat([weight["mlp.gate_proj"], weight["mlp.up_proj"]]))
                block.down.copy_(weight["mlp.down_proj"])

    def transformers_config(self, *, pad_id: int, end_id: int) -> dict[str, Any]:
        """`config.json` of the equal `LlamaForCausalLM`."""
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "vocab_size": self.embedding.shape[0],
            "hidden_size": self.hidden,
            "intermediate_size": self.intermediate,
            "num_hidden_layers": len(self.blocks),
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.heads,
            "head_dim": self.head,
            "hidden_act": "silu",
            "max_position_embeddings": self.max_positions,
            "rms_norm_eps": NORM_EPSILON,
            "rope_theta": ROPE_THETA,
            "attention_bias": False,
            "mlp_bias": False,
            "tie_word_embeddings": False,
            "bos_token_id": None,
            "eos_token_id": end_id,
            "pad_token_id": pad_id,
            "torch_dtype": "float32",
            "use_cache": True,
        }

    def save(self, folder: Path, *, pad_id: int, end_id: int) -> None:
        """Write `model.safetensors` and `config.json`, loadable with `from_pretrained`."""
        save_file(self.transformers_state(), folder / "model.safetensors", metadata={"format": "pt"})
        config = self.transformers_config(pad_id=pad_id, end_id=end_id)
        (folder / "config.json").write_text(json.dumps(config, indent=1))

    def load(self, folder: Path) -> None:
        """Read the weights `save` wrote."""
        self.load_transformers_state(load_file(folder / "model.safetensors"))
