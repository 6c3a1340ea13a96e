"""A pool whose environments live in processes of their own: for those that are slow, may die or may hang."""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import Any

from envs.pool import EpisodeBook
from envs.process_worker import Failure
from envs.text_env import EnvPool, Observation, Outcome, Split, TextEnv

_LOG = logging.getLogger(__name__)

_GRACE_SECONDS = 5.0
"""How long a worker may take to end by itself."""


class WorkerError(RuntimeError):
    """An environment raised an exception, or could not be started even by a second worker."""


class ProcessPool(EnvPool):
    """Plays environments of `make` in `workers` processes; the results are those of a `SerialPool`.

    make: picklable. step_seconds, reset_seconds: how long one environment may take for a turn or a start; a
    worker that takes longer is killed. A worker that dies, so or otherwise, is replaced. Its episodes are
    over: their outcome is truncated, without success and reward, and says why in `failure`. An exception of
    an environment is raised here as WorkerError.
    """

    def __init__(
        self,
        make: Callable[[], TextEnv],
        *,
        workers: int,
        step_seconds: float,
        reset_seconds: float = 600.0,
    ) -> None:
        if workers < 1:
            raise ValueError(f"workers must be at least 1, got {workers}")
        self._make, self._step_seconds, self._reset_seconds = make, step_seconds, reset_seconds
        self._workers: list[_Worker | None] = [None] * workers
        self._book = EpisodeBook()
        self._places: list[tuple[int, int]] = []
        self._lost: dict[int, str] = {}

    def reset(self, seeds: Sequence[int], split: Split) -> list[Observation]:
        """See `EnvPool.reset`. A start that a worker does not survive is tried once more."""
        self._places, self._lost = self._distribute(seeds), {}
        self._book.start(0)
        started: dict[int, Observation] = {}
        for attempt in (1, 2):
            missing = [episode for episode in range(len(seeds)) if episode not in started]
            told = {episode: seeds[episode] for episode in missing}
            answers, failures = self._ask("reset", told, self._reset_seconds, split)
            started.update(answers)
            # a worker that died took with it what it had started before
            for episode in [e for e in started if self._places[e][0] in failures]:
                del started[episode]
            if attempt == 2 and failures:
                episode = min(e for e in range(len(seeds)) if e not in started)
                reason = failures[self._places[episode][0]]
                raise WorkerError(f"the environment of seed {seeds[episode]} cannot be started: {reason}")
            if not failures:
                break
        self._book.start(len(seeds))
        return [started[episode] for episode in range(len(seeds))]

    def step(self, episodes: Sequence[int], actions: Sequence[str]) -> list[Outcome]:
        """See `EnvPool.step`."""
        self._book.check(episodes, actions)
        told = {e: action for e, action in zip(episodes, actions, strict=True) if e not in self._lost}
        outcomes, failures = self._ask("step", told, self._step_seconds)
        self._book.finish(e for e, outcome in outcomes.items() if outcome.observation is None)
        for episode, (worker, _) in enumerate(self._places):
            if worker in failures and self._book.is_running(episode):
                self._lost[episode] = failures[worker]
        # what a worker answered before it died still counts, but nothing comes after it
        result = [
            outcomes.get(episode) or Outcome(None, 0.0, False, True, False, failure=self._lost[episode])
            for episode in episodes
        ]
        self._book.finish(
            e for e, outcome in zip(episodes, result, strict=True) if outcome.observation is None
        )
        return result

    def close(self) -> None:
        """End all workers."""
        self._book.start(0)
        for index, worker in enumerate(self._workers):
            if worker is not None:
                worker.end()
                self._workers[index] = None

    def _distribute(self, seeds: Sequence[int]) -> list[tuple[int, int]]:
        """A worker and a slot in it for every episode: even shares, equal seeds together."""
        first: dict[int, int] = {}
        for episode, seed in enumerate(seeds):
            first.setdefault(seed, episode)
        order = sorted(range(len(seeds)), key=lambda episode: (first[seeds[episode]], episode))
        places, slots = [(0, 0)] * len(seeds), [0] * len(self._workers)
        for rank, episode in enumerate(order):
            worker = rank * len(self._workers) // len(seeds)
            places[episode] = worker, slots[worker]
            slots[worker] += 1
        return places

    def _ask(
        self, order: str, told: dict[int, Any], seconds: float, *arguments: Any
    ) -> tuple[dict[int, Any], dict[int, str]]:
        """Tell workers what to do: the answers by episode, and by worker why it is no more."""
        waiting: dict[int, dict[int, int]] = {}
        for episode in told:
            worker, slot = self._places[episode]
            waiting.setdefault(worker, {})[slot] = episode
        failures: dict[int, str] = {}
        deadlines = {}
        for worker, slots in waiting.items():
            message = (order, [(slot, told[episode]) for slot, episode in slots.items()], *arguments)
            deadlines[worker] = time.monotonic() + seconds
            try:
                self._worker(worker).connection.send(message)
            except OSError:
                failures[worker] = self._bury(worker)
        answers: dict[int, Any] = {}
        raised: Failure | None = None
        while open_ := {w: slots for w, slots in waiting.items() if slots and w not in failures}:
            connections = {worker: self._worker(worker).connection for worker in open_}
            left = min(deadlines[worker] for worker in open_) - time.monotonic()
            ready = wait(list(connections.values()), timeout=max(0.0, left))
            for worker in [worker for worker, connection in connections.items() if connection in ready]:
                try:
                    slot, answer = connections[worker].recv()
                except (EOFError, OSError):
                    failures[worker] = self._bury(worker)
                    continue
                if isinstance(answer, Failure):
                    raised = raised or answer
                answers[open_[worker].pop(slot)] = answer
                deadlines[worker] = time.monotonic() + seconds
            for worker, slots in open_.items():
                if slots and worker not in failures and time.monotonic() > deadlines[worker]:
                    failures[worker] = self._bury(worker, f"took longer than {seconds:g} s")
        if raised is not None:
            raise WorkerError(f"{raised.summary}\n{raised.traceback}")
        return answers, failures

    def _worker(self, index: int) -> _Worker:
        worker = self._workers[index]
        if worker is None:
            worker = self._workers[index] = _Worker(self._make)
        return worker

    def _bury(self, index: int, reason: str | None = None) -> str:
        """Make sure that a worker is dead, so that the next use starts another; why it is."""
        worker = self._workers[index]
        self._workers[index] = None
        if worker is None:
            return "it was closed"
        if reason is None:
            reason = worker.autopsy()
        else:
            worker.kill()
        _LOG.warning("environment worker %d (process %d) %s", index, worker.process.pid, reason)
        return f"its worker {reason}"


class _Worker:
    """A process and the socket to it."""

    def __init__(self, make: Callable[[], TextEnv]) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            self.process = subprocess.Popen(
                [sys.executable, "-m", "envs.process_worker", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=environment,
            )
        self.connection = Connection(ours.detach())
        with suppress(OSError):  # should it be dead already, its first order finds out
            self.connection.send(("make", make))

    def end(self) -> None:
        """Let it end by itself; kill it if it does not."""
        self.connection.close()
        try:
            self.process.wait(_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """End it at once."""
        self.process.kill()
        self.process.wait()
        self.connection.close()

    def autopsy(self) -> str:
        """How it ended, as the other end of the socket is closed."""
        try:
            code = self.process.wait(_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            return "closed its socket"
        self.connection.close()
        return f"died of {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
