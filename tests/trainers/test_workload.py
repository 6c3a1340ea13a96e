"""GPU time by counting operations, against figures that were worked out by hand for Qwen3-4B."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from trainers.config import TrainingConfig, VerlConfig
from trainers.workload import Declared, Work, work_of

Make = Callable[..., TrainingConfig]

# 1e15 operations a second, a tenth of them done: 1e14
GPU = Declared(
    gpu_memory_gb=80,
    gpu_tflops=1000,
    utilisation=0.1,
    generated_per_second=1000,
    turns=0.5,
    prompt_tokens=900,
    response_tokens=100,
)


def work(make_config: Make, gpus: float = 1, **sections: Any) -> Work:
    model = {"name": "m", "path": "Qwen/Qwen3-4B", **sections.pop("model", {})}
    verl = sections.pop("verl", {})
    config = make_config(
        model=model,
        verl=None if verl is None else VerlConfig(**verl).model_dump(),
        prompt={"max_response_tokens": 512, **sections.pop("prompt", {})},
        **sections,
    ).model_copy(update={"env": {"max_turns": 20}})
    found = work_of(config, gpus, GPU)
    assert found is not None
    return found


def test_an_episode_is_read_written_and_learned_from(make_config: Make) -> None:
    found = work(make_config)
    # 10 turns: 9,000 tokens read at 8e9 operations each, 1,000 written at 1,000 a second
    assert found.rollout == pytest.approx(9000 * 8e9 / 1e14 + 1)
    # 10,000 tokens: forward, backward, activations again (8 P), old policy and reference (2 P each)
    assert found.update == pytest.approx(10_000 * 12 * 4e9 / 1e14)


def test_more_gpus_and_machines_share_it(make_config: Make) -> None:
    one, eight = work(make_config), work(make_config, 4, verl={"nodes": 2})
    assert eight.rollout == pytest.approx(one.rollout / 8)
    assert eight.update == pytest.approx(one.update / 8)
    assert eight.clone == one.clone  # a clone is made on one


def test_scoring_is_done_once_however_many_epochs(make_config: Make) -> None:
    twice = work(make_config, trainer={"epochs": 2})
    # per epoch: 8 P, and half of 4 P
    assert twice.update == pytest.approx(10_000 * 10 * 4e9 / 1e14)
    spared = work(make_config, verl={"rollout_correction": {"bypass": True}})
    assert spared.update == pytest.approx(10_000 * 10 * 4e9 / 1e14)


def test_the_native_trainer_computes_no_activation_again(make_config: Make) -> None:
    # 6 P and the reference's 2 P
    assert work(make_config, verl=None).update == pytest.approx(10_000 * 8 * 4e9 / 1e14)


def test_adapters_spare_the_gradients_of_the_frozen_weights(make_config: Make) -> None:
    found = work(make_config, model={"lora": {}})
    assert found.update == pytest.approx(10_000 * 10 * 4e9 / 1e14)


def test_what_the_configuration_allows_is_the_most(make_config: Make) -> None:
    found = work(make_config, verl={"max_prompt_tokens": 300}, prompt={"max_response_tokens": 50})
    assert found.rollout == pytest.approx(3000 * 8e9 / 1e14 + 0.5)


def test_a_transcript_is_learned_from_once(make_config: Make) -> None:
    found = work(make_config, rows="transcript", prompt={"max_context_tokens": 8000})
    # 900 tokens shown first, then as many shown as are written
    assert found.update == pytest.approx((900 + 1000 + 1000) * 12 * 4e9 / 1e14)


def test_a_clone_is_its_updates(make_config: Make) -> None:
    stages = [{"steps": 30, "learning_rate": 1e-5}, {"steps": 20, "learning_rate": 1e-5}]
    found = work(make_config, cloning={"batch": 8, "stages": stages})
    assert found.clone == pytest.approx(50 * 8 * 1000 * 6 * 4e9 / 1e14)
    assert work(make_config, cloning={"stages": []}).clone == 0


@pytest.mark.parametrize(
    ("gpus", "sections"),
    [
        (0, {"model": {"name": "m", "path": "x/4B"}}),
        (1, {}),
        (1, {"model": {"name": "m", "path": "x/4B"}, "verl": {"platform": "cpu", "engine": "hf_cpu"}}),
    ],
)
def test_without_a_gpu_or_a_size_nothing_is_counted(
    gpus: float, sections: dict[str, Any], make_config: Make
) -> None:
    assert work_of(make_config(**sections), gpus, GPU) is None
