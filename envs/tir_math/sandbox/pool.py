"""A pool of workers: many snippets at a time, and every one has a result."""

from __future__ import annotations

import atexit
import os
import select
import threading
from collections.abc import Sequence
from functools import cache
from types import TracebackType

from envs.tir_math.sandbox.limits import Finished, Limits, Snippet
from envs.tir_math.sandbox.process import WATCH_SECONDS, SandboxError, Worker


class SandboxPool:
    """Runs snippets in persistent workers, each behind bubblewrap; safe to use from several threads.

    Workers start when they are first needed and are replaced when they fail. A forked process must not use
    the pool of its parent (see `shared_pool`).
    """

    def __init__(
        self, limits: Limits, packages: Sequence[str] = (), *, warm_up: str = "", workers: int | None = None
    ) -> None:
        """packages, warm_up: see `launch.command`; workers: most at a time, by default `default_workers`."""
        self._limits, self._packages, self._warm_up = limits, tuple(packages), warm_up
        self._size = default_workers() if workers is None else workers
        self._changed = threading.Condition()
        self._idle: list[Worker] = []
        self._started = 0

    def run(self, snippets: Sequence[Snippet]) -> list[Finished]:
        """Run snippets side by side on the idle workers (at least one); results in the order given.

        Whatever a snippet does is its result, never an exception. Raises SandboxUnavailableError when there
        can be no sandbox on this machine and SandboxError when there should be one but it fails.
        """
        if not snippets:
            return []
        workers = self._take(len(snippets))
        try:
            return self._run(workers, snippets)
        finally:
            self._give_back(workers)

    def close(self) -> None:
        """End the idle workers; safe to call twice, and the pool can be used again."""
        with self._changed:
            idle, self._idle = self._idle, []
            self._started -= len(idle)
        for worker in idle:
            worker.close()

    def __enter__(self) -> SandboxPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _worker(self) -> Worker:
        return Worker(self._limits, self._packages, self._warm_up)

    def _take(self, wanted: int) -> list[Worker]:
        """At least one worker, waiting for it if need be, and more as far as they are idle."""
        with self._changed:
            while not self._idle and self._started >= self._size:
                self._changed.wait()
            taken, self._idle = self._idle[:wanted], self._idle[wanted:]
            missing = min(wanted - len(taken), self._size - self._started)
            self._started += missing
        try:
            made: list[Worker] = []
            for _ in range(missing):
                made.append(self._worker())  # they start side by side
            for worker in made:
                worker.wait_until_ready()
        except BaseException:
            for worker in made:
                worker.close()
            with self._changed:
                self._started -= missing - len(made)
            self._give_back([*taken, *made])
            raise
        return [*taken, *made]

    def _give_back(self, workers: Sequence[Worker]) -> None:
        with self._changed:
            usable = [worker for worker in workers if worker.usable]
            self._idle += usable
            self._started -= len(workers) - len(usable)
            self._changed.notify_all()

    def _run(self, workers: list[Worker], snippets: Sequence[Snippet]) -> list[Finished]:
        """Keeps `workers` up to date when it replaces one."""
        results: dict[int, Finished] = {}
        waiting = list(reversed(range(len(snippets))))
        free, running = list(workers), dict[Worker, int]()
        tried_again: set[int] = set()
        try:
            while waiting or running:
                while waiting and free:
                    worker = free.pop()
                    if not worker.usable or not worker.start(snippets[waiting[-1]]):
                        worker = self._replace(workers, worker)
                        if not worker.start(snippets[waiting[-1]]):
                            raise SandboxError("a fresh sandbox worker was gone at once")
                    running[worker] = waiting.pop()
                _wait(running)
                for worker in list(running):
                    finished = worker.result()
                    if finished is None:
                        continue
                    number = running.pop(worker)
                    free.append(worker)
                    if finished.ending == "lost" and number not in tried_again:
                        # the worker was ended from outside, or the machine stood still
                        tried_again.add(number)
                        waiting.append(number)
                    else:
                        results[number] = finished
        finally:
            for worker in running:  # after an exception or Ctrl-C nothing goes on behind our back
                worker.close()
        return [results[number] for number in range(len(snippets))]

    def _replace(self, workers: list[Worker], failed: Worker) -> Worker:
        failed.close()
        fresh = self._worker()
        workers[workers.index(failed)] = fresh
        fresh.wait_until_ready()
        return fresh


def _wait(workers: Sequence[Worker] | dict[Worker, int]) -> None:
    """Until one of the workers says something, or has to be looked at."""
    poll = select.poll()
    for worker in workers:
        worker.register(poll)
    poll.poll(WATCH_SECONDS * 1000)


def default_workers() -> int:
    """Half of the cores this process may use, at most 8; ARENA_SANDBOX_WORKERS overrides it."""
    if asked := os.environ.get("ARENA_SANDBOX_WORKERS"):
        return max(1, int(asked))
    return min(8, max(1, len(os.sched_getaffinity(0)) // 2))


def shared_pool(limits: Limits, packages: tuple[str, ...] = (), warm_up: str = "") -> SandboxPool:
    """The pool that all users of the same sandbox in this process share; closed at exit."""
    return _shared(os.getpid(), limits, packages, warm_up)


@cache
def _shared(process: int, limits: Limits, packages: tuple[str, ...], warm_up: str) -> SandboxPool:
    pool = SandboxPool(limits, packages, warm_up=warm_up)
    atexit.register(pool.close)
    return pool
