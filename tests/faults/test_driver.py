"""`arena run` killed and stopped, with Ray: what is done stays, the rest completes, nothing is left."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import fake_study
import psutil
import pytest
from fake_study import wait_for

from arena import records
from arena.ledger import study_states
from arena.processes import tagged
from arena.records import read_lines, read_outcome

pytestmark = [pytest.mark.slow, pytest.mark.ray, pytest.mark.timeout(900)]

TRIALS = 6
SCRIPT = {"steps": 40, "seconds": 0.1, "clone_seconds": 0.3}


STARTED: list[subprocess.Popen[bytes]] = []


@pytest.fixture(autouse=True)
def _no_driver_outlives_its_test() -> Iterator[None]:
    yield
    for driver in STARTED:
        driver.kill()
        driver.wait()
    STARTED.clear()


def start(studies: Path) -> subprocess.Popen[bytes]:
    """A driver. What it prints goes to a file, so that it cannot block on us."""
    with (studies / "terminal.log").open("ab") as log:
        command = [sys.executable, str(Path(__file__).with_name("run_fake_study.py"))]
        driver = subprocess.Popen(
            [*command, str(studies), str(TRIALS), json.dumps(SCRIPT)],
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            cwd=studies,
            env={**os.environ, "MLFLOW_TRACKING_URI": f"sqlite:///{studies}/mlflow.db"},
        )
    STARTED.append(driver)
    return driver


def finish(studies: Path) -> None:
    """Run to the end, which is a good one."""
    code = start(studies).wait(600)
    assert code == 0, (studies / "terminal.log").read_text()


def outcome_files(studies: Path) -> dict[str, tuple[int, int]]:
    """Inode and time of every outcome that is a result: a trial that is run again gets another file."""
    found = {}
    for path in studies.glob(f"faults/trials/*/{records.OUTCOME}"):
        outcome = read_outcome(path.parent)
        if outcome is not None and outcome.is_result:
            found[path.parent.name] = (path.stat().st_ino, path.stat().st_mtime_ns)
    return found


def assert_complete(studies: Path) -> None:
    """Every trial has the records and the result that it would have had undisturbed."""
    assert set(study_states(studies / "faults").values()) == {"done"}
    folders = sorted((studies / "faults" / "trials").iterdir())
    assert len(folders) == TRIALS
    for folder in folders:
        rows = read_lines(folder / records.METRICS).rows
        assert [row["step"] for row in rows if row["kind"] == "train"] == list(range(1, SCRIPT["steps"] + 1))
    assert tagged(studies) == []
    assert (studies / "faults" / "report" / "report.md").exists()


def family(driver: subprocess.Popen[bytes]) -> list[psutil.Process]:
    return psutil.Process(driver.pid).children(recursive=True)


def running(processes: list[psutil.Process]) -> list[psutil.Process]:
    return [process for process in processes if fake_study.is_running(process.pid) and process.is_running()]


@pytest.mark.parametrize("seed", range(3))
def test_a_killed_driver_leaves_nothing_and_the_next_one_completes(tmp_path: Path, seed: int) -> None:
    moments = random.Random(seed)
    kept: dict[str, tuple[int, int]] = {}
    rays: list[psutil.Process] = []
    for _ in range(2):
        driver = start(tmp_path)
        wait_for(lambda: tagged(tmp_path / ".cache") or tagged(tmp_path / "faults" / "trials"), 240)
        time.sleep(moments.uniform(0, 12))
        rays += family(driver)
        driver.kill()
        driver.wait()
        wait_for(lambda: not tagged(tmp_path), 60)
        done = outcome_files(tmp_path)
        assert kept.items() <= done.items()
        kept = done
    finish(tmp_path)
    assert_complete(tmp_path)
    assert kept.items() <= outcome_files(tmp_path).items()
    wait_for(lambda: not running(rays), 90)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_driver_lets_steps_finish_and_says_interrupted(
    tmp_path: Path, number: signal.Signals
) -> None:
    driver = start(tmp_path)
    wait_for(lambda: list(tmp_path.glob(f"faults/trials/*/{records.METRICS}")), 240)
    driver.send_signal(number)
    assert driver.wait(240) == 130
    states = study_states(tmp_path / "faults")
    assert "interrupted" in states.values()
    assert not set(states.values()) & {"failed", "running"}
    for folder in (tmp_path / "faults" / "trials").iterdir():
        outcome = read_outcome(folder)
        if outcome is not None and outcome.outcome == "interrupted" and outcome.step:
            # The step that was being trained is in a checkpoint.
            assert list((folder / "checkpoints").glob(f"step-{outcome.step:06d}.json"))
    assert not list(tmp_path.glob(f"faults/trials/*/{records.STOP}"))
    assert tagged(tmp_path) == []
    done = outcome_files(tmp_path)
    finish(tmp_path)
    assert_complete(tmp_path)
    assert done.items() <= outcome_files(tmp_path).items()


def test_a_driver_that_is_stopped_twice_kills(tmp_path: Path) -> None:
    driver = start(tmp_path)
    wait_for(lambda: tagged(tmp_path / "faults" / "trials"), 240)
    driver.send_signal(signal.SIGINT)
    time.sleep(0.05)
    driver.send_signal(signal.SIGINT)
    assert driver.wait(240) == 130
    assert tagged(tmp_path) == []
    finish(tmp_path)
    assert_complete(tmp_path)


def test_a_killed_worker_costs_no_trial(tmp_path: Path) -> None:
    driver = start(tmp_path)
    wait_for(lambda: tagged(tmp_path / "faults" / "trials"), 240)
    workers = [process for process in family(driver) if "Worker.train" in " ".join(process.cmdline())]
    workers[0].kill()
    assert driver.wait(300) == 0
    assert_complete(tmp_path)


@pytest.mark.parametrize("name", ["raylet", "gcs_server", "session"])
def test_when_ray_is_killed_it_is_started_again_and_trials_go_on(tmp_path: Path, name: str) -> None:
    driver = start(tmp_path)
    wait_for(lambda: tagged(tmp_path / "faults" / "trials"), 240)
    before = family(driver)
    (victim,) = [one for one in before if one.name() == name or is_session(one, name)]
    victim.kill()
    assert driver.wait(400) == 0
    assert_complete(tmp_path)
    assert running(before) == []
    events = (tmp_path / "faults" / "events.jsonl").read_text()
    assert "Ray failed" in events
    assert '"cause": "lost"' in events


def is_session(process: psutil.Process, name: str) -> bool:
    return name == "session" and "arena.ray_session" in process.cmdline()
