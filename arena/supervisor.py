"""Running one job (a trial, or the making of a clone) as a child process, whatever becomes of it.

The supervisor knows nothing of training. It judges how processes end (an exit code, a signal, lack of memory,
silence, a time limit) and leaves nothing running. All it needs is in the job, so any worker can run any job.
"""

from __future__ import annotations

import logging
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from arena.capped_log import CappedLog
from arena.clones import PROGRESS, is_ready
from arena.failures import UNAVAILABLE
from arena.job import Ending, EndingKind, Job
from arena.lifeline import LIFELINE
from arena.lock_timer import Timer
from arena.locks import Lock, LockedError
from arena.memory import out_of_memory_kills
from arena.processes import DRIVER_TAG, FOLDER_TAG, TRIAL_TAG, ProcessMark, kill_group, sweep
from arena.records import (
    KILL,
    LOCK,
    LOG,
    METRICS,
    OUTCOME,
    RECORDS,
    STOP,
    CorruptRecordError,
    Outcome,
    read_last_rows,
    read_outcome,
    write_outcome,
)

logger = logging.getLogger(__name__)

LOCK_HANDLE = "ARENA_LOCK"
"""Environment variable with the lock's file descriptor: the child holds the lock too, and longest."""
ATTEMPT = "ARENA_ATTEMPT"
"""Environment variable: how often the job has been started, this time included."""

_LOOK_EVERY = 0.25
_LOCK_WAIT = 15.0
_CHUNK = 1 << 16
_BYTES_A_LOOK = 2 << 20
"""What a child prints beyond 8 MB a second waits in its pipe, and so does the child."""
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")


def supervise(job: Job, gpus: Sequence[str] = ()) -> Ending:
    """Run a job to its end. What goes wrong is in the ending and, for a trial, in its `outcome.json`.

    gpus: the ids of the GPUs it may see; by default none.
    """
    began = time.monotonic()
    try:
        with ExitStack() as stack:
            ready = _take_lock(job)
            if isinstance(ready, Ending):
                return ready
            stack.callback(ready.release)
            ending = _Run(job, gpus, ready).ending()
    except LockedError as error:
        ending = Ending("busy", f"It is running already: {error}.")
    except OSError as error:
        ending = Ending("not_started", f"It could not be run: {error}.")
    return replace(ending, seconds=round(time.monotonic() - began, 3))


def _take_lock(job: Job) -> Lock | Ending:
    """The job's lock, or its ending where there is nothing to be run. Raises LockedError."""
    folder = Path(job.folder)
    deadline = time.monotonic() + _LOCK_WAIT
    while True:
        if _stop_request(folder) is not None:
            return Ending("stopped", "It was asked to stop before it started.")
        try:
            lock = Lock(folder / LOCK)
        except LockedError:
            # A trial that lost its supervisor ends itself soon. A clone is being made for another study.
            if job.kind == "trial" and time.monotonic() > deadline:
                raise
            continue
        if _has_result(job):
            lock.release()
            return Ending("finished", "It had a result already.")
        return lock


def _has_result(job: Job) -> bool:
    if job.kind == "clone":
        return is_ready(Path(job.target))
    outcome = _outcome(Path(job.folder))
    return outcome is not None and outcome.is_result


class _Run:
    """One start of a job's process, until nothing of it is left."""

    def __init__(self, job: Job, gpus: Sequence[str], lock: Lock) -> None:
        self.job, self.gpus, self.lock = job, gpus, lock
        self.folder = Path(job.folder)
        self.attempts = _count(lock.found.get("attempt")) + 1
        self.timer = Timer(lock, gpus=job.gpus)
        self.log = CappedLog(self.folder / LOG, job.limits.log_bytes)
        self.selector = selectors.DefaultSelector()
        self.output = -1

    def ending(self) -> Ending:
        """Start the process, watch it to its end, and say how that came."""
        with suppress(FileNotFoundError):
            (self.folder / OUTCOME).unlink()
        memory_kills = out_of_memory_kills()
        with ExitStack() as stack:
            stack.callback(self.log.close)
            stack.callback(self.selector.close)
            lifeline, held = os.pipe()
            stack.callback(os.close, held)
            with ExitStack() as handed:
                handed.callback(os.close, lifeline)
                self.output, output = os.pipe()
                stack.callback(os.close, self.output)
                handed.callback(os.close, output)
                self.process = self._start(lifeline, output)
            try:
                ended = self._watch()
            finally:
                self._leave_nothing()
                self.timer.write(now=True)
        exit_code = self.process.returncode
        if ended is None and exit_code == -signal.SIGKILL and out_of_memory_kills() > memory_kills:
            ended = "out_of_memory", "It was killed when the machine ran out of memory."
        return self._judge(ended, exit_code)

    def _start(self, lifeline: int, output: int) -> subprocess.Popen[bytes]:
        job = self.job
        now = datetime.now().astimezone().isoformat(" ", "seconds")
        self.log.append(f"--- {job.name}, attempt {self.attempts}, {now}\n".encode())
        self._sign(now, None)
        environment = {
            key: value for key, value in os.environ.items() if not key.startswith(("RAY_", "TUNE_"))
        } | {
            TRIAL_TAG: job.id,
            FOLDER_TAG: job.folder,
            DRIVER_TAG: job.driver,
            LIFELINE: str(lifeline),
            LOCK_HANDLE: str(self.lock.handle),
            ATTEMPT: str(self.attempts),
            "CUDA_VISIBLE_DEVICES": ",".join(self.gpus),
            "PYTHONFAULTHANDLER": "1",
            "PYTHONHASHSEED": "0",
            "PYTHONUNBUFFERED": "1",
        }
        environment.update(dict.fromkeys(_THREADS, str(max(1, int(job.cpus)))))
        process = subprocess.Popen(
            [
                sys.executable,
                "-P",
                "-m",
                "arena.trial",
                *(["--clone"] if job.kind == "clone" else []),
                job.folder,
            ],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=job.cwd if job.cwd and Path(job.cwd).is_dir() else None,
            env=environment,
            pass_fds=(lifeline, self.lock.handle),
            start_new_session=True,
        )
        self._sign(now, process.pid)
        return process

    def _sign(self, since: str, pid: int | None) -> None:
        """Say in the lock who runs it. An attempt is counted before it begins: none goes uncounted."""
        holder = {"pid": pid, "host": socket.gethostname(), "since": since, "attempt": self.attempts}
        self.timer.sign(holder)

    def _watch(self) -> tuple[EndingKind, str] | None:
        """Wait for the end of the process; what made us end it, None when it ended by itself."""
        os.set_blocking(self.output, False)
        self.selector.register(self.output, selectors.EVENT_READ)
        with suppress(AttributeError, OSError):
            # Wakes us at the instant the process ends; without it the next look finds out.
            process_handle = os.pidfd_open(self.process.pid)
            self.selector.register(process_handle, selectors.EVENT_READ, data=process_handle)
        grown_at = time.monotonic()
        grown = self._growth()
        limits = self.job.limits
        while not self._wait(_LOOK_EVERY):
            now = time.monotonic()
            self.timer.write()
            if (growth := self._growth()) != grown:
                grown, grown_at = growth, now
            if _stop_request(self.folder) == KILL:
                kill_group(self.process.pid)
                self._wait(limits.grace, until_ended=True)
                return "stopped", "It was killed on request."
            if limits.total is not None and self.timer.seconds > limits.total:
                self._terminate()
                return "timed_out", f"It was ended after {limits.total:g} s, its time limit in all attempts."
            if limits.hang is not None and now - grown_at > limits.hang:
                self._terminate()
                return "hung", f"It was ended: nothing was recorded for {limits.hang:g} s."
        return None

    def _wait(self, seconds: float, *, until_ended: bool = False) -> bool:
        """Take in what is printed for so long, or until the process ends; whether it has ended."""
        deadline = time.monotonic() + seconds
        taken = 0
        while not self._has_ended():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            if taken >= _BYTES_A_LOOK and not until_ended:
                time.sleep(left)
                continue
            for key, _ in self.selector.select(left):
                if key.fd == self.output:
                    taken += self._read()
        return True

    def _read(self) -> int:
        """Log what has been printed since; how many bytes that was."""
        try:
            data = os.read(self.output, _CHUNK)
        except BlockingIOError:
            return 0
        if data:
            self.log.append(data)
        else:
            with suppress(KeyError):
                self.selector.unregister(self.output)
        return len(data)

    def _has_ended(self) -> bool:
        # WNOWAIT leaves a zombie: nobody else is given the group's number before the group is killed.
        try:
            return os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return True

    def _terminate(self) -> None:
        kill_group(self.process.pid, signal.SIGTERM)
        if not self._wait(self.job.limits.grace, until_ended=True):
            kill_group(self.process.pid)
            self._wait(self.job.limits.grace, until_ended=True)

    def _leave_nothing(self) -> None:
        """Kill the group and whatever left it, take in the last words, reap."""
        kill_group(self.process.pid)
        if swept := sweep(self.folder):
            self.log.append(f"--- killed what it left running: {', '.join(map(str, swept))}\n".encode())
        for key in list(self.selector.get_map().values()):
            if key.data is not None:
                os.close(key.data)
        left = _BYTES_A_LOOK
        while left > 0 and (taken := self._read()):
            left -= taken
        try:
            self.process.wait(self.job.limits.grace)
        except subprocess.TimeoutExpired:
            logger.error("%s: process %d cannot be killed", self.job.name, self.process.pid)

    def _growth(self) -> tuple[int, ...]:
        """Changes whenever something was recorded."""
        names = (PROGRESS,) if self.job.kind == "clone" else RECORDS
        return tuple(_changed(self.folder / name) for name in names)

    def _judge(self, ended: tuple[EndingKind, str] | None, exit_code: int | None) -> Ending:
        log = self.log.last_lines()
        ending = Ending("finished", exit=exit_code, attempts=self.attempts, log=log)
        outcome = None if self.job.kind == "clone" else _outcome(self.folder)
        if _has_result(self.job):
            return ending
        if ended is None and outcome is not None:
            kind: EndingKind = "stopped" if outcome.outcome == "interrupted" else outcome.cause or "failed"
            return replace(ending, kind=kind, reason=outcome.reason)
        kind, reason = ended or self._why(exit_code, log)
        ending = replace(ending, kind=kind, reason=reason)
        if self.job.kind == "trial":
            self._write_outcome(ending)
        return ending

    def _why(self, exit_code: int | None, log: Sequence[str]) -> tuple[EndingKind, str]:
        if _stop_request(self.folder) is not None:
            return "stopped", "It was asked to stop."
        driver = ProcessMark.parse(self.job.driver)
        if driver is not None and driver.is_gone:
            return "stopped", "It ended with the driver, which was gone."
        last = f" Its last words: {log[-1]}" if log and not log[-1].startswith("--- ") else ""
        if exit_code is None:
            return "crashed", "Its process cannot be killed."
        if exit_code == -signal.SIGKILL:
            return "killed", f"It was killed (SIGKILL), and not by us.{last}"
        if exit_code == UNAVAILABLE:
            return "unavailable", f"Something it depends on failed (exit code {exit_code}).{last}"
        if exit_code < 0:
            return "crashed", f"It was ended by {_signal_name(-exit_code)}.{last}"
        if exit_code > 0:
            return "crashed", f"It ended with exit code {exit_code}.{last}"
        return "no_result", f"It ended with exit code 0, but without a result.{last}"

    def _write_outcome(self, ending: Ending) -> None:
        steps = [row["step"] for row in read_last_rows(self.folder / METRICS) if row.get("kind") == "train"]
        outcome = Outcome(
            "interrupted" if ending.kind == "stopped" else "failed",
            reason=ending.reason,
            step=_count(steps[-1]) if steps else 0,
            steps=self.job.steps,
            exit=ending.exit,
            attempts=ending.attempts,
            retries=self.job.retries,
            micro_rows=self.job.micro_rows,
            cause=ending.cause,
        )
        try:
            write_outcome(self.folder, outcome)
        except OSError as error:
            # A full disk: without an outcome the trial counts as interrupted and runs again.
            logger.error("%s: its outcome could not be written: %s", self.job.name, error)


def _stop_request(folder: Path) -> str | None:
    """What the stop file says; None when there is none."""
    try:
        return (folder / STOP).read_text().strip()
    except OSError:
        return None


def _outcome(folder: Path) -> Outcome | None:
    try:
        return read_outcome(folder)
    except CorruptRecordError as error:
        logger.warning("%s", error)
        return None


def _changed(path: Path) -> int:
    try:
        status = path.stat()
    except OSError:
        return 0
    return hash((status.st_size, status.st_mtime_ns))


def _count(value: object) -> int:
    return value if isinstance(value, int) else 0


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
