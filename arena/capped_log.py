"""A log file that keeps the beginning and the end of what is written, however much that is."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_LAST = 1 << 14


class CappedLog:
    """Appends bytes to a file that never grows far beyond `limit` bytes: the middle goes.

    A log must not end what it logs: errors of the file system are kept in `error` instead of raised, and the
    last lines are known even then.
    """

    def __init__(self, path: Path, limit: int) -> None:
        self.path = path
        self.limit = limit
        self.error: OSError | None = None
        self.dropped = 0
        self._last = b""
        self._handle = -1
        self._size = 0
        try:
            self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            self._size = os.fstat(self._handle).st_size
        except OSError as error:
            self.error = error

    def append(self, data: bytes) -> None:
        """Write what was printed."""
        self._last = (self._last + data)[-_LAST:]
        if self._handle < 0:
            return
        try:
            self._size += os.write(self._handle, data)
            if self._size > self.limit:
                self._drop_the_middle()
        except OSError as error:
            self.error = error

    def last_lines(self, count: int = 20) -> tuple[str, ...]:
        """The last lines of this log that are not empty, as text."""
        lines = [line.rstrip() for line in self._last.decode("utf-8", "replace").splitlines()]
        return tuple([line for line in lines if line][-count:])

    def close(self) -> None:
        """Close the file; safe to call twice."""
        if self._handle >= 0:
            with suppress(OSError):
                os.close(self._handle)
            self._handle = -1

    def _drop_the_middle(self) -> None:
        head, tail = self.limit // 8, self.limit // 2
        end = os.pread(self._handle, tail, self._size - tail)
        self.dropped += self._size - head - len(end)
        os.ftruncate(self._handle, head)
        self._size = head + os.write(self._handle, b"\n... %d bytes left out ...\n" % self.dropped + end)
