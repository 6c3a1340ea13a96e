"""`arena run --address`: a cluster of two nodes, both on this machine, and addresses that lead nowhere."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from fake_study import fake_config, make_study

from arena.jobs import Jobs
from arena.ledger import study_states
from arena.processes import tagged
from arena.ray_session import CannotRunError
from arena.study_files import EventLog, make_study_folder
from arena.tune_thread import TuneThread

pytestmark = [pytest.mark.slow, pytest.mark.ray, pytest.mark.timeout(600)]

HERE = Path(__file__).parent
Cluster = Callable[..., str]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Starts two nodes; gives the address. `hidden` is a folder that the second does not see."""
    started: list[subprocess.Popen[str]] = []

    def start(*hidden: str) -> str:
        process = subprocess.Popen(
            [sys.executable, str(HERE / "run_ray_cluster.py"), *hidden],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(tmp_path / "cluster.log").open("wb"),
            text=True,
        )
        started.append(process)
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert address, (tmp_path / "cluster.log").read_text()
        return address

    yield start
    for process in started:
        family = psutil.Process(process.pid).children(recursive=True)
        process.communicate(timeout=120)
        psutil.wait_procs(family, timeout=30)
        for left in family:
            if left.is_running():
                left.kill()


def run(studies: Path, address: str) -> tuple[int, str]:
    """The exit code of a run at an address, and what it said."""
    scripts = [{"steps": 10, "seconds": 0.1}] * 3
    done = subprocess.run(
        [sys.executable, str(HERE / "run_fake_study.py"), str(studies), json.dumps(scripts), address],
        env={**os.environ, "MLFLOW_TRACKING_URI": f"sqlite:///{studies}/mlflow.db"},
        capture_output=True,
        text=True,
        timeout=400,
    )
    return done.returncode, done.stdout + done.stderr


def test_a_study_runs_on_a_cluster_that_is_there_before_and_after(tmp_path: Path, cluster: Cluster) -> None:
    address = cluster()
    studies = tmp_path / "studies"
    studies.mkdir()
    code, said = run(studies, address)
    assert code == 0, said
    assert list(study_states(studies / "faults").values()) == ["done"] * 3
    assert tagged(studies) == []
    socket.create_connection((address.split(":")[0], int(address.split(":")[1])), timeout=5).close()
    assert run(studies, address)[0] == 0


@pytest.mark.skipif(
    not shutil.which("unshare") or subprocess.run(["unshare", "-rm", "true"]).returncode != 0,
    reason="needs a mount namespace of its own",
)
def test_nodes_that_do_not_share_the_studies_folder_are_named(tmp_path: Path, cluster: Cluster) -> None:
    studies = tmp_path / "studies"
    studies.mkdir()
    address = cluster(str(studies))
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
