"""`arena run --address`: a cluster of two nodes, both on this machine, and addresses that lead nowhere."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from fake_study import fake_config, make_study, wait_for

from arena.jobs import Jobs
from arena.ledger import study_states
from arena.processes import tagged
from arena.ray_session import CannotRunError
from arena.study_files import EventLog, make_study_folder
from arena.tune_thread import TuneThread

pytestmark = [pytest.mark.slow, pytest.mark.ray, pytest.mark.timeout(600)]

HERE = Path(__file__).parent
Cluster = Callable[..., tuple[str, int]]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Starts two nodes, of which the second does not see `hidden`; gives the address and its process."""
    started: list[subprocess.Popen[str]] = []

    def start(*hidden: str) -> tuple[str, int]:
        process = subprocess.Popen(
            [sys.executable, str(HERE / "run_ray_cluster.py"), *hidden],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(tmp_path / "cluster.log").open("wb"),
            text=True,
        )
        started.append(process)
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, (tmp_path / "cluster.log").read_text()
        address, second = line.split()
        return address, int(second)

    yield start
    for process in started:
        family = psutil.Process(process.pid).children(recursive=True)
        process.communicate(timeout=120)
        psutil.wait_procs(family, timeout=30)
        for left in family:
            if left.is_running():
                left.kill()


def start(studies: Path, address: str, steps: int = 10) -> subprocess.Popen[str]:
    """A run at an address. What it prints goes to a file."""
    scripts = [{"steps": steps, "seconds": 0.1}] * 3
    return subprocess.Popen(
        [sys.executable, str(HERE / "run_fake_study.py"), str(studies), json.dumps(scripts), address],
        env={**os.environ, "MLFLOW_TRACKING_URI": f"sqlite:///{studies}/mlflow.db"},
        stdout=(studies / "terminal.log").open("ab"),
        stderr=subprocess.STDOUT,
        text=True,
    )


def run(studies: Path, address: str) -> tuple[int, str]:
    """The exit code of a run at an address, and what it said."""
    code = start(studies, address).wait(400)
    return code, (studies / "terminal.log").read_text()


def test_a_study_runs_on_a_cluster_outlives_one_of_its_nodes_and_leaves_the_others(
    tmp_path: Path, cluster: Cluster
) -> None:
    address, second = cluster()
    driver = start(tmp_path, address, steps=4000)
    trials = tmp_path / "faults" / "trials"
    wait_for(lambda: len(tagged(trials)) == 2, 240)
    lost = [one for one in psutil.Process(second).children(recursive=True) if one.name() == "raylet"]
    os.killpg(second, signal.SIGKILL)
    for process in lost:
        process.kill()
    wait_for(lambda: '"cause": "lost"' in (tmp_path / "faults" / "events.jsonl").read_text(), 240)
    wait_for(lambda: tagged(trials), 240)
    while driver.poll() is None:
        for folder in trials.iterdir():
            (folder / "hurry").touch()
        time.sleep(0.5)
    said = (tmp_path / "terminal.log").read_text()
    assert driver.returncode == 0, said
    assert list(study_states(tmp_path / "faults").values()) == ["done"] * 3
    assert tagged(tmp_path) == []
    host, port = address.split(":")
    socket.create_connection((host, int(port)), timeout=5).close()


@pytest.mark.skipif(
    not shutil.which("unshare") or subprocess.run(["unshare", "-rm", "true"]).returncode != 0,
    reason="needs a mount namespace of its own",
)
def test_nodes_that_do_not_share_the_studies_folder_are_named(tmp_path: Path, cluster: Cluster) -> None:
    studies = tmp_path / "studies"
    studies.mkdir()
    address, _ = cluster(str(studies))
    code, said = run(studies, address)
    assert code == 2
    assert "is not shared with all nodes of the cluster" in said
    assert "No such file or directory" in said
    assert not list((studies / "faults" / "trials").iterdir())


def refusal(studies: Path, address: str) -> str:
    """Why a run at an address is refused."""
    study = make_study(studies, [fake_config()])
    make_study_folder(study)
    states = {trial.id: trial.state for trial in study.trials}
    jobs = Jobs(study, study.trials, states, EventLog(study.folder), {})
    thread = TuneThread(jobs, study.folder, [(1, 0)], address)
    thread.start()
    thread.join(300)
    assert isinstance(thread.error, CannotRunError)
    assert states[study.trials[0].id] == "pending"
    return str(thread.error)


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nonsense", "ray://127.0.0.1:10001", "127.0.0.1:99999"])
def test_an_address_that_leads_nowhere_is_refused_with_what_to_do(tmp_path: Path, address: str) -> None:
    said = refusal(tmp_path, address)
    assert address in said
    assert "`ray start --head` prints the address" in said


def test_something_else_than_ray_at_an_address_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that takes connections and never says anything."""
    monkeypatch.setattr("arena.tune_thread._JOIN_WITHIN", 10.0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        said = refusal(tmp_path, f"127.0.0.1:{server.getsockname()[1]}")
    assert "answered within 10 s" in said
