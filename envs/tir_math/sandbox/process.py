"""One worker on the host's side: starting it, handing it a snippet, watching, ending it."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from envs.tir_math.sandbox.launch import command
from envs.tir_math.sandbox.limits import Ending, Finished, Limits, Snippet
from envs.tir_math.sandbox.usage import descendants, usage
from envs.tir_math.sandbox.worker import CONFINED

_START_SECONDS = 120.0
_GRACE_SECONDS = 5.0
"""How much longer than the wall limit a worker may be silent."""
WATCH_SECONDS = 0.05


class SandboxError(RuntimeError):
    """A worker does not do what it should: a fault of the sandbox, not of a snippet."""


class Worker:
    """A bubblewrap process and the snippet it runs; packages, warm_up: see `launch.command`.

    It dies with the thread that started it (bubblewrap's --die-with-parent), so that it cannot outlive us.
    """

    def __init__(self, limits: Limits, packages: Sequence[str], warm_up: str) -> None:
        self.usable = True
        self._limits = limits
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed in `close`
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._process = subprocess.Popen(
                command(limits, packages, warm_up, theirs.fileno()),
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                pass_fds=[theirs.fileno()],
                cwd="/",
            )
        except BaseException:
            self._control.close()
            self._log.close()
            raise
        finally:
            theirs.close()
        self._zygote, self._base_memory = 0, 0
        self._output: int | None = None
        self._received = bytearray()
        self._stopped: Ending | None = None
        self._report: dict[str, Any] | None = None
        self._deadline = self._watch_at = 0.0

    def wait_until_ready(self) -> None:
        """Raises SandboxError, with what bubblewrap and Python said, when the worker does not start."""
        self._control.settimeout(_START_SECONDS)
        try:
            message = self._control.recv(64)
        except OSError:
            message = b""
        self._control.setblocking(False)
        below = list(descendants(self._process.pid))
        if message != b"ready" or not below:
            self._process.kill()
            self._process.wait()
            complaint = self._complaint() if message != b"ready" else "/proc does not list its children"
            self.close()
            raise SandboxError(f"a sandbox worker did not start: {complaint}")
        self._zygote = below[-1]
        self._base_memory = usage(self._zygote).memory_bytes
        with contextlib.suppress(OSError):  # short of memory, the kernel shall take a snippet
            Path(f"/proc/{self._zygote}/oom_score_adj").write_text("1000", encoding="ascii")

    def _complaint(self) -> str:
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        return " / ".join(lines[-3:]) or f"exit status {self._process.poll()} and no message"

    def start(self, snippet: Snippet) -> bool:
        """Send a snippet; False when the worker is gone."""
        job = json.dumps({"code": snippet.code, "before": snippet.before}).encode()
        code = os.memfd_create("snippet")
        output, theirs = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            os.set_blocking(theirs, True)
            with open(code, "wb", closefd=False) as file:
                file.write(job)
            os.lseek(code, 0, os.SEEK_SET)
            socket.send_fds(self._control, [b"run"], [code, theirs])
        except OSError:
            os.close(output)
            self.usable = False
            return False
        finally:
            os.close(code)
            os.close(theirs)
        self._output = output
        self._received = bytearray()
        self._stopped = self._report = None
        now = time.monotonic()
        self._watch_at = now + WATCH_SECONDS
        self._deadline = now + self._limits.wall_seconds + _GRACE_SECONDS
        return True

    def register(self, poll: select.poll) -> None:
        """Let `poll` wake up when this worker has something to say."""
        if self._report is None:
            poll.register(self._control, select.POLLIN)
        if self._output is not None:
            poll.register(self._output, select.POLLIN)

    def result(self) -> Finished | None:
        """Take in what there is and see to the limits; the result once the snippet is over.

        To be called again after at most WATCH_SECONDS. Raises SandboxError when the cage could not be made.
        """
        self._read_output()
        self._read_report()
        if self._report is not None and self._output is None:
            return self._finish(self._report)
        now = time.monotonic()
        if not self.usable or now >= self._deadline:
            self.close()
            return Finished(self._text(), "lost", 0.0)
        if now >= self._watch_at:
            self._watch_at = now + WATCH_SECONDS
            self._watch()
        return None

    def _read_output(self) -> None:
        limit = (self._limits.output_kb << 10) + len(CONFINED)
        while self._output is not None:
            try:
                piece = os.read(self._output, 1 << 16)
            except BlockingIOError:
                return
            if not piece:
                os.close(self._output)
                self._output = None
            self._received += piece[: limit - len(self._received)]
            if len(piece) and len(self._received) == limit:
                self._stop("output")

    def _read_report(self) -> None:
        if self._report is not None:
            return
        try:
            message = self._control.recv(4096)
        except BlockingIOError:
            return
        except OSError:
            message = b""
        if message:
            self._report = json.loads(message)
        else:
            self.usable = False

    def _watch(self) -> None:
        """Add up what the processes of the snippet use."""
        cpu_seconds, memory = 0.0, 0
        for process in descendants(self._zygote):
            used = usage(process)
            cpu_seconds += used.cpu_seconds
            memory += max(0, used.memory_bytes - self._base_memory)
        if cpu_seconds > self._limits.cpu_seconds:
            self._stop("cpu")
        elif memory > self._limits.memory_mb << 20:
            self._stop("memory")

    def _stop(self, ending: Ending) -> None:
        if self._stopped is None and self._report is None:
            self._stopped = ending
            with contextlib.suppress(OSError):
                self._control.send(b"stop")

    def _text(self) -> str:
        return bytes(self._received[len(CONFINED) :]).decode(errors="replace")

    def _finish(self, report: dict[str, Any]) -> Finished:
        ending = self._ending(report)
        if not self._received.startswith(CONFINED) and report["stopped"] is None:
            said = self._received.decode(errors="replace").strip()
            raise SandboxError(f"a snippet could not be confined: {said or report}")
        return Finished(self._text(), ending, report["cpu_seconds"])

    def _ending(self, report: dict[str, Any]) -> Ending:
        if self._stopped == "output":  # also when it ended by itself meanwhile: the output is cut
            return "output"
        if report["stopped"] == "host" and self._stopped is not None:
            return self._stopped
        if report["stopped"] == "wall":
            return "wall"
        code = os.waitstatus_to_exitcode(report["status"])
        if code < 0:
            over = report["cpu_seconds"] > self._limits.cpu_seconds
            return "cpu" if over and -code in (signal.SIGKILL, signal.SIGXCPU) else "died"
        return "done" if code == 0 else "raised"

    def close(self) -> None:
        """End the worker and all in it; safe to call twice."""
        self.usable = False
        self._control.close()  # it ends by itself when it sees this
        if self._output is not None:
            os.close(self._output)
            self._output = None
        self._log.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)
        if self._process.returncode is None:
            self._process.kill()
            self._process.wait()
