"""What went wrong in a run trained elsewhere, when, what moved first, and what its log cannot say."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np

from analysis.collapse import CollapseRule, Verdict, judge
from analysis.early_warning import MAD_TO_SIGMA, ROBUST_DEVIATIONS, SMALLEST_DEVIATION, WARM_UP_STEPS, number
from analysis.foreign import ForeignRun

MOST_EVALUATIONS = 50
"""Where a log has no evaluations, training steps are averaged into at most as many."""
SCALED_START_FLOOR = 0.25
"""Below start, of a reward scaled to its own range: a rule of thumb, as its noise is not known."""
NOISE_TO_RANGE = 6.0

MOVEMENTS: Mapping[str, tuple[str, int]] = {
    "train/kl_ref": ("KL to the reference rises", 1),
    "train/kl_old": ("KL to the old policy rises", 1),
    "train/gradient_norm": ("gradient norm rises", 1),
    "train/neg_low_depth": ("negative-advantage low-ratio rows deepen", 1),
    "train/entropy": ("entropy falls", -1),
    "train/clip": ("clip fraction rises", 1),
    "rollout/group_reward_std": ("spread of rewards within a group falls", -1),
    "rollout/uniform_groups_return": ("share of groups without signal rises", 1),
    "rollout/response_tokens": ("responses get longer", 1),
    "rollout/response_tokens/shorter": ("responses get shorter", -1),
    "rollout/valid_format": ("well-formed responses get fewer", -1),
}
"""What can move, and in which direction it is ominous."""

BEARS_ON: Mapping[str, str] = {
    "train/kl_old": "is_clipping (tighter, or by sequence), fewer updates per rollout, learning rate",
    "train/gradient_norm": "is_clipping, learning rate, gradient clipping",
    "train/neg_low_depth": "is_clipping with sequence_mask, fewer updates per rollout",
    "train/kl_ref": "KL coefficient and estimator, learning rate",
    "train/entropy": "is_clipping (token_higher), KL coefficient, entropy of the advantage (empg)",
    "train/clip": "is_clipping, fewer updates per rollout",
    "rollout/group_reward_std": "dynamic_filtering (group_variance, top_variance), advantage (gigpo)",
    "rollout/uniform_groups_return": "dynamic_filtering (group_variance, top_variance), advantage (gigpo)",
    "rollout/response_tokens": "loss_aggregation (seq_mean against token_mean)",
    "rollout/response_tokens/shorter": "loss_aggregation (seq_mean against token_mean)",
    "rollout/valid_format": "format penalty, cloning before RL, KL to the clone",
}
"""Which choices bear on a movement."""

UNKNOWABLE: Mapping[str, str] = {
    "eval/success": "no evaluation: what happened is judged by training rollouts",
    "train/kl_old": "no KL to the old policy: how far a step's updates went is not known",
    "train/gradient_norm": "no gradient norm",
    "train/neg_low_depth": "no ratio statistics: whether negative rows were pushed far cannot be seen",
    "rollout/group_reward_std": "no spread of rewards within groups",
    "rollout/valid_format": "no rate of well-formed responses",
    "train/entropy": "no entropy",
}


@dataclass(frozen=True)
class Event:
    """Something that happened at a step. metric: which one moved, empty for the collapse itself."""

    step: int
    text: str
    metric: str = ""


@dataclass(frozen=True)
class Diagnosis:
    """What a run came to.

    judged_by: the metric that success was read from, empty without one; events: in order; unknowable: what
    the log cannot say.
    """

    run: ForeignRun
    verdict: Verdict
    judged_by: str
    events: tuple[Event, ...]
    unknowable: tuple[str, ...]

    @property
    def healthy(self) -> bool:
        """Whether it neither collapsed nor diverged."""
        return self.verdict.outcome not in ("collapsed", "diverged")

    def document(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "run": self.run.name,
            "source": str(self.run.source),
            "format": self.run.format,
            "steps": self.run.steps,
            "outcome": self.verdict.outcome,
            "reason": self.verdict.reason,
            "onset": self.verdict.onset,
            "judged_by": self.judged_by,
            "events": [vars(event) for event in self.events],
            "bears_on": self.bears_on(),
            "unknowable": list(self.unknowable),
            "mapped": self.run.mapped,
            "unknown": self.run.unknown,
        }

    def bears_on(self) -> list[str]:
        """Which choices bear on what moved before the collapse, the earliest movement first."""
        onset = self.verdict.onset
        before = [e for e in self.events if e.metric and (onset is None or e.step <= onset)]
        return list(dict.fromkeys(BEARS_ON[event.metric] for event in before))


def diagnose(run: ForeignRun, rule: CollapseRule | None = None) -> Diagnosis:
    """Judge a run by the rule of docs/collapse.md, on evaluations or on what stands in for them."""
    rows, judged_by, scaled = _judged_rows(run.rows)
    rule = rule or CollapseRule()
    if scaled:
        rule = replace(rule, start_floor=SCALED_START_FLOOR)
    verdict = judge(rows, rule, finished=True)
    events = _movements(run.rows)
    if verdict.onset is not None:
        events.append(Event(verdict.onset, verdict.outcome))
    recorded = {name for row in run.rows for name in row}
    unknowable = [text for name, text in UNKNOWABLE.items() if name not in recorded]
    if not judged_by:
        unknowable.insert(0, "neither success nor reward: whether it learned or collapsed cannot be told")
    elif scaled:
        unknowable.insert(0, f"no success: {judged_by}, scaled to its own range, stands in for it")
    events.sort(key=lambda event: (event.step, not event.metric))
    return Diagnosis(run, verdict, judged_by, tuple(events), tuple(unknowable))


def _judged_rows(rows: Sequence[Mapping[str, Any]]) -> tuple[list[dict[str, Any]], str, bool]:
    """The rows with evaluations; where there are none, training success or reward stands in for them."""
    if any(number(row.get("eval/success")) is not None for row in rows):
        return [dict(row) for row in rows], "eval/success", False
    for metric in ("rollout/success", "rollout/return"):
        curve = _curve(rows, metric)
        if len(curve) < 2:
            continue
        values = [value for _, value in curve]
        share = min(values) >= 0.0 and max(values) <= 1.0
        levels = _averaged(curve)
        if not share:
            levels = _scaled(levels, values)
        made = [
            {"step": 0 if place == 0 else step, "kind": "eval", "eval/success": level}
            for place, (step, level) in enumerate(levels)
        ]
        merged = [*map(dict, rows), *made]
        merged.sort(key=lambda row: (row["step"], row["kind"] == "eval"))
        return merged, metric, not share
    return [dict(row) for row in rows], "", False


def _averaged(curve: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """Neighbouring steps averaged, the last of them as the step."""
    size = max(1, math.ceil(len(curve) / MOST_EVALUATIONS))
    groups = [curve[start : start + size] for start in range(0, len(curve), size)]
    return [(group[-1][0], fmean(value for _, value in group)) for group in groups]


def _scaled(levels: Sequence[tuple[int, float]], values: Sequence[float]) -> list[tuple[int, float]]:
    """A reward brought to 0..1 by its range, unless that is no more than noise: then it is flat at 0.5."""
    heights = [level for _, level in levels]
    low, high = min(heights), max(heights)
    size = max(1, len(values) // len(heights))
    noise = float(np.median(np.abs(np.diff(values)))) * MAD_TO_SIGMA / math.sqrt(2) / math.sqrt(size)
    if high - low <= NOISE_TO_RANGE * noise or high == low:
        return [(step, 0.5) for step, _ in levels]
    return [(step, (level - low) / (high - low)) for step, level in levels]


def _movements(rows: Sequence[Mapping[str, Any]]) -> list[Event]:
    """The first time each statistic left its warm-up for two values in a row, in its ominous direction."""
    events = []
    for key, (text, sign) in MOVEMENTS.items():
        metric = key.removesuffix("/shorter")
        curve = [(int(row["step"]), found) for row in rows if (found := number(row.get(metric))) is not None]
        finite = [(step, value) for step, value in curve if math.isfinite(value)]
        step = _first_excursion(finite, sign)
        if step is not None:
            events.append(Event(step, text, key))
        broken = next((step for step, value in curve if not math.isfinite(value)), None)
        if broken is not None and sign == 1:
            events.append(Event(broken, f"{metric} is not finite", key))
    return events


def _first_excursion(curve: Sequence[tuple[int, float]], sign: int) -> int | None:
    """Beyond the warm-up's median by six robust deviations; of positive statistics on a log scale."""
    if len(curve) < WARM_UP_STEPS + 2:
        return None
    start = [value for _, value in curve[:WARM_UP_STEPS]]
    logarithmic = min(value for _, value in curve) > 0

    def shape(value: float) -> float:
        return math.log(value) if logarithmic else value

    centre = median(map(shape, start))
    least = SMALLEST_DEVIATION if logarithmic else 0.02
    spread = max(MAD_TO_SIGMA * median(abs(shape(value) - centre) for value in start), least)
    outside = 0
    for step, value in curve[WARM_UP_STEPS:]:
        outside = outside + 1 if sign * (shape(value) - centre) > ROBUST_DEVIATIONS * spread else 0
        if outside == 2:
            return step
    return None


def told(found: Diagnosis) -> list[str]:
    """A diagnosis in lines of plain text."""
    run, verdict = found.run, found.verdict
    head = f"{run.name}: {verdict.outcome}"
    if verdict.onset is not None and verdict.onset_interval is not None:
        head += f" at step {verdict.onset} (after {verdict.onset_interval[0]})"
    lines = [head, f"  read as {run.format}, {run.steps} steps", f"  {verdict.reason}"]
    if found.events:
        lines.append("  in order:")
        for event in found.events:
            lead = ""
            if event.metric and verdict.onset is not None and event.step <= verdict.onset:
                lead = f" ({verdict.onset - event.step} steps before)"
            lines.append(f"    step {event.step}: {event.text}{lead}")
    elif not found.healthy:
        lines.append("  nothing that was recorded moved before")
    if not found.healthy and (choices := found.bears_on()):
        lines.append("  choices that bear on what moved:")
        lines += [f"    {choice}" for choice in choices]
    if found.unknowable:
        lines.append("  what this log cannot say:")
        lines += [f"    {text}" for text in found.unknowable]
    lines.append("  keys: " + ", ".join(f"{ours} <- {key}" for ours, key in run.mapped.items()))
    if run.unknown:
        names = sorted(run.unknown)
        more = f", and {len(names) - 20} more" if len(names) > 20 else ""
        lines.append(f"  keys without a meaning here: {', '.join(names[:20])}{more}")
    if run.damaged:
        lines.append(f"  {run.damaged} parts could not be read")
    return [_plain(line) for line in lines]


def side_by_side(diagnoses: Sequence[Diagnosis]) -> list[str]:
    """Several runs in a table of plain text: outcome, step, what moved first."""
    rows = [("run", "outcome", "at step", "moved first", "choices that bear on it")]
    for found in diagnoses:
        first = next((event for event in found.events if event.metric), None)
        bears = found.bears_on()
        rows.append(
            (
                _plain(found.run.name)[:40],
                found.verdict.outcome,
                "-" if found.verdict.onset is None else str(found.verdict.onset),
                f"{first.text} (step {first.step})" if first else "-",
                bears[0].split(",")[0] if bears and not found.healthy else "-",
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]


def draw_diagnoses(diagnoses: Iterable[Diagnosis], path: Path) -> bool:
    """A panel per metric, a line per run, events marked; whether there was anything to draw."""
    from matplotlib.lines import Line2D

    from analysis.plot_style import COLLAPSE_MARK, PALETTE, figure_style, new_figure, save, shorten

    shown = list(diagnoses)[: len(PALETTE)]
    wanted = ("eval/success", "rollout/success", "rollout/return", *MOVEMENTS)
    metrics = [m for m in wanted if any(_curve(found.run.rows, m) for found in shown)][:9]
    if not metrics:
        return False
    columns = min(3, len(metrics))
    lines = -(-len(metrics) // columns)
    handles = [
        Line2D([], [], color=colour, lw=2, label=shorten(found.run.name, 40))
        for found, colour in zip(shown, PALETTE, strict=False)
    ]
    with figure_style():
        reading = "Cross: the collapse. Dot: moved out of its warm-up."
        figure = new_figure(2.1 * lines, "Runs side by side", reading, handles)
        grid = figure.subplots(lines, columns, squeeze=False)
        for axes, metric in zip(grid.flat, metrics, strict=False):
            for found, colour in zip(shown, PALETTE, strict=False):
                curve = _curve(found.run.rows, metric)
                if not curve:
                    continue
                steps, values = zip(*curve, strict=True)
                axes.plot(steps, values, color=colour, lw=1.4)
                onset = found.verdict.onset
                if onset is not None:
                    axes.plot(onset, np.interp(onset, steps, values), ms=7, zorder=5, **COLLAPSE_MARK)
                for event in found.events:
                    if event.metric == metric:
                        axes.plot(event.step, np.interp(event.step, steps, values), marker="o", ms=5,
                                  color=colour, markeredgecolor="white", zorder=4)  # fmt: skip
            axes.set_title(metric, fontsize=8.5)
            axes.set_xlabel("step")
        for axes in list(grid.flat)[len(metrics) :]:
            axes.set_visible(False)
        save(figure, path)
    return True


def _curve(rows: Sequence[Mapping[str, Any]], metric: str) -> list[tuple[int, float]]:
    """The finite values of a metric with their steps."""
    found = ((int(row["step"]), number(row.get(metric))) for row in rows)
    return [(step, value) for step, value in found if value is not None and math.isfinite(value)]


def _plain(text: str) -> str:
    """No control characters: names come from files of others."""
    return "".join(letter if letter.isprintable() else " " for letter in text)
