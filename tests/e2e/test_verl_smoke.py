"""verl for real, without a GPU: two trials at once, killed, and finished by running again with two more."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from arena.processes import tagged
from arena.records import read_lines, read_outcome
from trainers.config import TrainingConfig
from trainers.verl import schema

GRID = Path(__file__).parents[2] / "grids" / "verl_smoke.yaml"
ARENA = [sys.executable, "-c", "from arena.cli import main; main()"]
STEPS = 3
# rows of whole transcripts, of a clone that was shown such
TRANSCRIPTS = {"rows": "transcript", "cloning.explore": 0, "model.max_positions": 256}
METHODS = ["GRPO", "SAMPO", {"GRPO": TRANSCRIPTS}]
# draws travel with the rows, those that fill batches up too
POINTS = [{"is_clipping": {"gated": {"low": {"level": "token", "share": 0.5}}}}]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(bool(schema.problems()), reason="verl is not installed"),
]


@dataclass(frozen=True)
class VerlRun:
    """A study that was killed once and then finished, with two more trials than the grid has.

    done: what the second run said; left_running, steps_at_kill: what the first left.
    """

    study: Path
    done: subprocess.CompletedProcess[str]
    left_running: list[int]
    steps_at_kill: int

    @property
    def trials(self) -> list[Path]:
        return sorted((self.study / "trials").iterdir())


@pytest.fixture(scope="module")
def verl(tmp_path_factory: pytest.TempPathFactory) -> VerlRun:
    studies = tmp_path_factory.mktemp("studies")
    study = studies / "verl_smoke"
    command = [*ARENA, "run", str(GRID), "--yes", "--studies", str(studies)]
    first = subprocess.Popen(
        command, cwd=studies, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        _until(lambda: _saved(study) >= 1 or first.poll() is not None, 900)
        recorded = _saved(study)
    finally:
        os.killpg(first.pid, signal.SIGKILL)
        first.wait()
    _wait(lambda: not tagged(study), 60)
    left = tagged(study)
    more = [f"methods={json.dumps(METHODS)}", f"points={json.dumps(POINTS)}", "budget.trials=4"]
    again = [*command, *more]
    done = subprocess.run(again, cwd=studies, capture_output=True, text=True, timeout=1200, check=False)
    return VerlRun(study, done, left, recorded)


def _saved(study: Path) -> int:
    """The newest step that a trial has a checkpoint of."""
    trackers = study.glob("trials/*/checkpoints/latest_checkpointed_iteration.txt")
    return max((int(tracker.read_text() or 0) for tracker in trackers), default=0)


def _wait(condition: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.5)
    return True


def _until(condition: Callable[[], bool], seconds: float) -> None:
    assert _wait(condition, seconds), "waited in vain"


def _rows(folder: Path, kind: str) -> list[dict[str, Any]]:
    return [row for row in read_lines(folder / "metrics.jsonl").rows if row["kind"] == kind]


def test_nothing_of_a_killed_study_keeps_running(verl: VerlRun) -> None:
    assert verl.steps_at_kill >= 1
    assert verl.left_running == []
    assert tagged(verl.study) == []


def test_run_again_every_trial_is_finished(verl: VerlRun) -> None:
    assert verl.done.returncode == 0, verl.done.stdout + verl.done.stderr + _logs(verl)
    outcomes = [read_outcome(folder) for folder in verl.trials]
    assert len(outcomes) == 4
    assert all(outcome is not None and outcome.is_result for outcome in outcomes)
    assert {outcome.step for outcome in outcomes if outcome is not None} == {STEPS}
    assert max(outcome.attempts for outcome in outcomes if outcome is not None) == 2


def _logs(verl: VerlRun) -> str:
    return "".join((folder / "stdout.log").read_text(errors="replace")[-3000:] for folder in verl.trials)


def test_records_go_on_from_the_checkpoint_without_a_gap_or_a_repetition(verl: VerlRun) -> None:
    for folder in verl.trials:
        assert [row["step"] for row in _rows(folder, "train")] == [1, 2, 3]
        assert [row["step"] for row in _rows(folder, "eval")] == [0, 1, 2, 3]
        numbers = [
            value for kind in ("train", "eval") for row in _rows(folder, kind) for value in row.values()
        ]
        assert all(math.isfinite(number) for number in numbers if isinstance(number, float))
        assert {row["step"] for row in read_lines(folder / "histograms.jsonl").rows} <= {1, 2, 3}
        assert read_lines(folder / "episodes.jsonl").rows


def test_a_row_is_a_whole_transcript_where_the_trial_says_so(verl: VerlRun) -> None:
    found = [folder for folder in verl.trials if _config(folder)["rows"] == "transcript"]
    assert len(found) == 1
    for row in _rows(found[0], "train"):
        assert row["rollout/rows"] == row["rollout/episodes"] == 16
        assert row["rollout/turns"] > 1
        # of what the policy wrote alone: several responses of at least three tokens
        assert row["rollout/response_tokens"] > 3 * row["rollout/turns"]
        assert 0 < row["rollout/context_full"] <= 16
    others = [folder for folder in verl.trials if folder != found[0]]
    assert all(row["rollout/rows"] > 16 for folder in others for row in _rows(folder, "train"))


def _config(folder: Path) -> dict[str, Any]:
    config: dict[str, Any] = yaml.safe_load((folder / "trial.yaml").read_text())["config"]
    return config


def test_the_engine_samples_from_the_policy_that_is_trained(verl: VerlRun) -> None:
    # after every update too: new weights reach the engine
    for folder in verl.trials:
        gaps = [row["train/engine_gap"] for row in _rows(folder, "train") if "train/engine_gap" in row]
        assert gaps or "SAMPO" in (folder / "trial.yaml").read_text()
        assert all(gap < 1e-4 for gap in gaps)


def test_policies_move_and_the_learning_rate_warms_up_as_configured(verl: VerlRun) -> None:
    for folder in verl.trials:
        config = _config(folder)
        known = {name: value for name, value in config.items() if name in TrainingConfig.model_fields}
        trainer = TrainingConfig.model_validate(known).trainer
        updates = 0
        for row in _rows(folder, "train"):
            updates += int(row["train/updates"])
            expected = trainer.learning_rate_at(updates)
            assert row["train/learning_rate"] == pytest.approx(expected, rel=1e-6)
        if updates:
            assert _rows(folder, "train")[-1]["train/kl_ref"] > 0


def test_the_report_covers_both_methods(verl: VerlRun) -> None:
    text = (verl.study / "report" / "report.md").read_text()
    for words in ("GRPO", "SAMPO", "Does the verl back-end work?", "V1 trainer (use_v1: true)"):
        assert words in text
