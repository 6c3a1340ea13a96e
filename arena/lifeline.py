"""A trial's process ends with those it works for.

The supervisor holds one end of a pipe and the trial's process the other: when the supervisor is gone, by
whatever death, the kernel closes the pipe. The driver is watched as well: Ray's workers may outlive it.
"""

from __future__ import annotations

import os
import select
import signal
import threading
from pathlib import Path

from arena.processes import ProcessMark, kill_group, sweep

LIFELINE = "ARENA_LIFELINE"
"""Environment variable with the pipe's file descriptor."""
LOOK_EVERY = 1.0
"""Seconds between two looks at the driver."""


def hold(handle: int, driver: ProcessMark | None, folder: Path) -> None:
    """Watch in the background; when pipe or driver is gone, kill this process and all that it started.

    folder: what the processes it started are tagged with.
    """
    os.set_inheritable(handle, False)
    threading.Thread(target=_watch, args=(handle, driver, folder), name="lifeline", daemon=True).start()


def _watch(handle: int, driver: ProcessMark | None, folder: Path) -> None:
    poll = select.poll()
    poll.register(handle, select.POLLIN | select.POLLHUP)
    while True:
        # Nobody writes into the pipe: an event is its end.
        if poll.poll(LOOK_EVERY * 1000) or (driver is not None and driver.is_gone):
            break
    try:
        sweep(folder)
    finally:
        if os.getpgrp() == os.getpid():
            kill_group(os.getpid())
        os.kill(os.getpid(), signal.SIGKILL)
