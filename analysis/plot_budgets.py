"""Success over what it cost: steps, episodes, updates and response tokens, a panel each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter, MaxNLocator

from analysis.measures import UNITS, Floats, carried, success_by
from analysis.plot_data import Series, legend_of
from analysis.plot_style import figure_style, new_figure, save, shorten
from analysis.results import Cell
from analysis.study import Trial

POINTS = 100
"""At as many amounts, evenly spaced, the median is taken: trials evaluate at amounts of their own."""


def draw_budgets(cells: Sequence[Cell], path: Path) -> str | None:
    """The median success of every series over each unit; None where nothing but steps was counted."""
    legend = legend_of(cells)
    units = [unit for unit in UNITS if any(median_by(series.trials, unit) for series in legend.series)]
    if not set(units) - {"step"}:
        return None
    with figure_style():
        rows = -(-len(units) // 2)
        figure = new_figure(
            0.2 + 2.3 * rows,
            "Success over what it cost",
            "Median over trials, as far as all trials of a line went. The lines of one method differ only in"
            " what is counted.",
            [
                Line2D(
                    [], [], color=series.colour, linestyle=series.dash, lw=2.2, label=shorten(series.name, 40)
                )
                for series in legend.series
            ],
        )
        grid = figure.subplots(rows, 2, squeeze=False)
        for axes, unit in zip(grid.flat, units, strict=False):
            for series in legend.series:
                _draw(axes, series, unit)
            axes.set_ylim(0, 1)
            axes.set_xlim(left=0)
            axes.set_xlabel({"token": "response tokens"}.get(unit, f"{unit}s"))
            axes.set_ylabel("success")
            axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
            axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        for axes in list(grid.flat)[len(units) :]:
            axes.set_visible(False)
        save(figure, path)
    by = f"Too many methods for a colour each: colours stand for `{legend.by}`." if legend.by else ""
    missing = [f"{unit}s" for unit in UNITS if unit not in units]
    return " ".join(
        filter(None, [by, f"Not counted by these trials: {', '.join(missing)}." if missing else ""])
    )


def median_by(trials: Sequence[Trial], unit: str) -> tuple[Floats, Floats] | None:
    """Amounts of a unit and the median success there, each (POINTS,); None where no trial counted it.

    Between evaluations success is taken to change evenly. It ends at the largest amount all trials used; a
    trial that was stopped at its collapse limits no other, its last trailing mean goes on.
    """
    curves = [(trial, *success_by(trial, unit)) for trial in trials]
    curves = [curve for curve in curves if len(curve[1])]
    if not curves:
        return None
    whole = [used[-1] for trial, used, _ in curves if not trial.verdict.carried]
    budget = min(whole or [used[-1] for _, used, _ in curves])
    amounts = np.linspace(0.0, float(budget), POINTS)
    levels = [np.interp(amounts, used, carried(trial, success)) for trial, used, success in curves]
    return amounts, np.median(levels, axis=0)


def _draw(axes: Axes, series: Series, unit: str) -> None:
    found = median_by(series.trials, unit)
    if found is not None:
        axes.plot(*found, color=series.colour, linestyle=series.dash, lw=2)
