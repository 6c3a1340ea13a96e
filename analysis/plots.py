"""The figures of a report that run over training steps: success, and every statistic of it.

Here and in the modules beside it, a function draws the cells of one environment into one PNG and returns a
sentence about what it left out or summarised (empty when it drew everything), or None when there was nothing
to draw.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from analysis.plot_data import (
    Legend,
    best_and_worst,
    last_step,
    legend_of,
    median_curve,
    metric_curves,
    success_curves,
)
from analysis.plot_style import (
    COLLAPSE_MARK,
    FAINT,
    INK,
    MUTED,
    PALETTE,
    figure_style,
    label_lines,
    new_figure,
    plain_numbers,
    save,
    shorten,
    step_axis,
    wrap,
)
from analysis.results import Cell
from analysis.study import Trial

MOST_PANELS = 48
MOST_COLOURS = 8
MOST_OTHERS = 24
"""With more cells than this the medians of the others are left out of every panel."""
MOST_THIN_LINES = 120
"""With more trials than this a band stands for their lines."""


@dataclass(frozen=True)
class Panel:
    """One metric: title and unit of its axis, where the axis begins and what it never exceeds."""

    metric: str
    title: str
    unit: str
    scale: Literal["linear", "log"] = "linear"
    low: float | None = None
    high: float | None = None


def draw_overview(cells: Sequence[Cell], path: Path) -> str | None:
    """Success over training: the median of every method and the range of its seeds, named at the line."""
    legend = legend_of(cells)
    if not legend.series:
        return None
    with figure_style():
        figure = new_figure(
            3.8,
            "Success on evaluation states during training",
            "Line: median over seeds. Band: lowest to highest seed. Cross: onset of a collapse.",
        )
        axes = figure.add_subplot()
        ends = []
        for series in legend.series:
            curves = success_curves(series.trials)
            median = median_curve(curves)
            if median.empty:
                continue
            curves = curves.loc[median.index]
            axes.fill_between(
                median.index, curves.min(axis=1), curves.max(axis=1), color=series.colour, alpha=0.13, lw=0
            )
            axes.plot(median.index, median, color=series.colour, linestyle=series.dash, lw=2.4, zorder=3)
            ends.append((float(median.iloc[-1]), shorten(series.name, 30), series.colour))
            _mark_collapses(axes, series.trials, size=8)
        clone = _clone_line(axes, cells)
        if clone is not None:
            ends.append((clone, "clone", MUTED))
        _success_axis(axes, last_step(cells))
        axes.set_ylabel("success (share of episodes)")
        axes.set_xlabel("step")
        label_lines(axes, ends)
        save(figure, path)
    return _by_note(legend)


def draw_learning_curves(cells: Sequence[Cell], path: Path) -> str | None:
    """Success over training, a panel per cell: seeds thin, median thick, the other medians in grey."""
    drawn = [cell for cell in cells if cell.results]
    if not drawn:
        return None
    shown, note = best_and_worst(drawn, MOST_PANELS, "panels")
    columns = min(4, len(shown))
    rows = -(-len(shown) // columns)
    medians = {cell.id: median_curve(success_curves(cell.results)) for cell in drawn}
    last = last_step(cells)
    colours = {series.name: series.colour for series in legend_of(shown[:MOST_COLOURS]).series}
    with figure_style():
        figure = new_figure(
            0.3 + 1.75 * rows,
            "Success on evaluation states, seed by seed",
            "Thin: seeds. Thick: their median. Grey: medians of the others. Dashed: clone."
            " Cross: onset of a collapse. Dotted: stopped at it, last value carried on.",
        )
        # Not shared: axes that share their limits look each other up, quadratically.
        grid = figure.subplots(rows, columns, squeeze=False)
        for axes, cell in zip(grid.flat, shown, strict=False):
            colour = colours.get(cell.label, INK) if len(shown) <= MOST_COLOURS else PALETTE[0]
            for other, median in medians.items() if len(medians) <= MOST_OTHERS else ():
                if other != cell.id:
                    axes.plot(median.index, median, color=FAINT, lw=0.9, zorder=1)
            for trial in cell.results:
                _success_line(axes, trial, colour)
            own = medians[cell.id]
            axes.plot(own.index, own, color=colour, lw=2.4, zorder=3)
            _mark_collapses(axes, cell.results, size=7)
            _clone_line(axes, [cell])
            _success_axis(axes, last)
            long = len(cell.label) > 22
            axes.set_title(wrap(cell.label, 26 if long else 22), fontsize=7.5 if long else 9.5)
        _outer_labels(grid, len(shown), "step", "success")
        save(figure, path)
    return note


def draw_panels(
    cells: Sequence[Cell], panels: Sequence[Panel], path: Path, *, title: str, columns: int = 3
) -> str | None:
    """Statistics over training, a panel each: every trial thin, the median of a series thick."""
    legend = legend_of(cells)
    curves = {
        panel.metric: [metric_curves(series.trials, panel.metric) for series in legend.series]
        for panel in panels
    }
    panels = [panel for panel in panels if any(not c.isna().all().all() for c in curves[panel.metric])]
    if not panels:
        return None
    columns, last = min(columns, len(panels)), last_step(cells)
    rows = -(-len(panels) // columns)
    trials = sum(len(series.trials) for series in legend.series)
    many, crowded = trials > 40, trials > MOST_THIN_LINES
    thin = "Band: the middle 80% of trials" if crowded else "Thin: trials"
    with figure_style():
        figure = new_figure(
            (2.5 if columns < 3 else 2.2) * rows,
            title,
            f"{thin}. Thick: median. Cross: onset of a collapse.",
            _handles(legend),
        )
        grid = figure.subplots(rows, columns, squeeze=False)
        for axes, panel in zip(grid.flat, panels, strict=False):
            for series, frame in zip(legend.series, curves[panel.metric], strict=True):
                if panel.scale == "log":
                    frame = frame.where(frame > 0)
                if crowded:
                    low, high = frame.quantile(0.1, axis=1), frame.quantile(0.9, axis=1)
                    axes.fill_between(frame.index, low, high, color=series.colour, alpha=0.13, lw=0)
                for name in frame if not crowded else ():
                    axes.plot(
                        frame.index, frame[name], color=series.colour, lw=0.6, alpha=0.2 if many else 0.45
                    )
                median = median_curve(frame)
                axes.plot(median.index, median, color=series.colour, linestyle=series.dash, lw=2, zorder=3)
                _mark_on(axes, series.trials, frame)
            _panel_axis(axes, panel, last)
        _hide_unused(grid, len(panels))
        save(figure, path)
    return _by_note(legend)


def _success_line(axes: Axes, trial: Trial, colour: str) -> None:
    curve = trial.evaluations.get("eval/success")
    if curve is None or curve.dropna().empty:
        return
    curve = curve.dropna()
    axes.plot(curve.index, curve, color=colour, lw=0.9, alpha=0.6, zorder=2)
    steps = trial.outcome.steps if trial.outcome else 0
    if trial.verdict.carried and trial.verdict.final is not None and steps > curve.index[-1]:
        level = trial.verdict.final
        axes.plot([curve.index[-1], steps], [level, level], color=colour, lw=0.9, linestyle=":", zorder=2)


def _mark_collapses(axes: Axes, trials: Sequence[Trial], *, size: float) -> None:
    _mark_on(axes, trials, metric_curves(trials, "eval/success"), size=size)


def _mark_on(axes: Axes, trials: Sequence[Trial], curves: pd.DataFrame, *, size: float = 6) -> None:
    places = []
    columns = {name: number for number, name in enumerate(curves)}
    values, steps = curves.to_numpy(), curves.index.to_numpy()
    for trial in trials:
        onset = trial.verdict.onset
        if onset is None or trial.id not in columns:
            continue
        column = values[: np.searchsorted(steps, onset, side="right"), columns[trial.id]]
        before = column[~np.isnan(column)]
        if len(before):
            places.append((onset, before[-1]))
    if places:
        axes.plot(*zip(*places, strict=True), ms=size, zorder=5, **COLLAPSE_MARK)


def _clone_line(axes: Axes, cells: Sequence[Cell]) -> float | None:
    """Draw the clones' mean success and return it."""
    starts = [cell.start.estimate for cell in cells if cell.start.blocks]
    if not starts:
        return None
    level = float(np.mean(starts))
    axes.axhline(level, color=MUTED, lw=1, linestyle=(0, (4, 3)), zorder=1)
    return level


def _success_axis(axes: Axes, last: float) -> None:
    axes.set_ylim(0, 1)
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0", ".25", ".50", ".75", "1"])
    step_axis(axes, last)


def _panel_axis(axes: Axes, panel: Panel, last: float) -> None:
    axes.set_title(panel.title)
    axes.set_ylabel(panel.unit)
    axes.set_xlabel("step")
    axes.set_yscale(panel.scale)
    if panel.scale == "log":
        plain_numbers(axes.yaxis)
    step_axis(axes, last)
    if panel.low is not None:
        axes.set_ylim(bottom=panel.low)
    if panel.high is not None:
        axes.set_ylim(top=min(panel.high, axes.get_ylim()[1]))


def _handles(legend: Legend) -> list[Line2D]:
    return [
        Line2D([], [], color=series.colour, linestyle=series.dash, lw=2.2, label=shorten(series.name, 40))
        for series in legend.series
    ]


def _by_note(legend: Legend) -> str:
    return f"Too many methods for a colour each: colours stand for `{legend.by}`." if legend.by else ""


def _outer_labels(grid: Any, shown: int, x: str, y: str) -> None:
    _hide_unused(grid, shown)
    columns = grid.shape[1]
    for position, axes in enumerate(grid.flat):
        left, bottom = position % columns == 0, position + columns >= shown
        axes.tick_params(labelleft=left, labelbottom=bottom)
        if left:
            axes.set_ylabel(y)
        if bottom:
            axes.set_xlabel(x)


def _hide_unused(grid: Any, shown: int) -> None:
    for axes in list(grid.flat)[shown:]:
        axes.set_visible(False)
