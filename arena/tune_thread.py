"""The driver's side of Ray: a thread that has sessions of Ray (`arena.ray_session`) run a study's jobs.

A session is a process. When it is lost, or Ray under it, the trials that ran end themselves, and another
session takes them up from their checkpoints. Nothing here imports ray.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from arena.jobs import Jobs
from arena.processes import DRIVER_TAG, FOLDER_TAG, ProcessMark, kill_group, sweep
from arena.ray_session import CannotRunError, Said, SessionPlan
from arena.study_files import RAY_STORAGE

logger = logging.getLogger(__name__)

_JOIN_WITHIN = 90.0
"""Seconds in which a cluster must have answered; Ray itself would try for minutes."""
_ENDS_WITHIN = 60.0
_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AIR_NEW_OUTPUT": "0",
    # The kernel kills the trial that takes too much memory; Ray would kill its supervisor, and say less.
    "RAY_memory_monitor_refresh_ms": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
}


class TuneThread(threading.Thread):
    """Runs all jobs through Ray. `error` is what went wrong, if anything.

    needs: the cores and GPUs that some trial asks for. retries: how many sessions may be lost one after the
    other, none of which brought a job to its end.
    """

    def __init__(
        self,
        jobs: Jobs,
        study: Path,
        needs: Sequence[tuple[float, float]],
        address: str | None,
        *,
        retries: int = 2,
    ) -> None:
        super().__init__(name="tune", daemon=True)
        self._jobs, self._retries = jobs, retries
        self._plan = SessionPlan(study, tuple(needs), address)
        self._ended = 0
        self.error: Exception | None = None

    def run(self) -> None:
        """Run to the end of the jobs."""
        try:
            lost = 0
            while True:
                ended = self._ended
                problem = self._session()
                if problem is None or self._jobs.is_finished():
                    return
                lost = 1 if self._ended > ended else lost + 1
                self._jobs.session_lost()
                if lost > self._retries or self._jobs.is_finished():
                    raise RuntimeError(problem)
                logger.warning("Ray failed (%s); starting it again, attempt %d.", problem, lost + 1)
        except Exception as error:
            logger.debug("the run of jobs ended", exc_info=True)
            self.error = error

    def _session(self) -> str | None:
        """Have a session run jobs; why it did not come to an end, None when it did. Raises CannotRunError."""
        here, there = Pipe()
        process = self._start(there)
        there.close()
        try:
            here.send(self._plan)
            return self._serve(here, process)
        except (EOFError, ConnectionError, BrokenPipeError):
            return "its session was lost"
        finally:
            # Its own end lets Ray shut down; without it, the closed socket ends it.
            with suppress(subprocess.TimeoutExpired):
                process.wait(_ENDS_WITHIN if self._is_over else 0.1)
            here.close()
            kill_group(process.pid)
            process.wait()
            # Ray's processes are tagged like the study's; those of a cluster that was joined are not ours.
            sweep(self._plan.study.absolute())

    def _start(self, socket: Connection) -> subprocess.Popen[bytes]:
        self._is_over = False
        tags = {
            FOLDER_TAG: str(self._plan.study.absolute() / RAY_STORAGE),
            DRIVER_TAG: str(ProcessMark.of()),
        }
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "arena.ray_session", str(socket.fileno())],
            stdin=subprocess.DEVNULL,
            env={**os.environ, **_ENVIRONMENT, **tags},
            pass_fds=(socket.fileno(),),
            # Ctrl-C is the driver's to take.
            start_new_session=True,
        )

    def _serve(self, session: Connection, process: subprocess.Popen[bytes]) -> str | None:
        """Answer a session until it has said how it did."""
        deadline = time.monotonic() + _JOIN_WITHIN if self._plan.address else None
        while True:
            if deadline is not None and not session.poll(max(0.0, deadline - time.monotonic())):
                raise CannotRunError(
                    f"no Ray cluster at {self._plan.address} answered within {_JOIN_WITHIN:g} s; "
                    "`ray status --address ADDRESS` says whether it is one"
                )
            said: Said = session.recv()
            match said.what:
                case "ready":
                    deadline = None
                case "over":
                    self._is_over = True
                    return None
                case "refused":
                    self._is_over = True
                    raise CannotRunError(said.given)
                case "failed":
                    if self._plan.address:
                        raise RuntimeError(said.given)
                    return str(said.given)
                case what:
                    session.send(self._answer(what, said.given))

    def _answer(self, what: str, given: Any) -> Any:
        match what:
            case "take":
                return self._jobs.take()
            case "is_finished":
                return self._jobs.is_finished()
            case "ended":
                job, ending = given
                self._ended += ending is not None
                self._jobs.ended(job, ending)
                return None
        raise AssertionError(f"a session asked for {what!r}")
