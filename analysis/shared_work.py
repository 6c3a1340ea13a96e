"""Work that this process shares with copies of itself: each takes the next piece until none is left.

Where processes can be forked, helpers see what this one has in memory, and nothing is copied or sent but the
results. A helper that dies leaves its piece to this process, which then meets whatever killed it by itself.
"""

from __future__ import annotations

import ctypes
import os
import signal
import struct
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Any, Generic, TypeVar

Result = TypeVar("Result")

MOST_HELPERS = 7
"""Each takes memory of its own for what it makes: a hundred megabytes for figures."""

_PR_SET_PDEATHSIG = 1
_NUMBER = struct.Struct("<I")
_MOST_PIECES = 16_000
"""All numbers of pieces must fit into a pipe's buffer (64 KiB on Linux)."""


def spare_cores() -> int:
    """Processes that can help this one: none but on Linux, where alone forking is safe."""
    return min(MOST_HELPERS, len(os.sched_getaffinity(0)) - 1) if sys.platform == "linux" else 0


class SharedWork(Generic[Result]):
    """Pieces of work, begun at once by `helpers` forked processes, finished by `finish`.

    A context manager: helpers end with it. pieces: calls that do not depend on each other and whose results
    can be pickled. Raises ValueError where there are too many.
    """

    def __init__(self, pieces: Sequence[Callable[[], Result]], helpers: int) -> None:
        if len(pieces) > _MOST_PIECES:
            raise ValueError(f"{len(pieces):,} pieces of work are more than {_MOST_PIECES:,}")
        self._pieces = pieces
        self._results: dict[int, Result] = {}
        self._waiting, filling = os.pipe()
        try:
            os.write(filling, b"".join(map(_NUMBER.pack, range(len(pieces)))))
        finally:
            os.close(filling)
        self._helpers: dict[Connection, Any] = {}
        context = get_context("fork")
        for _ in range(min(helpers, len(pieces) - 1)):
            receiving, sending = context.Pipe(duplex=False)
            helper = context.Process(target=self._help, args=(sending,), daemon=True)
            helper.start()
            sending.close()
            self._helpers[receiving] = helper

    def __enter__(self) -> SharedWork[Result]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for receiving, helper in self._helpers.items():
            helper.kill()
            helper.join()
            receiving.close()
        os.close(self._waiting)

    def finish(self, progress: Callable[[int, int], None] | None = None) -> list[Result]:
        """The results in the order of the pieces. progress: told how many of how many are there."""
        tell = progress or (lambda done, count: None)
        while (number := self._take()) is not None:
            self._results[number] = self._pieces[number]()
            self._receive(list(self._helpers), timeout=0)
            tell(len(self._results), len(self._pieces))
        busy = list(self._helpers)
        while busy:
            busy = self._receive(busy, timeout=None)
            tell(len(self._results), len(self._pieces))
        for number, piece in enumerate(self._pieces):
            if number not in self._results:
                self._results[number] = piece()
        return [self._results[number] for number in range(len(self._pieces))]

    def _receive(self, busy: list[Connection], timeout: float | None) -> list[Connection]:
        """Take in results that have come; returns the connections that may bring more."""
        ended = set()
        for receiving in wait(busy, timeout):
            assert isinstance(receiving, Connection)
            try:
                while receiving.poll():
                    number, result = receiving.recv()
                    self._results[number] = result
            except (EOFError, OSError):
                ended.add(receiving)
        return [receiving for receiving in busy if receiving not in ended]

    def _take(self) -> int | None:
        """The number of the next piece, which no other process gets; None where none is left."""
        found = os.read(self._waiting, _NUMBER.size)
        return _NUMBER.unpack(found)[0] if found else None

    def _help(self, sending: Connection) -> None:
        main = os.getppid()
        # It ends with the main process, whatever that dies of: it shares open files and locks.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        with suppress(Exception):  # the piece is missing, so the main process will meet the error
            while os.getppid() == main and (number := self._take()) is not None:
                sending.send((number, self._pieces[number]()))
