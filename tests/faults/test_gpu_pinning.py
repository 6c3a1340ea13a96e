"""Trials see the GPUs they were given and no others. They are logical: Ray counts them, nothing uses them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from arena.records import LOG

pytestmark = [pytest.mark.slow, pytest.mark.ray, pytest.mark.timeout(600)]

ASKED = [1, 1, 1, 2, 0.5, 0.5, 0, 2, 0]


def test_each_trial_sees_exactly_the_gpus_it_was_given(tmp_path: Path) -> None:
    """Whole ones, several, a shared one, none; on a machine that says it has two."""
    scripts = [{"steps": 4, "seconds": 0.2, "behaviour": "environment", "gpus": gpus} for gpus in ASKED]
    done = subprocess.run(
        [
            sys.executable,
            str(Path(__file__).with_name("run_fake_study.py")),
            str(tmp_path),
            json.dumps(scripts),
        ],
        env={
            **os.environ,
            "RAY_OVERRIDE_RESOURCES": '{"GPU": 2}',
            "CUDA_VISIBLE_DEVICES": "0,1",
            "MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/mlflow.db",
        },
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for seed, gpus in enumerate(ASKED):
        (log,) = tmp_path.glob(f"faults/trials/*-s{seed}/{LOG}")
        (line,) = [line for line in log.read_text().splitlines() if line.startswith("{")]
        seen = [gpu for gpu in json.loads(line)["CUDA_VISIBLE_DEVICES"].split(",") if gpu]
        assert len(seen) == (gpus if gpus in (0, 2) else 1)
        assert set(seen) <= {"0", "1"}
