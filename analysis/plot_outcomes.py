"""The figure of what became of every trial."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from analysis.early_warning import NAMES
from analysis.plot_data import last_step
from analysis.plot_style import (
    COLLAPSE_MARK,
    INK,
    MUTED,
    OUTCOME_COLOURS,
    figure_style,
    new_figure,
    save,
    shorten,
    step_axis,
    wrap,
)
from analysis.results import Cell
from analysis.study import Trial

MOST_STRIPS = 72
WARNING_MARKERS = dict(zip(NAMES, "^osD", strict=True))


def draw_outcomes(cells: Sequence[Cell], path: Path) -> str | None:
    """What became of every trial: a bar to its last step, its onset of collapse, the warnings before it."""
    trials = [(cell, trial) for cell in cells for trial in cell.trials]
    if not trials:
        return None
    if len(trials) > MOST_STRIPS:
        return _draw_outcome_shares(cells, path)
    with figure_style():
        figure = new_figure(
            0.55 + 0.2 * len(trials) + 0.1 * len(cells),
            "What became of every trial",
            "A bar per seed, as long as it trained. Cross: onset of a collapse, in the hatched interval."
            " Small marks: warnings.",
            _handles([trial for _, trial in trials]),
        )
        axes = figure.add_subplot()
        height, ticks = 0.0, []
        for cell in cells:
            first = height
            for trial in cell.trials:
                _strip(axes, trial, height)
                axes.text(-0.004, height, f"{trial.seed}", transform=axes.get_yaxis_transform(),
                          ha="right", va="center", fontsize=7, color=MUTED)  # fmt: skip
                height += 1
            ticks.append(((first + height - 1) / 2, wrap(cell.label, 26)))
            height += 0.6
        axes.set_yticks([y for y, _ in ticks], [text for _, text in ticks])
        axes.tick_params(axis="y", length=0, pad=16)
        axes.set_ylim(height - 0.3, -0.9)
        axes.grid(axis="y", visible=False)
        step_axis(axes, last_step(cells) * 1.01)
        axes.set_xlabel("step")
        save(figure, path)
    return ""


def _draw_outcome_shares(cells: Sequence[Cell], path: Path) -> str:
    with figure_style():
        figure = new_figure(
            0.6 + 0.22 * len(cells),
            "What became of the trials of every method",
            legend=_handles([trial for cell in cells for trial in cell.trials], marks=False),
        )
        axes = figure.add_subplot()
        for position, cell in enumerate(cells):
            left = 0
            for status, colour in OUTCOME_COLOURS.items():
                if count := cell.count(status):
                    axes.barh(position, count, left=left, height=0.75, color=colour, edgecolor=MUTED, lw=0.5)
                    left += count
        axes.set_yticks(range(len(cells)), [shorten(cell.label, 44) for cell in cells], fontsize=7.5)
        axes.set_ylim(len(cells) - 0.4, -0.6)
        axes.grid(axis="y", visible=False)
        axes.set_xlabel("trials")
        save(figure, path)
    return "Too many trials for a bar each: the bars count them."


def _strip(axes: Axes, trial: Trial, height: float) -> None:
    frames = [frame for frame in (trial.train, trial.evaluations) if len(frame)]
    last = max((int(frame.index.max()) for frame in frames), default=0)
    verdict = trial.verdict
    colour = OUTCOME_COLOURS[trial.status]
    if not trial.has_result:
        axes.barh(height, last, height=0.72, color="white", edgecolor=MUTED, lw=0.8, linestyle=(0, (2, 2)))
        axes.annotate(trial.status, (last, height), xytext=(4, 0), textcoords="offset points", va="center",
                      fontsize=7.5, color=MUTED)  # fmt: skip
    elif verdict.onset is None:
        axes.barh(height, last, height=0.72, color=colour, lw=0)
    else:
        # Until the onset the trial had not collapsed: paler there.
        axes.barh(height, verdict.onset, height=0.72, color=colour, alpha=0.3, lw=0)
        axes.barh(height, last - verdict.onset, left=verdict.onset, height=0.72, color=colour, lw=0)
    if verdict.onset is not None and verdict.onset_interval is not None:
        after, onset = verdict.onset_interval
        axes.barh(
            height, onset - after, left=after, height=0.72, color="none", edgecolor=MUTED, hatch="////", lw=0
        )
        axes.plot(onset, height, ms=7, zorder=5, **COLLAPSE_MARK)
    for warning in verdict.warnings:
        axes.plot(warning.step, height, marker=WARNING_MARKERS[warning.name], ms=4, color=INK,
                  markerfacecolor="white", markeredgewidth=0.9, linestyle="none", zorder=4)  # fmt: skip


def _handles(trials: Sequence[Trial], *, marks: bool = True) -> list[Any]:
    statuses = {trial.status for trial in trials}
    handles: list[Any] = [
        Patch(facecolor=colour, edgecolor=MUTED, lw=0.6, label=status)
        for status, colour in OUTCOME_COLOURS.items()
        if status in statuses and colour != "#FFFFFF"
    ]
    if marks:
        warned = {warning.name for trial in trials for warning in trial.verdict.warnings}
        if any(trial.verdict.onset is not None for trial in trials):
            handles.append(Line2D([], [], ms=7, label="onset of collapse", **COLLAPSE_MARK))
        for name, marker in WARNING_MARKERS.items():
            if name in warned:
                text = f"warning: {name.replace('_', ' ')}"
                handles.append(
                    Line2D(
                        [],
                        [],
                        color=INK,
                        marker=marker,
                        ms=4,
                        markerfacecolor="white",
                        linestyle="none",
                        label=text,
                    )
                )
    return handles
