"""Results another study has already: a trial is its configuration and its seed, whatever study trained it."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from arena.ledger import TRIALS, study_folders, trial_state
from arena.plan import PlannedTrial, Study
from arena.records import LOCK, STOP, CorruptRecordError
from arena.study_files import trial_sheet
from arena.trial_sheet import read_sheet, write_sheet

TAKEN_FROM = "taken_from"
"""Key of a trial's provenance: the study that trained it."""

_PART = ".taken-"
_LEFT_BEHIND = shutil.ignore_patterns("checkpoints", LOCK, STOP, ".*")


def elsewhere(study: Study, wanted: Collection[str] | None = None) -> dict[str, list[str]]:
    """By name of every study beside this one, the ids of this one's pending trials that it has results of.

    wanted: the ids of the trials this is about, None for all.
    """
    pending = {
        trial.id
        for trial in study.trials
        if trial.state == "pending" and (wanted is None or trial.id in wanted)
    }
    found = {}
    for folder in study_folders(study.studies) if pending else ():
        if folder.name == study.folder.name:
            continue
        there = pending.intersection(place.name for place in (folder / TRIALS).iterdir())
        done = sorted(name for name in there if trial_state(folder / TRIALS / name) == "done")
        if done:
            found[folder.name] = done
    return found


def take_over(study: Study, trials: Sequence[PlannedTrial], source: Path) -> list[str]:
    """Copy the results that a study has of pending trials into another; the ids of those copied.

    Records, sheet, outcome and log are copied, checkpoints are not. A trial appears whole or not at all. Its
    sheet says which study trained it, and keeps the code and the machine it ran on. A result without a
    readable sheet is left. Raises OSError.
    """
    places = study.folder / TRIALS
    taken = []
    for trial in trials:
        origin, target = source / TRIALS / trial.id, places / trial.id
        if trial.state != "pending" or trial_state(origin) != "done":
            continue
        try:
            before = read_sheet(origin)
        except (FileNotFoundError, CorruptRecordError):
            continue
        part = places / f"{_PART}{trial.id}"
        shutil.rmtree(part, ignore_errors=True)
        shutil.copytree(origin, part, ignore=_LEFT_BEHIND)
        sheet = trial_sheet(study, trial, {TAKEN_FROM: source.name, **before.provenance})
        write_sheet(part, replace(sheet, retries=before.retries, micro_rows=before.micro_rows))
        # What is pending has no results that could be lost.
        shutil.rmtree(target, ignore_errors=True)
        part.rename(target)
        taken.append(trial.id)
    return taken
