"""Whose processes are whose: marks that outlive a pid, environment tags, and making an end of them.

A trial's process starts in a group and a session of its own, but what it starts may leave both. What nobody
leaves without meaning to is the environment: it carries the trial's folder, and leftovers are found by it.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import psutil

TRIAL_TAG = "ARENA_TRIAL"
"""Environment variable of a trial's processes: the trial's id."""
FOLDER_TAG = "ARENA_FOLDER"
"""The same for the absolute path of its folder, which no other study's trial shares."""
DRIVER_TAG = "ARENA_DRIVER"
"""The same for the ProcessMark of the driver it works for."""

_ROUNDS = 20
"""A sweep looks again until it finds nothing, at most this often: what it kills may be starting others."""


@dataclass(frozen=True, slots=True)
class ProcessMark:
    """A process, told apart from a later one with its pid by the kernel's clock tick at which it started."""

    host: str
    pid: int
    started: int

    @classmethod
    def of(cls, pid: int | None = None) -> ProcessMark:
        """The mark of a running process, by default this one. Raises ProcessLookupError."""
        pid = os.getpid() if pid is None else pid
        started = _started(pid)
        if started is None:
            raise ProcessLookupError(f"no process {pid}")
        return cls(_host(), pid, started)

    @classmethod
    def parse(cls, text: str) -> ProcessMark | None:
        """The mark that `str(mark)` gave; None when the text is no mark."""
        host, _, rest = text.partition(" ")
        try:
            pid, started = (int(part) for part in rest.split(" "))
        except ValueError:
            return None
        return cls(host, pid, started)

    def __str__(self) -> str:
        return f"{self.host} {self.pid} {self.started}"

    @property
    def is_gone(self) -> bool:
        """Whether the process has certainly ended; one on another machine is never certain."""
        return self.host == _host() and _started(self.pid) != self.started


def kill_group(leader: int, signal_number: int = signal.SIGKILL) -> None:
    """Signal every process of a group; no error when there is none left."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal_number)


def sweep(folder: Path, *, spare: Callable[[Mapping[str, str]], bool] = lambda _: False) -> list[int]:
    """Kill every process tagged with a folder or one below it, except this one; their pids.

    spare: given a process's environment, whether it is left alone.
    """
    killed: list[int] = []
    for _ in range(_ROUNDS):
        found = [process for process, environment in _tagged(folder) if not spare(environment)]
        if not found:
            break
        for process in found:
            with suppress(psutil.Error):
                process.kill()
        killed += [process.pid for process in found if process.pid not in killed]
        psutil.wait_procs(found, timeout=0.5)
    return killed


def sweep_orphans(folder: Path) -> list[int]:
    """Kill what was tagged below a folder for a driver that is gone; their pids."""

    def has_driver(environment: Mapping[str, str]) -> bool:
        driver = ProcessMark.parse(environment.get(DRIVER_TAG, ""))
        return driver is not None and not driver.is_gone

    return sweep(folder, spare=has_driver)


def tagged(folder: Path) -> list[int]:
    """The pids of running processes tagged with a folder or one below it, this process excepted."""
    return [process.pid for process, _ in _tagged(folder)]


def _tagged(folder: Path) -> Iterator[tuple[psutil.Process, Mapping[str, str]]]:
    name = str(folder)
    for process in psutil.process_iter():
        if process.pid == os.getpid():
            continue
        # A zombie's environment is empty; other users' processes are not ours to see.
        with suppress(psutil.Error, OSError):
            environment = process.environ()
            value = environment.get(FOLDER_TAG, "")
            if value == name or value.startswith(name + os.sep):
                yield process, environment


@cache
def _host() -> str:
    """The machine, or the part of it with its own pids."""
    namespace = ""
    with suppress(OSError):
        namespace = f"/{os.stat('/proc/self/ns/pid').st_ino}"
    return f"{socket.gethostname()}{namespace}"


def _started(pid: int) -> int | None:
    """When a process started, in ticks no clock change touches; None when it is gone or a zombie."""
    if Path("/proc/self/stat").exists():
        try:
            # The second field is the program's name in brackets and may hold anything.
            after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except (OSError, UnicodeDecodeError):
            return None
        return None if after_name[0] in "ZX" else int(after_name[19])
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else int(process.create_time() * 100)
    except psutil.Error:
        return None
