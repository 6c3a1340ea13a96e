"""The process of a `ProcessPool`: makes environments and plays what it is told.

Started as `python -m envs.process_worker FD`; FD is a socket on which both sides send pickled tuples:

    ("make", factory)                 how an environment is made; first, and only once
    ("reset", [(slot, seed)], split)  answered for each slot, in order, by (slot, Observation)
    ("step", [(slot, action)])        answered for each slot, in order, by (slot, Outcome)

An exception is answered by (slot, Failure). The process ends when the socket closes.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection

from envs.pool import SerialPool
from envs.text_env import TextEnv

_LOOK_FOR_PARENT_EVERY = 1.0


@dataclass(frozen=True, slots=True)
class Failure:
    """An exception of an environment, in words: its class may not exist in the other process."""

    summary: str
    traceback: str


def serve(connection: Connection) -> None:
    """Answer until the other side is gone."""
    _, make = connection.recv()
    pools: dict[int, SerialPool] = {}
    while True:
        try:
            order, told, *split = connection.recv()
        except EOFError:
            return
        for slot, what in told:
            connection.send((slot, _answer(pools, make, order, slot, what, *split)))


def _answer(
    pools: dict[int, SerialPool], make: Callable[[], TextEnv], order: str, slot: int, *what: object
) -> object:
    """What one environment has to say; each has a pool of its own, so that one is as another."""
    try:
        pool = pools.setdefault(slot, SerialPool(make))
        if order == "reset":
            seed, split = what
            return pool.reset([seed], split)[0]  # type: ignore[list-item, arg-type]
        return pool.step([0], [what[0]])[0]  # type: ignore[list-item]
    except Exception as error:  # noqa: BLE001 - raised again on the other side
        return Failure(f"{type(error).__name__}: {error}", traceback.format_exc())


def _end_with(parent: int) -> None:
    """End this process when its parent has ended, also in the middle of a step."""
    while os.getppid() == parent:
        time.sleep(_LOOK_FOR_PARENT_EVERY)
    os._exit(1)


def main() -> None:
    """Serve the socket named on the command line."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which closes the socket
    threading.Thread(target=_end_with, args=[os.getppid()], daemon=True).start()
    serve(Connection(int(sys.argv[1])))


if __name__ == "__main__":
    # under its importable name, so that what is pickled here is known there
    from envs.process_worker import main as run

    run()
