"""How much memory training a language model takes, by counting what is kept. Imports no torch.

Every formula is one line here and stated in docs/backends.md; none has been measured on a GPU.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

from trainers.config import ModelConfig, TrainingConfig

GB = 1e9
FLOAT32, BFLOAT16 = 4, 2  # bytes
LAYER = 34  # bytes of a layer's activations a token and hidden unit in 16 bits (Korthikanti et al. 2022)
LOGITS = 4 + 4  # bytes of a token's logit and its gradient
ADAPTED = 7  # linear layers of a transformer's block, each with an adapter
SCORED = 16  # rows at once where the configuration does not say


@dataclass(frozen=True, slots=True)
class ModelSize:
    """parameters: in billions; the others as in the model's configuration, or usual for its size.

    kept: numbers that a token leaves in one layer's cache: keys and values of all their heads.
    """

    billions: float
    hidden: int
    layers: int
    vocabulary: int
    kept: int


@dataclass(frozen=True, slots=True)
class Memory:
    """GB of each of a trial's GPUs.

    While it learns: weights, gradients, optimizer, reference, activations, logits. While it generates:
    resident, what the trainer leaves there, and of the engine its weights and cache; sequences: how many of
    the longest the cache holds at once.
    """

    weights: float
    gradients: float
    optimizer: float
    reference: float
    activations: float
    logits: float
    resident: float
    engine_weights: float
    cache: float
    sequences: float
    longest: int

    @property
    def learning(self) -> float:
        """All of it while the policy is updated."""
        state = self.weights + self.gradients + self.optimizer + self.reference
        return state + self.activations + self.logits

    @property
    def generating(self) -> float:
        """All of it while episodes are played."""
        return self.resident + self.engine_weights + self.cache


def model_size(model: ModelConfig) -> ModelSize | None:
    """The size of a language model, from `config.json` of its folder or the `4B` in its name; else None."""
    if model.path is None:
        return None
    try:
        return _told_size(json.loads((Path(model.path) / "config.json").read_text()))
    except (OSError, ValueError, KeyError, TypeError):
        pass
    named = re.search(r"(\d+(?:\.\d+)?)\s?[bB](?![a-zA-Z])", Path(model.path).name)
    if named is None:
        return None
    billions = float(named[1])
    # of the Qwen3 family: width and depth grow alike, 8 heads of 128 keep keys and values
    hidden = round(2560 * (billions / 4) ** (1 / 3) / 128) * 128
    layers = round(36 * (billions / 4) ** (1 / 3))
    return ModelSize(billions, hidden, layers, 151_936, 2 * 8 * 128)


def _told_size(told: dict[str, int]) -> ModelSize:
    hidden, layers, vocabulary = (
        int(told[key]) for key in ("hidden_size", "num_hidden_layers", "vocab_size")
    )
    wide = int(told.get("intermediate_size", 4 * hidden))
    heads = int(told.get("num_attention_heads", 1))
    head = int(told.get("head_dim") or hidden // heads)
    kept = 2 * int(told.get("num_key_value_heads", heads)) * head
    layer = hidden * (heads * head + kept) + heads * head * hidden + 3 * hidden * wide
    tables = 1 if told.get("tie_word_embeddings", True) else 2
    return ModelSize((layers * layer + tables * vocabulary * hidden) / GB, hidden, layers, vocabulary, kept)


def total_gpus(config: TrainingConfig, gpus: float) -> float:
    """GPUs of a trial that has `gpus` on each of its machines."""
    return gpus * (config.verl.nodes if config.verl is not None else 1)


def gpu_memory(config: TrainingConfig, gpus: float, *, gpu_gb: float) -> Memory | None:
    """What a trial takes of each of its GPUs, of `gpu_gb` each; None when the model's size is not known.

    gpus: on each of its machines. What is trained is kept in float32 with its gradients and Adam's two
    moments; under verl all of it is cut over the GPUs (FSDP), a layer's activations are computed again, and
    the reference waits in main memory. The native trainer has one GPU, keeps all activations and the
    reference there, and generates with the weights that it trains.
    """
    size = model_size(config.model)
    if size is None or gpus <= 0:
        return None
    verl, lora = config.verl, config.model.lora
    shared = max(total_gpus(config, gpus), 1.0) if verl is not None else 1.0
    trained = size.billions if lora is None else 2 * lora.rank * size.hidden * size.layers * ADAPTED / GB
    narrow = BFLOAT16 if config.model.dtype == "bfloat16" else FLOAT32
    frozen = 0.0 if lora is None else narrow * size.billions
    weights = (frozen + FLOAT32 * trained) / shared
    optimizer = 2 * FLOAT32 * trained / shared
    longest = longest_row(config)
    response = config.prompt.max_response_tokens
    rows = config.trainer.micro_rows or SCORED
    if verl is None:
        per_token = LAYER * narrow / BFLOAT16 * size.hidden * size.layers
        logits = rows * (longest if config.rows == "transcript" else response)
    else:
        # the inputs of all layers, and one layer with the gradients of its activations
        per_token = narrow * size.hidden * size.layers + 2 * LAYER * narrow / BFLOAT16 * size.hidden
        logits = rows * longest
    token = size.kept * size.layers * narrow / GB
    if verl is None:
        resident = weights + optimizer + (0.0 if lora is not None else FLOAT32 * size.billions)
        played = config.trainer.groups * config.trainer.group_size
        engine, cache, sequences = 0.0, played * longest * token, float(played)
    else:
        resident = 0.0 if verl.offload else weights + optimizer
        engine = narrow * size.billions / verl.tensor_parallel
        cache = max(0.0, verl.gpu_memory * gpu_gb - engine)
        sequences = cache * verl.tensor_parallel / (longest * token)
    return Memory(
        weights=weights,
        gradients=FLOAT32 * trained / shared,
        optimizer=optimizer,
        reference=FLOAT32 * size.billions if verl is None and lora is None else 0.0,
        activations=rows * longest * per_token / GB,
        logits=logits * LOGITS * size.vocabulary / GB,
        resident=resident,
        engine_weights=engine,
        cache=cache,
        sequences=sequences,
        longest=longest,
    )


def longest_row(config: TrainingConfig) -> int:
    """Tokens of the longest row, prompt and response."""
    if config.rows == "transcript" and config.prompt.max_context_tokens is not None:
        return config.prompt.max_context_tokens
    prompt = config.verl.max_prompt_tokens if config.verl is not None else 1024
    return prompt + config.prompt.max_response_tokens


def memory_line(memory: Memory) -> str:
    """The estimate in words."""
    parts = {
        "weights": memory.weights,
        "gradients": memory.gradients,
        "Adam": memory.optimizer,
        "reference": memory.reference,
        "activations": memory.activations,
        "logits": memory.logits,
    }
    told = ", ".join(f"{name} {value:.1f}" for name, value in parts.items() if value)
    cache = f"cache {memory.cache:.1f} for {memory.sequences:,.0f} sequences of {memory.longest:,} tokens"
    engine = f"engine's weights {memory.engine_weights:.1f}, " if memory.engine_weights else ""
    return (
        f"{memory.learning:.1f} GB of each GPU while learning ({told}) and {memory.generating:.1f} GB while "
        f"generating ({engine}{cache}, trainer's {memory.resident:.1f})"
    )


def memory_problem(config: TrainingConfig, memory: Memory, *, gpu_gb: float) -> str:
    """Why a trial does not fit GPUs of `gpu_gb`, with remedies; empty when it does."""
    if max(memory.learning, memory.generating) <= gpu_gb and memory.sequences >= 1:
        return ""
    if memory.learning > gpu_gb:
        needed, what = f"{memory.learning:.1f} GB", "while learning"
        remedies = ["fewer `trainer.micro_rows`", "`model.lora`"]
    elif memory.sequences < 1:
        needed, what = f"room for one sequence of {memory.longest:,} tokens", "in the engine's cache"
        remedies = ["a larger `verl.gpu_memory`", "a larger `verl.tensor_parallel`"]
    else:
        needed, what = f"{memory.generating:.1f} GB", "while generating"
        remedies = ["fewer `trainer.groups`", "`model.lora`"]
        if config.verl is not None:
            remedies = ["a smaller `verl.gpu_memory`", "`verl.offload: true`"]
    if config.verl is not None:
        remedies.append("more `resources.gpus`")
    return (
        f"a trial needs {needed} {what} by count, and a GPU has {gpu_gb:g} GB (`estimate.gpu_memory_gb`); "
        f"try {', '.join(remedies)}"
    )
