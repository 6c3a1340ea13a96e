"""A job (a trial, or the making of a clone) as its supervisor is told of it, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from arena.limits import Limits
from arena.records import Cause

JobKind = Literal["trial", "clone"]
EndingKind = Literal[
    "finished",
    "stopped",
    "failed",
    "crashed",
    "killed",
    "lost",
    "unavailable",
    "out_of_memory",
    "hung",
    "timed_out",
    "no_result",
    "busy",
    "not_started",
]


@dataclass(frozen=True, slots=True)
class Job:
    """What a supervisor is told.

    folder: absolute, holds `trial.yaml`. target: where a clone goes. cwd: what relative paths in the
    configuration are relative to. driver: the text of the ProcessMark of whom it works for, or "".
    steps, retries, micro_rows: of the trial, for its outcome.
    """

    kind: JobKind
    id: str
    folder: str
    target: str = ""
    cwd: str = ""
    driver: str = ""
    steps: int = 0
    retries: int = 0
    micro_rows: int | None = None
    cpus: float = 1
    gpus: float = 0
    limits: Limits = field(default_factory=Limits)

    @property
    def name(self) -> str:
        """The job in words."""
        return f"{self.kind} {self.id}"


@dataclass(frozen=True, slots=True)
class Ending:
    """How a job's process ended.

    finished: with a result. stopped: because it was asked to, or killed because it was asked to. failed: the
    process says itself why. killed: by something else than us. lost: its supervisor is gone. unavailable:
    something it depends on failed. busy: somebody else is running it. The others are what the supervisor saw.
    reason: a sentence for people. exit: the exit code, negative for a signal. log: its last lines.
    """

    kind: EndingKind
    reason: str = ""
    exit: int | None = None
    seconds: float = 0.0
    attempts: int = 0
    log: tuple[str, ...] = ()

    @property
    def is_failure(self) -> bool:
        """Whether the job ended without a result although nobody asked it to."""
        return self.kind not in ("finished", "stopped")

    @property
    def cause(self) -> Cause:
        """What kind of failure it is, for the trial's outcome."""
        if self.kind == "out_of_memory":
            return "out_of_memory"
        return "unavailable" if self.is_of_the_machine else ""

    @property
    def is_of_the_machine(self) -> bool:
        """Whether it failed for no fault of its own, so that it may well succeed when it is started again."""
        return self.kind in ("killed", "lost", "unavailable")
