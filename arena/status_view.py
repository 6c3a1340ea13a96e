"""A study and its trials as they stand, as people read them."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import yaml
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from arena.ledger import TRIALS, Standing, last_log_lines, standings, trial_state
from arena.plan_view import STATE_STYLES, states_text
from arena.records import METRICS, CorruptRecordError, Outcome, read_outcome
from arena.trial_sheet import TrialSheet, read_sheet

_TAIL_BYTES = 1 << 14
"""The last rows of metrics, an evaluation among them."""

MOST_ROWS = 400
"""Trials of a large study that are shown one by one."""
_ORDER = {state: place for place, state in enumerate(("running", "failed", "interrupted", "pending", "done"))}

OUTCOME_STYLES = {
    "stable": "green",
    "unstable": "yellow",
    "undecided": "",
    "collapsed": "red",
    "diverged": "red",
    "failed": "red",
    "interrupted": "yellow",
}


def study_view(study: Path, *, most: int = MOST_ROWS) -> RenderableType:
    """Every trial of a study: its state, its outcome and how far it is; of more than `most` those that count.

    Those are, first to last: what runs, what failed, what was interrupted, what waits, what is done.
    """
    found = standings(study)
    planned = [standing for standing in found if standing.planned and not standing.tuning]
    tuning = [standing for standing in found if standing.planned and standing.tuning]
    others = [standing for standing in found if not standing.planned]
    parts: list[RenderableType] = [Text(study.name, style="bold"), *_rows(study, planned, most)]
    count = Text(f"{len(planned):,} trials: ").append_text(
        states_text(standing.state for standing in planned)
    )
    parts.append(count)
    if tuning:
        states = states_text(standing.state for standing in tuning)
        parts += [Text(f"Tuning ({len(tuning):,}): ").append_text(states), *_rows(study, tuning, most)]
    if others:
        parts += [Text(f"Not in the last plan ({len(others):,}):"), *_rows(study, others, most)]
    return Group(*parts)


def counts(study: Path) -> str:
    """How many planned trials of a study are in each state, and how many there are."""
    states = [standing.state for standing in standings(study) if standing.planned]
    return f"{len(states):,} trials: {states_text(states).plain}"


def _rows(study: Path, found: Sequence[Standing], most: int) -> list[RenderableType]:
    """The table of some trials, and how many it leaves out."""
    if len(found) <= most:
        return [_table(_with_success(study, found))]
    order = sorted(range(len(found)), key=lambda index: _ORDER[found[index].state])
    shown = [found[index] for index in sorted(order[:most])]
    left = f"... and {len(found) - most:,} more; `arena status {study.name} --format json` has all of them"
    return [_table(_with_success(study, shown)), Text(left)]


def study_document(study: Path) -> dict[str, Any]:
    """The same as plain data."""
    found = _with_success(study, standings(study))
    return {"study": study.name, "trials": [asdict(standing) for standing in found]}


def _with_success(study: Path, found: Sequence[Standing]) -> list[Standing]:
    """Where trials stand, finished ones with the success of their last evaluation."""
    return [
        replace(standing, success=last_success(study / TRIALS / standing.id))
        if standing.state == "done" and standing.success is None
        else standing
        for standing in found
    ]


def last_success(folder: Path) -> float | None:
    """The success of a trial's last evaluation, from the end of its metrics."""
    try:
        with (folder / METRICS).open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
            lines = file.read().split(b"\n")
    except OSError:
        return None
    for line in reversed(lines):
        if b'"eval/success"' in line:
            try:
                value = json.loads(line)["eval/success"]
            except (ValueError, KeyError, TypeError):
                continue
            return float(value) if isinstance(value, int | float) else None
    return None


def trial_view(folder: Path, *, lines: int = 15) -> RenderableType:
    """A trial: what it is, what became of it and why, its configuration, the last lines it printed."""
    sheet, outcome, problem = _read(folder)
    state = trial_state(folder)
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_row("trial", f"{folder.parents[1].name}/{folder.name}")
    table.add_row("point", Text(f"{sheet.label} in {sheet.env}, seed {sheet.seed}"))
    table.add_row("state", Text(state, STATE_STYLES.get(state, "")))
    if outcome is not None:
        table.add_row("outcome", _outcome_text(outcome))
        table.add_row("why", Text(outcome.reason))
        table.add_row("steps", f"{outcome.step} of {outcome.steps}")
        table.add_row("attempts", str(outcome.attempts))
        if outcome.micro_rows is not None:
            table.add_row("rows in memory", f"{outcome.micro_rows} at once, since memory ran out")
    for retry in sheet.retries:
        table.add_row("started again", Text(f"{retry.get('cause')}: {retry.get('reason')}", "yellow"))
    if outcome is not None:
        for warning in outcome.warnings:
            table.add_row("warning", Text(f"{warning.get('name')} at step {warning.get('step')}"))
    if problem:
        table.add_row("problem", Text(problem, style="red"))
    table.add_row("folder", Text(str(folder)))
    about = {"config": dict(sheet.config), "provenance": dict(sheet.provenance)}
    parts: list[RenderableType] = [table, Text(yaml.safe_dump(about, sort_keys=False, width=100).rstrip())]
    printed = last_log_lines(folder, lines)
    if printed:
        parts += [Text("last lines of its log", style="bold"), Text("\n".join(printed))]
    return Group(*parts)


def trial_document(folder: Path) -> dict[str, Any]:
    """The same as plain data."""
    sheet, outcome, problem = _read(folder)
    return {
        **asdict(sheet),
        "state": trial_state(folder),
        "outcome": asdict(outcome) if outcome else None,
        "problem": problem,
        "folder": str(folder),
    }


def _read(folder: Path) -> tuple[TrialSheet, Outcome | None, str]:
    """A trial's sheet, its outcome, and why the outcome cannot be read."""
    sheet = read_sheet(folder)
    try:
        return sheet, read_outcome(folder), ""
    except CorruptRecordError as error:
        return sheet, None, str(error)


def _table(found: Sequence[Standing]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in ("trial", "point", "env", "seed", "state", "outcome", "step", "success"):
        table.add_column(
            column, overflow="fold", justify="right" if column in ("step", "success") else "left"
        )
    for standing in found:
        table.add_row(
            standing.id,
            Text(standing.label),
            standing.env,
            "" if standing.seed is None else str(standing.seed),
            Text(standing.state, STATE_STYLES.get(standing.state, "")),
            _outcome_text(standing.outcome) if standing.outcome else "",
            "" if standing.step is None else str(standing.step),
            "" if standing.success is None else f"{standing.success:.2f}",
        )
    return table


def _outcome_text(outcome: Outcome) -> Text:
    text = Text(outcome.outcome, OUTCOME_STYLES[outcome.outcome])
    if outcome.learned is not None:
        text.append(", learned" if outcome.learned else ", flat")
    if outcome.onset is not None:
        text.append(f" from step {outcome.onset}")
    if outcome.retries:
        text.append(f", {outcome.retries} {'retry' if outcome.retries == 1 else 'retries'}", "yellow")
    return text
