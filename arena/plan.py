"""A plan: every trial of a grid, with its identity, what it runs and how far it has come."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Estimate:
    """What the trials without a result will take.

    trial_seconds: per trial id, of the clock, run alone; seconds: for all of them, `at_once` side by side,
    clones included; source: where the numbers come from, for people. most_added: trials that results may add
    to the plan at most; added_seconds: how long those would take beside what is planned.
    """

    trial_seconds: Mapping[str, float]
    seconds: float
    gpu_hours: float
    at_once: int
    source: str
    most_added: int = 0
    added_seconds: float = 0.0


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
    expects, in the forms of `analysis.hypotheses`.
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
            "trials": _trial_documents(self.trials),
        }

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
        }
        for trial in trials
    ]
