"""How long a plan takes: trials that are left, those that tuning decides later, seeds that may be added."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from arena.cells import Cell
from arena.configuration import visible_gpus
from arena.estimate import Cost, Kind, clones_to_make, kind_of, measured_costs, trial_seconds
from arena.identity import TrialConfig
from arena.plan import Estimate, PlannedTrial, Resources, State, Study
from trainers.sizing import gpu_memory, memory_line

NO_ESTIMATE = Estimate({}, 0.0, 0.0, 1, "nothing is left to run")
UNFINISHED: tuple[State, ...] = ("pending", "failed", "interrupted", "running")


@dataclass(frozen=True, slots=True)
class Later:
    """So many trials of a cell with values that are not known yet: candidates, and those compared."""

    cell: PlannedTrial
    candidates: int
    compared: int

    @property
    def count(self) -> int:
        """Both together."""
        return self.candidates + self.compared


def estimate_of(study: Study, cells: Sequence[Cell]) -> Estimate:
    """What is left to do; trials that are unavailable are not counted. cells: of the grid, not tuned."""
    left = [trial for trial in study.trials if trial.state in UNFINISHED]
    later = later_trials(study)
    examples = [*left, *(one.cell for one in later)]
    if not examples:
        return NO_ESTIMATE
    pace = _Pace(study, cells)
    seconds = {trial.id: pace.seconds(trial) for trial in left}
    at_once = min(_at_once(resources) for resources in {trial.resources for trial in examples})
    missing = clones_to_make(study.studies, (trial.clone for trial in examples))
    clones = {trial.clone: pace.clone(trial) for trial in examples if trial.clone in missing}
    work_later = sum(pace.seconds(one.cell) * one.count for one in later)
    work_tuning = sum(pace.seconds(one.cell) * one.candidates for one in later)
    work_tuning += sum(seconds[trial.id] for trial in left if trial.search)
    work = sum(seconds.values()) + work_later + sum(clones.values())
    longest = max(
        *(seconds[trial.id] + clones.get(trial.clone, 0.0) for trial in left),
        *(pace.seconds(one.cell) + clones.get(one.cell.clone, 0.0) for one in later),
        0.0,
    )
    gpu_seconds = sum(seconds[trial.id] * trial.resources.gpus for trial in left)
    gpu_seconds += sum(pace.seconds(one.cell) * one.cell.resources.gpus * one.count for one in later)
    most_added, work_added = _most_added(study, pace, sum(one.count for one in later))
    return Estimate(
        trial_seconds=seconds,
        seconds=pace.first.session + max(longest, work / at_once),
        gpu_hours=gpu_seconds / 3600,
        at_once=at_once,
        source=pace.source(examples),
        later=sum(one.count for one in later),
        tuning_seconds=work_tuning / at_once,
        most_added=most_added,
        added_seconds=work_added / at_once,
        memory=_memory(examples),
    )


def later_trials(study: Study) -> list[Later]:
    """The trials that are planned, of which tuning has still to decide what they are."""
    known = Counter(trial.search for trial in study.trials)
    later = []
    for search in study.searches:
        progress = study.progress.get(search.id)
        finished = progress is not None and progress.finished
        candidates = 0 if finished else max(0, search.most_trials - known[search.id])
        compared = 0 if finished else len(study.seeds)
        share, more = divmod(candidates, len(search.cells))
        for number, cell in enumerate(search.cells):
            one = Later(cell, share + (number < more), compared)
            if one.count:
                later.append(one)
    return later


class _Pace:
    """How long trials take by themselves, each cell looked at once."""

    def __init__(self, study: Study, cells: Sequence[Cell]) -> None:
        self._kinds = {cell.id: _kind(cell.config) for cell in cells}
        bases = {self._kinds[cell.id]: cell.base for cell in cells}
        self._guesses = {kind: Cost(**base.cost) for kind, base in bases.items()}
        self.first = next(iter(self._guesses.values()))
        self._measured = measured_costs(study.studies, study.folder, self._guesses)
        self._known: dict[str, tuple[Kind, float]] = {}

    def seconds(self, trial: PlannedTrial) -> float:
        return self._of(trial)[1]

    def clone(self, trial: PlannedTrial) -> float:
        """Seconds of the clone it starts from."""
        return self._cost(self._of(trial)[0]).clone

    def source(self, trials: Sequence[PlannedTrial]) -> str:
        if not self._measured:
            return "from `cost` in the configuration; nothing was measured here yet"
        if {self._of(trial)[0] for trial in trials} <= set(self._measured):
            return "from finished trials"
        return "from finished trials where there are any, else from `cost` in the configuration"

    def _of(self, trial: PlannedTrial) -> tuple[Kind, float]:
        if trial.cell not in self._known:
            kind = self._kinds.get(trial.cell) or _kind(trial.config)
            self._known[trial.cell] = kind, trial_seconds(trial.config, self._cost(kind))
        return self._known[trial.cell]

    def _cost(self, kind: Kind) -> Cost:
        return self._measured.get(kind, self._guesses.get(kind, self.first))


def _most_added(study: Study, pace: _Pace, later: int) -> tuple[int, float]:
    """How many seeds may be added at most to cells that are not done, and the seconds they take.

    later: trials that are planned and not known yet.
    """
    rule = study.replication
    if rule is None:
        return 0, 0.0
    compared = [trial for trial in study.trials if not trial.search]
    counts = Counter(trial.cell for trial in compared)
    added = {
        trial.cell: (trial, rule.most - counts[trial.cell]) for trial in compared if trial.state in UNFINISHED
    }
    for search in study.searches:
        if not (search.id in study.progress and study.progress[search.id].finished):
            added |= {cell.cell: (cell, rule.most - rule.least) for cell in search.cells}
    count = sum(seeds for _, seeds in added.values())
    seconds = sum(pace.seconds(trial) * seeds for trial, seeds in added.values())
    # Cells whose first seeds share a clone share those of their other seeds.
    own = {
        trial.clone: pace.clone(trial) * seeds
        for trial, seeds in added.values()
        if trial.config.cloning.clone_seed == "seed"
    }
    seconds += sum(own.values())
    allowed = count
    if study.budget.trials is not None:
        allowed = max(0, min(count, study.budget.trials - len(study.trials) - later))
    return allowed, seconds * allowed / count if count else 0.0


def _memory(trials: Sequence[PlannedTrial]) -> str:
    """What the largest of the trials on GPUs takes, in words."""
    known = {trial.cell: (trial, gpu_memory(trial.config, trial.resources.gpus)) for trial in trials}
    found = [(memory.learning, trial) for trial, memory in known.values() if memory is not None]
    if not found:
        return ""
    _, largest = max(found, key=lambda one: one[0])
    return memory_line(largest.config, largest.resources.gpus)


def _kind(config: TrialConfig) -> Kind:
    return kind_of(config.env, vars(config.model), vars(config.trainer), config.backend)


def _at_once(resources: Resources) -> int:
    """How many trials this machine runs side by side."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limits = [cpus / resources.cpus]
    if resources.gpus:
        limits.append(visible_gpus() / resources.gpus)
    return max(1, int(min(limits)))
