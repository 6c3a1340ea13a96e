"""Memory by count, against figures that were worked out by hand."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainers.config import ModelConfig, TrainingConfig, VerlConfig
from trainers.sizing import Memory, gpu_memory, memory_line, memory_problem, model_size

Make = Callable[..., TrainingConfig]

# Qwen3-4B as its config.json has it
QWEN3_4B = {
    "hidden_size": 2560,
    "num_hidden_layers": 36,
    "vocab_size": 151_936,
    "intermediate_size": 9728,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "tie_word_embeddings": True,
}


def told(folder: Path, **changes: Any) -> ModelConfig:
    (folder / "config.json").write_text(json.dumps({**QWEN3_4B, **changes}))
    return ModelConfig(name="m", path=str(folder), dtype="bfloat16")


def test_the_size_is_read_from_the_models_own_configuration(tmp_path: Path) -> None:
    size = model_size(told(tmp_path))
    assert size is not None
    # of the model card: 4.0 billion, 3.6 of them no embedding; 36 layers x 8 heads x 128 of keys and values
    assert size.billions == pytest.approx(4.02, abs=0.005)
    assert size.billions - 0.151936 * 2.560 == pytest.approx(3.63, abs=0.005)
    assert size.kept == 2048
    untied = model_size(told(tmp_path, tie_word_embeddings=False))
    assert untied is not None
    assert untied.billions - size.billions == pytest.approx(0.389, abs=0.001)


def test_without_head_sizes_they_are_what_the_width_leaves(tmp_path: Path) -> None:
    # Llama-3.2-1B: 1.24e9 parameters, tied embeddings
    values = {
        "hidden_size": 2048,
        "num_hidden_layers": 16,
        "vocab_size": 128_256,
        "intermediate_size": 8192,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
    }
    (tmp_path / "config.json").write_text(json.dumps(values))
    size = model_size(ModelConfig(name="m", path=str(tmp_path)))
    assert size is not None
    assert size.billions == pytest.approx(1.236, abs=0.002)
    assert size.kept == 2 * 8 * 64


@pytest.mark.parametrize(("name", "billions"), [("Qwen/Qwen3-4B", 4.0), ("x/Model-0.6B-Base", 0.6)])
def test_else_from_its_name(name: str, billions: float) -> None:
    size = model_size(ModelConfig(name="m", path=name))
    assert size is not None
    assert size.billions == billions


def test_unknown_sizes_are_not_guessed(make_config: Make) -> None:
    assert model_size(ModelConfig(name="m", path="some/model")) is None
    assert gpu_memory(make_config(), 1, gpu_gb=80) is None


def memory(make_config: Make, gpus: float, *, gpu_gb: float = 80, **sections: Any) -> Memory:
    model = {"name": "m", "path": "Qwen/Qwen3-4B", "dtype": "bfloat16", **sections.pop("model", {})}
    trainer = {"micro_rows": 4, **sections.pop("trainer", {})}
    prompt = {"max_response_tokens": 512}
    found = gpu_memory(
        make_config(model=model, trainer=trainer, prompt=prompt, **sections), gpus, gpu_gb=gpu_gb
    )
    assert found is not None
    return found


def test_qwen3_4b_under_verl_on_four_gpus(make_config: Make) -> None:
    found = memory(make_config, 4, verl=VerlConfig(max_prompt_tokens=4096).model_dump())
    # 4e9 parameters x 4 bytes / 4 GPUs; the same for gradients, twice for Adam's moments
    assert (found.weights, found.gradients, found.optimizer) == pytest.approx((4, 4, 8))
    assert found.reference == 0  # in main memory
    # 4 rows x 4,608 tokens x (2 bytes x 2,560 x 36 layers + 2 x 34 bytes x 2,560)
    assert found.activations == pytest.approx(18_432 * (184_320 + 174_080) / 1e9)
    # ... x 151,936 logits x 8 bytes
    assert found.logits == pytest.approx(22.404, abs=0.001)
    assert found.learning == pytest.approx(16 + 6.606 + 22.404, abs=0.001)
    # the engine: half of 80 GB, of which 8 are weights; a token's keys and values take 147,456 bytes
    assert (found.engine_weights, found.cache) == pytest.approx((8, 32))
    assert found.sequences == pytest.approx(32e9 / (4608 * 147_456))
    assert found.generating == pytest.approx(40 + 4 + 8)


def test_machines_tensor_parallelism_and_offloading(make_config: Make) -> None:
    verl = VerlConfig(max_prompt_tokens=4096, nodes=2, tensor_parallel=2, offload=True)
    found = memory(make_config, 4, verl=verl.model_dump())
    assert (found.weights, found.optimizer) == pytest.approx((2, 4))
    assert found.engine_weights == pytest.approx(4)
    # two GPUs share a sequence's cache
    assert found.sequences == pytest.approx(2 * 36e9 / (4608 * 147_456))
    assert found.generating == pytest.approx(40)


def test_adapters_are_small_and_the_frozen_model_is_narrow(make_config: Make) -> None:
    found = memory(make_config, 1, verl=VerlConfig().model_dump(), model={"lora": {"rank": 16}}, trainer={})
    # 7 adapters of 2 x 16 x 2,560 in each of 36 layers: 20.6e6 parameters
    assert found.optimizer == pytest.approx(20.644e6 * 8 / 1e9, rel=1e-3)
    assert found.weights == pytest.approx(8 + 20.644e6 * 4 / 1e9, rel=1e-3)


def test_the_native_trainer_has_all_of_it_on_one_gpu(make_config: Make) -> None:
    found = memory(make_config, 1, trainer={"groups": 2, "group_size": 4})
    assert (found.weights, found.gradients, found.optimizer, found.reference) == pytest.approx(
        (16, 16, 32, 16)
    )
    # 4 rows x (1,024 + 512) tokens, nothing computed again; logits of responses alone
    assert found.activations == pytest.approx(4 * 1536 * 34 * 2560 * 36 / 1e9)
    assert found.logits == pytest.approx(4 * 512 * 8 * 151_936 / 1e9)
    assert found.cache == pytest.approx(8 * 1536 * 147_456 / 1e9)
    assert found.generating == pytest.approx(64 + found.cache)


@pytest.mark.parametrize(
    ("gpus", "gpu_gb", "verl", "told"),
    [
        (4, 80, {}, ""),
        (4, 30, {}, r"32\.1 GB while learning .* a GPU has 30 GB"),
        (1, 80, {}, r"while learning .* try fewer `trainer.micro_rows`, `model.lora`, more `resources.gpus`"),
        (4, 80, {"gpu_memory": 0.9}, r"84\.0 GB while generating .* `verl.offload: true`"),
        (4, 80, {"gpu_memory": 0.102}, r"one sequence of 2,560 tokens .* `verl.gpu_memory`"),
    ],
)
def test_what_does_not_fit_is_told_with_remedies(
    gpus: float, gpu_gb: float, verl: dict[str, Any], told: str, make_config: Make
) -> None:
    settings = VerlConfig(**verl).model_dump()
    found = memory(make_config, gpus, gpu_gb=gpu_gb, verl=settings)
    config = make_config(verl=settings)
    assert re.search(told or "^$", memory_problem(config, found, gpu_gb=gpu_gb))


def test_the_line_adds_up(make_config: Make) -> None:
    line = memory_line(memory(make_config, 4, verl=VerlConfig(max_prompt_tokens=4096).model_dump()))
    assert line.startswith("45.0 GB of each GPU while learning (weights 4.0, gradients 4.0, Adam 8.0, ")
    assert "52.0 GB while generating (engine's weights 8.0, cache 32.0 for 47 sequences of 4,608" in line
