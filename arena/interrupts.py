"""Ctrl-C, once for a clean stop and twice for a quick one; termination signals count as Ctrl-C."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """How often the user has asked for an end; `event` is set whenever that changes."""

    def __init__(self) -> None:
        self.count = 0
        self.event = threading.Event()

    def _add(self, number: int, frame: FrameType | None) -> None:
        # Ray puts a handler of its own before this one, which has set an alarm that would abort the process.
        signal.alarm(0)
        self.count += 1
        self.event.set()


@contextmanager
def counting_interrupts() -> Iterator[Interrupts]:
    """Count instead of dying, until the end of the block. In the main thread only, whose the signals are."""
    interrupts = Interrupts()
    before = {number: signal.signal(number, interrupts._add) for number in _SIGNALS}
    try:
        yield interrupts
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
