"""What figures draw: trials grouped into series, and their curves brought onto common steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from analysis.plot_style import DASHES, PALETTE
from analysis.results import Cell
from analysis.study import Histograms, Trial

MOST_LINES = 8


@dataclass(frozen=True)
class Series:
    """Trials drawn in one colour: the seeds of a cell, or all trials that share an option."""

    name: str
    colour: str
    dash: Any
    trials: tuple[Trial, ...]


@dataclass(frozen=True)
class Legend:
    """The series of a figure. by: what colours stand for where they are not the cells (`is_clipping`)."""

    series: tuple[Series, ...]
    by: str = ""


def legend_of(cells: Sequence[Cell]) -> Legend:
    """One series per cell; with more than eight cells, one per option of the axis that tells them best apart.

    That axis is the one, of at most eight options, whose options differ most in final success.
    """
    drawn = [cell for cell in cells if cell.results]
    if len(drawn) <= MOST_LINES:
        return Legend(tuple(_series(k, cell.label, cell.results) for k, cell in enumerate(drawn)))
    spread: dict[str, float] = {}
    for axis in dict.fromkeys(axis for cell in drawn for axis in cell.trials[0].options):
        means = [
            np.mean([cell.final.estimate for cell in group]) for group in _by_option(drawn, axis).values()
        ]
        if 2 <= len(means) <= MOST_LINES:
            spread[axis] = float(np.nanmax(means) - np.nanmin(means))
    if not spread:
        return Legend(
            tuple(_series(k, cell.label, cell.results) for k, cell in enumerate(drawn[:MOST_LINES]))
        )
    by = max(spread, key=lambda axis: spread[axis])
    groups = _by_option(drawn, by)
    return Legend(
        tuple(
            _series(k, option, tuple(trial for cell in group for trial in cell.results))
            for k, (option, group) in enumerate(groups.items())
        ),
        by,
    )


def metric_curves(trials: Sequence[Trial], metric: str) -> pd.DataFrame:
    """Step by trial; NaN where a trial lacks the metric. `eval/` metrics come from evaluations."""
    frames = {trial.id: trial.evaluations if metric.startswith("eval/") else trial.train for trial in trials}
    found = {name: frame for name, frame in frames.items() if metric in frame}
    seen = [frame.index.to_numpy(dtype=int) for frame in found.values()]
    steps = np.unique(np.concatenate(seen)) if seen else np.zeros(0, dtype=int)
    values = np.full((len(steps), len(found)), np.nan)
    for column, frame in zip(values.T, found.values(), strict=True):
        column[np.searchsorted(steps, frame.index)] = frame[metric]
    values[~np.isfinite(values)] = np.nan
    return pd.DataFrame(values, index=pd.Index(steps, name="step"), columns=list(found))


def median_curve(curves: pd.DataFrame) -> pd.Series:
    """The median over trials, as long as all of them run: it ends where the first one ends."""
    known = curves.notna().to_numpy()
    known = known[:, known.any(axis=0)]
    if not known.size:
        return pd.Series(dtype=float)
    ends = len(known) - np.argmax(known[::-1], axis=0)
    return curves.iloc[: ends.min()].median(axis=1).dropna()


def success_curves(trials: Sequence[Trial]) -> pd.DataFrame:
    """Evaluated success, step by trial; where one ended at its collapse, its last trailing mean goes on."""
    curves = metric_curves(trials, "eval/success")
    for trial in trials:
        if trial.id in curves and trial.verdict.carried and trial.verdict.final is not None:
            last = trial.evaluations.index.max()
            curves.loc[curves.index > last, trial.id] = trial.verdict.final
    return curves


def pooled_histograms(trials: Sequence[Trial], name: str) -> Histograms | None:
    """The histograms of several trials added up step by step; trials with other bins are left out."""
    found = [histograms for trial in trials if (histograms := trial.histograms(name)) is not None]
    if not found:
        return None
    edges = found[0].edges
    found = [one for one in found if np.array_equal(one.edges, edges)]
    steps = np.unique(np.concatenate([one.steps for one in found]))
    counts = np.zeros((len(steps), len(edges) - 1))
    exact = np.zeros(len(steps))
    for one in found:
        place = np.searchsorted(steps, one.steps)
        counts[place] += one.counts
        exact[place] += one.exact
    return Histograms(steps, edges, counts, exact)


def has_histograms(cell: Cell) -> bool:
    """Whether its trials recorded histograms, of whatever."""
    return any((trial.folder / "histograms.jsonl").exists() for trial in cell.results)


def best_and_worst(cells: Sequence[Cell], most: int, what: str) -> tuple[list[Cell], str]:
    """All cells, or the best and the worst when there are too many, and a sentence that says so."""
    if len(cells) <= most:
        return list(cells), ""
    half = most // 2
    return [
        *cells[:half],
        *cells[-half:],
    ], f"Of {len(cells)} {what}, the {half} best and {half} worst are shown."


def last_step(cells: Sequence[Cell]) -> int:
    """The last step any of the trials came to, or was to come to."""
    steps = [1]
    for cell in cells:
        for trial in cell.trials:
            steps += [int(frame.index.max()) for frame in (trial.train, trial.evaluations) if len(frame)]
            if trial.outcome is not None:
                steps.append(trial.outcome.steps)
    return max(steps)


def _series(position: int, name: str, trials: tuple[Trial, ...]) -> Series:
    return Series(name, PALETTE[position % len(PALETTE)], DASHES[position // 4 % len(DASHES)], trials)


def _by_option(cells: Sequence[Cell], axis: str) -> dict[str, list[Cell]]:
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(cell.trials[0].options.get(axis, "-"), []).append(cell)
    return groups
