"""The full factorial grid, end to end in every environment: one of its points in each, for two steps."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from arena.planning import plan_study
from arena.records import read_lines, read_outcome
from arena.trial_sheet import read_sheet

pytestmark = [pytest.mark.slow, pytest.mark.ray, pytest.mark.timeout(600)]

GRID = Path(__file__).parents[2] / "grids" / "full_factorial.yaml"
SMALL = (
    "seeds=1",
    "trainer.steps=2",
    "trainer.groups=4",
    "trainer.group_size=4",
    "cloning.episodes=60",
    "cloning.stages=[{steps: 12, learning_rate: 3e-3}]",
    "evaluation.episodes=8",
)
POINT = {
    "loss_aggregation": "seq_mean_token_mean",
    "is_clipping": "sequence",
    "dynamic_filtering": "none",
    "advantage": "grpo",
}


def test_a_point_of_the_full_factorial_trains_in_every_environment_and_is_reported(tmp_path: Path) -> None:
    planned = plan_study(GRID, SMALL, studies=tmp_path)
    chosen = [trial for trial in planned.trials if trial.point == POINT]
    runnable = {trial.env for trial in chosen if not trial.problems}
    assert {trial.env for trial in chosen} == {trial.env for trial in planned.trials}
    assert {"sokoban", "alfworld"} <= {trial.env for trial in chosen}
    only = [word for axis, option in POINT.items() for word in ("--only", f"{axis}={option}")]
    command = ["run", str(GRID), *SMALL, *only, "--available", "--yes", "--format", "json"]
    ran = subprocess.run(
        [sys.executable, "-c", "from arena.cli import main; main()", *command],
        cwd=tmp_path,
        env={**os.environ, "ARENA_STUDIES": str(tmp_path), "ARENA_CACHE": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        timeout=560,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert json.loads(ran.stdout)["exit"] == 0
    study = tmp_path / "full_factorial"
    folders = sorted((study / "trials").iterdir())
    assert sorted(read_sheet(folder).env for folder in folders) == sorted(runnable)
    for folder in folders:
        outcome = read_outcome(folder)
        assert outcome is not None
        assert (outcome.step, outcome.exit) == (2, 0)
        rows = read_lines(folder / "metrics.jsonl").rows
        assert [row["step"] for row in rows if row["kind"] == "train"] == [1, 2]
        assert all(0 <= float(row["eval/success"]) <= 1 for row in rows if row["kind"] == "eval")
    report = (study / "report" / "report.md").read_text()
    assert all(env in report for env in runnable)
