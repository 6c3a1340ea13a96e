"""Where MLflow keeps a study, how it is reached, and the web page that shows it.

Nothing here imports mlflow at module level: the import costs seconds, and only the driver and `arena ui` pay.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, MutableMapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from arena.locks import Lock

DATABASE = "mlflow.db"
ARTIFACTS = "mlflow-artifacts"

_MIGRATION_SECONDS = 60.0
_SERVER_END_SECONDS = 3.0

ENVIRONMENT = {
    # No call to anyone but the tracking server.
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    # A server that does not answer costs seconds of a background thread, not minutes as by default; what
    # could not be sent is sent by a later sync.
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "0",
    # The terminal belongs to the live view.
    "MLFLOW_CONFIGURE_LOGGING": "false",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "GIT_PYTHON_REFRESH": "quiet",
}
"""Set before mlflow is imported, unless the user has set them."""


_LOUD = {"mlflow": logging.WARNING, "alembic": logging.WARNING, "urllib3.connectionpool": logging.ERROR}


def prepare_environment(environment: MutableMapping[str, str] | None = None) -> None:
    """Give every variable of `ENVIRONMENT` that is not set its value; call it before importing mlflow."""
    target = os.environ if environment is None else environment
    for name, value in ENVIRONMENT.items():
        target.setdefault(name, value)
    for name, level in _LOUD.items():
        logging.getLogger(name).setLevel(level)


def default_uri(studies: Path) -> str:
    """The store beside the studies: one SQLite file."""
    return f"sqlite:///{studies.resolve() / DATABASE}"


def store_uri(studies: Path, uri: str | None = None) -> str:
    """The tracking URI: the one given, else MLFLOW_TRACKING_URI, else the file beside the studies."""
    return uri or os.environ.get("MLFLOW_TRACKING_URI") or default_uri(studies)


def is_database(uri: str) -> bool:
    """Whether this process opens the database at this URI itself, instead of asking a server."""
    return urlsplit(uri).scheme.partition("+")[0] in {"sqlite", "mysql", "postgresql", "mssql"}


def open_experiment(studies: Path, uri: str, name: str) -> tuple[Any, str]:
    """An `MlflowClient` on the store, and the id of the experiment `name`, made if it is not there.

    Several processes that open a new database at once race in its migration, so that is done under a lock
    beside the studies. An experiment that was deleted in the UI comes back: its study is being written again.
    """
    prepare_environment()
    from mlflow import MlflowClient

    if not is_database(uri):
        client = MlflowClient(tracking_uri=uri)
        return client, _experiment(client, name, None)
    studies.mkdir(parents=True, exist_ok=True)
    lock = Lock(studies / f".{DATABASE}.lock", wait=_MIGRATION_SECONDS)
    try:
        client = MlflowClient(tracking_uri=uri)
        location = (studies.resolve() / ARTIFACTS / name).as_uri()
        return client, _experiment(client, name, location)
    finally:
        lock.release()


def _experiment(client: Any, name: str, location: str | None) -> str:
    experiment = client.get_experiment_by_name(name)
    if experiment is None:
        return str(client.create_experiment(name, artifact_location=location))
    if experiment.lifecycle_stage == "deleted":
        client.restore_experiment(experiment.experiment_id)
    return str(experiment.experiment_id)


_START_PAGE = "#/experiments?workflowType=machine_learning"
"""Without the type the page starts out with what is for language-model applications, not for training."""


class PortInUseError(RuntimeError):
    """The port for the web page is taken."""


def ui_command(studies: Path, uri: str, port: int, host: str) -> list[str]:
    """The command that serves the store's web page on `host:port` (one worker: it has one reader)."""
    return [
        *(sys.executable, "-m", "mlflow", "server"),
        *("--backend-store-uri", uri),
        *("--default-artifact-root", (studies.resolve() / ARTIFACTS).as_uri()),
        *("--host", host, "--port", str(port), "--workers", "1"),
        # Not a line for every picture of every page.
        *("--uvicorn-opts", "--log-level warning"),
    ]


def serve_ui(
    studies: Path, port: int, host: str = "127.0.0.1", announce: Callable[[str], None] | None = None
) -> int:
    """Serve the MLflow pages of `studies` until interrupted; returns the server's exit code, 0 after Ctrl-C.

    Called from the main thread. announce: is told what the reader should know (the address). Raises
    PortInUseError when something listens on the port already, and FileNotFoundError when there is no store to
    show. When MLFLOW_TRACKING_URI names a server there is nothing to serve: its address is announced.
    """
    say = announce or logging.getLogger(__name__).info
    uri = store_uri(studies)
    if not is_database(uri):
        say(f"The runs are on {uri} (MLFLOW_TRACKING_URI).")
        return 0
    if uri == default_uri(studies) and not (studies / DATABASE).exists():
        raise FileNotFoundError(
            f"no MLflow store at {studies / DATABASE}: run a grid first, or let `arena sync` make it"
        )
    _check_port(host, port)
    environment = dict(os.environ)
    prepare_environment(environment)
    environment.setdefault("MLFLOW_SERVER_ENABLE_JOB_EXECUTION", "false")
    environment.setdefault("PYTHONWARNINGS", "ignore")
    say(f"MLflow: http://{host}:{port}/{_START_PAGE} (Ctrl-C ends it)")
    # A group of its own: the server has children too, and all of them end with this call.
    process = subprocess.Popen(ui_command(studies, uri, port, host), env=environment, start_new_session=True)
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return process.wait()
    except KeyboardInterrupt:
        return 0
    finally:
        signal.signal(signal.SIGTERM, before)
        _end_group(process)


def _end_group(process: subprocess.Popen[bytes]) -> None:
    for name in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, name)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_SERVER_END_SECONDS)


def _check_port(host: str, port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise PortInUseError(
                f"cannot serve on {host}:{port} ({error.strerror}); another `arena ui` may be running: "
                "end it, or choose another port with --port"
            ) from error
