"""`arena run` killed and stopped, with Ray: what is done stays, the rest completes, nothing is left."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import fake_study
import psutil
import pytest
from fake_study import wait_for

from arena import records
from arena.ledger import study_states
from arena.processes import tagged
from arena.records import read_lines, read_outcome

pytestmark = [pytest.mark.slow, pytest.mark.ray, pytest.mark.timeout(900)]

SHORT = {"steps": 30, "seconds": 0.1, "clone_seconds": 0.3}
LONG = {**SHORT, "steps": 4000}
FEW = [SHORT] * 4
MANY = [SHORT, LONG, SHORT, LONG, SHORT, LONG]
VICTIMS = ["driver"] * 3 + ["trainer"] * 2 + ["worker"] * 2 + ["session", "raylet", "gcs_server"]
"""Who is killed, in an order of chance."""

STARTED: list[subprocess.Popen[bytes]] = []


@pytest.fixture(autouse=True)
def _no_driver_outlives_its_test() -> Iterator[None]:
    yield
    for driver in STARTED:
        driver.kill()
        driver.wait()
    STARTED.clear()


def start(studies: Path, scripts: Sequence[Mapping[str, Any]] = FEW) -> subprocess.Popen[bytes]:
    """A driver. What it prints goes to a file, so that it cannot block on us."""
    with (studies / "terminal.log").open("ab") as log:
        command = [sys.executable, str(Path(__file__).with_name("run_fake_study.py"))]
        driver = subprocess.Popen(
            [*command, str(studies), json.dumps(scripts)],
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            cwd=studies,
            env={**os.environ, "MLFLOW_TRACKING_URI": f"sqlite:///{studies}/mlflow.db"},
        )
    STARTED.append(driver)
    return driver


def finish(studies: Path, scripts: Sequence[Mapping[str, Any]] = FEW) -> None:
    """Run to the end, which is a good one."""
    code = start(studies, scripts).wait(600)
    assert code == 0, (studies / "terminal.log").read_text()


def outcome_files(studies: Path) -> dict[str, tuple[int, int]]:
    """Inode and time of every outcome that is a result: a trial that is run again gets another file."""
    found = {}
    for path in studies.glob(f"faults/trials/*/{records.OUTCOME}"):
        outcome = read_outcome(path.parent)
        if outcome is not None and outcome.is_result:
            found[path.parent.name] = (path.stat().st_ino, path.stat().st_mtime_ns)
    return found


def assert_complete(studies: Path, scripts: Sequence[Mapping[str, Any]] = FEW) -> None:
    """Every trial has the records and the result that it would have had undisturbed."""
    assert set(study_states(studies / "faults").values()) == {"done"}
    assert len(list((studies / "faults" / "trials").iterdir())) == len(scripts)
    for seed, script in enumerate(scripts):
        (folder,) = studies.glob(f"faults/trials/*-s{seed}")
        rows = read_lines(folder / records.METRICS).rows
        assert [row["step"] for row in rows if row["kind"] == "train"] == list(range(1, script["steps"] + 1))
    assert tagged(studies) == []
    assert (studies / "faults" / "report" / "report.md").exists()


def family(driver: subprocess.Popen[bytes]) -> list[psutil.Process]:
    return psutil.Process(driver.pid).children(recursive=True)


def running(processes: list[psutil.Process]) -> list[psutil.Process]:
    return [process for process in processes if fake_study.is_running(process.pid) and process.is_running()]


def trial_processes(studies: Path) -> list[int]:
    return tagged(studies / "faults" / "trials")


def kill(victim: str, driver: subprocess.Popen[bytes], studies: Path) -> bool:
    """Kill one of the processes of a run; whether there was one."""
    if victim == "driver":
        found = [psutil.Process(driver.pid)]
    elif victim == "trainer":
        found = [psutil.Process(pid) for pid in trial_processes(studies)]
    else:
        found = [process for process in family(driver) if described(process) == victim]
    if not found:
        return False
    found[0].kill()
    return True


def hurry(studies: Path) -> bool:
    """Let the trials that have begun take no time; False, as others may be to come."""
    for folder in (studies / "faults" / "trials").iterdir():
        (folder / "hurry").touch()
    return False


def described(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        command = process.cmdline()
        if "arena.ray_session" in command:
            return "session"
        if any("Worker.train" in word for word in command):
            return "worker"
        return process.name()
    return ""


def test_ten_kills_at_moments_of_chance_cost_no_result_and_leave_nothing(tmp_path: Path) -> None:
    chance = random.Random(4)
    victims = chance.sample(VICTIMS, len(VICTIMS))
    kept: dict[str, tuple[int, int]] = {}
    everybody: list[psutil.Process] = []
    kills = []
    driver = start(tmp_path, MANY)
    for victim in victims:
        wait_for(lambda: trial_processes(tmp_path), 240)
        time.sleep(chance.uniform(0, 4))
        everybody += family(driver)
        wait_for(partial(kill, victim, driver, tmp_path), 240)
        kills.append(victim)
        if victim == "driver":
            driver.wait()
            wait_for(lambda: not tagged(tmp_path), 60)
        done = outcome_files(tmp_path)
        assert kept.items() <= done.items()
        kept = done
        if victim == "driver":
            driver = start(tmp_path, MANY)
        assert driver.poll() is None, (tmp_path / "terminal.log").read_text()
    assert len(kills) == 10
    wait_for(lambda: trial_processes(tmp_path), 240)
    # a trial that has not begun has no folder yet
    wait_for(lambda: hurry(tmp_path) or driver.poll() is not None, 600)
    assert driver.poll() in (0, 1)
    finish(tmp_path, MANY)
    assert_complete(tmp_path, MANY)
    assert kept.items() <= outcome_files(tmp_path).items()
    wait_for(lambda: not running(everybody), 90)
    events = (tmp_path / "faults" / "events.jsonl").read_text()
    assert events.count("Ray failed") >= 2
    assert events.count('"trial retried"') >= 4


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
