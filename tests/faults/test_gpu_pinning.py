"""Trials see the GPUs they were given and no others. They are logical: Ray counts them, nothing uses them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from arena.records import LOG

pytestmark = [pytest.mark.slow, pytest.mark.ray, pytest.mark.timeout(600)]


def visible_gpus(studies: Path, trials: int, gpus: float) -> list[list[str]]:
    """Run trials that print what they see, on a machine that says it has two GPUs."""
    script = {"steps": 4, "seconds": 0.5, "behaviour": "environment"}
    command = [sys.executable, str(Path(__file__).with_name("run_fake_study.py"))]
    done = subprocess.run(
        [*command, str(studies), str(trials), json.dumps(script), str(gpus)],
        env={
            **os.environ,
            "RAY_OVERRIDE_RESOURCES": '{"GPU": 2}',
            "CUDA_VISIBLE_DEVICES": "0,1",
            "MLFLOW_TRACKING_URI": f"sqlite:///{studies}/mlflow.db",
        },
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    seen = []
    for log in sorted(studies.glob(f"faults/trials/*/{LOG}")):
        (line,) = [line for line in log.read_text().splitlines() if line.startswith("{")]
        seen.append([gpu for gpu in json.loads(line)["CUDA_VISIBLE_DEVICES"].split(",") if gpu])
    return seen


def test_a_whole_gpu_is_one_of_them(tmp_path: Path) -> None:
    seen = visible_gpus(tmp_path, 4, 1)
    assert [len(gpus) for gpus in seen] == [1] * 4
    assert set(Counter(gpu for gpus in seen for gpu in gpus)) <= {"0", "1"}


def test_two_gpus_are_both(tmp_path: Path) -> None:
    assert [sorted(gpus) for gpus in visible_gpus(tmp_path, 2, 2)] == [["0", "1"]] * 2


def test_a_trial_that_asks_for_none_sees_none(tmp_path: Path) -> None:
    assert visible_gpus(tmp_path, 2, 0) == [[], []]


def test_half_a_gpu_is_one_that_is_shared(tmp_path: Path) -> None:
    assert [len(gpus) for gpus in visible_gpus(tmp_path, 4, 0.5)] == [1] * 4
