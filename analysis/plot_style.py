"""How every figure looks: readable 900 pixels wide, on light and dark pages, by colour-blind readers.

Figures carry their own white ground and a thin frame, so that a dark page around them does not matter.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

WIDTH = 9.0
"""Inches; at 160 dots an inch a figure has 1,440 pixels and is shown 900 wide."""

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C8C00")
"""Okabe and Ito's colours without the yellow, which white swallows, and an olive in its place."""

DASHES = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (6, 1.5, 1.5, 1.5)))
COLLAPSE_MARK: dict[str, Any] = {
    "marker": "X",
    "color": "#1F2328",
    "markeredgecolor": "white",
    "markeredgewidth": 0.8,
    "linestyle": "none",
}
INK, MUTED, FAINT, FRAME = "#1F2328", "#59636E", "#D8DEE4", "#C4CBD3"

OUTCOME_COLOURS = {
    "stable": "#0072B2",
    "unstable": "#E69F00",
    "undecided": "#9AA3AD",
    "collapsed": "#D55E00",
    "diverged": "#000000",
    "failed": "#FFFFFF",
    "interrupted": "#FFFFFF",
    "unfinished": "#FFFFFF",
    "unavailable": "#FFFFFF",
    "missing": "#FFFFFF",
}

_STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9.0,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 9.0,
    "axes.edgecolor": MUTED,
    "axes.linewidth": 0.8,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": FAINT,
    "grid.linewidth": 0.6,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "text.color": INK,
    "text.parse_math": False,
    "figure.facecolor": "white",
    "axes.facecolor": "white",
    "savefig.facecolor": "white",
    "lines.solid_capstyle": "round",
    "path.simplify": True,
}


@contextmanager
def figure_style() -> Iterator[None]:
    """Everything drawn inside looks as it should, whatever the caller's matplotlib settings."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        yield


def new_figure(height: float, title: str, subtitle: str = "", legend: Sequence[Any] = ()) -> Figure:
    """A framed figure of the common width: title, subtitle and legend on top, `height` inches below them.

    legend: handles with labels, laid out in as many rows as they need.
    """
    lines = textwrap.wrap(subtitle, 132)
    longest = max((len(handle.get_label()) for handle in legend), default=0)
    columns = max(1, min(len(legend), 124 // (longest + 7)))
    rows = -(-len(legend) // columns) if legend else 0
    head = 0.42 + 0.17 * len(lines) + (0.1 + 0.2 * rows if rows else 0)
    whole = height + head
    below = (0.008, 0.05 / whole, 0.984, (height - 0.05) / whole)
    figure = Figure(
        figsize=(WIDTH, whole),
        layout=ConstrainedLayoutEngine(rect=below, w_pad=0.06, h_pad=0.06),
        edgecolor=FRAME,
        linewidth=1.2,
    )
    FigureCanvasAgg(figure)
    figure.text(0.012, 1 - 0.12 / whole, title, fontsize=11.5, fontweight="bold", va="top", ha="left")
    text = "\n".join(lines)
    figure.text(0.012, 1 - 0.36 / whole, text, fontsize=8.5, color=MUTED, va="top", ha="left")
    if legend:
        drawn = figure.legend(
            handles=legend,
            loc="upper left",
            bbox_to_anchor=(0.012, 1 - (0.38 + 0.17 * len(lines)) / whole),
            borderaxespad=0,
            borderpad=0.3,
            ncols=columns,
            handlelength=2.2,
            columnspacing=1.6,
        )
        drawn.set_in_layout(False)
    return figure


def save(figure: Figure, path: Path) -> None:
    """Write a PNG; the same figure gives the same bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.set_dpi(160)
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.execute(figure)
        figure.set_layout_engine(None)  # with one, the figure would be drawn twice
    figure.savefig(path, dpi=160, edgecolor=figure.get_edgecolor(), metadata={"Software": None})


def step_axis(axes: Axes, last: float) -> None:
    """The x axis of everything that happens over training."""
    axes.set_xlim(0, last)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))


def plain_numbers(axis: Axis) -> None:
    """A logarithmic axis with ticks at 1, 2 and 5 of a decade, or the decades alone, as plain numbers."""
    low, high = axis.get_view_interval()
    narrow = 0 < low < high < 50 * low
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if narrow else (1,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def label_lines(
    axes: Axes, ends: Sequence[tuple[float, str, str]], *, gap: float = 0.062, size: float = 8.5
) -> None:
    """Write names at the right end of lines, pushed apart so that none covers another.

    ends: (y in data coordinates, text, colour). gap: least distance, as a share of the axes' height.
    """
    if not ends:
        return
    to_axes = axes.transData + axes.transAxes.inverted()
    placed = sorted((float(to_axes.transform((0, y))[1]), text, colour) for y, text, colour in ends)
    heights = _spread([height for height, _, _ in placed], gap)
    for (_, text, colour), height in zip(placed, heights, strict=True):
        axes.annotate(
            text,
            (1.0, height),
            xycoords="axes fraction",
            xytext=(5, 0),
            textcoords="offset points",
            color=colour,
            fontsize=size,
            fontweight="bold",
            va="center",
            annotation_clip=False,
        )


def _spread(heights: Sequence[float], gap: float) -> list[float]:
    """Move sorted heights as little as keeps them `gap` apart (pooling neighbours that touch)."""
    pools: list[tuple[float, int]] = []  # centre, members
    for height in heights:
        centre, members = height, 1
        while pools and centre - (members - 1) * gap / 2 < pools[-1][0] + (pools[-1][1] - 1) * gap / 2 + gap:
            before, count = pools.pop()
            centre = (before * count + centre * members) / (count + members)
            members += count
        pools.append((centre, members))
    return [centre + gap * (k - (members - 1) / 2) for centre, members in pools for k in range(members)]


def shorten(text: str, length: int) -> str:
    """At most `length` characters, one line, the cut marked."""
    text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return text if len(text) <= length else text[: length - 1] + "…"


def wrap(text: str, width: int = 30) -> str:
    """At most three lines of about `width` characters."""
    return "\n".join(textwrap.wrap(shorten(text, 3 * width), width)) or "-"
