"""The figures of gates: success against how tight they are, and against how far they let a policy go."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

from analysis.calibration import SHARES
from analysis.gates import EARLY_STEPS, Arm
from analysis.plot_style import MUTED, PALETTE, figure_style, new_figure, save, shorten, wrap

MOST_CONTEXTS = 4
MOST_LEVELS = 5
LEAST_POINTS = 4  # fewer show no line
LEAST_DISTANCE = 1e-6  # nats; less is rounding
MARKERS = "os^Dv"
_INSIDE = re.compile(r"^env \w+\((.+?)\)")
"""Of an environment's variant, what tells it from others."""


def draw_gates(arms: Sequence[Arm], path: Path) -> str | None:
    """A column per context; None where no gate's tightness is known."""
    gated = [arm for arm in arms if arm.tightness and arm.side == "both" and arm.results]
    contexts = list(dict.fromkeys(arm.context for arm in gated))[:MOST_CONTEXTS]
    if not contexts:
        return None
    titles = told_apart([arm.context for arm in gated if arm.context in contexts])
    levels = list(dict.fromkeys(arm.level for arm in gated))[:MOST_LEVELS]
    bare = [arm for arm in arms if arm.side == "-" and arm.context in contexts and arm.results]
    names = list(dict.fromkeys(arm.level for arm in bare))[: len(PALETTE) - len(levels)]
    colours = dict(zip([*levels, *names], PALETTE, strict=False))
    legend = [
        Line2D([], [], color=colours[name], marker="o", lw=1.8, label=f"gate: {name}") for name in levels
    ] + [Line2D([], [], color=colours[name], lw=1.2, linestyle="--", label=name) for name in names]
    with figure_style():
        figure = new_figure(
            4.6,
            "Tight band or sequence level?",
            "Final success (mean over blocks; bars: 95% interval, with fewer than five blocks the range) and"
            " the share of runs that collapsed, by how tight a gate was made. Dashed: clipping without a gate"
            " of this kind.",
            legend,
        )
        grid = figure.subplots(2, len(contexts), sharex=True, sharey="row", squeeze=False)
        for column, context in enumerate(contexts):
            here = [arm for arm in gated if arm.context == context]
            for position, level in enumerate(levels):
                mine = sorted((arm for arm in here if arm.level == level), key=lambda arm: arm.tightness or 0)
                _line(
                    list(grid[:, column]), mine, colours[level], 1 + 0.05 * (position - (len(levels) - 1) / 2)
                )
            for arm in (arm for arm in bare if arm.context == context and arm.level in colours):
                for axes, height in zip(
                    grid[:, column], (arm.final.estimate, arm.collapsed / arm.results), strict=True
                ):
                    axes.axhline(height, color=colours[arm.level], lw=1.2, linestyle="--")
            grid[0, column].set_title(wrap(titles[context]) if titles[context] else "all runs", fontsize=8.5)
            grid[1, column].set_xlabel("meant to hold back")
        for axes in grid.flat:
            axes.set_xscale("log")
            axes.xaxis.set_major_locator(FixedLocator(list(SHARES)))
            axes.xaxis.set_minor_locator(NullLocator())
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0%}"))
        grid[0, 0].set_ylabel("final success")
        grid[1, 0].set_ylabel("share collapsed")
        grid[1, 0].set_ylim(-0.03, 1.03)
        save(figure, path)
    left = len({arm.context for arm in gated}) - len(contexts)
    return f"{left} more contexts are in the table." if left else ""


def draw_distance(arms: Sequence[Arm], path: Path) -> str | None:
    """A point per arm, a colour per kind of gate, a marker per context; None without distances."""
    shown = sorted((arm for arm in arms if arm.results), key=lambda arm: arm.side == "-")
    moved = [arm for arm in shown if arm.early_kl > LEAST_DISTANCE]
    if len(moved) < LEAST_POINTS:
        return None
    labels = {arm.level: arm.level if arm.side == "-" else f"gate: {arm.level}" for arm in moved}
    levels = list(labels)
    contexts = list(dict.fromkeys(arm.context for arm in moved))
    colours = {level: PALETTE[number % len(PALETTE)] for number, level in enumerate(levels)}
    markers = {context: MARKERS[number % len(MARKERS)] for number, context in enumerate(contexts)}
    legend = [
        Line2D([], [], color=colours[level], marker="o", linestyle="", label=label)
        for level, label in labels.items()
    ]
    if len(contexts) > 1:
        legend += [
            Line2D([], [], color=MUTED, marker=markers[context], linestyle="", label=shorten(name, 52))
            for context, name in told_apart([arm.context for arm in moved]).items()
        ]
    with figure_style():
        figure = new_figure(
            3.4,
            "How far the first steps moved the policy, and what became of it",
            "A point is one gate, or clipping without one: final success (mean over blocks; bars: 95%"
            " interval, with fewer than five blocks the range). KL to the old policy: mean of the first"
            f" {EARLY_STEPS} steps. Hollow: at least half of its runs collapsed.",
            legend,
        )
        axes = figure.subplots()
        for arm in moved:
            final = arm.final
            reach = np.abs([[final.estimate - final.low], [final.high - final.estimate]])
            colour = colours[arm.level]
            axes.errorbar(
                arm.early_kl,
                final.estimate,
                np.nan_to_num(reach),
                color=colour,
                marker=markers[arm.context],
                ms=5.5,
                elinewidth=1,
                markerfacecolor="white" if 2 * arm.collapsed >= arm.results else colour,
            )
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.set_xlabel("KL to the old policy in the first steps, nats per token")
        axes.set_ylabel("final success")
        axes.tick_params(labelcolor=MUTED)
        save(figure, path)
    left = len(shown) - len(moved)
    return f"{left} that never left the old policy (one update a rollout) are in the table." if left else ""


def told_apart(contexts: Sequence[str]) -> dict[str, str]:
    """What to call each context: the most frequent by its parts, the others by what they have in their place.

    contexts: one per arm. Parts that all share, or that are off (null), are left out.
    """
    parts = {context: context.split(", ") for context in contexts}
    shared = set.intersection(*map(set, parts.values())) if len(parts) > 1 else set()
    usual, _ = Counter(contexts).most_common(1)[0]
    names = {}
    for context, own in parts.items():
        left = [part for part in own if part not in shared and not part.endswith(" null")]
        differs = [part for part in left if part not in parts[usual]]
        names[context] = ", ".join(differs if context != usual and differs else left)
    return {context: _INSIDE.sub(r"\1", name) for context, name in names.items()}


def _line(axes: Sequence[Axes], arms: Sequence[Arm], colour: str, shift: float) -> None:
    x = np.array([(arm.tightness or np.nan) * shift for arm in arms])
    y = np.array([arm.final.estimate for arm in arms])
    reach = np.array([[arm.final.estimate - arm.final.low for arm in arms],
                      [arm.final.high - arm.final.estimate for arm in arms]])  # fmt: skip
    axes[0].errorbar(
        x, y, np.nan_to_num(np.abs(reach)), color=colour, lw=1.8, marker="o", ms=4.5, elinewidth=1
    )
    share = [arm.collapsed / arm.results for arm in arms]
    axes[1].plot(x, share, color=colour, lw=1.8, marker="o", ms=4.5)
    for one in axes:
        one.tick_params(labelcolor=MUTED)
