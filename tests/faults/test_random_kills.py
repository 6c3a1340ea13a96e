"""Trainers and supervisors killed at random moments, without Ray: nothing is lost, nothing is left."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from pathlib import Path

import fake_study
import pytest
from fake_study import fake_config, make_job, make_trial, wait_for

from arena import records
from arena.locks import is_held, read_holder
from arena.processes import tagged
from arena.records import LOCK, read_outcome
from arena.supervisor import supervise
from arena.trial import run_trial

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("victim", ["trainer", "supervisor"])
@pytest.mark.parametrize("seed", range(4))
def test_the_records_are_those_of_an_undisturbed_trial(tmp_path: Path, victim: str, seed: int) -> None:
    script = {"steps": 60, "seconds": 0.05, "seed": seed}
    whole = make_trial(tmp_path / "whole", fake_config(**{**script, "seconds": 0}))
    expected_outcome = run_trial(whole)
    folder = make_trial(tmp_path / "killed", fake_config(**script))
    moments = random.Random(f"{victim} {seed}")
    kills = 0
    for _ in range(6):
        supervisor = multiprocessing.get_context("spawn").Process(
            target=supervise, args=(make_job(folder),), daemon=True
        )
        supervisor.start()
        wait_for(lambda: read_outcome(folder) or (is_held(folder / LOCK) and tagged(folder)))
        time.sleep(moments.uniform(0, 1.2))
        pid = supervisor.pid if victim == "supervisor" else read_holder(folder / LOCK).get("pid")
        if pid and fake_study.is_running(pid):
            os.kill(pid, signal.SIGKILL)
            kills += 1
        supervisor.join()
        wait_for(lambda: not tagged(folder) and not is_held(folder / LOCK))
    assert kills
    assert supervise(make_job(folder)).kind == "finished"
    for name in records.RECORDS:
        assert (folder / name).read_bytes() == (whole / name).read_bytes()
    outcome = read_outcome(folder)
    assert outcome is not None
    assert (outcome.outcome, outcome.reason) == (expected_outcome.outcome, expected_outcome.reason)
    assert outcome.attempts > 1
