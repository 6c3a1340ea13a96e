"""The figure of how a distribution moves over training."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm
from matplotlib.ticker import FuncFormatter

from analysis.plot_data import best_and_worst, has_histograms, pooled_histograms
from analysis.plot_style import INK, MUTED, OUTCOME_COLOURS, figure_style, new_figure, save, step_axis, wrap
from analysis.results import Cell
from analysis.study import Histograms

MOST_HISTOGRAMS = 8
SHARE_WORTH_SHOWING = 1e-3
_COLOURS = LogNorm(1e-3, 0.3, clip=True)
_COLOUR_TICKS = (0.001, 0.01, 0.1, 0.3)
_COLOUR_MAP = "YlGnBu"


def draw_histograms(
    cells: Sequence[Cell], path: Path, *, quantity: str, title: str, unit: str, counted: str
) -> str | None:
    """How a ratio's distribution moves over training: heat maps, A < 0 on the left, A > 0 on the right."""
    recorded = [cell for cell in cells if has_histograms(cell)]
    shown, note = best_and_worst(recorded, MOST_HISTOGRAMS, "methods")
    found = {
        cell.id: [pooled_histograms(cell.results, f"{quantity}/{sign}") for sign in ("negative", "positive")]
        for cell in shown
    }
    shown = [cell for cell in shown if any(histograms is not None for histograms in found[cell.id])]
    if not shown:
        return None
    drawn = [histograms for cell in shown for histograms in found[cell.id] if histograms is not None]
    with figure_style():
        figure = new_figure(
            0.5 + 1.45 * len(shown),
            title,
            f"Colour: share of a step's {counted}, all seeds together. Lines: 5%, 50% and 95% quantile."
            " Triangle: onset of a collapse.",
        )
        grid = figure.subplots(len(shown), 2, sharex=True, sharey=True, squeeze=False)
        for row, cell in zip(grid, shown, strict=True):
            for axes, histograms in zip(row, found[cell.id], strict=True):
                axes.grid(visible=False)
                if histograms is not None:
                    _heat(axes, histograms)
                axes.axhline(0, color=MUTED, lw=0.6, zorder=2)
                _mark_onsets(axes, cell)
            row[0].set_ylabel(f"{wrap(cell.label, 18)}\n\n{unit}", fontsize=8.5)
        grid[0, 0].set_title("rows with advantage < 0")
        grid[0, 1].set_title("rows with advantage > 0")
        for axes in grid[-1]:
            axes.set_xlabel("step")
        _ratio_axis(grid[0, 0], drawn)
        step_axis(grid[0, 0], max(int(histograms.steps[-1]) for histograms in drawn) + 0.5)
        grid[0, 0].set_xlim(left=0.5)
        bar = figure.colorbar(
            ScalarMappable(_COLOURS, _COLOUR_MAP),
            ax=grid,
            label=f"share of {counted}",
            aspect=18 * len(shown),
            pad=0.01,
            ticks=_COLOUR_TICKS,
            format=FuncFormatter(lambda share, _: f"{share:g}"),
        )
        bar.minorticks_off()
        save(figure, path)
    return note


def _heat(axes: Axes, histograms: Histograms) -> None:
    axes.pcolormesh(
        np.append(histograms.steps - 0.5, histograms.steps[-1] + 0.5),
        histograms.edges,
        np.ma.masked_less_equal(_shares(histograms).T, 0),
        norm=_COLOURS,
        cmap=_COLOUR_MAP,
    )
    for quantile, width in ((0.05, 0.9), (0.5, 1.6), (0.95, 0.9)):
        line = _quantiles(histograms.counts, histograms.edges, quantile)
        axes.plot(histograms.steps, line, color=INK, lw=width, zorder=3)


def _mark_onsets(axes: Axes, cell: Cell) -> None:
    for trial in cell.results:
        if trial.verdict.onset is not None:
            axes.plot(
                trial.verdict.onset,
                0.95,
                marker="v",
                ms=6,
                color=OUTCOME_COLOURS["collapsed"],
                markeredgecolor="white",
                transform=axes.get_xaxis_transform(),
                zorder=5,
            )


def _ratio_axis(axes: Axes, drawn: Sequence[Histograms]) -> None:
    """Symmetric around 0; logarithmic away from it where the bins are."""
    reach = 0.0
    for histograms in drawn:
        used = np.flatnonzero((_shares(histograms) > SHARE_WORTH_SHOWING).any(axis=0))
        edges = np.abs(histograms.edges)
        reach = max(reach, edges[used[0]], edges[used[-1] + 1]) if len(used) else max(reach, edges.max())
    widths = np.diff(drawn[0].edges)
    if widths.max() > 20 * widths.min():
        finest = float(np.abs(drawn[0].edges[drawn[0].edges != 0]).min())
        axes.set_yscale("symlog", linthresh=100 * finest, linscale=0.5)
        decades = [10.0**k for k in range(-8, 3) if 300 * finest <= 10.0**k <= reach]
        ticks = [*(-tick for tick in reversed(decades)), 0.0, *decades]
        axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()
    axes.set_ylim(-reach, reach)


def _shares(histograms: Histograms) -> np.ndarray:
    """(steps, bins): counts as a share of their step."""
    totals = histograms.counts.sum(axis=1, keepdims=True)
    shares: np.ndarray = histograms.counts / np.maximum(totals, 1)
    return shares


def _quantiles(counts: np.ndarray, edges: np.ndarray, quantile: float) -> np.ndarray:
    """The quantile of every step's histogram (steps, bins), linear within a bin; NaN for an empty step."""
    result = np.full(len(counts), np.nan)
    for k, row in enumerate(counts):
        if row.sum() > 0:
            result[k] = np.interp(quantile, np.append(0, np.cumsum(row)) / row.sum(), edges)
    return result
