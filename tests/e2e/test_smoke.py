from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, Protocol

import pytest
import yaml

from arena.ledger import study_states
from arena.locks import is_held
from arena.processes import tagged
from arena.records import read_lines, read_outcome

pytestmark = pytest.mark.ray


class SmokeRun(Protocol):
    studies: Path
    study: Path
    trials: list[Path]
    done: Any

    def arena(self, *arguments: str) -> Any: ...


def test_the_grid_ends_with_a_result_for_every_trial(smoke: SmokeRun) -> None:
    assert smoke.done.returncode == 0, smoke.done.stdout + smoke.done.stderr
    states = study_states(smoke.study)
    assert len(states) == 4
    assert set(states.values()) == {"done"}
    for folder in smoke.trials:
        outcome = read_outcome(folder)
        assert outcome is not None
        assert (outcome.step, outcome.steps, outcome.exit, outcome.attempts) == (3, 3, 0, 1)


def test_the_terminal_shows_how_it_went_and_where_the_report_is(smoke: SmokeRun) -> None:
    report = smoke.study / "report" / "report.md"
    assert f"report: {report}" in smoke.done.stdout.splitlines()
    assert "4 of 4 done" in smoke.done.stdout
    for word in ("ray", "Tune", "mlflow", "Traceback"):
        assert word not in smoke.done.stdout
        assert word not in smoke.done.stderr


def test_the_report_names_methods_and_machine(smoke: SmokeRun) -> None:
    text = (smoke.study / "report" / "report.md").read_text()
    for words in ("Does everything work?", "GRPO", "SAMPO", "sokoban"):
        assert words in text
    assert list((smoke.study / "report" / "figures").glob("*.png"))
    assert list((smoke.study / "report").glob("*.csv"))


def test_the_records_have_every_step_and_only_finite_numbers(smoke: SmokeRun) -> None:
    for folder in smoke.trials:
        lines = read_lines(folder / "metrics.jsonl")
        assert lines.problems == ()
        assert [row["step"] for row in lines.rows if row["kind"] == "train"] == [1, 2, 3]
        assert [row["step"] for row in lines.rows if row["kind"] == "eval"] == [0, 1, 2, 3]
        numbers = [value for row in lines.rows for value in row.values() if isinstance(value, float)]
        assert all(math.isfinite(number) for number in numbers)
        assert read_lines(folder / "histograms.jsonl").rows
        assert read_lines(folder / "episodes.jsonl").rows


def test_a_sheet_says_what_was_run_and_where(smoke: SmokeRun) -> None:
    sheet = yaml.safe_load((smoke.trials[0] / "trial.yaml").read_text())
    assert sheet["trial"] == smoke.trials[0].name
    assert sheet["config"]["trainer"]["steps"] == 3
    assert {"versions", "commit", "dirty", "machine", "created"} <= set(sheet["provenance"])
    assert sheet["provenance"]["versions"]["torch"]


def test_trials_share_one_clone(smoke: SmokeRun) -> None:
    clones = [path for path in (smoke.studies / ".cache" / "clones").iterdir() if path.suffix != ".job"]
    assert len(clones) == 1
    assert (clones[0] / "model.safetensors").exists()


def test_nothing_is_left_running(smoke: SmokeRun) -> None:
    assert tagged(smoke.studies) == []
    assert not is_held(smoke.study / "driver.lock")
    assert not any((folder / "stop").exists() for folder in smoke.trials)


def test_mlflow_has_a_run_per_cell_and_per_trial(smoke: SmokeRun) -> None:
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{smoke.studies / 'mlflow.db'}")
    (experiment,) = [found for found in client.search_experiments() if found.name == "smoke"]
    runs = client.search_runs([experiment.experiment_id])
    children = [run for run in runs if "mlflow.parentRunId" in run.data.tags]
    parents = {run.data.tags["mlflow.parentRunId"] for run in children}
    assert (len(children), len(parents)) == (4, 2)
    rows = read_lines(smoke.trials[0] / "metrics.jsonl").rows
    final = [row["eval/success"] for row in rows if "eval/success" in row][-1]
    assert any(run.data.metrics.get("eval/success") == final for run in children)


def test_status_reads_the_same_from_the_files(smoke: SmokeRun) -> None:
    status = json.loads(smoke.arena("status", "smoke", "--format", "json").stdout)
    assert {trial["id"] for trial in status["trials"]} == {folder.name for folder in smoke.trials}
    assert all(trial["state"] == "done" for trial in status["trials"])


def test_running_again_does_nothing(smoke: SmokeRun) -> None:
    def files() -> dict[str, int]:
        return {str(path): path.stat().st_mtime_ns for folder in smoke.trials for path in folder.rglob("*")}

    before = files()
    grid = Path(__file__).parents[2] / "grids" / "smoke.yaml"
    again = smoke.arena("run", str(grid), "--yes")
    assert again.returncode == 0, again.stdout + again.stderr
    assert files() == before
    events = [row["event"] for row in read_lines(smoke.study / "events.jsonl").rows]
    assert events.count("trial queued") == 4
    assert events.count("run ended") == 2
