"""A plan: every trial of a grid, with its identity, what it runs and how far it has come."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from arena.identity import TrialConfig
from arena.limits import USUAL, Handling
from arena.replication import Replication

State = Literal["pending", "running", "done", "failed", "interrupted", "unavailable"]
"""How far a trial has come. `done` is any result, collapse too; `unavailable` cannot run on this machine."""

Point = Mapping[str, str | Mapping[str, Mapping[str, Any]]]
"""Per axis its option: `cispo`, or `{cispo: {hi: 4}}` with the parameters that are not at their defaults."""


@dataclass(frozen=True, slots=True)
class Resources:
    """What one trial is given. Fractions of a GPU are shared."""

    cpus: float
    gpus: float


@dataclass(frozen=True, slots=True)
class Budget:
    """What a study may cost at most, None where it is not limited. Hours are of the clock, for all of it."""

    trials: int | None = None
    hours: float | None = None
    gpu_hours: float | None = None


@dataclass(frozen=True, slots=True)
class PlannedTrial:
    """One trial: a cell and a seed.

    id: `<cell>-s<seed>`, the name of its folder under `<study>/trials/`.
    label: what people call its point: a method's name, or the options that differ. Equal for all seeds and
        environments of a point.
    methods: the named methods this point is, `CISPO(hi=4)` where parameters differ; often empty.
    config: complete and validated; what the child process gets to read.
    problems: why it cannot run on this machine, each with its remedy; empty when it can.
    clone: the id of the clone it starts from (`arena.clones`).
    rank: trials of a lower one are started first.
    data: what its environment's episodes are made of (`Environment.data_id`).
    search: the id of the search whose candidate it tries; empty for trials whose results are compared.
    swept: the value of every key of the grid's `sweep` that it takes, as its label shows it.
    """

    id: str
    cell: str
    label: str
    methods: tuple[str, ...]
    point: Point
    env: str
    seed: int
    config: TrialConfig
    resources: Resources
    state: State
    problems: tuple[str, ...] = ()
    clone: str = ""
    rank: int = 0
    data: str = ""
    search: str = ""
    swept: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TunedKey:
    """A configuration key that is searched over: one of `choices`, or from `low` to `high`."""

    name: str
    choices: tuple[Any, ...] = ()
    low: float = 0.0
    high: float = 0.0
    log: bool = False

    @property
    def path(self) -> tuple[str, ...]:
        """The key, part by part."""
        return tuple(self.name.split("."))

    @property
    def text(self) -> str:
        """`1e-4 to 1e-2 (log)`, or the choices."""
        if self.choices:
            return ", ".join(map(str, self.choices))
        return f"{self.low:g} to {self.high:g}{' (log)' if self.log else ''}"


@dataclass(frozen=True, slots=True)
class Search:
    """A search for the values of some keys that suit a method or cell best.

    cells: those that get the values, each as a trial that is not tuned. candidates: how many are tried.
    seeds: those that each is tried with; parallel: how many are tried side by side. until_stable: whether to
    end at the first that is stable and has learned. storage: an Optuna storage URL, None for the study's own.
    """

    id: str
    label: str
    cells: tuple[PlannedTrial, ...]
    keys: tuple[TunedKey, ...]
    candidates: int
    seeds: tuple[int, ...]
    parallel: int
    sampler: str
    until_stable: bool
    storage: str | None

    @property
    def most_trials(self) -> int:
        """How many trials the candidates are at most."""
        return self.candidates * len(self.cells) * len(self.seeds)


@dataclass(frozen=True, slots=True)
class Candidate:
    """Values that were tried. trials: the ids of its trials. score: None while it runs, and where one failed.

    success: mean final success; stable: whether all its trials were stable and had learned.
    """

    number: int
    values: Mapping[str, Any]
    trials: tuple[str, ...]
    state: str = "running"
    score: float | None = None
    success: float | None = None
    outcomes: tuple[str, ...] = ()
    stable: bool = False


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a search is. finished: no candidate is to come. importance: of each key, summing to 1."""

    search: str
    candidates: tuple[Candidate, ...] = ()
    finished: bool = False
    importance: Mapping[str, float] | None = None

    @property
    def chosen(self) -> Candidate | None:
        """The candidate of the highest score, the first of equals; None before the end, or if all failed."""
        scored = [(one.score, -one.number, one) for one in self.candidates if one.score is not None]
        return max(scored)[2] if scored and self.finished else None


@dataclass(frozen=True, slots=True)
class Estimate:
    """What the trials without a result will take.

    trial_seconds: per trial id, of the clock, run alone; seconds: for all of them, `at_once` side by side,
    clones included; source: where the numbers come from, for people. later: trials that are planned and not
    known yet, because tuning decides what they are; tuning_seconds: the part of `seconds` that tuning takes.
    most_added: trials that results may add to the plan at most; added_seconds: how long those would take
    beside what is planned. memory: what one trial takes of GPUs, in words, the largest, empty when that is
    not known; warnings: why trials will not fit their GPUs, and what else is to be seen to before they start.
    unavailable: what trials that cannot run here would take of GPUs elsewhere, in words.
    """

    trial_seconds: Mapping[str, float]
    seconds: float
    gpu_hours: float
    at_once: int
    source: str
    later: int = 0
    tuning_seconds: float = 0.0
    most_added: int = 0
    added_seconds: float = 0.0
    memory: str = ""
    warnings: tuple[str, ...] = ()
    unavailable: str = ""


@dataclass(frozen=True, slots=True)
class Part:
    """What of a plan is run.

    only: the ids of the trials, of which results then ask for no others; None for all of the plan. taken:
    those whose results are taken over from other studies.
    """

    only: frozenset[str] | None = None
    taken: frozenset[str] = frozenset()

    def has(self, trial: str) -> bool:
        """Whether a trial without a result is trained."""
        return trial not in self.taken and (self.only is None or trial in self.only)


@dataclass(frozen=True, slots=True)
class Estimable:
    """What a design separates, by factor (an axis, `env`, a swept key); an interaction is `one:other`.

    factors: those that vary; main: main effects that can be told from each other where there are no
    interactions; interactions: two-factor interactions that can be told from everything else up to that
    order; aliased: groups of effects (main effects among them) that cannot be told from each other once
    interactions are possible: only their sum shows. d_efficiency: of the model of main effects, against all
    combinations equally often; 0 when it cannot be fitted. complete: whether interactions were looked into.
    """

    factors: tuple[str, ...]
    main: tuple[str, ...]
    interactions: tuple[str, ...]
    aliased: tuple[tuple[str, ...], ...]
    d_efficiency: float
    complete: bool = True

    @property
    def clear(self) -> tuple[str, ...]:
        """The main effects that no interaction can pass itself off as."""
        mixed = {effect for group in self.aliased for effect in group}
        return tuple(effect for effect in self.main if self.complete and effect not in mixed)

    def document(self) -> dict[str, Any]:
        """As plain data, for `plan.json`."""
        return {
            "factors": list(self.factors),
            "main": list(self.main),
            "interactions": list(self.interactions),
            "aliased": [list(group) for group in self.aliased],
            "d_efficiency": round(self.d_efficiency, 4),
            "complete": self.complete,
        }


NOTHING_VARIES = Estimable((), (), (), (), 0.0)


@dataclass(frozen=True, slots=True)
class Study:
    """Everything `arena run` needs: what the controller is handed. Making one creates nothing on disk.

    folder: `<studies>/<name>`, which may not exist yet; studies: its parent, where clones are cached too.
    grid, text: the grid file and its contents (for `grid.yaml`); assignments: the `key=value` of the command
    line. axes: per axis the labels of the options that occur. design: how points were chosen. estimable: what
    the cells can show. profile: the resolved name; frozen for later runs by being in `plan.json`. handling:
    how trials are treated that take too long or fail.
    over_budget: each way in which the plan exceeds its budget, as a sentence; empty when it does not.
    replication: when cells get more seeds than they have here; None for never. hypotheses: what the grid
    expects, in the forms of `analysis.hypotheses`. searches: what is tuned before it is run; seeds: those of
    every cell; progress: how far searches are, by id, as it is on file. part: what of it is run, to which
    `estimate` and hours of the budget refer.
    """

    name: str
    question: str
    folder: Path
    grid: Path
    text: str
    assignments: tuple[str, ...]
    axes: Mapping[str, tuple[str, ...]]
    design: str
    profile: str
    trials: tuple[PlannedTrial, ...]
    budget: Budget
    estimate: Estimate
    over_budget: tuple[str, ...] = ()
    estimable: Estimable = NOTHING_VARIES
    handling: Handling = USUAL
    replication: Replication | None = None
    hypotheses: tuple[str, ...] = ()
    searches: tuple[Search, ...] = ()
    seeds: tuple[int, ...] = ()
    progress: Mapping[str, Progress] = field(default_factory=dict)
    part: Part = Part()

    @property
    def studies(self) -> Path:
        """The folder that holds this study and the cache of clones."""
        return self.folder.parent

    def trial_folder(self, trial: PlannedTrial) -> Path:
        """Where a trial of this study keeps its files."""
        return self.folder / "trials" / trial.id

    def document(self) -> dict[str, Any]:
        """The plan as plain data: the content of `plan.json` and of `arena plan --format json`."""
        return {
            "study": self.name,
            "question": self.question,
            "axes": {axis: list(labels) for axis, labels in self.axes.items()},
            "design": self.design,
            "estimable": self.estimable.document(),
            "profile": self.profile,
            **self._seeds(),
            **({"hypotheses": list(self.hypotheses)} if self.hypotheses else {}),
            **self._tuning(),
            "trials": _trial_documents(self.trials),
        }

    def _tuning(self) -> dict[str, Any]:
        if not self.searches:
            return {}
        keys = dict.fromkeys(key.name for search in self.searches for key in search.keys)
        searches = [
            {
                "id": one.id,
                "label": one.label,
                "candidates": one.candidates,
                "cells": len(one.cells),
                "trials": one.most_trials,
                "trials_after": len(one.cells) * len(self.seeds),
                "finished": one.id in self.progress and self.progress[one.id].finished,
            }
            for one in self.searches
        ]
        return {"tuning": {"keys": list(keys), "searches": searches}}

    def _seeds(self) -> dict[str, Any]:
        rule = self.replication
        if rule is None:
            return {}
        return {"seeds": {"min": rule.least, "max": rule.most, "until": {"ci_width": rule.ci_width}}}


def _trial_documents(trials: Sequence[PlannedTrial]) -> list[dict[str, Any]]:
    return [
        {
            "id": trial.id,
            "cell": trial.cell,
            "label": trial.label,
            "methods": list(trial.methods),
            "point": dict(trial.point),
            "env": trial.env,
            "seed": trial.seed,
            "state": trial.state,
            **({"tuning": trial.search} if trial.search else {}),
        }
        for trial in trials
    ]
