"""The figure of tuning: how scores went, by candidate and by value, and which key mattered."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from analysis.plot_style import (
    INK,
    MUTED,
    OUTCOME_COLOURS,
    PALETTE,
    figure_style,
    new_figure,
    plain_numbers,
    save,
    shorten,
)
from analysis.searches import Candidate, Search, numbers_in

MOST_SEARCHES = 12


def draw_tuning(searches: Sequence[Search], path: Path) -> str | None:
    """A row per search: scores by candidate and by the value of the most important key, importance of keys.

    Returns a sentence about what was left out, or None when there was nothing to draw.
    """
    drawn = [search for search in searches if any(one.score is not None for one in search.candidates)]
    if not drawn:
        return None
    shown = drawn[:MOST_SEARCHES]
    several = any(len(search.importance) > 1 for search in shown)
    outcomes = dict.fromkeys(_worst(one) for search in shown for one in search.candidates if one.outcomes)
    with figure_style():
        figure = new_figure(
            0.3 + 1.9 * len(shown),
            "Candidates of tuning",
            "Score: final success less what instability costs. Line: the best so far. Circle: chosen.",
            legend=[_dot(outcome) for outcome in outcomes],
        )
        columns = 3 if several else 2
        grid = figure.subplots(len(shown), columns, squeeze=False)
        for row, search in zip(grid, shown, strict=True):
            scored = [one for one in search.candidates if one.score is not None]
            _history(row[0], search, scored)
            _response(row[1], search, scored)
            if several:
                _importance(row[2], search)
        save(figure, path)
    left = len(drawn) - len(shown)
    return f"{left} more searches are in the table only." if left else ""


def _history(axes: Axes, search: Search, scored: Sequence[Candidate]) -> None:
    numbers = [one.number + 1 for one in scored]
    best = list(accumulate((one.score or 0.0 for one in scored), max))
    axes.step(numbers, best, where="post", color=MUTED, lw=1.2, zorder=2)
    _scatter(axes, search, [float(number) for number in numbers], scored)
    axes.set_title(shorten(search.label, 34))
    axes.set_xlabel("candidate")
    axes.set_ylabel("score")
    axes.set_xlim(0.5, search.budget + 0.5)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))


def _response(axes: Axes, search: Search, scored: Sequence[Candidate]) -> None:
    key = max(search.keys, key=lambda name: search.importance.get(name, 0.0))
    values = [one.values.get(key) for one in scored]
    numbers = numbers_in(values)
    if len(numbers) == len(values):
        _scatter(axes, search, numbers, scored)
        if key in search.logarithmic:
            axes.set_xscale("log")
            plain_numbers(axes.xaxis)
    else:
        words = list(dict.fromkeys(str(value) for value in values))
        _scatter(axes, search, [float(words.index(str(value))) for value in values], scored)
        axes.set_xticks(range(len(words)), [shorten(word, 12) for word in words])
    axes.set_xlabel(shorten(key, 40))
    axes.set_ylabel("score")


def _importance(axes: Axes, search: Search) -> None:
    ranked = sorted(search.importance.items(), key=lambda item: item[1])
    axes.barh([shorten(key.rpartition(".")[2], 18) for key, _ in ranked], [value for _, value in ranked],
              color=PALETTE[0], height=0.6)  # fmt: skip
    axes.set_xlim(0, 1)
    axes.set_xlabel("importance")


def _scatter(axes: Axes, search: Search, across: Sequence[float], scored: Sequence[Candidate]) -> None:
    for x, one in zip(across, scored, strict=True):
        chosen = one.number == search.chosen
        axes.plot(
            x,
            one.score or 0.0,
            marker="o",
            ms=9 if chosen else 6,
            color=OUTCOME_COLOURS[_worst(one)],
            markeredgecolor=INK if chosen else "white",
            markeredgewidth=1.6 if chosen else 0.6,
            linestyle="none",
            zorder=3,
        )


def _worst(one: Candidate) -> str:
    """The worst outcome of a candidate's trials."""
    order = ("diverged", "collapsed", "unstable", "undecided", "stable")
    return next((outcome for outcome in order if outcome in one.outcomes), "undecided")


def _dot(outcome: str) -> Line2D:
    return Line2D([], [], marker="o", ms=6, color=OUTCOME_COLOURS[outcome], linestyle="none", label=outcome)
