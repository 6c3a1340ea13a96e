"""A study that grows while it runs, through the real command line: tuned, then more seeds where in doubt.

It is killed once on the way. The policies are barely trained: nothing here says anything about the methods.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from arena.identity import FIRST_TUNING_SEED
from arena.ledger import study_states
from arena.processes import tagged
from arena.records import read_lines

pytestmark = [pytest.mark.slow, pytest.mark.ray]

_GRID = """
name: growing
question: Does it grow?
methods: [GRPO, SAMPO]
seeds: {min: 2, max: 3, until: {ci_width: 0.01}}
tuning:
  trials: 2
  params: {trainer.learning_rate: {low: 1e-4, high: 1e-3, log: true}, trainer.epochs: [1, 2]}
overrides:
  trainer: {steps: 2, groups: 4, group_size: 4, minibatch: {count: 2}}
  cloning: {episodes: 400, stages: [{steps: 60, learning_rate: 3e-3}]}
  evaluation: {every: 1, episodes: 16}
  env: {train_levels: 200, eval_levels: 64}
budget: {trials: 10}
"""
_ARENA = [sys.executable, "-c", "from arena.cli import main; main()"]


@dataclass(frozen=True)
class Grown:
    """The study, what its second run printed, and what was on file when the first was killed."""

    folder: Path
    grid: Path
    done: subprocess.CompletedProcess[str]
    killed_with: dict[str, str]

    def arena(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return _arena(self.folder.parent, *arguments)

    def events(self, name: str) -> list[str]:
        rows = read_lines(self.folder / "events.jsonl").rows
        return [str(row["trial"]) for row in rows if row["event"] == name]


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Grown:
    studies = tmp_path_factory.mktemp("studies")
    grid = studies / "growing.yaml"
    grid.write_text(_GRID)
    folder = studies / "growing"
    with (studies / "first.log").open("w") as log:
        first = subprocess.Popen(
            [*_ARENA, "run", str(grid), "--yes"],
            cwd=studies,
            env=_environment(studies),
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        deadline = time.monotonic() + 200
        while sum(state == "done" for state in study_states(folder).values()) < 3:
            assert first.poll() is None, (studies / "first.log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.2)
        os.killpg(first.pid, signal.SIGKILL)
        first.wait()
    killed_with = {name: state for name, state in study_states(folder).items() if state == "done"}
    return Grown(folder, grid, _arena(studies, "run", str(grid), "--yes"), killed_with)


def _environment(studies: Path) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if key != "MLFLOW_TRACKING_URI"}
    return kept | {"ARENA_STUDIES": str(studies)}


def _arena(studies: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*_ARENA, *arguments],
        cwd=studies,
        env=_environment(studies),
        capture_output=True,
        text=True,
        timeout=280,
    )


def _planned(grown: Grown) -> list[dict[str, Any]]:
    trials: list[dict[str, Any]] = json.loads((grown.folder / "plan.json").read_text())["trials"]
    return trials


def test_it_ends_with_a_result_for_every_candidate_and_seed(grown: Grown) -> None:
    assert grown.done.returncode == 0, grown.done.stdout + grown.done.stderr
    planned = _planned(grown)
    tuning = [trial for trial in planned if "tuning" in trial]
    compared = [trial for trial in planned if "tuning" not in trial]
    assert {trial["state"] for trial in planned} == {"done"}
    assert len(tuning) == 4
    assert {trial["seed"] for trial in tuning} == {FIRST_TUNING_SEED}
    assert {trial["seed"] for trial in compared} <= {0, 1, 2}
    assert 4 <= len(compared) <= 6
    assert set(study_states(grown.folder)) == {trial["id"] for trial in planned}


def test_nothing_that_had_a_result_when_it_was_killed_ran_again(grown: Grown) -> None:
    assert grown.killed_with
    finished = grown.events("trial finished")
    assert len(finished) == len(set(finished))
    queued = grown.events("trial queued")
    assert all(queued.count(trial) == 1 for trial in grown.killed_with)


def test_report_and_status_list_tuning_apart(grown: Grown) -> None:
    text = (grown.folder / "report" / "report.md").read_text()
    assert "## Tuning" in text
    assert "All of them had the same budget" in text
    assert (grown.folder / "report" / "figures" / "tuning.png").exists()
    assert "1000000" not in (grown.folder / "report" / "trials.csv").read_text()
    assert "Tuning (4)" in grown.arena("status", "growing").stdout


def test_running_again_finds_nothing_to_do(grown: Grown) -> None:
    before = set(study_states(grown.folder))
    again = grown.arena("run", str(grown.grid), "--yes")
    assert again.returncode == 0, again.stdout + again.stderr
    assert set(study_states(grown.folder)) == before
    assert tagged(grown.folder.parent) == []
