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

KILLS = 20
"""Of each victim; with those of `arena run` (test_driver.py) more than fifty."""


@pytest.mark.parametrize("victim", ["trainer", "supervisor"])
def test_the_records_are_those_of_an_undisturbed_trial(tmp_path: Path, victim: str) -> None:
    script = {"steps": 2000, "seconds": 0.02}
    whole = make_trial(tmp_path / "whole", fake_config(**{**script, "seconds": 0}))
    expected = run_trial(whole)
    folder = make_trial(tmp_path / "killed", fake_config(**script))
    moments = random.Random(victim)
    kills, seen = 0, {0}
    while kills < KILLS:
        supervisor = multiprocessing.get_context("spawn").Process(
            target=supervise, args=(make_job(folder),), daemon=True
        )
        supervisor.start()
        wait_for(lambda: is_held(folder / LOCK) and tagged(folder), 60)
        time.sleep(moments.uniform(0, 1.8))
        pid = supervisor.pid if victim == "supervisor" else read_holder(folder / LOCK).get("pid")
        assert read_outcome(folder) is None, "a trial that ends before its last kill is too short"
        if pid and fake_study.is_running(pid):
            os.kill(pid, signal.SIGKILL)
            kills += 1
        supervisor.join()
        wait_for(lambda: not tagged(folder) and not is_held(folder / LOCK))
        seen.add(records.read_last_rows(folder / records.METRICS)[-1]["step"] if has_rows(folder) else 0)
    assert kills == KILLS
    assert len(seen) > KILLS / 4, "the kills came at different moments"
    (folder / "hurry").touch()
    assert supervise(make_job(folder)).kind == "finished"
    for name in records.RECORDS:
        assert (folder / name).read_bytes() == (whole / name).read_bytes()
    outcome = read_outcome(folder)
    assert outcome is not None
    assert (outcome.outcome, outcome.reason) == (expected.outcome, expected.reason)
    assert outcome.attempts == KILLS + 1


def has_rows(folder: Path) -> bool:
    return bool(records.read_last_rows(folder / records.METRICS))
