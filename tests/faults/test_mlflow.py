"""A tracking server that takes connections and never answers: training neither waits for it nor fails."""

from __future__ import annotations

import socket
from collections import Counter
from pathlib import Path

import pytest
from fake_study import fake_config, make_study, run_without_ray, wait_for
from mlflow import MlflowClient

from arena.ledger import study_states
from arena.tracking import sync_study

pytestmark = pytest.mark.slow


def test_a_server_that_never_answers_delays_no_trial_and_is_caught_up_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("arena.controller._LAST_SYNC", 3.0)
    study = make_study(tmp_path, [fake_config(seed=seed) for seed in range(3)])
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{silent.getsockname()[1]}")
        assert run_without_ray(monkeypatch, study, tracked=True) == 0
    assert set(study_states(study.folder).values()) == {"done"}
    assert "`arena sync" in capfd.readouterr().out
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    # Whoever waits for the silent server gives up when that is gone.
    wait_for(lambda: sync_study(study.folder).ok, 60)
    again = sync_study(study.folder)
    assert (again.ok, again.metrics) == (True, 0)
    runs = MlflowClient(f"sqlite:///{tmp_path}/mlflow.db").search_runs(["1"])
    assert Counter(run.info.status for run in runs)["FINISHED"] >= 3
