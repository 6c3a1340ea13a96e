"""What MLflow is told of a trial, a cell and a study: names, tags, parameters, metrics. Imports no mlflow."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import fmean, stdev
from typing import Any, Literal

from analysis.collapse import CollapseRule, judge
from arena.cards import flatten, option_name
from arena.records import RESULTS, Outcome
from arena.trial_sheet import TrialSheet

Status = Literal["RUNNING", "SCHEDULED", "FINISHED", "FAILED", "KILLED"]

TRIAL, CELL, REPORT = "arena.trial", "arena.cell", "arena.report"
ORIGIN, POSITION = "arena.origin", "arena.position"
ELAPSED, UPLOADED, TRACES = "arena.elapsed", "arena.uploaded", "arena.traces"
PARENT, NOTE, NAME, KIND = (
    "mlflow.parentRunId",
    "mlflow.note.content",
    "mlflow.runName",
    "mlflow.experimentKind",
)

COUNTED = RESULTS | {"failed", "interrupted"}
"""Outcomes whose number is a metric of a cell."""

LONGEST_TAG, LONGEST_PARAMETER, LONGEST_KEY = 5_000, 6_000, 250
"""MLflow refuses longer keys and parameters, and some of its databases longer tags."""

MEASURED = {"train": "time/step", "eval": "time/evaluation"}
"""The metric that says how many seconds a row of each kind stands for."""

SUMMARY_DIGITS = 4
"""Of the numbers that sum up: the page shows every digit there is."""

_NOT_IN_KEYS = re.compile(r"[^\w\-. /:]")


@dataclass(frozen=True)
class Point:
    """One number of one curve, as MLflow takes it: timestamp in milliseconds since the epoch."""

    key: str
    value: float
    timestamp: int
    step: int


def key(name: str) -> str:
    """A name with only the characters MLflow allows in keys, and no more of them than it allows."""
    return _NOT_IN_KEYS.sub("_", name)[:LONGEST_KEY]


def cell_tags(sheet: TrialSheet, study: str) -> dict[str, str]:
    """What all trials of a cell share. Axes are tags of their own name: `tags.is_clipping = 'cispo'`."""
    tags = {key(axis): option_name(choice) for axis, choice in sheet.point.items()}
    tags |= {"study": study, "label": sheet.label, "methods": ", ".join(sheet.methods), "env": sheet.env}
    return {name: value[:LONGEST_TAG] for name, value in tags.items() if value}


def trial_tags(sheet: TrialSheet, study: str, outcome: Outcome | None, status: Status) -> dict[str, str]:
    """Everything by which one looks for a trial's run."""
    tags = cell_tags(sheet, study) | {
        "kind": "trial",
        TRIAL: sheet.trial,
        "cell": sheet.cell,
        "seed": str(sheet.seed),
        "mlflow.source.name": "arena run",
        "mlflow.source.type": "LOCAL",
    }
    if commit := sheet.provenance.get("commit"):
        tags |= {"commit": str(commit), "mlflow.source.git.commit": str(commit)}
    if outcome is None:
        return tags | {"outcome": {"RUNNING": "running", "SCHEDULED": "pending"}.get(status, "interrupted")}
    tags["outcome"] = outcome.outcome
    if outcome.learned is not None:
        tags["learned"] = "learned" if outcome.learned else "flat"
    if outcome.reason:
        tags["reason"] = outcome.reason[:LONGEST_TAG]
    if outcome.onset is not None:
        tags["onset"] = str(outcome.onset)
    if outcome.warnings:
        warnings = (f"{warning['name']} at {warning['step']}" for warning in outcome.warnings)
        tags["warnings"] = ", ".join(warnings)[:LONGEST_TAG]
    return tags | {NOTE: _trial_note(tags)}


def _trial_note(tags: Mapping[str, str]) -> str:
    """What the page shows as the description of a trial that ended."""
    head = f"**{tags['outcome']}**" + (f", {tags['learned']}" if "learned" in tags else "")
    parts = [head, tags.get("reason", "")]
    if "warnings" in tags:
        parts.append(f"Early warnings: {tags['warnings']}.")
    return "\n\n".join(part for part in parts if part)[:LONGEST_TAG]


def trace_tags(sheet: TrialSheet, study: str, outcome: Outcome) -> dict[str, str]:
    """By what the episodes of a trial are found among the traces."""
    tags = cell_tags(sheet, study) | {TRIAL: sheet.trial, "seed": str(sheet.seed), "outcome": outcome.outcome}
    return tags | ({} if outcome.onset is None else {"onset": str(outcome.onset)})


def trial_status(outcome: Outcome | None, *, running: bool, begun: bool) -> Status:
    """The run status. A trial without an outcome runs, or was cut off, or has not begun."""
    if outcome is None:
        return "RUNNING" if running else "KILLED" if begun else "SCHEDULED"
    if outcome.is_result:
        return "FINISHED"
    return "FAILED" if outcome.outcome == "failed" else "KILLED"


def parameters(sheet: TrialSheet) -> dict[str, str]:
    """The resolved configuration as MLflow parameters."""
    return {key(name): _text(value)[:LONGEST_PARAMETER] for name, value in flatten(sheet.config).items()}


def points(rows: Iterable[Mapping[str, Any]], start: float, elapsed: float) -> tuple[list[Point], float]:
    """The rows of a record as points of curves, and the measured seconds up to the last of them.

    start: seconds since the epoch at which the trial began; elapsed: measured seconds before the first row.
    Timestamps are start + measured seconds, not the clock: a row that is sent again is the same points again,
    and time spent interrupted is left out. Infinities become NaN: MLflow would store the largest float, and a
    curve through it shows nothing else.
    """
    found: list[Point] = []
    for row in rows:
        elapsed += _seconds(row.get(MEASURED.get(row.get("kind", ""), "")))
        timestamp = int((start + elapsed) * 1000)
        for name, recorded in row.items():
            value = None if name in {"step", "kind"} else _number(recorded)
            if value is not None:
                finite = value if math.isfinite(value) else math.nan
                found.append(Point(key(name), finite, timestamp, int(row["step"])))
    return found, round(elapsed, 3)


def verdict_metrics(
    sheet: TrialSheet, rows: Sequence[Mapping[str, Any]], outcome: Outcome
) -> dict[str, float]:
    """What an ended trial came to, as the report counts it: success at the start, at best, at the end."""
    rule = CollapseRule.of(sheet.config.get("collapse") or {})
    verdict = judge(rows, rule, finished=outcome.is_result)
    found = {
        "final/success": verdict.final,
        "final/start": verdict.start,
        "final/best": verdict.best,
        "final/onset": outcome.onset,
        "final/steps": outcome.step,
    }
    return {name: round(float(value), SUMMARY_DIGITS) for name, value in found.items() if value is not None}


def created(sheet: TrialSheet) -> float | None:
    """When the trial was prepared, in seconds since the epoch; None when its sheet does not say."""
    recorded = sheet.provenance.get("created")
    if isinstance(recorded, str):
        try:
            recorded = datetime.fromisoformat(recorded)
        except ValueError:
            return None
    if isinstance(recorded, datetime):
        return (recorded if recorded.tzinfo else recorded.replace(tzinfo=UTC)).timestamp()
    return _number(recorded)


@dataclass(frozen=True)
class Member:
    """A trial as its cell sees it: where it stands and, once it has a result, its success at the end."""

    outcome: str
    status: str
    success: float | None


def cell_status(members: Sequence[Member]) -> Status:
    """RUNNING while any trial runs, else what keeps a trial from having a result, else FINISHED."""
    states = {member.status for member in members}
    order: tuple[Status, ...] = ("RUNNING", "FAILED", "KILLED", "SCHEDULED")
    return next((status for status in order if status in states), "FINISHED")


def cell_summary(members: Sequence[Member]) -> tuple[dict[str, float], str]:
    """A cell's metrics, and its outcomes in words: `2 stable, 1 collapsed`.

    `final/success` is the mean over the seeds that have a result, `final/seeds` says over how many.
    """
    counts = Counter(member.outcome for member in members)
    successes = [m.success for m in members if m.success is not None and m.outcome in RESULTS]
    metrics = {f"seeds/{name}": float(count) for name, count in counts.items() if name in COUNTED}
    metrics["final/seeds"] = float(len(successes))
    if successes:
        metrics["final/success"] = fmean(successes)
        metrics["final/success_min"] = min(successes)
        metrics["final/success_max"] = max(successes)
    if len(successes) > 1:
        metrics["final/success_std"] = stdev(successes)
    words = ", ".join(f"{count} {name}" for name, count in counts.most_common())
    return {name: round(value, SUMMARY_DIGITS) for name, value in metrics.items()}, words


def report_note(report: str, limit: int = LONGEST_TAG) -> str:
    """The beginning of a report, in whole paragraphs and without pictures, for the description in the UI."""
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)", "", report)
    text = re.sub(r"<(picture|img)\b.*?(</picture>|>)", "", text, flags=re.DOTALL)
    # The page puts the experiment's name above it already.
    text = re.sub(r"\A\s*# .*", "", text)
    text = re.sub(r"\n{3,}", "\n\n", text).strip()
    if len(text) <= limit:
        return text
    ending = "\n\n(The whole report is among the artifacts of the run named report.)"
    room = text[: limit - len(ending)]
    return (room[: room.rfind("\n\n")] if "\n\n" in room else room) + ending


def _number(recorded: Any) -> float | None:
    return float(recorded) if isinstance(recorded, int | float) else None


def _seconds(recorded: Any) -> float:
    value = _number(recorded)
    return value if value is not None and math.isfinite(value) and value > 0 else 0.0


def _text(value: Any) -> str:
    return json.dumps(value) if value is None or isinstance(value, bool) else str(value)
