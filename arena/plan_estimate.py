"""How long a plan takes: trials that are left, those that tuning decides later, seeds that may be added."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from arena.cells import Cell
from arena.configuration import visible_gpus
from arena.estimate import Cost, Kind, clones_to_make, kind_of, measured_costs, trial_seconds
from arena.identity import TrialConfig
from arena.plan import Estimate, PlannedTrial, Resources, State, Study
from trainers.sizing import gpu_memory, memory_line, memory_problem, total_gpus
from trainers.workload import Declared, Work, work_of

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


def estimate_of(study: Study, cells: Sequence[Cell], declared: Mapping[str, float]) -> Estimate:
    """What is left to do; trials that are unavailable are not counted.

    cells: of the grid, not tuned; declared: the grid's own `estimate`.
    """
    left = [trial for trial in study.trials if trial.state in UNFINISHED and study.part.has(trial.id)]
    later = later_trials(study)
    examples = [*left, *(one.cell for one in later)]
    elsewhere = [trial for trial in study.trials if trial.state == "unavailable"]
    if not examples and not elsewhere:
        return NO_ESTIMATE
    pace = _Pace(study, cells, declared)
    unavailable = "" if not elsewhere else _elsewhere(elsewhere, pace)
    if not examples:
        memory, warnings = _memory(elsewhere, pace), _warnings(elsewhere, pace)
        return replace(NO_ESTIMATE, unavailable=unavailable, memory=memory, warnings=warnings)
    seconds = {trial.id: pace.seconds(trial) for trial in left}
    at_once = min(_at_once(resources) for resources in {trial.resources for trial in examples})
    if any(_nodes(trial) > 1 for trial in examples):
        at_once = 1  # a trial over several machines has their Ray cluster for itself
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
    gpu_seconds = sum(seconds[trial.id] * _gpus(trial) for trial in left)
    gpu_seconds += sum(pace.seconds(one.cell) * _gpus(one.cell) * one.count for one in later)
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
        memory=_memory(examples, pace),
        warnings=_warnings(examples, pace),
        unavailable=unavailable,
    )


def later_trials(study: Study) -> list[Later]:
    """The trials that are run, of which tuning has still to decide what they are."""
    if study.part.only is not None:
        return []
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
    """How long trials take by themselves, each cell looked at once.

    Measured where trials of its kind have finished; else language models on GPUs by counting operations, and
    all others as `cost` in the configuration guesses.
    """

    def __init__(self, study: Study, cells: Sequence[Cell], declared: Mapping[str, float]) -> None:
        self._kinds = {cell.id: _kind(cell.config) for cell in cells}
        bases = {self._kinds[cell.id]: cell.base for cell in cells}
        self._guesses = {kind: Cost(**base.cost) for kind, base in bases.items()}
        self._declared = {kind: Declared(**{**base.estimate, **declared}) for kind, base in bases.items()}
        self.first = next(iter(self._guesses.values()))
        self._measured = measured_costs(study.studies, study.folder, self._guesses)
        self._known: dict[str, tuple[Kind, float]] = {}

    def declared(self, trial: PlannedTrial) -> Declared:
        """What is declared of the GPUs and episodes of a trial."""
        kind = self._kinds.get(trial.cell) or _kind(trial.config)
        return self._declared.get(kind) or next(iter(self._declared.values()))

    def seconds(self, trial: PlannedTrial) -> float:
        return self._of(trial)[1]

    def clone(self, trial: PlannedTrial) -> float:
        """Seconds of the clone it starts from."""
        work = self._work(trial)
        return self._cost(self._of(trial)[0]).clone if work is None else work.clone

    def source(self, trials: Sequence[PlannedTrial]) -> str:
        known = set(self._measured)
        left = [trial for trial in trials if self._of(trial)[0] not in known]
        if not left:
            return "from finished trials"
        counted = [trial for trial in left if self._work(trial) is not None]
        otherwise = "from `cost` in the configuration"
        if counted:
            otherwise = f"by counting operations: {_declared_line(self.declared(counted[0]))}"
        if self._measured:
            return f"from finished trials where there are any, else {otherwise}"
        return f"{otherwise}; nothing was measured here yet"

    def _of(self, trial: PlannedTrial) -> tuple[Kind, float]:
        if trial.cell not in self._known:
            kind = self._kinds.get(trial.cell) or _kind(trial.config)
            cost, work = self._cost(kind), None
            if kind not in self._measured:
                work = self._work(trial)
            if work is not None:
                cost = replace(cost, rollout=work.rollout, update=work.update, evaluation=work.rollout)
            self._known[trial.cell] = kind, trial_seconds(trial.config, cost)
        return self._known[trial.cell]

    def _work(self, trial: PlannedTrial) -> Work | None:
        return work_of(trial.config, trial.resources.gpus, self.declared(trial))

    def _cost(self, kind: Kind) -> Cost:
        return self._measured.get(kind, self._guesses.get(kind, self.first))


def _most_added(study: Study, pace: _Pace, later: int) -> tuple[int, float]:
    """How many seeds may be added at most to cells that are not done, and the seconds they take.

    later: trials that are planned and not known yet.
    """
    rule = study.replication
    if rule is None or study.part.only is not None:
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


def _memory(trials: Sequence[PlannedTrial], pace: _Pace) -> str:
    """What the largest of the trials on GPUs takes, in words."""
    found = []
    for trial in {trial.cell: trial for trial in trials}.values():
        memory = gpu_memory(trial.config, trial.resources.gpus, gpu_gb=pace.declared(trial).gpu_memory_gb)
        if memory is not None:
            found.append((max(memory.learning, memory.generating), memory_line(memory)))
    return max(found)[1] if found else ""


def _elsewhere(trials: Sequence[PlannedTrial], pace: _Pace) -> str:
    """What trials that cannot run here would take, in words; empty where they would take no GPU."""
    hours = sum(pace.seconds(trial) * _gpus(trial) for trial in trials) / 3600
    if not hours:
        return ""
    each = max(pace.seconds(trial) for trial in trials) / 3600
    count = f"The {len(trials):,} unavailable trials" if len(trials) > 1 else "The unavailable trial"
    return (
        f"{count} would take up to {each:,.1f} hours each and {hours:,.1f} GPU-hours ({pace.source(trials)})"
    )


def _warnings(trials: Sequence[PlannedTrial], pace: _Pace) -> tuple[str, ...]:
    return (*_memory_warnings(trials, pace), *_cluster_warnings(trials))


def _memory_warnings(trials: Sequence[PlannedTrial], pace: _Pace) -> tuple[str, ...]:
    """Why trials will not fit their GPUs."""
    found = []
    for trial in {trial.cell: trial for trial in trials}.values():
        gpu_gb = pace.declared(trial).gpu_memory_gb
        memory = gpu_memory(trial.config, trial.resources.gpus, gpu_gb=gpu_gb)
        if memory is not None:
            found.append(memory_problem(trial.config, memory, gpu_gb=gpu_gb))
    return tuple(dict.fromkeys(problem for problem in found if problem))


def _cluster_warnings(trials: Sequence[PlannedTrial]) -> tuple[str, ...]:
    """What trials over several machines need, which no plan can see."""
    nodes = max(_nodes(trial) for trial in trials)
    if nodes == 1:
        return ()
    gpus = max(trial.resources.gpus for trial in trials)
    return (
        f"each trial runs over {nodes} machines of {gpus:g} GPUs, one trial at a time: start a Ray cluster "
        "of these machines for it alone and put its address into ARLARENA_RAY_ADDRESS (docs/backends.md)",
    )


def _nodes(trial: PlannedTrial) -> int:
    return 1 if trial.config.verl is None else trial.config.verl.nodes


def _gpus(trial: PlannedTrial) -> float:
    """GPUs of all its machines."""
    return total_gpus(trial.config, trial.resources.gpus)


def _declared_line(declared: Declared) -> str:
    peak = f"{declared.utilisation:.0%} of {declared.gpu_tflops:,.0f} TFLOP/s"
    written = f"{declared.generated_per_second:,.0f} tokens written a second and GPU"
    turn = f"turns of {declared.prompt_tokens:,.0f} + {declared.response_tokens:,.0f} tokens"
    return f"{peak}, {written}, {turn}, {declared.turns:.0%} of the turns allowed, all declared in `estimate`"


def _kind(config: TrialConfig) -> Kind:
    return kind_of(config.env, vars(config.model), vars(config.trainer), config.backend)


def _at_once(resources: Resources) -> int:
    """How many trials this machine runs side by side."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limits = [cpus / resources.cpus]
    if resources.gpus:
        limits.append(visible_gpus() / resources.gpus)
    return max(1, int(min(limits)))
