"""What the driver writes into a study's folder: the plan, the grid it came from, trials' sheets, its log."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from arena.backends import find_backend
from arena.ledger import PLAN, TRIALS
from arena.plan import PlannedTrial, State, Study
from arena.provenance import same_origin
from arena.records import STOP, CorruptRecordError, write_json, write_text
from arena.trial_sheet import TrialSheet, read_sheet, write_sheet

DRIVER_LOCK = "driver.lock"
EVENTS = "events.jsonl"
RAY_LOG = "ray.log"
RAY_STORAGE = "ray"
REPORT = "report/report.md"


class EventLog:
    """`events.jsonl`: what happened in a study's runs, one JSON object a line, with the time in UTC."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / EVENTS
        self._alone = threading.Lock()

    def write(self, event: str, **details: Any) -> None:
        """Append an event. Raises OSError."""
        line = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "event": event, **details}
        with self._alone, self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, ensure_ascii=False, default=str) + "\n")


def write_plan(study: Study, states: Mapping[str, State]) -> None:
    """Write `grid.yaml` and `plan.json`, with the states of now."""
    trials = tuple(replace(trial, state=states.get(trial.id, trial.state)) for trial in study.trials)
    write_text(study.folder / "grid.yaml", study.text)
    write_json(
        study.folder / PLAN, {**replace(study, trials=trials).document(), "assignments": study.assignments}
    )


def prepare_trial(study: Study, trial: PlannedTrial, origin: dict[str, Any]) -> TrialSheet:
    """Make a trial's folder ready for a start, and return its sheet. Raises OSError.

    origin: the provenance of this run. A trial that goes on keeps where it began and what happened to it, and
    notes where it goes on.
    """
    folder = study.trial_folder(trial)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / STOP).unlink(missing_ok=True)
    for leftover in folder.glob(".*"):
        # Atomic writes that a crash cut off.
        leftover.unlink(missing_ok=True)
    sheet = trial_sheet(study, trial, origin)
    try:
        before = read_sheet(folder)
    except (FileNotFoundError, CorruptRecordError):
        before = None
    if before is not None:
        provenance = _continued(dict(before.provenance), origin)
        sheet = replace(sheet, provenance=provenance, retries=before.retries, micro_rows=before.micro_rows)
    if sheet != before:
        write_sheet(folder, sheet)
    return sheet


def trial_sheet(study: Study, trial: PlannedTrial, origin: dict[str, Any]) -> TrialSheet:
    """What `trial.yaml` says of a planned trial. origin: the provenance of this run."""
    trainer = find_backend(trial.config.backend).trainer(trial.config)
    return TrialSheet(
        trial=trial.id,
        cell=trial.cell,
        study=study.name,
        label=trial.label,
        env=trial.env,
        seed=trial.seed,
        clone=trial.clone,
        config=trial.config.model_dump(mode="json"),
        methods=trial.methods,
        point=_plain(trial.point),
        provenance={**origin, "trainer": trainer} if trainer else origin,
    )


def make_study_folder(study: Study) -> None:
    """Make a study's folder. Raises OSError when it cannot be written."""
    (study.folder / TRIALS).mkdir(parents=True, exist_ok=True)
    probe = study.folder / ".writable"
    probe.touch()
    probe.unlink()


def _continued(before: dict[str, Any], origin: dict[str, Any]) -> dict[str, Any]:
    last = (before.get("resumed") or [before])[-1]
    if same_origin(last, origin):
        return before
    return {**before, "resumed": [*before.get("resumed", []), origin]}


def _plain(value: Any) -> Any:
    return {key: _plain(inner) for key, inner in value.items()} if isinstance(value, Mapping) else value
