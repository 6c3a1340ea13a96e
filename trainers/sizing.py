"""How much memory training a language model takes, by counting what is kept. Imports no torch."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

from trainers.config import ModelConfig, TrainingConfig

GB = 1e9
# of a trained parameter: weight, gradient and Adam's two moments, in float32
TRAINED = 4 + 4 + 8
CHECKPOINTED = 2 * 34  # bytes of activations a token and hidden unit while one layer is computed again
LOGITS = 4 + 4  # bytes of a token's logit and its gradient


@dataclass(frozen=True, slots=True)
class Memory:
    """GB of each of a trial's GPUs: while it learns, and of what the engine takes while it generates."""

    learning: float
    generating: float


@dataclass(frozen=True, slots=True)
class ModelSize:
    """parameters: in billions; hidden, layers, vocabulary: as in its configuration, or usual for its size."""

    billions: float
    hidden: int
    layers: int
    vocabulary: int


def model_size(model: ModelConfig) -> ModelSize | None:
    """The size of a language model, from `config.json` of its folder or the `4B` in its name; else None."""
    if model.path is None:
        return None
    try:
        told = json.loads((Path(model.path) / "config.json").read_text())
        hidden, layers, vocabulary = (
            int(told[key]) for key in ("hidden_size", "num_hidden_layers", "vocab_size")
        )
        wide = int(told.get("intermediate_size", 4 * hidden))
        heads = int(told.get("num_attention_heads", 1))
        kept = int(told.get("num_key_value_heads", heads)) / heads
        layer = (2 + 2 * kept) * hidden**2 + 3 * hidden * wide
        return ModelSize((layers * layer + vocabulary * hidden) / GB, hidden, layers, vocabulary)
    except (OSError, ValueError, KeyError, TypeError):
        pass
    named = re.search(r"(\d+(?:\.\d+)?)\s?[bB](?![a-zA-Z])", Path(model.path).name)
    if named is None:
        return None
    billions = float(named[1])
    # of the Qwen3 family: width and depth grow alike
    hidden = round(2560 * (billions / 4) ** (1 / 3) / 128) * 128
    return ModelSize(billions, hidden, round(36 * (billions / 4) ** (1 / 3)), 151_936)


def gpu_memory(config: TrainingConfig, gpus: float, *, gpu_gb: float = 80.0) -> Memory | None:
    """What a trial takes on each of its GPUs, of `gpu_gb` each; None when the model's size is not known.

    Whole models are kept in float32 with gradients and Adam's moments, cut over the GPUs under verl, beside
    a reference model; the native trainer has one GPU and its own generation.
    """
    size = model_size(config.model)
    if size is None or gpus <= 0:
        return None
    shared = max(gpus, 1.0) if config.verl is not None else 1.0
    lora = config.model.lora
    if lora is None:
        state = (TRAINED + 4) * size.billions / shared  # the reference is kept whole as well
    else:
        trained = 2 * lora.rank * size.hidden * size.layers * 7 / GB
        state = ((2 if config.model.dtype == "bfloat16" else 4) * size.billions + TRAINED * trained) / shared
    prompt = config.verl.max_prompt_tokens if config.verl is not None else 1024
    tokens = (config.trainer.micro_rows or 16) * (prompt + config.prompt.max_response_tokens)
    inputs = 2 * size.hidden * size.layers
    per_token = CHECKPOINTED * size.hidden + inputs + LOGITS * size.vocabulary
    learning = state + tokens * per_token / GB
    if config.verl is None:
        return Memory(learning, learning)
    weights = 2 * size.billions / config.verl.tensor_parallel
    return Memory(learning, max(config.verl.gpu_memory * gpu_gb, weights))


def memory_line(config: TrainingConfig, gpus: float) -> str:
    """The estimate in words, empty when there is none."""
    memory = gpu_memory(config, gpus)
    if memory is None:
        return ""
    if config.verl is None:
        return f"about {memory.learning:.0f} GB of its GPU's memory"
    share = f"{config.verl.gpu_memory:.0%}"
    return (
        f"about {memory.learning:.0f} GB of each GPU while learning, and the engine {share} of it while "
        "generating"
    )
