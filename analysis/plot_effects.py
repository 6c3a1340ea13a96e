"""Figures of what options do: survival curves, interactions, a map of all cells."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap, Normalize
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from analysis.measures import RunTable
from analysis.plot_style import (
    DASHES,
    FAINT,
    INK,
    MUTED,
    PALETTE,
    figure_style,
    new_figure,
    save,
    shorten,
    step_axis,
)
from analysis.resampling import Interval, seed_interval
from analysis.survival import kaplan_meier

MOST_OPTIONS = 8
MOST_CURVES = 12
MOST_PAIRS = 9
MOST_CELLS = 64
LEAST_FOR_BAND = 5


def draw_survival(runs: RunTable, path: Path) -> str | None:
    """Share of runs that had not collapsed over the steps, a panel per setting, a curve per option."""
    table = runs.table
    settings = [name for name in runs.settings if 2 <= len(runs.order(name)) <= MOST_CURVES]
    if not table["event"].any() or not settings:
        return None
    columns = 2 if len(settings) in (2, 4) else min(3, len(settings))
    rows = -(-len(settings) // columns)
    last = float(table["time"].max())
    with figure_style():
        figure = new_figure(
            2.6 * rows,
            "Runs that had not collapsed",
            "Kaplan-Meier curves, of runs where every option of a setting ran, all else equal (star: nowhere;"
            " all runs). Band: 95% interval, with five runs or more. Small strokes: runs censored there, seen"
            " no further and still healthy. Beside a name: how many runs collapsed.",
        )
        grid = figure.subplots(rows, columns, sharey=True, squeeze=False)
        for axes, setting in zip(grid.flat, settings, strict=False):
            handles = []
            members, alike = runs.side_by_side(setting)
            for position, option in enumerate(runs.order(setting)):
                mine = members[members[setting].astype(str) == option]
                colour = PALETTE[position % len(PALETTE)]
                dash: Any = DASHES[position // 4 % len(DASHES)]
                _survival(axes, mine, colour, dash, last)
                name = f"{shorten(option, 26)}: {int(mine['event'].sum())} of {len(mine)}"
                handles.append(Line2D([], [], color=colour, linestyle=dash, lw=2, label=name))
            axes.legend(handles=handles, fontsize=7.5, loc="best", handlelength=1.4)
            axes.set_ylim(0, 1.02)
            axes.set_title(setting.rpartition(".")[2] + ("" if alike else "*"))
            axes.set_xlabel("step")
            step_axis(axes, last)
        for axes in grid[:, 0]:
            axes.set_ylabel("share not collapsed")
        for axes in list(grid.flat)[len(settings) :]:
            axes.set_visible(False)
        save(figure, path)
    left = [name for name in runs.settings if name not in settings]
    return f"Left out, with more options than colours: {', '.join(left)}." if left else ""


def _survival(axes: Axes, table: pd.DataFrame, colour: str, dash: Any, last: float) -> None:
    curve = kaplan_meier(table["time"], table["event"])
    steps = np.concatenate([[0.0], curve.times, [last]])
    survival = np.concatenate([[1.0], curve.survival, [curve.survival[-1] if len(curve.survival) else 1.0]])
    axes.step(steps, survival, where="post", color=colour, lw=2, linestyle=dash)
    if len(table) >= LEAST_FOR_BAND and len(curve.times):
        low = np.concatenate([[1.0], curve.low, curve.low[-1:]])
        high = np.concatenate([[1.0], curve.high, curve.high[-1:]])
        axes.fill_between(steps, low, high, step="post", color=colour, alpha=0.12, lw=0)
    censored = table[~table["event"]]
    early = censored[censored["time"] < last]["time"].unique()
    if len(early):
        axes.plot(early, [curve.at(step) for step in early], ls="none", marker="|", ms=6, color=colour)


def draw_interactions(runs: RunTable, path: Path, *, metric: str = "final") -> str | None:
    """Mean final success of every pair of options of two settings: lines that are not parallel interact."""
    settings = [name for name in runs.settings if 2 <= len(runs.order(name)) <= MOST_OPTIONS]
    pairs = [pair for pair in combinations(settings, 2) if len(runs.alike(*pair))]
    if not pairs:
        return None
    # The setting with more options goes along the axis.
    pairs = [pair if len(runs.order(pair[0])) >= len(runs.order(pair[1])) else pair[::-1] for pair in pairs]
    shown = pairs[:MOST_PAIRS]
    columns = min(3, len(shown))
    rows = -(-len(shown) // columns)
    with figure_style():
        figure = new_figure(
            2.9 * rows,
            "Does what one choice does depend on another?",
            "Final success where all options of both ran, all else equal: mean over blocks, each block's own"
            " level taken off; bars: 95% interval, with fewer than five blocks the range. Parallel lines: the"
            " two choices do not interact.",
        )
        grid = figure.subplots(rows, columns, sharey=True, squeeze=False)
        for axes, (along, lines) in zip(grid.flat, shown, strict=False):
            table = runs.alike(along, lines)
            options, others = runs.order(along), runs.order(lines)
            for position, other in enumerate(others):
                means = [_mean(table, {along: option, lines: other}, metric) for option in options]
                shift = 0.06 * (position - (len(others) - 1) / 2)
                x = np.arange(len(options)) + shift
                y = np.array([mean.estimate for mean in means])
                reach = np.array([[m.estimate - m.low for m in means], [m.high - m.estimate for m in means]])
                axes.errorbar(x, y, np.nan_to_num(np.abs(reach)), color=PALETTE[position], lw=1.8, marker="o",
                              ms=4.5, elinewidth=1, capsize=0)  # fmt: skip
            handles = [
                Line2D([], [], color=PALETTE[k], marker="o", ms=4, lw=1.8, label=shorten(other, 24))
                for k, other in enumerate(others)
            ]
            axes.legend(handles=handles, fontsize=7.5, loc="best", handlelength=1.4)
            axes.set_xticks(range(len(options)), [shorten(option, 14) for option in options], fontsize=7.5)
            if len(options) > 3:
                axes.tick_params(axis="x", rotation=20)
            axes.set_xlim(-0.4, len(options) - 0.6)
            axes.set_title(f"{along.rpartition('.')[2]} x {lines.rpartition('.')[2]}", fontsize=8.5)
        for axes in grid[:, 0]:
            axes.set_ylabel("final success")
        for axes in list(grid.flat)[len(shown) :]:
            axes.set_visible(False)
        save(figure, path)
    left = len(pairs) - len(shown)
    return f"{left} more pairs of settings are in factorial.csv." if left else ""


def draw_cell_map(runs: RunTable, path: Path) -> str | None:
    """Every cell as a field: final success on the left, the share of its runs that collapsed on the right."""
    table = runs.results
    if table["cell"].nunique() < 3:
        return None
    rows_by, columns_by = _halves(runs)
    row_key = _keys(table, rows_by, runs)
    column_key = _keys(table, columns_by, runs)
    if len(row_key.unique()) * len(column_key.unique()) > 4 * MOST_CELLS:
        return None
    with figure_style():
        height = 0.75 + 0.34 * row_key.nunique()
        figure = new_figure(
            max(1.9, height),
            "All cells",
            f"Rows: {_named(rows_by) or 'method'}. Columns: {_named(columns_by) or 'all'}."
            " Numbers: mean over seeds; share of seeds that collapsed or diverged.",
        )
        left, right = figure.subplots(1, 2, sharey=True)
        success = table.assign(row=row_key, column=column_key)
        _field(left, success, "final", "final success", "YlGnBu")
        _field(right, success.assign(bad=1 - success["healthy"]), "bad", "collapsed", "OrRd")
        save(figure, path)
    return ""


def _field(axes: Axes, table: pd.DataFrame, value: str, title: str, colours: str) -> None:
    wide = table.pivot_table(index="row", columns="column", values=value, aggfunc="mean", sort=False)
    wide = wide.reindex(index=table["row"].unique(), columns=table["column"].unique())
    values = wide.to_numpy(dtype=float)
    norm = Normalize(0, 1)
    colour_map: Colormap = ScalarMappable(norm, colours).cmap
    axes.imshow(np.ma.masked_invalid(values), norm=norm, cmap=colours, aspect="auto")
    for (row, column), number in np.ndenumerate(values):
        if np.isfinite(number):
            red, green, blue, _ = colour_map(norm(number))
            dark = 0.299 * red + 0.587 * green + 0.114 * blue < 0.55
            axes.text(column, row, f"{number:.2f}".removeprefix("0") if number < 1 else "1",
                      ha="center", va="center", fontsize=7.5, color="white" if dark else INK)  # fmt: skip
    axes.set_xticks(range(values.shape[1]), [_fitted(str(c), 26) for c in wide.columns], fontsize=7)
    if values.shape[1] > 2:
        axes.tick_params(axis="x", rotation=25)
        for label in axes.get_xticklabels():
            label.set_horizontalalignment("right")
    axes.set_yticks(range(values.shape[0]), [_fitted(str(r), 40) for r in wide.index], fontsize=7.5)
    axes.tick_params(length=0)
    axes.grid(visible=False)
    for spine in axes.spines.values():
        spine.set_color(FAINT)
    axes.set_title(title)
    bar = axes.figure.colorbar(
        ScalarMappable(norm, colours),
        ax=axes,
        aspect=30,
        pad=0.01,
        format=FuncFormatter(lambda v, _: f"{v:g}"),
    )
    bar.outline.set_edgecolor(MUTED)


def _fitted(text: str, most: int) -> str:
    """A cell's options in at most so many characters: the longest are cut, so that all are told apart."""
    parts = text.split(" / ")
    for _ in parts:
        excess = len(" / ".join(parts)) - most
        if excess > 0:
            place = max(range(len(parts)), key=lambda number: len(parts[number]))
            parts[place] = shorten(parts[place], max(5, len(parts[place]) - excess))
    return " / ".join(parts)


def _halves(runs: RunTable) -> tuple[list[str], list[str]]:
    """The settings divided so that rows and columns are about equally many; the widest goes down."""
    rows: list[str] = []
    columns: list[str] = []
    sizes = {name: len(runs.order(name)) for name in runs.settings}
    for name in sorted(sizes, key=lambda one: -sizes[one]):
        down = np.prod([sizes[n] for n in rows], dtype=float)
        across = np.prod([sizes[n] for n in columns], dtype=float)
        (rows if down <= 2 * across else columns).append(name)
    order = list(runs.settings)
    return sorted(rows, key=order.index), sorted(columns, key=order.index)


def _keys(table: pd.DataFrame, settings: Sequence[str], runs: RunTable) -> pd.Series:
    if not settings:
        return pd.Series("", index=table.index)
    parts = [pd.Categorical(table[name].astype(str), runs.order(name), ordered=True) for name in settings]
    order = pd.DataFrame({name: part.codes for name, part in zip(settings, parts, strict=True)}).to_numpy()
    text = pd.Series(table[list(settings)].astype(str).agg(" / ".join, axis=1), index=table.index)
    ranked = sorted(set(zip(map(tuple, order), text, strict=True)))
    return text.astype(pd.CategoricalDtype([name for _, name in ranked], ordered=True))


def _named(settings: Sequence[str]) -> str:
    return " / ".join(name.rpartition(".")[2] for name in settings)


def _mean(table: pd.DataFrame, where: dict[str, str], metric: str) -> Interval:
    level = table.groupby("block")[metric].transform("mean")
    table = table.assign(**{metric: table[metric] - level + table[metric].mean()})
    for name, option in where.items():
        table = table[table[name].astype(str) == option]
    return seed_interval(table.groupby("block")[metric].mean().dropna())
