"""What a study has cost so far, and whether its budget allows it to go on.

Hours are those of the clock during which the study was being run, all runs of it together. GPU-hours are
those of its trials, all attempts of them, and of the clones they start from, whoever had these made: seconds
of the clock times the GPUs that were reserved. Both are kept in lock files (`driver.lock`, a trial's `lock`),
which are written every few seconds: they outlive whoever wrote them, and no crash makes a study cheaper.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from arena.clones import clone_job_folder
from arena.lock_timer import GPU_SECONDS, SECONDS, seconds_in
from arena.locks import read_holder
from arena.plan import Budget, PlannedTrial
from arena.records import LOCK
from arena.study_files import DRIVER_LOCK

_HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class Spent:
    """What a study has cost."""

    hours: float = 0.0
    gpu_hours: float = 0.0


def spent(budget: Budget, study: Path, trials: Sequence[PlannedTrial]) -> Spent:
    """What a study has cost so far of that which its budget limits; nothing is read for what it does not."""
    hours = 0.0 if budget.hours is None else seconds_in(read_holder(study / DRIVER_LOCK), SECONDS)
    gpus = 0.0 if budget.gpu_hours is None else _gpu_seconds(study, trials)
    return Spent(hours / _HOUR, gpus / _HOUR)


def used_up(budget: Budget, spent: Spent) -> str | None:
    """Which part of a budget is used up, as a sentence; None while none is."""
    checks = {"hours": (spent.hours, budget.hours), "gpu_hours": (spent.gpu_hours, budget.gpu_hours)}
    for name, (used, allowed) in checks.items():
        if allowed is not None and used >= allowed:
            limit = f"The budget of {allowed:,.4g} {unit(name)}"
            return f"{limit} is used up; raise `budget.{name}` and run again to go on."
    return None


def unit(name: str) -> str:
    """A key of `budget` as people write it."""
    return {"gpu_hours": "GPU-hours"}.get(name, name)


def _gpu_seconds(study: Path, trials: Sequence[PlannedTrial]) -> float:
    folders = [study / "trials" / trial.id for trial in trials]
    clones = {trial.clone for trial in trials if trial.clone}
    folders += [clone_job_folder(study.parent, clone) for clone in clones]
    return sum(seconds_in(read_holder(folder / LOCK), GPU_SECONDS) for folder in folders)
