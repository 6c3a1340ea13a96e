"""Removing a study or a trial: out of sight in one step, so that a removal cut short leaves no half of it."""

from __future__ import annotations

import shutil
from pathlib import Path

from arena.ledger import TRIALS
from arena.locks import Lock, is_held
from arena.records import LOCK
from arena.study_files import DRIVER_LOCK

HIDDEN = ".removed-"


class InUseError(RuntimeError):
    """What was to be removed is running; the message says what."""


def remove_study(folder: Path) -> None:
    """Remove a study with everything in it. Raises LockedError or InUseError while it is run, and OSError."""
    lock = Lock(folder / DRIVER_LOCK)
    try:
        for trial in sorted((folder / TRIALS).iterdir()):
            _refuse_running(trial)
        _remove(folder)
    finally:
        lock.release()


def remove_trial(folder: Path) -> None:
    """Remove a trial; its study would run it again. Raises LockedError or InUseError while it is run."""
    lock = Lock(folder.parents[1] / DRIVER_LOCK)
    try:
        _refuse_running(folder)
        _remove(folder)
    finally:
        lock.release()


def _refuse_running(trial: Path) -> None:
    if is_held(trial / LOCK):
        raise InUseError(f"{trial.name} is running; stop it first")


def _remove(folder: Path) -> None:
    hidden = folder.with_name(f"{HIDDEN}{folder.name}")
    if hidden.exists():
        shutil.rmtree(hidden)
    folder.rename(hidden)
    shutil.rmtree(hidden)
