"""Which job comes next: trials as their clones become ready, and the clones they wait for, each made once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from arena.job import Ending, Job


@dataclass(frozen=True, slots=True)
class Waiting:
    """A trial that is to run, and the id of the clone it starts from."""

    job: Job
    clone: str


class Schedule:
    """Hands out jobs in the order of the trials; told of every ending, it knows what is ready.

    clone_job: the job that makes a clone for a trial. is_ready: whether a clone is there already.
    """

    def __init__(
        self,
        trials: Sequence[Waiting],
        clone_job: Callable[[Waiting], Job],
        is_ready: Callable[[str], bool],
    ) -> None:
        self._waiting: list[Waiting] = []
        self._clone_job, self._is_ready = clone_job, is_ready
        self._ready: set[str] = set()
        self._making: set[str] = set()
        self._out: dict[tuple[str, str], Job] = {}
        self._again: list[Job] = []
        self._stopped = False
        self.add(trials)

    def add(self, trials: Sequence[Waiting]) -> None:
        """More trials, which come after the others."""
        new = {trial.clone for trial in trials} - self._ready - self._making
        self._ready |= {clone for clone in new if self._is_ready(clone)}
        self._waiting += trials

    @property
    def out(self) -> list[Job]:
        """The jobs that were handed out and have not ended."""
        return list(self._out.values())

    @property
    def is_finished(self) -> bool:
        """Whether no job will come any more; one that is out may come again."""
        return self._stopped or not (self._waiting or self._again or self._out)

    @property
    def is_stopped(self) -> bool:
        """Whether nothing more is handed out because somebody said so."""
        return self._stopped

    def stop(self) -> None:
        """Hand out nothing more."""
        self._stopped = True

    def next(self) -> Job | None:
        """The next job; None when there is none for now, or ever (`is_finished`)."""
        job = None if self._stopped else self._choose()
        if job is not None:
            self._out[job.kind, job.id] = job
        return job

    def _choose(self) -> Job | None:
        if self._again:
            return self._again.pop(0)
        for trial in self._waiting:
            if trial.clone in self._ready:
                self._waiting.remove(trial)
                return trial.job
            if trial.clone not in self._making:
                self._making.add(trial.clone)
                return self._clone_job(trial)
        return None

    def ended(self, job: Job, ending: Ending) -> list[tuple[Job, str]]:
        """Take note of an ending. The trials that cannot run because of it, each with the reason."""
        self._out.pop((job.kind, job.id), None)
        if job.kind == "trial":
            return []
        self._making.discard(job.id)
        if ending.kind == "finished":
            self._ready.add(job.id)
            return []
        without = [trial.job for trial in self._waiting if trial.clone == job.id]
        self._waiting = [trial for trial in self._waiting if trial.clone != job.id]
        if ending.kind == "stopped":
            # They stay as they are, for the next run.
            return []
        reason = f"The clone it starts from could not be made. {ending.reason}"
        return [(trial, reason) for trial in without]

    def again(self, job: Job) -> bool:
        """Hand a job that did not come to its end out once more, before all others; whether it will be."""
        self._out.pop((job.kind, job.id), None)
        if not self._stopped:
            self._again.append(job)
        return not self._stopped
