"""The state of a study, read from its trials' own folders: there is no index that could be wrong."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from arena.locks import is_held
from arena.records import LOCK, LOG, METRICS, CorruptRecordError, Outcome, read_last_rows, read_outcome

TRIALS = "trials"
PLAN = "plan.json"

TrialState = Literal["pending", "running", "done", "failed", "interrupted"]


class NoSuchTrialError(LookupError):
    """A name on the command line means no trial, or more than one; the message says which there are."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a trial stands.

    tuning: the id of the search whose candidate it tries; empty for a trial whose result is compared.
    label, env, seed: from the plan, empty and None for a trial the last plan does not have. outcome: None
    while there is none. step: the last one trained. success: that of the last evaluation, while it has none.
    """

    id: str
    state: TrialState
    outcome: Outcome | None = None
    planned: bool = True
    label: str = ""
    env: str = ""
    seed: int | None = None
    step: int | None = None
    success: float | None = None
    tuning: str = ""


def trial_state(folder: Path) -> TrialState:
    """The state of the trial in a folder, which need not exist."""
    return _read(folder)[0]


def study_states(study: Path) -> dict[str, TrialState]:
    """The state of every trial that has a folder in a study, by id."""
    return {name: trial_state(study / TRIALS / name) for name in _trial_names(study)}


def standings(study: Path) -> list[Standing]:
    """Where every trial of a study stands: those of its plan in the plan's order, then what else is there."""
    planned = {str(trial["id"]): trial for trial in read_plan(study).get("trials", [])}
    others = [name for name in _trial_names(study) if name not in planned]
    return [
        *(_standing(study, name, trial) for name, trial in planned.items()),
        *(_standing(study, name, None) for name in others),
    ]


def read_plan(study: Path) -> dict[str, Any]:
    """A study's `plan.json`; empty when there is none. Raises CorruptRecordError."""
    path = study / PLAN
    try:
        plan = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise CorruptRecordError(f"{path}: not JSON: {error}") from None
    if not isinstance(plan, dict):
        raise CorruptRecordError(f"{path}: holds no plan")
    return plan


def study_folders(studies: Path) -> list[Path]:
    """The folders of all studies, by name. What is hidden is being removed."""
    found = (path.parent for path in studies.glob(f"*/{TRIALS}"))
    return sorted(path for path in found if not path.name.startswith("."))


def trial_folders(study: Path) -> list[Path]:
    """The folders of all trials of a study, by name. What is hidden is being removed."""
    return [study / TRIALS / name for name in _trial_names(study)]


def find_study(studies: Path, name: str) -> Path:
    """The folder of a study. Raises NoSuchTrialError naming those there are."""
    folder = studies / name
    if name and (folder / TRIALS).is_dir():
        return folder
    names = [path.name for path in study_folders(studies)]
    known = f"there are: {', '.join(names)}" if names else "there is none yet; `arena run GRID` makes one"
    raise NoSuchTrialError(f"no study {name!r} in {studies}: {known}")


def find_trial(studies: Path, name: str) -> Path:
    """The folder of a trial, named by a unique beginning of its id, or by STUDY/beginning.

    Raises NoSuchTrialError.
    """
    study, _, start = name.rpartition("/")
    places = [find_study(studies, study)] if study else study_folders(studies)
    found = [
        place / TRIALS / trial for place in places for trial in _trial_names(place) if trial.startswith(start)
    ]
    exact = [folder for folder in found if folder.name == start]
    found = exact or found
    if len(found) == 1:
        return found[0]
    if not found:
        raise NoSuchTrialError(f"no trial {name!r} in {studies}; `arena status STUDY` lists them")
    shown = ", ".join(f"{folder.parents[1].name}/{folder.name}" for folder in found[:8])
    more = ", ..." if len(found) > 8 else ""
    raise NoSuchTrialError(f"{name!r} may mean {len(found)} trials: {shown}{more}")


def last_log_lines(folder: Path, count: int = 20) -> list[str]:
    """The last lines a trial printed."""
    try:
        with (folder / LOG).open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - (1 << 16)))
            text = file.read().decode("utf-8", "replace")
    except FileNotFoundError:
        return []
    return text.splitlines()[-count:]


def follow_log(folder: Path) -> Iterator[str]:
    """What a trial prints, from the beginning and as it comes; "" when there is nothing new for now.

    Ends when the trial is no longer running. A log whose middle was dropped is taken up at its end.
    """
    position = 0
    while True:
        running = is_held(folder / LOCK)
        try:
            with (folder / LOG).open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                file.seek(position if position <= size else max(0, size - (1 << 12)))
                data = file.read()
                position = file.tell()
        except FileNotFoundError:
            data = b""
        yield data.decode("utf-8", "replace")
        if not running and not data:
            return


def _read(folder: Path) -> tuple[TrialState, Outcome | None]:
    outcome = None
    try:
        outcome = read_outcome(folder)
        if outcome is not None and outcome.is_result:
            return "done", outcome
    except CorruptRecordError:
        # Its records are the truth; running it again judges them again.
        pass
    lock = folder / LOCK
    if is_held(lock):
        return "running", None
    if outcome is not None:
        return ("failed" if outcome.outcome == "failed" else "interrupted"), outcome
    return ("interrupted" if lock.exists() or (folder / METRICS).exists() else "pending"), None


def _standing(study: Path, name: str, trial: dict[str, Any] | None) -> Standing:
    folder = study / TRIALS / name
    state, outcome = _read(folder)
    step, success = (None, None) if outcome is None else (outcome.step, None)
    if state in ("running", "interrupted"):
        rows = read_last_rows(folder / METRICS)
        step = max((int(row.get("step", 0)) for row in rows), default=step)
        success = next((row["eval/success"] for row in reversed(rows) if "eval/success" in row), None)
    told = trial or {}
    return Standing(
        id=name,
        state=state,
        outcome=outcome,
        planned=trial is not None,
        label=str(told.get("label", "")),
        env=str(told.get("env", "")),
        seed=told.get("seed"),
        step=step,
        success=success,
        tuning=str(told.get("tuning", "")),
    )


def _trial_names(study: Path) -> list[str]:
    try:
        with os.scandir(study / TRIALS) as entries:
            return sorted(entry.name for entry in entries if not entry.name.startswith("."))
    except FileNotFoundError:
        return []
