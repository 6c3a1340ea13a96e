"""Figures of how training went: which tokens moved, how ratios drift, what came before a collapse."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from analysis.plot_data import (
    best_and_worst,
    has_histograms,
    last_step,
    median_curve,
    metric_curves,
    pooled_histograms,
)
from analysis.plot_style import (
    COLLAPSE_MARK,
    FAINT,
    INK,
    MUTED,
    PALETTE,
    figure_style,
    new_figure,
    save,
    shorten,
    step_axis,
    wrap,
)
from analysis.precursors import Separation, collapses, sequence_of_events
from analysis.results import Cell
from analysis.study import Histograms, Trial

MOST_METHODS = 6
RIDGES = 7
SPLIT = tuple(
    (sign, side, entropy)
    for sign in ("negative", "positive")
    for side in ("below", "above")
    for entropy in ("low", "high")
)
SPLIT_MEASURES = {"tokens": "share of tokens", "kl_old": "share of KL to old", "kl_ref": "share of KL to ref"}
_SPLIT_COLOURS = ("#B2182B", "#EF8A62", "#FDDBC7", "#F7E8DF", "#D1E5F0", "#92C5DE", "#4393C3", "#2166AC")
_SIGNS = {"negative": "<", "positive": ">"}
WARNING_COLOURS = {
    "gradient_norm": PALETTE[0],
    "off_policy_kl": PALETTE[1],
    "depth": PALETTE[2],
    "reward_std": PALETTE[3],
}
MOST_TIMELINES = 40


def draw_split(cells: Sequence[Cell], path: Path) -> str | None:
    """Eight kinds of tokens over the steps: their share of tokens, of KL to old and to the reference."""
    usable = [cell for cell in cells if _has_split(cell)]
    if not usable:
        return None
    shown, note = best_and_worst(usable, MOST_METHODS, "methods")
    handles = [
        Patch(facecolor=colour, label=f"A {_SIGNS[sign]} 0, ratio {side} 1, {entropy} entropy")
        for colour, (sign, side, entropy) in zip(_SPLIT_COLOURS, SPLIT, strict=True)
    ]
    with figure_style():
        figure = new_figure(
            0.4 + 1.35 * len(shown),
            "Which tokens moved",
            "Tokens by sign of the advantage, side of the ratio and entropy, medians over seeds, stacked.",
            handles,
        )
        grid = figure.subplots(len(shown), len(SPLIT_MEASURES), sharex=True, sharey=True, squeeze=False)
        for row, cell in zip(grid, shown, strict=True):
            for axes, measure in zip(row, SPLIT_MEASURES, strict=True):
                _stack(axes, cell, measure)
            row[0].set_ylabel(wrap(cell.label, 16), fontsize=8)
        for axes, title in zip(grid[0], SPLIT_MEASURES.values(), strict=True):
            axes.set_title(title)
        for axes in grid[-1]:
            axes.set_xlabel("step")
        step_axis(grid[0, 0], last_step(shown))
        grid[0, 0].set_xlim(left=1)
        save(figure, path)
    return note


def _has_split(cell: Cell) -> bool:
    name = f"train/split/{'_'.join(SPLIT[0])}_tokens"
    return any(name in trial.train and trial.train[name].notna().any() for trial in cell.results)


def _stack(axes: Axes, cell: Cell, measure: str) -> None:
    curves = [
        median_curve(metric_curves(cell.results, f"train/split/{'_'.join(kind)}_{measure}")) for kind in SPLIT
    ]
    curves = [curve for curve in curves if not curve.empty]
    axes.grid(visible=False)
    axes.set_ylim(0, 1)
    if len(curves) < len(SPLIT):
        return
    steps = curves[0].index
    values = np.clip(np.array([curve.reindex(steps).fillna(0.0) for curve in curves]), 0, None)
    total = values.sum(0)
    axes.stackplot(steps, values / np.where(total > 0, total, 1), colors=_SPLIT_COLOURS, lw=0)
    for trial in cell.results:
        if trial.verdict.onset is not None:
            axes.axvline(trial.verdict.onset, color=INK, lw=0.8, linestyle=(0, (2, 2)))


def draw_ridges(cells: Sequence[Cell], path: Path, *, quantity: str = "log_ratio_row") -> str | None:
    """The distribution of a ratio at a few steps, one above the other, A < 0 in red and A > 0 in blue."""
    shown, note = best_and_worst([cell for cell in cells if has_histograms(cell)], MOST_METHODS, "methods")
    found = {
        cell.id: {sign: pooled_histograms(cell.results, f"{quantity}/{sign}") for sign in _SIGNS}
        for cell in shown
    }
    shown = [cell for cell in shown if all(histograms is not None for histograms in found[cell.id].values())]
    if not shown:
        return None
    columns = min(3, len(shown))
    rows = -(-len(shown) // columns)
    colours = {"negative": PALETTE[1], "positive": PALETTE[0]}
    with figure_style():
        figure = new_figure(
            3.1 * rows,
            "How the ratios of rows drift apart",
            "A ridge per step, the first below: the share of rows at each log s, all seeds together, on a"
            " root scale so that tails show.",
            [
                Line2D([], [], color=colours["negative"], lw=2, label="rows with advantage < 0"),
                Line2D([], [], color=colours["positive"], lw=2, label="rows with advantage > 0"),
            ],
        )
        grid = figure.subplots(rows, columns, sharex=True, squeeze=False)
        for axes, cell in zip(grid.flat, shown, strict=False):
            for sign, histograms in found[cell.id].items():
                if histograms is not None:
                    _ridge(axes, histograms, colours[sign])
            axes.set_title(shorten(cell.label, 40), fontsize=8.5 if len(cell.label) > 26 else 9.5)
            axes.grid(visible=False)
            axes.axvline(0, color=FAINT, lw=1, zorder=0)
        for axes in grid[-1]:
            axes.set_xlabel("log s")
        for axes in grid[:, 0]:
            axes.set_ylabel("step")
        for axes in list(grid.flat)[len(shown) :]:
            axes.set_visible(False)
        reach = max(_reach(h) for cell in shown for h in found[cell.id].values() if h is not None)
        grid[0, 0].set_xscale("symlog", linthresh=reach / 30)
        ticks = [sign * reach * share for share in (1, 0.1) for sign in (-1, 1)]
        grid[0, 0].set_xticks([0.0, *ticks], ["0", *(f"{tick:.2g}" for tick in ticks)], fontsize=7.5)
        grid[0, 0].minorticks_off()
        grid[0, 0].set_xlim(-reach, reach)
        save(figure, path)
    return note


def _ridge(axes: Axes, histograms: Histograms, colour: str) -> None:
    steps = histograms.steps
    chosen = np.unique(np.linspace(0, len(steps) - 1, min(RIDGES, len(steps))).round().astype(int))
    heights = np.sqrt(histograms.counts / np.maximum(histograms.counts.sum(1, keepdims=True), 1))
    heights *= 1.4 / max(float(heights[chosen].max()), 1e-9)
    for level, place in enumerate(chosen):
        y = level + heights[place]
        order = 20 - level
        axes.stairs(y, histograms.edges, baseline=level, fill=True, color=colour, alpha=0.22, zorder=order)
        axes.stairs(y, histograms.edges, baseline=None, color=colour, lw=1, zorder=order)
    axes.set_yticks(range(len(chosen)), [str(steps[place]) for place in chosen])
    axes.tick_params(axis="y", length=0)


def _reach(histograms: Histograms) -> float:
    shares = histograms.counts / np.maximum(histograms.counts.sum(1, keepdims=True), 1)
    used = np.flatnonzero((shares > 2e-3).any(0))
    edges = np.abs(histograms.edges)
    return float(max(edges[used[0]], edges[used[-1] + 1])) if len(used) else float(edges.max())


def draw_warning_timelines(cells: Sequence[Cell], path: Path) -> str | None:
    """Per collapsed trial, aligned at its collapse: which warnings had fired, and how many steps before."""
    names = {trial.id: cell.label for cell in cells for trial in cell.trials}
    bad = collapses([trial for cell in cells for trial in cell.results])
    if not bad:
        return None
    shown = sorted(bad, key=lambda trial: -(trial.verdict.onset or 0))[:MOST_TIMELINES]
    longest = max((t.verdict.onset or 0) for t in shown)
    with figure_style():
        figure = new_figure(
            0.75 + 0.2 * len(shown),
            "What came before each collapse",
            "Steps counted back from the collapse. Grey: training. Pale: warm-up, when no warning can fire.",
            _warning_handles(shown),
        )
        axes = figure.add_subplot()
        for height, trial in enumerate(shown):
            onset = trial.verdict.onset or 0
            axes.barh(height, onset, left=-onset, height=0.5, color=FAINT, lw=0)
            watched = trial.verdict.warnings_from
            warm = min(onset, watched if watched is not None else onset)
            axes.barh(height, warm, left=-onset, height=0.5, color="#F1F3F5", lw=0)
            axes.plot(0, height, ms=7, zorder=5, **COLLAPSE_MARK)
            for name, step in sequence_of_events(trial):
                axes.plot(step - onset, height, marker="o", ms=5.5, color=WARNING_COLOURS[name],
                          markeredgecolor="white", markeredgewidth=0.7, zorder=4)  # fmt: skip
        labels = [f"{shorten(names[trial.id], 30)}, seed {trial.seed}" for trial in shown]
        axes.set_yticks(range(len(shown)), labels, fontsize=7.5)
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="y", visible=False)
        axes.set_ylim(len(shown) - 0.4, -0.6)
        step_axis(axes, longest)
        axes.set_xlim(-longest * 1.02, max(1.0, longest * 0.03))
        axes.set_xlabel("steps before the collapse")
        save(figure, path)
    left = len(bad) - len(shown)
    return f"The {len(shown)} latest of {len(bad)} collapses are shown." if left else ""


def _warning_handles(trials: Sequence[Trial]) -> list[Any]:
    fired = {name for trial in trials for name, _ in sequence_of_events(trial)}
    dots = [
        Line2D([], [], color=colour, marker="o", linestyle="none", ms=5.5, label=name.replace("_", " "))
        for name, colour in WARNING_COLOURS.items()
        if name in fired
    ]
    return [*dots, Line2D([], [], ms=7, label="collapse", **COLLAPSE_MARK)]


def draw_roc(separations: Sequence[Separation], path: Path) -> str | None:
    """ROC curves of the diagnostics, a panel per number of steps before the collapse."""
    befores = sorted({one.before for one in separations})
    if not befores:
        return None
    names = list(dict.fromkeys(one.diagnostic.name for one in separations))
    colours = {name: (PALETTE * 2)[k] for k, name in enumerate(names)}
    dashes: dict[str, Any] = {
        name: "-" if k < len(PALETTE) else (0, (4, 1.5)) for k, name in enumerate(names)
    }
    handles = [Line2D([], [], color=colours[n], linestyle=dashes[n], lw=2, label=n) for n in names]
    with figure_style():
        figure = new_figure(
            3.1,
            "Which statistics tell runs that will collapse from others",
            "Share of collapses above a threshold against share of runs at risk above it, at the same step."
            " The diagonal is a coin.",
            handles,
        )
        grid = figure.subplots(1, len(befores), sharey=True, squeeze=False)[0]
        for axes, before in zip(grid, befores, strict=True):
            axes.plot([0, 1], [0, 1], color=MUTED, lw=0.8, linestyle=(0, (3, 3)))
            cases = 0
            for one in separations:
                if one.before == before:
                    name = one.diagnostic.name
                    style: dict[str, Any] = {"color": colours[name], "linestyle": dashes[name]}
                    axes.plot(*one.curve, lw=1.8, drawstyle="steps-post", **style)
                    cases = max(cases, one.cases)
            axes.set_title(f"{before} steps before ({cases} collapses)")
            axes.set_xlabel("false alarms (share of runs at risk)")
            axes.set_xlim(-0.01, 1.01)
            axes.set_ylim(-0.01, 1.02)
        grid[0].set_ylabel("collapses seen (share)")
        save(figure, path)
    return ""
