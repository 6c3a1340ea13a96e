"""Work done by copies of this process, on other cores.

Where processes can be forked, copies see what this one has in memory; nothing is sent but the results.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from types import TracebackType
from typing import Any, Generic, TypeVar

Result = TypeVar("Result")

MOST_HELPERS = 8
"""Each takes memory of its own for what it makes: a hundred megabytes for figures."""

_PR_SET_PDEATHSIG = 1
_pieces: Sequence[Callable[[], Any]] = ()
"""In a helper, its work: inherited, so that it need not be pickled."""


def useful_helpers() -> int:
    """How many helpers pay: one a core, none on a single one. Forking is safe on Linux alone."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else 1
    return min(MOST_HELPERS, cores) if cores > 1 else 0


class SharedWork(Generic[Result]):
    """Pieces of work, begun at once by helpers, or done by this process in `finish` where there are none.

    A context manager: helpers end with it. pieces: calls that do not depend on each other and whose results
    can be pickled.
    """

    def __init__(self, pieces: Sequence[Callable[[], Result]], helpers: int) -> None:
        self._pieces = pieces
        self._pool: ProcessPoolExecutor | None = None
        self._begun: list[Future[Result]] = []
        if helpers:
            self._pool = ProcessPoolExecutor(helpers, get_context("fork"), _begin, (pieces, os.getpid()))
            self._begun = [self._pool.submit(_do, number) for number in range(len(pieces))]

    def __enter__(self) -> SharedWork[Result]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def finish(self, progress: Callable[[int, int], None] | None = None) -> list[Result]:
        """The results in the order of the pieces; raises what a piece raises.

        What a helper that was killed leaves undone is done here. progress: told how many of how many there
        are.
        """
        results = []
        for number, piece in enumerate(self._pieces):
            try:
                results.append(self._begun[number].result() if self._begun else piece())
            except BrokenProcessPool:
                results.append(piece())
            if progress is not None:
                progress(len(results), len(self._pieces))
        return results


def _begin(pieces: Sequence[Callable[[], Any]], main: int) -> None:
    """Make a process a helper, which ends with the main one: it shares open files and locks."""
    global _pieces
    _pieces = pieces
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if os.getppid() != main:  # it was gone before it could be watched
        os._exit(1)


def _do(number: int) -> Any:
    return _pieces[number]()
