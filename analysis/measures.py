"""What runs are compared by: success at the end and on the way, collapse and when, at equal budgets.

Budgets can be counted in steps, episodes, updates or response tokens: a method that rolls out three times as
many episodes a step is compared at as many steps and at as many episodes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.placement import Placement, place_runs
from analysis.results import BAD_ENDS, varying_settings
from analysis.study import Study, Trial

Floats = NDArray[np.float64]

UNITS: Mapping[str, str | None] = {
    "step": None,
    "episode": "rollout/episodes",
    "update": "train/updates",
    "token": "rollout/tokens",
}
"""Units of a budget, with the metric that adds up to it (all episodes rolled out, filtered ones too)."""

FINAL_SHARE = 0.2
"""The part of a budget, at its end, over which success at a budget is averaged."""

MEASURES = {
    "final": "final success",
    "area": "area under the curve",
    "healthy": "share that did not collapse",
    "good": "share that was stable and learned",
}
"""Columns of a run table that effects are estimated for, and what they are called."""

LEARNING_RATE = "trainer.learning_rate"

SURROUNDINGS = ("env", "model", "cloning")
"""Settings that are surroundings, not choices under study: runs are matched on them, never compared."""


@dataclass(frozen=True)
class RunTable:
    """A row per trial that has records, indexed by its id.

    table: columns `settings`, and env, cell, label, methods, surroundings (model, clone's recipe and keys of
    the environment where these vary within it, as text), block (environment, clone, seed and surroundings),
    status, result (whether it has one), collapsed, final, area, healthy, good (floats, NaN without a result),
    time (the step of its collapse, else the last one seen), event (whether it collapsed there), and per unit
    `area_<unit>` and `final_<unit>` at the largest budget all runs of the environment had, NaN where it was
    not counted.
    settings: the settings in which cells differ and that are not surroundings, axes first. excluded: failed
    trials, and those that recorded nothing, by id with their status. together: by setting the others that
    divide the cells as it does, as keys that are swept together do.
    """

    table: pd.DataFrame
    settings: tuple[str, ...]
    axes: Mapping[str, tuple[str, ...]]
    excluded: Mapping[str, str]
    budgets: Mapping[tuple[str, str], float]
    together: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    _placements: dict[str, Placement] = field(default_factory=dict, init=False, repr=False, compare=False)
    _alike: dict[tuple[str, ...], pd.DataFrame] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def placement(self, setting: str) -> Placement:
        """Where all rows stand when the options of a setting are compared; worked out once."""
        if setting not in self._placements:
            others = [name for name in self.settings if name != setting]
            self._placements[setting] = place_runs(self.table, setting, others)
        return self._placements[setting]

    @property
    def results(self) -> pd.DataFrame:
        """The rows of trials that have a result."""
        return self.table[self.table["result"].astype(bool)]

    def alike(self, *settings: str) -> pd.DataFrame:
        """The runs where all combinations of these settings' options ran, all else and the block equal."""
        if settings not in self._alike:
            self._alike[settings] = self._find_alike(settings)
        return self._alike[settings]

    def _find_alike(self, settings: tuple[str, ...]) -> pd.DataFrame:
        around = ["block", *(name for name in self.settings if name not in settings)]
        combination = self.table[list(settings)].astype(str).agg("\0".join, axis=1)
        wanted = math.prod(self.table[name].astype(str).nunique() for name in settings)
        places = combination.groupby([self.table[name] for name in around], dropna=False)
        return self.table[places.transform("nunique") == wanted]

    def side_by_side(self, setting: str) -> tuple[pd.DataFrame, bool]:
        """The runs by which all options of a setting are set side by side, and whether they are alike.

        Where there is no place at which all of them ran these are all runs.
        """
        alike = self.alike(setting)
        return (alike, True) if len(alike) else (self.table, False)

    def order(self, setting: str) -> list[str]:
        """The options of a setting in the order of the plan, others after them; none where it is constant."""
        if setting not in self.settings:
            return []
        present = list(dict.fromkeys(map(str, self.table[setting])))
        planned = [option for option in self.axes.get(setting, ()) if option in present]
        return [*planned, *(option for option in present if option not in planned)]


def run_table(study: Study) -> RunTable:
    """The runs of a study as the numbers that statistics are made of."""
    seen = [trial for trial in study.trials if trial.status != "failed" and _recorded(trial)]
    kept = {trial.id for trial in seen}
    excluded = {trial.id: trial.status for trial in study.trials if trial.id not in kept}
    varying = varying_settings(seen)
    together = _settings(varying, study)
    settings = tuple(together)
    around = _surroundings(varying, {trial.cell: trial.env for trial in seen})
    rows = []
    for trial in seen:
        verdict, result = trial.verdict, trial.has_result
        bad = trial.status in BAD_ENDS
        steps, success = success_by(trial, "step")
        surroundings = ", ".join(f"{name} {varying.at[trial.cell, name]!s}" for name in around)
        rows.append(
            {
                **{name: varying.at[trial.cell, name] for name in settings},
                "env": trial.env,
                "cell": trial.cell,
                "label": trial.label,
                "methods": trial.methods,
                "surroundings": surroundings,
                "block": ", ".join(filter(None, (trial.block, surroundings))),
                "status": trial.status,
                "result": result,
                "collapsed": bad,
                "final": verdict.final if result else None,
                "area": mean_success(steps, carried(trial, success), _planned(trial)) if result else None,
                "healthy": float(not bad) if result else None,
                "good": float(trial.status == "stable" and verdict.learned is True) if result else None,
                "time": float(verdict.onset if bad and verdict.onset is not None else _last_step(trial)),
                "event": bad,
            }
        )
    table = pd.DataFrame(rows, index=pd.Index([trial.id for trial in seen], name="trial"))
    if table.empty:
        return RunTable(pd.DataFrame(columns=_COLUMNS), (), study.axes, excluded, {})
    table = table.astype(dict.fromkeys(MEASURES, float))
    budgets = _add_budgets(table, [trial for trial in seen if trial.has_result])
    return RunTable(table, settings, study.axes, excluded, budgets, together)


_COLUMNS = (
    *("env", "cell", "label", "methods", "surroundings", "block", "status", "result", "collapsed"),
    *MEASURES,
    *("time", "event"),
)


def success_by(trial: Trial, unit: str) -> tuple[Floats, Floats]:
    """Evaluated success over a budget: (evaluations,) amounts used before each, and success; both increasing
    in steps. Empty where there is no evaluation, or where the unit was not counted.
    """
    curve = trial.evaluations.get("eval/success")
    if curve is None:
        return np.zeros(0), np.zeros(0)
    success = curve.to_numpy(dtype=float)
    seen = np.isfinite(success)
    steps, success = curve.index.to_numpy(dtype=float)[seen], success[seen]
    metric = UNITS[unit]
    if metric is None:
        return steps, success
    amounts = trial.train[metric].to_numpy(dtype=float) if metric in trial.train else np.full(1, np.nan)
    if np.isnan(amounts).any():
        return np.zeros(0), np.zeros(0)
    used = np.append(0.0, np.cumsum(amounts))
    ends = np.append(0, trial.train.index.to_numpy())
    return used[np.searchsorted(ends, steps, side="right") - 1], success


def mean_success(used: Floats, success: Floats, budget: float, *, since: float = 0.0) -> float:
    """The mean of success between two budgets, linear between evaluations, the last value carried on."""
    if not len(used) or budget <= since:
        return float("nan")
    points = np.unique(np.concatenate([[since, budget], used[(used > since) & (used < budget)]]))
    heights = np.interp(points, used, success)
    return float(np.trapezoid(heights, points) / (budget - since))


def _add_budgets(table: pd.DataFrame, trials: Sequence[Trial]) -> dict[tuple[str, str], float]:
    """Add area and final success at equal budgets; returns the budgets by environment and unit."""
    budgets: dict[tuple[str, str], float] = {}
    for unit in UNITS:
        curves = {trial.id: success_by(trial, unit) for trial in trials}
        for env in dict.fromkeys(trial.env for trial in trials):
            mine = [trial for trial in trials if trial.env == env and len(curves[trial.id][0])]
            # A run that was stopped at its collapse goes on at its last level: it limits nobody.
            limits = [trial for trial in mine if not trial.verdict.carried] or mine
            if limits:
                budgets[env, unit] = min(float(curves[trial.id][0][-1]) for trial in limits)
        for name in ("area", "final"):
            values = {}
            for trial in trials:
                used, success = curves[trial.id]
                budget = budgets.get((trial.env, unit), 0.0)
                since = (1 - FINAL_SHARE) * budget if name == "final" else 0.0
                values[trial.id] = mean_success(used, carried(trial, success), budget, since=since)
            table[f"{name}_{unit}"] = pd.Series(values, dtype=float).reindex(table.index)
    return budgets


def carried(trial: Trial, success: Floats) -> Floats:
    """Success of a trial as it goes on: stopped at its collapse, with its last trailing mean."""
    if len(success) and trial.verdict.carried and trial.verdict.final is not None:
        success = success.copy()
        success[-1] = trial.verdict.final
    return success


def _settings(varying: pd.DataFrame, study: Study) -> dict[str, tuple[str, ...]]:
    """Axes first; of other settings that divide the cells alike (keys swept together) the first.

    With each the others that go along with it. The learning rate counts as the first: margins are told in it.
    """
    names = [str(name) for name in varying.columns if str(name).split(".")[0] not in SURROUNDINGS]
    names.sort(key=lambda name: name != LEARNING_RATE)
    chosen: dict[str, tuple[str, ...]] = {name: () for name in study.axes if name in names}
    of_division = {tuple(varying.groupby(name, sort=False).ngroup()): name for name in chosen}
    for name in names:
        if name in chosen:
            continue
        first = of_division.setdefault(tuple(varying.groupby(name, sort=False).ngroup()), name)
        chosen[first] = () if first == name else (*chosen[first], name)
    return chosen


def _surroundings(varying: pd.DataFrame, envs: Mapping[str, str]) -> list[str]:
    """The surroundings in which cells of one environment differ. envs: the environment of a cell."""
    names = [str(name) for name in varying.columns if str(name).split(".")[0] in SURROUNDINGS]
    of_cell = [envs[str(cell)] for cell in varying.index]
    return [name for name in names if varying[name].groupby(of_cell).nunique().max() > 1]


def _recorded(trial: Trial) -> bool:
    return not trial.evaluations.empty or not trial.train.empty


def _planned(trial: Trial) -> float:
    return float(max(trial.outcome.steps if trial.outcome else 0, _last_step(trial)))


def _last_step(trial: Trial) -> int:
    return max(int(frame.index.max()) for frame in (trial.train, trial.evaluations) if len(frame))
