"""Locks that die with the process that holds them, however it dies.

An advisory `flock` on a file beside what it protects. It belongs to the open file, so a supervisor can take
it and hand it to its child; the kernel lets go of it when the last process that has it open is gone. The
file's content says who holds it, for people.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

_READERS_HOLD_IT_FOR = 0.3
"""`is_held` takes the lock for an instant; whoever wants it tries for this many seconds at least."""


_LENGTH = 256
"""Bytes of a lock file that is written again and again."""


class LockedError(RuntimeError):
    """Somebody else holds the lock; `holder` is what they wrote into it."""

    def __init__(self, path: Path, holder: dict[str, Any]) -> None:
        super().__init__(f"{path} is held by {describe(holder)}")
        self.holder = holder


class Lock:
    """A lock that is held. `handle` may be passed to a child process, which then holds it too."""

    def __init__(self, path: Path, *, wait: float = 0.0) -> None:
        """Take the lock, trying for `wait` seconds. Raises LockedError, or OSError when it cannot be made."""
        self.handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        deadline = time.monotonic() + max(wait, _READERS_HOLD_IT_FOR)
        while True:
            try:
                fcntl.flock(self.handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    self.release()
                    raise LockedError(path, read_holder(path)) from None
                time.sleep(0.02)
            except OSError:
                self.release()
                raise
        self.found = read_holder(path)
        """What the last holder left in the file."""

    def write(self, holder: dict[str, Any]) -> None:
        """Say who holds it. A reader sees the old text or the new: blanks keep the length the same."""
        data = json.dumps(holder).encode()
        length = max(_LENGTH, os.fstat(self.handle).st_size)
        os.pwrite(self.handle, data.ljust(length), 0)

    def release(self) -> None:
        """Let go; safe to call twice. A child that was given the handle goes on holding the lock."""
        if self.handle >= 0:
            os.close(self.handle)
            self.handle = -1


def is_held(path: Path) -> bool:
    """Whether some process holds the lock now."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def read_holder(path: Path) -> dict[str, Any]:
    """What the current or last holder wrote; empty when there is nothing to be read."""
    with suppress(OSError, ValueError):
        holder = json.loads(path.read_bytes())
        if isinstance(holder, dict):
            return holder
    return {}


def describe(holder: dict[str, Any]) -> str:
    """A holder in words: `process 123 on host since 2026-01-31 12:00:00`."""
    if not holder:
        return "a process that did not say who it is"
    words = f"process {holder.get('pid', '?')} on {holder.get('host', '?')}"
    return words + (f" since {holder['since']}" if "since" in holder else "")
