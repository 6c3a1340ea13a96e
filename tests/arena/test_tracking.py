"""MLflow says what a study's files say, whatever happened in between."""

from __future__ import annotations

import json
import math
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
import pytest
from markdown_it import MarkdownIt

from arena.locks import Lock
from arena.tracking import PortInUseError, Tracker, serve_ui, sync_study
from arena.tracking_store import default_uri, open_experiment
from arena.tracking_views import views


def database(folder: Path) -> Path:
    return folder.parent / "mlflow.db"


def query(study, sql: str) -> list[tuple]:
    """Read the store behind MLflow's back."""
    connection = sqlite3.connect(database(study.folder))
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def active_runs(study) -> dict[str, dict[str, str]]:
    """The tags of every active run by its name."""
    found: dict[str, dict[str, str]] = {}
    sql = (
        "select r.name, r.status, r.run_uuid, t.key, t.value"
        " from runs r join tags t on t.run_uuid = r.run_uuid"
        " where r.lifecycle_stage = 'active'"
    )
    for name, status, run, key, value in query(study, sql):
        found.setdefault(name, {"status": status, "id": run})[key] = value
    return found


def curve(study, name: str, key: str) -> list[tuple[int, float]]:
    run = active_runs(study)[name]["id"]
    sql = f"select step, value, is_nan from metrics where run_uuid = '{run}' and key = '{key}' order by step"
    return [(step, math.nan if is_nan else value) for step, value, is_nan in query(study, sql)]


@pytest.fixture
def study(make_study, row_of):
    """Two seeds of one cell, one of them collapsed, and a trial that is being trained."""
    made = make_study("tried")
    train, evaluate = row_of["train"], row_of["eval"]
    for seed, end, outcome in ((0, 0.8, "stable"), (1, 0.0, "collapsed")):
        folder = made.trial("aaaaaaaaaaaa", seed, label="SAMPO")
        made.rows(folder, [evaluate(0, 0.3)])
        for step in range(1, 7):
            made.rows(folder, [train(step), evaluate(step, end)])
        made.outcome(folder, outcome, onset=3 if seed else None, warnings=[{"name": "kl", "step": 2}])
    running = made.trial("bbbbbbbbbbbb", 0)
    made.rows(
        running, [evaluate(0, 0.3), train(1), {**train(2), "train/loss": "NaN", "train/kl": "Infinity"}]
    )
    made.plan(3)
    report = made.folder / "report"
    report.mkdir()
    (report / "report.md").write_text("# tried\n\nSAMPO held.\n\n![curves](figures/curves.png)\n")
    return made


@pytest.fixture(scope="module")
def empty_store(tmp_path_factory) -> Path:
    """A database with MLflow's tables: making them takes longer than any test."""
    studies = tmp_path_factory.mktemp("template")
    open_experiment(studies, default_uri(studies), "unused")
    return studies / "mlflow.db"


@pytest.fixture(autouse=True)
def store(request, monkeypatch, tmp_path) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    if "study" in request.fixturenames:
        (tmp_path / "studies").mkdir(exist_ok=True)
        shutil.copy(request.getfixturevalue("empty_store"), tmp_path / "studies" / "mlflow.db")


def written_numbers(study) -> Counter:
    """(trial, key, step, value) of everything in the record files; what is not finite as nan."""
    found = Counter()
    for file in study.folder.glob("trials/*/metrics.jsonl"):
        for line in file.read_text().splitlines():
            row = json.loads(line)
            for key in row.keys() - {"step", "kind"}:
                value = "nan" if isinstance(row[key], str) else float(row[key])
                found[file.parent.name, key, row["step"], value] += 1
    return found


def stored_numbers(study) -> Counter:
    """The same from the store, without the numbers that sum a trial up."""
    sql = (
        "select t.value, m.key, m.step, m.value, m.is_nan from metrics m"
        " join runs r on r.run_uuid = m.run_uuid join tags t on t.run_uuid = m.run_uuid"
        " where t.key = 'arena.trial' and r.lifecycle_stage = 'active' and m.key not like 'final/%'"
    )
    return Counter((t, key, step, "nan" if nan else value) for t, key, step, value, nan in query(study, sql))


def test_a_study_becomes_an_experiment_and_syncing_again_adds_nothing(study) -> None:
    lock = Lock(study.folder / "trials" / "bbbbbbbbbbbb-s0" / "lock")
    try:
        first = sync_study(study.folder)
        again = sync_study(study.folder)
    finally:
        lock.release()

    assert (first.errors, first.trials, first.uploads) == ((), 3, 3)
    assert first.metrics == written_numbers(study).total()
    assert (again.trials, again.metrics, again.uploads, again.errors) == (0, 0, 0, ())
    assert stored_numbers(study) == written_numbers(study)

    runs = active_runs(study)
    assert sorted(runs) == [
        "GRPO · sokoban",
        "GRPO · sokoban · s0",
        "SAMPO · sokoban",
        "SAMPO · sokoban · s0",
        "SAMPO · sokoban · s1",
        "report",
    ]
    collapsed = runs["SAMPO · sokoban · s1"]
    assert collapsed["mlflow.parentRunId"] == runs["SAMPO · sokoban"]["id"]
    expected = {
        "arena.trial": "aaaaaaaaaaaa-s1",
        "status": "FINISHED",
        "outcome": "collapsed",
        "learned": "learned",
        "onset": "3",
        "warnings": "kl at 2",
        "is_clipping": "cispo",
        "advantage": "grpo",
        "env": "sokoban",
        "seed": "1",
        "commit": "abc123",
        "kind": "trial",
    }
    assert expected.items() <= collapsed.items()
    assert runs["GRPO · sokoban · s0"]["status"] == "RUNNING"
    assert runs["GRPO · sokoban · s0"]["outcome"] == "running"
    assert ("trainer.kl.coefficient", "0.01") in query(
        study, f"select key, value from params where run_uuid = '{collapsed['id']}'"
    )

    cell = runs["SAMPO · sokoban"]
    assert sorted(cell["outcomes"].split(", ")) == ["1 collapsed", "1 stable"]
    # The trial that collapsed ended at 0.0, the other at 0.8.
    assert curve(study, "SAMPO · sokoban", "final/success") == [(0, pytest.approx(0.4))]
    assert curve(study, "SAMPO · sokoban", "seeds/collapsed") == [(0, 1.0)]

    assert runs["report"]["mlflow.note.content"] == "SAMPO held."
    note = query(study, "select value from experiment_tags where key = 'mlflow.note.content'")
    assert note == [("SAMPO held.",)]


def test_saved_views_name_only_columns_that_exist(study) -> None:
    sync_study(study.folder)
    tags = {f"tags.`{key}`" for (key,) in query(study, "select distinct key from tags")}
    metrics = {f"metrics.`{key}`" for (key,) in query(study, "select distinct key from metrics")}
    stored = query(study, "select value from experiment_tags where key like 'mlflow.sharedViewState.%'")
    states = [json.loads(json.loads(value)["state"]) for (value,) in stored]
    assert len(states) == 4
    assert {column for state in states for column in state["selectedColumns"]} <= tags | metrics
    assert "tags.`is_clipping`" in states[0]["selectedColumns"]


def test_the_searches_we_recommend_find_what_they_say(study) -> None:
    sync_study(study.folder)
    client, experiment = open_experiment(study.folder.parent, default_uri(study.folder.parent), "tried")
    found = {
        view.name: sorted(run.info.run_name for run in client.search_runs([experiment], view.runs))
        for view in views(["is_clipping"])
    }
    trials = ["GRPO · sokoban · s0", "SAMPO · sokoban · s0", "SAMPO · sokoban · s1"]
    assert found == {
        "methods": ["GRPO · sokoban", "SAMPO · sokoban"],
        "trials": trials,
        "collapsed and diverged": ["SAMPO · sokoban · s1"],
        "means over seeds (charts)": trials,
    }
    page = Path(__file__).parents[2] / "docs" / "mlflow.md"
    examples = [line.strip() for line in page.read_text().splitlines() if line.startswith("    tags.")]
    assert examples
    for example in examples:
        client.search_runs([experiment], example)


def test_the_searches_we_recommend_for_traces_find_what_they_say(study) -> None:
    sample_episodes(study, "aaaaaaaaaaaa-s0", 3)
    sample_episodes(study, "aaaaaaaaaaaa-s1", 3)
    sync_study(study.folder)
    client, experiment = open_experiment(study.folder.parent, default_uri(study.folder.parent), "tried")
    page = Path(__file__).parents[2] / "docs" / "mlflow.md"
    examples = [line.strip() for line in page.read_text().splitlines() if line.startswith("    tag.")]
    found = [client.search_traces([experiment], filter_string=example) for example in examples]
    told = [{(t.info.tags["outcome"], t.info.tags["step"]) for t in traces} for traces in found]
    assert told == [{("stable", "1"), ("collapsed", "1")}, {("collapsed", "1")}]


def test_artifacts_lie_beside_the_studies(study) -> None:
    trial = study.folder / "trials" / "aaaaaaaaaaaa-s0"
    bins = {"edges": [-1, 0, 1], "exact": 2}
    histograms = [
        {"step": step, "name": f"log_ratio_token/{sign}", "counts": [step, 5], **bins}
        for step in (1, 2, 3)
        for sign in ("positive", "negative")
    ]
    (trial / "histograms.jsonl").write_text("".join(json.dumps(row) + "\n" for row in histograms))
    turn = {"observation": "a wall", "response": "<action>up</action>", "action": "up", "reward": 1.0}
    episode = {"step": 1, "kind": "train", "success": True, "total_reward": 1.0, "turns": [turn]}
    (trial / "episodes.jsonl").write_text(json.dumps(episode) + "\n")
    sync_study(study.folder)
    run = active_runs(study)["SAMPO · sokoban · s0"]["id"]
    folder = study.folder.parent / "mlflow-artifacts" / "tried" / run / "artifacts"
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert files == {
        "trial.yaml",
        "outcome.json",
        "episodes.txt",
        "histograms/histograms.parquet",
        "histograms/log_ratio_token.png",
    }
    table = pd.read_parquet(folder / "histograms" / "histograms.parquet")
    last = table[(table.step == 3) & (table.name == "log_ratio_token/negative")]
    assert last[["left", "right", "count"]].values.tolist() == [[-1, 0, 3], [0, 1, 5], [0, 0, 2]]
    assert "a wall" in (folder / "episodes.txt").read_text()


def sample_episodes(study, trial: str, count: int = 12) -> list[dict]:
    """Write episodes of one turn more each, half of them solved, every third with a rejected turn."""
    episodes = []
    for step in range(count):
        turns = [
            {"observation": f"# wall {step}.{k}", "response": f"![](//x)\n````\n# {step}", "action": "up",
             "reward": -0.1, "rejection": "not possible here" if k == 0 and step % 3 == 0 else None}
            for k in range(step % 4 + 1)
        ]  # fmt: skip
        head = {"step": step, "kind": "eval", "success": step % 2 == 0, "total_reward": 0.5}
        episodes.append({**head, "turns": turns})
    text = "".join(json.dumps(episode) + "\n" for episode in episodes)
    (study.folder / "trials" / trial / "episodes.jsonl").write_text(text)
    return episodes


def stored_traces(study) -> dict[int, Any]:
    """The traces of the study's store by the step of their episode."""
    client, experiment = open_experiment(study.folder.parent, default_uri(study.folder.parent), "tried")
    found = client.search_traces([experiment])
    assert len({trace.info.tags["step"] for trace in found}) == len(found)
    return {int(trace.info.tags["step"]): trace for trace in found}


def _in_block(value: Any) -> Any:
    """What a code block holds, by a parser of markdown: it must hold all of the text."""
    if not isinstance(value, str):
        return value
    (block,) = MarkdownIt().parse(value)
    assert block.type == "fence"
    return block.content.removesuffix("\n")


def test_sampled_episodes_become_traces_a_span_per_turn(study) -> None:
    episodes = sample_episodes(study, "aaaaaaaaaaaa-s1")
    assert sync_study(study.folder).errors == ()
    found = stored_traces(study)
    # The first and the last two, and two on each side of the collapse at step 3.
    assert sorted(found) == [0, 1, 2, 3, 4, 10, 11]
    for step, trace in found.items():
        root, *spans = sorted(
            trace.data.spans, key=lambda span: (span.parent_id is not None, span.start_time_ns)
        )
        assert [span.parent_id for span in spans] == [root.span_id] * len(episodes[step]["turns"])
        assert root.outputs == {"success": step % 2 == 0, "total_reward": 0.5}
        for span, turn in zip(spans, episodes[step]["turns"], strict=True):
            told = {**span.inputs, **span.outputs}
            assert {key: _in_block(value) for key, value in told.items()} == turn
            assert (span.status.status_code == "ERROR") == (turn["rejection"] is not None)
        assert (
            trace.info.trace_metadata["mlflow.sourceRun"] == active_runs(study)["SAMPO · sokoban · s1"]["id"]
        )
        told = {"outcome": "collapsed", "success": "yes" if step % 2 == 0 else "no", "is_clipping": "cispo"}
        assert told.items() <= trace.info.tags.items()
    times = [found[step].info.request_time for step in sorted(found)]
    assert times == sorted(times)


def test_traces_are_sent_once_whatever_is_lost_in_between(study, empty_store) -> None:
    sample_episodes(study, "aaaaaaaaaaaa-s0", 3)
    sync_study(study.folder)
    first = stored_traces(study)
    assert sync_study(study.folder).uploads == 0
    connection = sqlite3.connect(database(study.folder))
    with connection:
        connection.execute("delete from tags where key in ('arena.uploaded', 'arena.traces')")
    connection.close()
    assert sync_study(study.folder).ok
    again = stored_traces(study)
    assert {step: trace.info.trace_id for step, trace in again.items()} == {
        step: trace.info.trace_id for step, trace in first.items()
    }
    assert [len(trace.data.spans) for trace in again.values()] == [
        len(trace.data.spans) for trace in first.values()
    ]
    study.folder.parent.rename(study.folder.parent.with_name("moved"))
    study.folder = study.folder.parent.with_name("moved") / "tried"
    shutil.copy(empty_store, database(study.folder))
    assert sync_study(study.folder).ok
    assert sorted(stored_traces(study)) == [0, 1, 2]


def test_the_traces_of_a_run_that_was_made_anew_are_those_of_the_new_run(study, row_of) -> None:
    sample_episodes(study, "aaaaaaaaaaaa-s0", 3)
    sync_study(study.folder)
    record = study.folder / "trials" / "aaaaaaaaaaaa-s0" / "metrics.jsonl"
    record.write_text("".join(record.read_text().splitlines(keepends=True)[:2]))
    study.rows(record.parent, [row_of["train"](step, **{"time/step": 3.25}) for step in (2, 3)])
    assert sync_study(study.folder).ok
    run = active_runs(study)["SAMPO · sokoban · s0"]["id"]
    assert {trace.info.trace_metadata["mlflow.sourceRun"] for trace in stored_traces(study).values()} == {run}


@pytest.mark.parametrize("code", ["ENDPOINT_NOT_FOUND", "NOT_IMPLEMENTED"])
def test_a_store_without_traces_gets_everything_else(study, monkeypatch, code) -> None:
    from mlflow.exceptions import MlflowException
    from mlflow.protos import databricks_pb2
    from mlflow.tracing.client import TracingClient

    def refuse(*_: object) -> None:
        raise MlflowException("no such thing", databricks_pb2.ErrorCode.Value(code))

    sample_episodes(study, "aaaaaaaaaaaa-s0", 3)
    monkeypatch.setattr(TracingClient, "start_trace", refuse)
    result = sync_study(study.folder)
    assert [error for error in result.errors if "aaaaaaaaaaaa-s0" not in error or "traces" not in error] == []
    assert len(result.errors) == 1
    assert sync_study(study.folder).errors == ()
    assert stored_numbers(study) == written_numbers(study)


def test_numbers_that_are_not_finite_are_gaps_in_a_curve(study) -> None:
    sync_study(study.folder)
    assert curve(study, "GRPO · sokoban · s0", "train/loss") == [
        (1, 0.1),
        (2, pytest.approx(math.nan, nan_ok=True)),
    ]
    assert curve(study, "GRPO · sokoban · s0", "train/kl") == [(2, pytest.approx(math.nan, nan_ok=True))]


def test_a_record_that_was_cut_back_leaves_no_trace_of_its_first_course(study, row_of) -> None:
    folder = study.folder / "trials" / "bbbbbbbbbbbb-s0"
    record = folder / "metrics.jsonl"
    tracker = Tracker(study.folder.parent, study.folder)
    tracker.sync()
    for resumed_by_another_process in (False, True):
        kept = record.read_text().splitlines(keepends=True)[:2]
        record.write_text("".join(kept))
        # As long as before and longer: its size says nothing.
        study.rows(
            folder, [row_of["train"](step, **{"train/loss": 7.5, "time/step": 3.25}) for step in (2, 3, 4)]
        )
        if resumed_by_another_process:
            study.rows(folder, [row_of["eval"](4, 0.9)])
            tracker.release()
            assert sync_study(study.folder).ok
        else:
            assert tracker.sync().ok
        assert stored_numbers(study) == written_numbers(study)
        assert curve(study, "GRPO · sokoban · s0", "train/loss") == [(1, 0.1), (2, 7.5), (3, 7.5), (4, 7.5)]


def test_a_driver_killed_before_it_noted_what_it_sent_sends_nothing_twice(study) -> None:
    sync_study(study.folder)
    connection = sqlite3.connect(database(study.folder))
    with connection:
        connection.execute(
            "delete from tags where key in ('arena.position', 'arena.elapsed', 'arena.uploaded')"
        )
    connection.close()
    result = sync_study(study.folder)
    assert result.ok
    assert result.metrics == written_numbers(study).total()
    assert stored_numbers(study) == written_numbers(study)
    assert len(active_runs(study)) == 6


def test_a_lost_store_is_made_again_and_a_lost_note_adds_no_runs(study, empty_store) -> None:
    sync_study(study.folder)
    (study.folder / ".tracking.json").unlink()
    assert sync_study(study.folder).metrics == 0
    assert len(active_runs(study)) == 6

    before = stored_numbers(study)
    # Another name for another connection: the old one is still open in this process.
    study.folder.parent.rename(study.folder.parent.with_name("moved"))
    study.folder = study.folder.parent.with_name("moved") / "tried"
    shutil.copy(empty_store, database(study.folder))
    assert sync_study(study.folder).ok
    assert stored_numbers(study) == before
    assert len(active_runs(study)) == 6


def test_two_copies_of_a_grid_on_one_server_keep_their_own_runs(study, tmp_path) -> None:
    colleague = type(study)(tmp_path / "colleague" / "tried")
    shutil.copytree(study.folder, colleague.folder, dirs_exist_ok=True)
    for record in colleague.folder.glob("trials/*/metrics.jsonl"):
        record.write_text(record.read_text().replace("2.0", "2.5"))
    uri = default_uri(study.folder.parent)
    for folder in (study.folder, colleague.folder, study.folder):
        result = sync_study(folder, uri)
        assert result.ok
    assert result.metrics == 0
    origins = query(study, "select value, count(*) from tags where key = 'arena.origin' group by value")
    assert [count for _, count in origins] == [6, 6]
    assert query(study, "select count(*) from runs where lifecycle_stage = 'deleted'") == [(0,)]


def test_one_damaged_trial_does_not_keep_the_others_out(study) -> None:
    (study.folder / "trials" / "aaaaaaaaaaaa-s0" / "outcome.json").write_text("{")
    (study.folder / "trials" / "bbbbbbbbbbbb-s0" / "trial.yaml").write_text("- no\n- trial\n")
    result = sync_study(study.folder)
    assert sorted(active_runs(study)) == ["SAMPO · sokoban", "SAMPO · sokoban · s1", "report"]
    assert [("outcome.json" in error, "trial.yaml" in error) for error in sorted(result.errors)] == [
        (True, False),
        (False, True),
    ]


def test_a_server_that_is_away_fails_nothing_and_is_caught_up_with(study, caplog) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    uri = f"http://127.0.0.1:{port}"
    tracker = Tracker(study.folder.parent, study.folder, uri, retry=0.01)
    tracker.start()
    tracker.request_sync()
    assert tracker.close() is not None
    assert str(port) in (tracker.problem or "")
    said = [record for record in caplog.records if record.levelname == "WARNING"]
    assert len(said) == 1, "said once, not at every attempt"

    assert sync_study(study.folder).metrics == written_numbers(study).total()


def test_one_process_at_a_time_writes_a_study(study) -> None:
    driver = Tracker(study.folder.parent, study.folder)
    assert driver.sync().ok
    refused = sync_study(study.folder)
    assert str(os.getpid()) in refused.errors[0]
    assert driver.close() is not None
    assert sync_study(study.folder).ok


def test_a_folder_without_trials_is_refused(tmp_path) -> None:
    with pytest.raises(FileNotFoundError, match="no trials"):
        sync_study(tmp_path)


def test_the_page_says_when_its_port_is_taken_or_nothing_is_to_be_shown(tmp_path, monkeypatch) -> None:
    with pytest.raises(FileNotFoundError, match="arena sync"):
        serve_ui(tmp_path, 0)
    (tmp_path / "mlflow.db").touch()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(PortInUseError, match="--port"):
            serve_ui(tmp_path, taken.getsockname()[1])
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://tracking.example:5000")
    said: list[str] = []
    assert serve_ui(tmp_path, 0, announce=said.append) == 0
    assert "http://tracking.example:5000" in said[0]


@pytest.mark.slow
def test_the_page_is_served_and_nothing_of_it_outlives_its_end(study, tmp_path) -> None:
    sync_study(study.folder)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    script = (
        "import pathlib, sys; from arena.tracking import serve_ui;"
        f"sys.exit(serve_ui(pathlib.Path({str(study.folder.parent)!r}), {port}))"
    )
    served = subprocess.Popen([sys.executable, "-c", script])
    try:
        page = fetch(f"http://127.0.0.1:{port}/", served)
        assert b"MLflow" in page
        children = psutil.Process(served.pid).children(recursive=True)
        assert children
    finally:
        served.terminate()
    assert served.wait(30) == 0
    assert psutil.wait_procs(children, timeout=10)[1] == []


def fetch(url: str, process: subprocess.Popen) -> bytes:
    while process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                return answer.read()
        except OSError:
            time.sleep(0.2)
    raise AssertionError(f"the server ended with {process.returncode}")
