"""A session of Ray in a process of its own, which is all that Ray takes with it when it crashes. Imports ray.

`python -P -m arena.ray_session HANDLE`, where HANDLE is the descriptor of a socket to the driver
(`arena.tune_thread`). The driver sends a SessionPlan; then this side asks for jobs, tells how they ended, and
says at last how the session did. When the driver is gone this process ends at once, and Ray with it.
"""

from __future__ import annotations

import logging
import os
import select
import shutil
import signal
import socket
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil

from arena.study_files import RAY_STORAGE

logger = logging.getLogger(__name__)

_OBJECT_STORE_BYTES = 100 << 20
"""Jobs pass a few kilobytes through Ray, whose default is a third of the machine's memory."""
_MOST_PENDING = 64
_STARTS = 3
_LOOK_EVERY = 1.0
_REACH_WITHIN = 10.0
_OF_RAY = ("gcs_server", "raylet")
"""Ray's own processes on this machine, without which nothing goes on."""


@dataclass(frozen=True, slots=True)
class SessionPlan:
    """What a session is told. study: its folder. needs: the cores and GPUs that some trial asks for.

    address: of a cluster to be joined, None to start Ray here.
    """

    study: Path
    needs: tuple[tuple[float, float], ...]
    address: str | None


@dataclass(frozen=True, slots=True)
class Said:
    """What a session says to the driver, which answers what is asked.

    take, is_finished, ended: those of `arena.jobs.Jobs`. ready: Ray runs. over: all jobs are done. refused:
    this cluster cannot run the study, and why. failed: Ray could not go on, and why.
    """

    what: str
    given: Any = None


class CannotRunError(RuntimeError):
    """The cluster cannot run the study; the message says why and what to do."""


class Driver:
    """The driver, from this side. It answers questions in the order in which they are asked."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._alone = threading.Lock()

    def ask(self, what: str, given: Any = None) -> Any:
        """Ask something and wait for the answer."""
        with self._alone:
            self._connection.send(Said(what, given))
            return self._connection.recv()

    def say(self, what: str, given: Any = None) -> None:
        """Say something that has no answer."""
        with self._alone:
            self._connection.send(Said(what, given))


def main(handle: int) -> None:
    """Run a session to its end."""
    # Ray's processes must not hold the socket: its end is how the driver learns that this one is gone.
    os.set_inheritable(handle, False)
    connection = Connection(handle)
    plan: SessionPlan = connection.recv()
    threading.Thread(target=_end_with, args=(handle,), name="lifeline", daemon=True).start()
    driver = Driver(connection)
    try:
        _run(plan, driver)
    except CannotRunError as error:
        driver.say("refused", str(error))
    except Exception as error:
        logger.exception("the session of Ray ends")
        driver.say("failed", f"{type(error).__name__}: {error}")
    else:
        driver.say("over")


def _run(plan: SessionPlan, driver: Driver) -> None:
    if plan.address and plan.address != "auto":
        _reach(plan.address)
    import ray

    if plan.address:
        _join(plan.address)
    else:
        _start()
    watch = _Watch(driver)
    try:
        _check(plan)
        driver.say("ready")
        if not plan.address:
            watch.start()
        if not driver.ask("is_finished"):
            _run_jobs(plan, driver)
    finally:
        watch.over = True
        ray.shutdown()


def _run_jobs(plan: SessionPlan, driver: Driver) -> None:
    import ray

    from arena.tune_jobs import Feed, run_jobs

    cores = int(ray.cluster_resources().get("CPU", 1))
    # Workers are started for so many jobs at once.
    os.environ["TUNE_MAX_PENDING_TRIALS_PG"] = str(max(1, min(cores, _MOST_PENDING)))
    storage = plan.study.absolute() / RAY_STORAGE
    with suppress(FileNotFoundError):
        shutil.rmtree(storage)
    feed = Feed(
        lambda: driver.ask("take"),
        lambda: bool(driver.ask("is_finished")),
        lambda job, ending: driver.ask("ended", (job, ending)),
    )
    run_jobs(feed, storage, datetime.now().strftime("%Y-%m-%d_%H-%M-%S"))


def _check(plan: SessionPlan) -> None:
    """Raises CannotRunError where a trial would wait for ever, or would not see its folder."""
    from arena.tune_jobs import fits, unreachable_nodes

    for cpus, gpus in plan.needs:
        if not fits(cpus, gpus):
            raise CannotRunError(
                f"a trial asks for {cpus:g} cores and {gpus:g} GPUs, which no machine here has;"
                " `resources: {cpus: 1, gpus: 0}` in the grid asks for less"
            )
    if plan.address and (nodes := unreachable_nodes(plan.study.absolute())):
        raise CannotRunError(
            f"the studies folder {plan.study.parent} is not shared with all nodes of the cluster"
            f" ({'; '.join(nodes)}); `--studies DIR` names one that is"
        )


def _join(address: str) -> None:
    """Join a cluster of which this machine is a node. Raises CannotRunError."""
    import ray

    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    except Exception as error:
        raise CannotRunError(
            f"this machine could not join the Ray cluster at {address}: {error};"
            f" `ray start --address={address}` makes it one of its nodes"
        ) from error


def _reach(address: str) -> None:
    """Raises CannotRunError unless something answers: Ray itself would go on trying for minutes."""
    host, _, port = address.rpartition(":")
    remedy = "`ray start --head` prints the address of the cluster it starts"
    if not host or not port.isdecimal() or "/" in address:
        raise CannotRunError(f"{address!r} is not the address of a Ray cluster, HOST:PORT or auto; {remedy}")
    try:
        socket.create_connection((host, int(port)), timeout=_REACH_WITHIN).close()
    except (OSError, OverflowError) as error:
        raise CannotRunError(f"nothing answers at {address} ({error}); {remedy}") from error


def _start() -> None:
    """Start Ray on this machine. It gives itself 30 seconds, which a machine that is busy may not have."""
    import ray

    for attempt in range(_STARTS):
        try:
            ray.init(
                address="local",
                log_to_driver=False,
                logging_level="ERROR",
                include_dashboard=False,
                object_store_memory=_OBJECT_STORE_BYTES,
            )
            return
        except Exception as error:
            if attempt + 1 == _STARTS:
                raise
            logger.warning("Ray did not start, trying again: %s", error, exc_info=True)
            ray.shutdown()


class _Watch(threading.Thread):
    """Ends this process when one of Ray's own is lost. Ray would wait a minute first."""

    def __init__(self, driver: Driver) -> None:
        super().__init__(name="watch", daemon=True)
        self.over = False
        self._driver = driver
        self._processes = [child for child in psutil.Process().children() if child.name() in _OF_RAY]

    def run(self) -> None:
        while not self.over:
            for process in self._processes:
                with suppress(psutil.NoSuchProcess):
                    if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                        continue
                if not self.over:
                    self._driver.say("failed", f"Ray's process {process.pid} was lost")
                    os._exit(1)
            time.sleep(_LOOK_EVERY)


def _end_with(handle: int) -> None:
    """Wait until nobody holds the other end of the socket, and end this process without another word."""
    poll = select.poll()
    poll.register(handle, select.POLLHUP)
    poll.poll()
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    # Under its own name, so that what is sent is the same class on both sides.
    from arena.ray_session import main as run

    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s", level=logging.WARNING)
    run(int(sys.argv[1]))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
