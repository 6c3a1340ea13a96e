"""What came out of a study: a table of its trials, and its cells with their seeds side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from analysis.factors import differing
from analysis.resampling import SHARE, Interval, seed_interval
from analysis.study import Study, Trial

BAD_ENDS = ("collapsed", "diverged")


@dataclass(frozen=True)
class Cell:
    """All seeds of one point in one environment with one set of hyper-parameters.

    label: as short as tells the cells of an environment apart. trials: all of them, with a result or not.
    final, start: success at the end and of the clone, over the seeds that have a result.
    """

    id: str
    label: str
    env: str
    methods: tuple[str, ...]
    trials: tuple[Trial, ...]
    final: Interval
    start: Interval

    @property
    def results(self) -> tuple[Trial, ...]:
        """The trials that have a result."""
        return tuple(trial for trial in self.trials if trial.has_result)

    def count(self, *statuses: str) -> int:
        """How many trials have one of these statuses."""
        return sum(trial.status in statuses for trial in self.trials)

    def count_learned(self, learned: bool | None) -> int:
        """How many trials with a result learned (True), stayed flat (False), or cannot say (None)."""
        return sum(trial.verdict.learned is learned for trial in self.results)

    @property
    def finals(self) -> dict[int, float]:
        """Final success by seed, where there is one."""
        return {trial.seed: trial.verdict.final for trial in self.results if trial.verdict.final is not None}


def summarise(study: Study) -> list[Cell]:
    """The cells of a study, environment by environment, the highest final success first.

    Cells without a result come last, in the order of the plan.
    """
    groups: dict[str, list[Trial]] = {}
    for trial in study.trials:
        groups.setdefault(trial.cell, []).append(trial)
    labels = _labels(groups)
    cells = []
    for cell, trials in groups.items():
        verdicts = [trial.verdict for trial in trials if trial.has_result]
        cells.append(
            Cell(
                id=cell,
                label=labels[cell],
                env=trials[0].env,
                methods=trials[0].methods,
                trials=tuple(trials),
                final=seed_interval([v.final for v in verdicts if v.final is not None], within=SHARE),
                start=seed_interval([v.start for v in verdicts if v.start is not None], within=SHARE),
            )
        )
    envs = list(dict.fromkeys(cell.env for cell in cells))
    return sorted(
        cells,
        key=lambda cell: (envs.index(cell.env), -cell.final.estimate if cell.final.blocks else float("inf")),
    )


def environments(cells: Sequence[Cell]) -> list[str]:
    """The environments of these cells, in their order."""
    return list(dict.fromkeys(cell.env for cell in cells))


def trial_table(study: Study, cells: Sequence[Cell]) -> pd.DataFrame:
    """One row per planned trial: what it was, what it came to, what it took."""
    names = {cell.id: cell.label for cell in cells}
    rows: list[dict[str, Any]] = []
    for trial in study.trials:
        verdict, outcome = trial.verdict, trial.outcome
        seen = not trial.evaluations.empty or not trial.train.empty
        rows.append(
            {
                "trial": trial.id,
                "cell": trial.cell,
                "label": names.get(trial.cell, trial.label),
                "methods": " ".join(trial.methods),
                "env": trial.env,
                "seed": trial.seed,
                **trial.options,
                "status": trial.status,
                "learned": verdict.learned if trial.has_result else None,
                "success_clone": verdict.start,
                "success_best": verdict.best,
                "success_final": verdict.final if trial.has_result else None,
                "carried_forward": verdict.carried if trial.has_result else None,
                "cause": verdict.cause,
                "onset": verdict.onset,
                "onset_after": verdict.onset_interval[0] if verdict.onset_interval else None,
                "first_warning": verdict.warnings[0].name if verdict.warnings else None,
                "first_warning_step": verdict.warnings[0].step if verdict.warnings else None,
                "last_step": _last_step(trial),
                "cpu_seconds": _total(trial, "time/cpu"),
                "step_seconds": _total(trial, "time/step"),
                "evaluation_seconds": _total(trial, "time/evaluation"),
                "attempts": outcome.attempts if outcome else None,
                "exit": outcome.exit if outcome else None,
                "commit": trial.provenance.get("commit"),
                "reason": outcome.reason if outcome else (verdict.reason if seen else ""),
            }
        )
    return pd.DataFrame(rows)


def curve_table(trials: Sequence[Trial], labels: Mapping[str, str]) -> pd.DataFrame:
    """Every recorded number of trials: one row per trial, kind and step, one column per metric.

    labels: by cell.
    """
    parts = [
        (trial, kind, frame)
        for trial in trials
        for kind, frame in (("train", trial.train), ("eval", trial.evaluations))
        if not frame.empty
    ]
    sizes = [len(frame) for _, _, frame in parts]
    facts = {
        "trial": [trial.id for trial, _, _ in parts],
        "label": [labels.get(trial.cell, trial.label) for trial, _, _ in parts],
        "env": [trial.env for trial, _, _ in parts],
        "seed": [trial.seed for trial, _, _ in parts],
        "kind": [kind for _, kind, _ in parts],
    }
    table = pd.DataFrame({name: np.repeat(np.array(column), sizes) for name, column in facts.items()})
    if not parts:
        return table.assign(step=[])
    table["step"] = np.concatenate([frame.index.to_numpy() for _, _, frame in parts])
    numbers = pd.concat([frame for _, _, frame in parts], ignore_index=True)
    return pd.concat([table, numbers[sorted(numbers.columns)]], axis=1)


def effect_table(study: Study) -> pd.DataFrame:
    """One row per result, with the settings in which cells differ: the table of `matched_effects`.

    Columns beside the settings: block (environment, clone, seed), final, collapsed.
    """
    results = [trial for trial in study.trials if trial.has_result]
    table = varying_settings(results).loc[[trial.cell for trial in results]].copy()
    table.index = pd.Index([trial.id for trial in results], name="trial")
    table["block"] = [trial.block for trial in results]
    table["final"] = [trial.verdict.final for trial in results]
    table["final"] = table["final"].astype(float)
    table["collapsed"] = [trial.status in BAD_ENDS for trial in results]
    return table


def varying_settings(trials: Sequence[Trial]) -> pd.DataFrame:
    """Cell by setting, those in which cells differ; options called as in the plan, where that is enough."""
    varying = differing({trial.cell: trial.choices or trial.options for trial in trials})
    options = {trial.cell: trial.options for trial in trials}
    for name in varying.columns:
        labels = [options[cell].get(str(name)) for cell in varying.index]
        pairs = set(zip(varying[name], labels, strict=True))
        if None not in labels and len({label for _, label in pairs}) == len(pairs):
            varying[name] = labels
    return varying


def _labels(groups: dict[str, list[Trial]]) -> dict[str, str]:
    """A label per cell; cells of one environment that share theirs are told apart by what differs."""
    labels = {cell: trials[0].label for cell, trials in groups.items()}
    places = {cell: (trials[0].label, trials[0].env) for cell, trials in groups.items()}
    for place, count in Counter(places.values()).items():
        if count == 1:
            continue
        namesakes = [cell for cell in groups if places[cell] == place]
        table = differing({cell: groups[cell][0].choices for cell in namesakes})
        for cell in namesakes:
            values = {str(name): str(table.at[cell, name]) for name in table.columns}
            settings = [f"{name.rpartition('.')[2]}={value}" for name, value in values.items()]
            labels[cell] = f"{place[0]} ({', '.join(settings) or cell})"
    return labels


def _last_step(trial: Trial) -> int:
    steps = [int(frame.index.max()) for frame in (trial.train, trial.evaluations) if len(frame)]
    return max(steps, default=0)


def _total(trial: Trial, metric: str) -> float | None:
    frames = [frame for frame in (trial.train, trial.evaluations) if metric in frame]
    return round(sum(float(frame[metric].sum()) for frame in frames), 1) if frames else None
