"""The compose file's tracking server, started here as its image starts it, on a real PostgreSQL."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PASSWORD = "for this test alone"


def _postgres_folder() -> Path | None:
    """Where PostgreSQL's programs are: not on the path of Debian."""
    found = shutil.which("initdb")
    if found:
        return Path(found).resolve().parent
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    return versions[-1] if versions else None


PROGRAMS = _postgres_folder()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(PROGRAMS is None, reason="PostgreSQL is not installed"),
]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _as_nobody(folder: Path) -> dict[str, str | int]:
    """PostgreSQL refuses to run as root: as root it is run by another user, who is given the folder."""
    if os.getuid() != 0:
        return {}
    for path in [folder, *folder.rglob("*")]:
        os.chown(path, 65534, 65534)
    return {"user": 65534, "group": 65534}


@pytest.fixture
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    assert PROGRAMS is not None
    home = Path("/tmp") / f"arena-postgres-{os.getpid()}"
    home.mkdir()
    try:
        (home / "password").write_text(PASSWORD)
        user = _as_nobody(home)
        port = _free_port()
        made = subprocess.run(
            [
                str(PROGRAMS / "initdb"),
                "--pgdata",
                str(home / "data"),
                "--username",
                "mlflow",
                "--pwfile",
                str(home / "password"),
                "--auth",
                "scram-sha-256",
            ],
            capture_output=True,
            text=True,
            check=False,
            cwd=home,
            **user,  # type: ignore[call-overload]
        )
        assert made.returncode == 0, made.stderr
        server = subprocess.Popen(
            [
                str(PROGRAMS / "postgres"),
                "-D",
                str(home / "data"),
                "-p",
                str(port),
                "-c",
                "listen_addresses=127.0.0.1",
                "-k",
                str(home),
            ],
            cwd=home,
            **user,  # type: ignore[call-overload]
        )
        try:
            _until(lambda: _accepts(port), 60)
            environment = {**os.environ, "PGPASSWORD": PASSWORD}
            command = [
                str(PROGRAMS / "createdb"),
                "-h",
                "127.0.0.1",
                "-p",
                str(port),
                "-U",
                "mlflow",
                "mlflow",
            ]
            _until(lambda: subprocess.run(command, env=environment, check=False).returncode == 0, 30)
            yield port
        finally:
            server.send_signal(signal.SIGINT)
            server.wait(30)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def _until(condition: object, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.3)


def test_runs_are_kept_in_postgresql(database: int, tmp_path: Path) -> None:
    pytest.importorskip("psycopg2")
    mlflow = pytest.importorskip("mlflow")
    (tmp_path / "password").write_text(PASSWORD)
    port = _free_port()
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "DB_HOST": "127.0.0.1",
        "DB_PORT": str(database),
        "DB_PASSWORD_FILE": str(tmp_path / "password"),
        "ARTIFACTS": str(tmp_path / "artifacts"),
        "HOST": "127.0.0.1",
        "PORT": str(port),
        "WORKERS": "1",
        "ALLOWED_HOSTS": f"127.0.0.1:{port}",
    }
    script = ROOT / "docker" / "mlflow-server.sh"
    server = subprocess.Popen(["sh", str(script)], env=environment, start_new_session=True, cwd=tmp_path)
    try:
        uri = f"http://127.0.0.1:{port}"
        _until(lambda: _healthy(uri) or server.poll() is not None, 200)
        assert server.poll() is None, "the server's script ended"
        client = mlflow.MlflowClient(tracking_uri=uri)
        experiment = client.create_experiment("from the test")
        run = client.create_run(experiment).info.run_id
        client.log_metric(run, "eval/success", 0.5, step=3)
        (tmp_path / "note.txt").write_text("kept")
        client.log_artifact(run, str(tmp_path / "note.txt"))
        assert client.get_run(run).data.metrics == {"eval/success": 0.5}
        assert [file.path for file in client.list_artifacts(run)] == ["note.txt"]
        assert list((tmp_path / "artifacts").rglob("note.txt"))
        # neither the address nor the password is there for everybody to read
        command = Path(f"/proc/{server.pid}/cmdline").read_bytes().decode()
        assert PASSWORD not in command
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(30)
    import psycopg2

    with psycopg2.connect(
        host="127.0.0.1", port=database, user="mlflow", dbname="mlflow", password=PASSWORD
    ) as connection:
        cursor = connection.cursor()
        cursor.execute("select value from metrics where key = 'eval/success'")
        assert cursor.fetchall() == [(0.5,)]


def _healthy(uri: str) -> bool:
    try:
        return urllib.request.urlopen(f"{uri}/health", timeout=3).status == 200  # type: ignore[no-any-return]
    except OSError:
        return False
