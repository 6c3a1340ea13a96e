"""What came first: which warnings preceded collapses, and which statistics told such runs from others.

A statistic is judged at a number of steps before each collapse, against runs still at risk at the same step:
followed up to it without having collapsed. So what merely grows with training separates nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.early_warning import NAMES
from analysis.resampling import SHARE, Interval, counts_interval
from analysis.results import BAD_ENDS
from analysis.study import Trial

Floats = NDArray[np.float64]

STEPS_BEFORE = (5, 10, 20)
SMOOTHING = 3
"""A statistic at a step is the mean of its last values up to there, at most as many."""


@dataclass(frozen=True)
class Diagnostic:
    """A statistic that might tell collapses in advance. metrics: the first one recorded counts.

    sign: 1 where large values are expected before a collapse, -1 where small ones are.
    """

    name: str
    metrics: tuple[str, ...]
    sign: int
    complement: bool = False


DIAGNOSTICS = (
    Diagnostic("depth of negative-advantage low-ratio rows", ("train/neg_low_depth",), 1),
    Diagnostic("share of negative-advantage low-ratio rows", ("train/neg_low_share",), 1),
    Diagnostic("that share among rows with A < 0", ("train/neg_low_given_negative",), 1),
    Diagnostic("KL to the old policy, last update", ("train/kl_old_last", "train/kl_old"), 1),
    Diagnostic("smallest sequence ratio", ("train/min_sequence_ratio_last", "train/min_sequence_ratio"), -1),
    Diagnostic("invalid actions", ("rollout/valid_action", "rollout/valid_format"), 1, complement=True),
    Diagnostic("gradient norm", ("train/gradient_norm",), 1),
    Diagnostic("entropy", ("train/entropy",), -1),
    Diagnostic("spread of rewards within a group", ("rollout/group_reward_std",), -1),
    Diagnostic("success of rollouts", ("rollout/success",), -1),
)
"""The paper's candidate first, then what it is judged beside; success itself is what they should precede."""


@dataclass(frozen=True)
class Separation:
    """How well a statistic told runs that would collapse from others at risk, `before` steps before.

    area: under the ROC curve, 0.5 for a coin, 1 for a statistic that always was on the expected side; its
    interval resamples blocks. cases: collapses for which it was recorded that early; at_risk: other runs at
    risk, the median over cases. curve: false and true positive rates, each (k,), from (0, 0) to (1, 1).
    by_block: the mean area of the cases of each block. change: whether the statistic was taken relative to
    the run's own first steps.
    """

    diagnostic: Diagnostic
    before: int
    area: Interval
    cases: int
    at_risk: float
    curve: tuple[Floats, Floats]
    by_block: tuple[float, ...] = ()
    change: bool = False


@dataclass(frozen=True)
class WarningOrder:
    """What one warning did: of `cases` collapses it had fired before `preceded`, first of all in `first`.

    leads: by how many steps, per preceded collapse. false: of `healthy` runs that did not collapse it fired
    in as many.
    """

    name: str
    cases: int
    preceded: int
    first: int
    leads: tuple[int, ...]
    healthy: int
    false: int

    @property
    def lead(self) -> float | None:
        """The median lead in steps."""
        return float(median(self.leads)) if self.leads else None


def collapses(trials: Sequence[Trial]) -> list[Trial]:
    """The trials that collapsed or diverged at a known step."""
    return [t for t in trials if t.status in BAD_ENDS and t.verdict.onset is not None]


def sequence_of_events(trial: Trial) -> list[tuple[str, int]]:
    """The first time each warning fired before the collapse, in order; ties in the order of their names.

    For a trial that did not collapse, all of them.
    """
    first: dict[str, int] = {}
    for warning in trial.verdict.warnings:
        if trial.verdict.onset is None or warning.step < trial.verdict.onset:
            first.setdefault(warning.name, warning.step)
    return sorted(first.items(), key=lambda event: (event[1], NAMES.index(event[0])))


def warning_order(trials: Sequence[Trial]) -> list[WarningOrder]:
    """Per warning how often and how long before a collapse it fired, and how often for nothing.

    Collapses within the warm-up, before any warning could fire, are no cases.
    """
    bad = [
        trial
        for trial in collapses(trials)
        if trial.verdict.warnings_from is not None
        and trial.verdict.onset is not None
        and trial.verdict.warnings_from < trial.verdict.onset
    ]
    healthy = [t for t in trials if t.has_result and t.status not in BAD_ENDS]
    events = [(trial.verdict.onset or 0, sequence_of_events(trial)) for trial in bad]
    fired = [{name for name, _ in sequence_of_events(trial)} for trial in healthy]
    orders = []
    for name in NAMES:
        leads = [onset - step for onset, found in events for event, step in found if event == name]
        first = sum(
            any(event == name and step == found[0][1] for event, step in found) for _, found in events
        )
        false = sum(name in names for names in fired)
        orders.append(WarningOrder(name, len(bad), len(leads), first, tuple(leads), len(healthy), false))
    return sorted(orders, key=lambda order: (-order.preceded, -(order.lead or 0)))


class RunPanel:
    """The statistics of many runs side by side: matrices (runs, steps), NaN where a run has no value.

    steps: (steps,) 1, 2, ... up to the last of any run; onset: (runs,), infinity where there is none; last:
    (runs,) the last step seen; block: (runs,) the number of each run's block.
    """

    def __init__(self, trials: Sequence[Trial]) -> None:
        self.trials = tuple(trials)
        frames = [(trial.train, trial.evaluations) for trial in trials]
        self.last = np.array(
            [max((int(f.index.max()) for f in pair if len(f)), default=0) for pair in frames], dtype=float
        )
        self.steps = np.arange(1, int(self.last.max(initial=0)) + 1)
        self.onset = np.array(
            [
                np.inf if t.verdict.onset is None or t.status not in BAD_ENDS else t.verdict.onset
                for t in trials
            ]
        )
        names = [trial.block for trial in trials]
        numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
        self.block = np.array([numbers[name] for name in names], dtype=int)
        self.blocks = len(numbers)
        self._metrics: dict[str, Floats] = {}
        self._statistics: dict[tuple[str, bool], Floats] = {}

    def metric(self, name: str) -> Floats:
        """A train metric as recorded."""
        if name not in self._metrics:
            self._metrics[name] = self._metric(name)
        return self._metrics[name]

    def _metric(self, name: str) -> Floats:
        values = np.full((len(self.trials), len(self.steps)), np.nan)
        for row, trial in zip(values, self.trials, strict=True):
            if name in trial.train:
                index = trial.train.index.to_numpy()
                inside = index >= 1
                row[index[inside] - 1] = trial.train[name].to_numpy(dtype=float)[inside]
        return values

    def statistic(self, diagnostic: Diagnostic, *, change: bool = False) -> Floats:
        """A diagnostic, smoothed; larger always means more ominous.

        change: as a log ratio to the median of the run's first `SMOOTHING` steps (a difference for rates);
        those steps themselves have none.
        """
        key = (diagnostic.name, change)
        if key not in self._statistics:
            self._statistics[key] = self._statistic(diagnostic, change=change)
        return self._statistics[key]

    def _statistic(self, diagnostic: Diagnostic, *, change: bool) -> Floats:
        values = np.full((len(self.trials), len(self.steps)), np.nan)
        for metric in diagnostic.metrics:
            recorded = self.metric(metric)
            values = np.where(np.isnan(values).all(1, keepdims=True), recorded, values)
        values = _smoothed(1 - values if diagnostic.complement else values)
        if change and len(self.steps):
            with np.errstate(invalid="ignore"):
                first = np.sort(values[:, :SMOOTHING], axis=1)[:, [min(1, len(self.steps) - 1)]]
                ratio = np.log(np.maximum(values, 1e-12) / np.where(first > 0, first, np.nan))
            values = values - first if diagnostic.complement else ratio
            values[:, :SMOOTHING] = np.nan
        signed: Floats = diagnostic.sign * values
        return signed

    def separation(self, diagnostic: Diagnostic, before: int, *, change: bool = False) -> Separation:
        """How well a diagnostic separates, `before` steps before each collapse (`Separation`).

        Cases weigh alike, whatever the number of runs at risk beside them. The interval resamples blocks
        jointly over cases and runs at risk.
        """
        return self._separation(self.statistic(diagnostic, change=change), diagnostic, before, change=change)

    def rise(self, diagnostic: Diagnostic, early: int, late: int) -> Separation:
        """Whether a diagnostic rises more from `early` to `late` steps before a collapse than at other times.

        Other times: the same steps in runs at risk. A collapse within the first `early` steps is no case.
        """
        values = self.statistic(diagnostic, change=True)
        risen = np.full_like(values, np.nan)
        risen[:, early - late :] = (
            values[:, early - late :] - values[:, : max(0, values.shape[1] - (early - late))]
        )
        return self._separation(risen, diagnostic, late, change=True)

    def _separation(self, values: Floats, diagnostic: Diagnostic, before: int, *, change: bool) -> Separation:
        wins, pairs, owners, risk = [], [], [], []
        for case in np.flatnonzero(np.isfinite(self.onset)):
            onset = self.onset[case]
            at = int(onset) - before - 1
            if at < 0 or not np.isfinite(values[case, at]):
                continue
            column = values[:, at]
            others = (self.last >= onset) & (self.onset > onset) & np.isfinite(column)
            if not others.any():
                continue
            theirs = column[others]
            better = (column[case] > theirs) + 0.5 * (column[case] == theirs)
            wins.append(np.bincount(self.block[others], better, minlength=self.blocks))
            pairs.append(np.bincount(self.block[others], minlength=self.blocks).astype(float))
            owners.append(self.block[case])
            risk.append(int(others.sum()))
        areas = pd.Series(
            [won.sum() / seen.sum() for won, seen in zip(wins, pairs, strict=True)], dtype=float
        )
        placed = 1 - areas.to_numpy()
        return Separation(
            diagnostic,
            before,
            _area(np.array(wins), np.array(pairs), np.array(owners, dtype=int), self.blocks),
            len(owners),
            float(median(risk)) if risk else 0.0,
            _curve(placed),
            tuple(areas.groupby(owners).mean()) if owners else (),
            change,
        )


def separations(
    panel: RunPanel,
    *,
    diagnostics: Sequence[Diagnostic] = DIAGNOSTICS,
    steps_before: Sequence[int] = STEPS_BEFORE,
    change: bool = False,
) -> list[Separation]:
    """Every diagnostic at every number of steps before, of those that have a case."""
    found = [
        panel.separation(diagnostic, before, change=change)
        for diagnostic in diagnostics
        for before in steps_before
    ]
    return [one for one in found if one.cases]


def _smoothed(values: Floats) -> Floats:
    """The trailing mean over `SMOOTHING` steps, of what was recorded in them."""
    total, count = np.zeros_like(values), np.zeros_like(values)
    for shift in range(min(SMOOTHING, values.shape[1])):
        part = values[:, : values.shape[1] - shift]
        finite = np.isfinite(part)
        total[:, shift:] += np.where(finite, part, 0.0)
        count[:, shift:] += finite
    with np.errstate(invalid="ignore"):
        mean: Floats = total / np.where(count > 0, count, np.nan)
    return mean


def _area(wins: Floats, pairs: Floats, owners: NDArray[np.int_], blocks: int) -> Interval:
    if not len(owners):
        return Interval(np.nan, np.nan, np.nan, "range", 0)

    # Cases with the same runs at risk have the same denominator, so they are added up before resampling.
    risk_sets, member = np.unique(pairs, axis=0, return_inverse=True)
    won = np.zeros((len(risk_sets), blocks, blocks))
    np.add.at(won, (member, owners), wins)
    cases = np.zeros((len(risk_sets), blocks))
    np.add.at(cases, (member, owners), 1.0)

    def areas(counts: Floats) -> Floats:
        area, total = np.zeros(len(counts)), np.zeros(len(counts))
        for at_risk, theirs, owned in zip(risk_sets, won, cases, strict=True):
            seen = counts @ at_risk
            share = ((counts @ theirs) * counts).sum(1)
            area += np.divide(share, seen, out=np.zeros_like(seen), where=seen > 0)
            total += np.where(seen > 0, counts @ owned, 0.0)
        result: Floats = area / np.where(total > 0, total, np.nan)
        return result

    return counts_interval(areas, blocks, within=SHARE)


def _curve(placed: Floats) -> tuple[Floats, Floats]:
    """The ROC curve of placement values: the share of runs at risk that a case does not exceed.

    At a false positive rate f the share of cases whose placement value is at most f (Pepe and Cai 2004).
    """
    if not len(placed):
        return np.zeros(0), np.zeros(0)
    rates = np.unique(np.concatenate([[0.0, 1.0], placed]))
    return rates, np.array([(placed <= rate + 1e-12).mean() for rate in rates])
