"""Memory by count, against figures that can be worked out by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from trainers.config import ModelConfig, TrainingConfig, VerlConfig
from trainers.sizing import gpu_memory, memory_line, model_size

Make = Callable[..., TrainingConfig]


def test_the_size_is_read_from_the_models_own_configuration(tmp_path: Path) -> None:
    # Llama-3.2-1B: 1.24e9 parameters, tied embeddings
    told = {
        "hidden_size": 2048,
        "num_hidden_layers": 16,
        "vocab_size": 128_256,
        "intermediate_size": 8192,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
    }
    (tmp_path / "config.json").write_text(json.dumps(told))
    size = model_size(ModelConfig(name="m", path=str(tmp_path)))
    assert size is not None
    assert size.billions == pytest.approx(1.236, abs=0.002)


@pytest.mark.parametrize(("name", "billions"), [("Qwen/Qwen3-4B", 4.0), ("x/Model-0.6B-Base", 0.6)])
def test_else_from_its_name(name: str, billions: float) -> None:
    size = model_size(ModelConfig(name="m", path=name))
    assert size is not None
    assert size.billions == billions


def test_unknown_sizes_are_not_guessed(make_config: Make) -> None:
    assert model_size(ModelConfig(name="m", path="some/model")) is None
    assert gpu_memory(make_config(), 1) is None
    assert memory_line(make_config(), 1) == ""


def test_state_is_shared_between_gpus_and_adapters_are_small(make_config: Make) -> None:
    model = {"name": "m", "path": "Qwen/Qwen3-4B", "dtype": "bfloat16"}
    trainer = {"micro_rows": 1}
    verl = VerlConfig(max_prompt_tokens=1)
    whole = make_config(model=model, trainer=trainer, verl=verl.model_dump())
    one, four = gpu_memory(whole, 1), gpu_memory(whole, 4)
    assert one is not None
    assert four is not None
    # weights, gradients, two moments and a reference of 4e9 parameters in float32: 80 GB
    assert one.learning - four.learning == pytest.approx(80 * 3 / 4)
    adapters = make_config(model=model | {"lora": {}}, trainer=trainer, verl=verl.model_dump())
    small = gpu_memory(adapters, 1)
    assert small is not None
    assert small.learning < one.learning / 5
    assert four.generating == 40.0
