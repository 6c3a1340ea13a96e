"""Running one trial: `python -P -m arena.trial DIR`. What it is to do is in `DIR/trial.yaml`, only there.

With `--clone` the folder is a clone's job (`arena.clones`) and the clone is made. Nothing here knows of
studies, of Ray or of MLflow; a debugger runs the same code through `run_foreground`.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import shutil
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from types import FrameType

from analysis.collapse import CollapseWatch, judge
from arena.backends import find_backend
from arena.clones import PROGRESS, SUMMARY, clone_folder, clone_job_folder, is_ready, target_of
from arena.failures import UNAVAILABLE, cause_of
from arena.identity import TrialConfig
from arena.lifeline import LIFELINE, hold
from arena.locks import Lock
from arena.processes import DRIVER_TAG, ProcessMark
from arena.records import (
    LOCK,
    METRICS,
    STOP,
    CorruptRecordError,
    Outcome,
    Recorder,
    read_lines,
    read_outcome,
    write_json,
    write_outcome,
)
from arena.supervisor import ATTEMPT, LOCK_HANDLE
from arena.trial_sheet import TrialSheet, read_sheet, write_sheet

logger = logging.getLogger(__name__)

CHECKPOINTS = "checkpoints"
MAKING = "making"
"""In the folder of a clone's job: the clone until it is finished."""
_PROGRESS_EVERY = 0.5


def run_trial(folder: Path, *, attempt: int = 1) -> Outcome:
    """Train the trial a folder describes, from its newest checkpoint if it has one, and write its outcome.

    The outcome comes last, when everything else is on file. Raises what the trainer raises, after writing
    down that the trial failed. A SIGTERM or Ctrl-C stops it before the next step, as a stop file does.
    """
    sheet = read_sheet(folder)
    config = _config(sheet)
    rule = config.collapse.model_dump()
    recorder = Recorder(folder, lambda: CollapseWatch(rule), stop_on_collapse=config.collapse.stop)
    for problem in recorder.problems:
        logger.warning("%s", problem)
    start = Outcome(
        "failed",
        steps=sheet.steps,
        attempts=attempt,
        retries=len(sheet.retries),
        micro_rows=sheet.micro_rows,
    )
    try:
        with _stopping_at_signals(recorder):
            diverged = _train(sheet, config, folder, recorder)
        outcome = _conclude(start, config, folder, recorder, diverged)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".strip().removesuffix(":")
        failed = replace(start, reason=reason, cause=cause_of(error), exit=_exit_code(error))
        write_outcome(folder, replace(failed, step=recorder.train_step))
        raise
    finally:
        recorder.close()
    write_outcome(folder, outcome)
    return outcome


def run_foreground(folder: Path) -> Outcome:
    """Run a trial in this process, clone included: for a debugger. Ctrl-C stops it before the next step.

    A trial that has a result is left as it is. Raises LockedError when the trial is running already,
    FileNotFoundError when the folder holds no trial, and what the trainer raises.
    """
    sheet = read_sheet(folder)
    lock = Lock(folder / LOCK)
    try:
        with suppress(CorruptRecordError):
            outcome = read_outcome(folder)
            if outcome is not None and outcome.is_result:
                return outcome
        (folder / STOP).unlink(missing_ok=True)
        attempt = int(lock.found.get("attempt") or 0) + 1
        since = datetime.now().astimezone().isoformat(" ", "seconds")
        holder = {"pid": os.getpid(), "host": socket.gethostname(), "since": since, "attempt": attempt}
        lock.write({**lock.found, **holder})
        studies = _studies(folder)
        if not is_ready(clone_folder(studies, sheet.clone)):
            make_clone(prepare_clone(studies, sheet))
        return run_trial(folder, attempt=attempt)
    finally:
        lock.release()


def prepare_clone(studies: Path, sheet: TrialSheet) -> Path:
    """Make the folder of the job that makes the clone a trial starts from, and return it."""
    job = clone_job_folder(studies, sheet.clone)
    job.mkdir(parents=True, exist_ok=True)
    write_sheet(job, sheet)
    return job


def make_clone(job: Path) -> None:
    """Make the clone that a job's folder describes; it gets its name when it is complete and on the disk."""
    config = TrialConfig.model_validate(dict(read_sheet(job).config))
    target, making = target_of(job), job / MAKING
    if is_ready(target):
        return
    (job / PROGRESS).unlink(missing_ok=True)
    for leftover in (making, target):
        shutil.rmtree(leftover, ignore_errors=True)
    making.mkdir(parents=True)
    began = time.monotonic()
    last = 0.0

    def progress(done: int, total: int) -> None:
        nonlocal last
        if done == total or time.monotonic() - last >= _PROGRESS_EVERY:
            last = time.monotonic()
            write_json(job / PROGRESS, {"done": done, "total": total})

    find_backend(config.backend).make_clone()(config, making, progress)
    if not (making / SUMMARY).exists():
        write_json(making / SUMMARY, {"seconds": round(time.monotonic() - began, 2)})
    for path in [*making.rglob("*"), making]:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    making.rename(target)


def _config(sheet: TrialSheet) -> TrialConfig:
    """What a trial is to do, with as few rows in memory at once as it was found to need."""
    config = TrialConfig.model_validate(dict(sheet.config))
    if sheet.micro_rows is None:
        return config
    trainer = config.trainer.model_copy(update={"micro_rows": sheet.micro_rows})
    return config.model_copy(update={"trainer": trainer})


def _exit_code(error: Exception) -> int:
    return UNAVAILABLE if cause_of(error) == "unavailable" else 1


def _train(sheet: TrialSheet, config: TrialConfig, folder: Path, recorder: Recorder) -> str | None:
    """Train to the end, a stop or a divergence; what diverged, if it did."""
    clone = clone_folder(_studies(folder), sheet.clone)
    if not is_ready(clone):
        raise FileNotFoundError(f"the clone it starts from is not there: {clone}")
    train, diverged = find_backend(config.backend).train()
    checkpoints = folder / CHECKPOINTS
    checkpoints.mkdir(exist_ok=True)
    try:
        train(config, clone=clone, checkpoints=checkpoints, monitor=recorder)
    except diverged as error:
        return str(error)
    except CorruptRecordError as error:
        # Its checkpoints belong to records that are gone, and only training again brings those back.
        logger.warning("%s: training starts again from the clone", error)
        shutil.rmtree(checkpoints)
        checkpoints.mkdir()
        recorder.rewind({})
        try:
            train(config, clone=clone, checkpoints=checkpoints, monitor=recorder)
        except diverged as error_again:
            return str(error_again)
    return None


def _conclude(
    start: Outcome, config: TrialConfig, folder: Path, recorder: Recorder, diverged: str | None
) -> Outcome:
    """The outcome, by the rule applied to what is on file. Raises RuntimeError for a trainer that gave up."""
    complete = recorder.train_step >= start.steps or diverged is not None
    finished = complete or (recorder.collapsed and config.collapse.stop)
    if not finished and not recorder.user_stop:
        raise RuntimeError(f"the trainer returned after step {recorder.train_step} of {start.steps}")
    rows = read_lines(folder / METRICS).rows
    verdict = judge(rows, config.collapse.model_dump(), finished=finished, interrupted=not finished)
    outcome = replace(
        start,
        outcome=verdict.outcome,
        learned=verdict.learned,
        reason=verdict.reason,
        onset=verdict.onset,
        step=recorder.train_step,
        exit=0,
        warnings=tuple({"name": warning.name, "step": warning.step} for warning in verdict.warnings),
    )
    if diverged is not None and verdict.outcome not in ("diverged", "collapsed"):
        outcome = replace(outcome, outcome="diverged", onset=recorder.train_step, reason=diverged)
    return outcome


def _studies(folder: Path) -> Path:
    """The studies folder of `<studies>/<study>/trials/<id>`."""
    return folder.absolute().parents[2]


@contextmanager
def _stopping_at_signals(recorder: Recorder) -> Iterator[None]:
    """Make a signal stop training before its next step; a second Ctrl-C interrupts as usual."""
    if threading.current_thread() is not threading.main_thread():
        # Signals are the main thread's.
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        recorder.ask_to_stop()
        if number == signal.SIGINT:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _join_supervisor(folder: Path) -> int:
    """Become the supervisor's child: end with it, hold the lock. The number of this attempt."""
    # A Ray worker blocks signals of its own, and a child inherits that.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    if lock := os.environ.pop(LOCK_HANDLE, None):
        os.set_inheritable(int(lock), False)
    if lifeline := os.environ.pop(LIFELINE, None):
        hold(int(lifeline), ProcessMark.parse(os.environ.get(DRIVER_TAG, "")), folder)
    return int(os.environ.pop(ATTEMPT, "1"))


def main(arguments: list[str]) -> int:
    """The child process: 0 with an outcome, 1 when it failed, 75 when something it depends on did.

    The traceback of a failure is printed.
    """
    *options, name = arguments
    folder = Path(name)
    faulthandler.enable()
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s", level=logging.INFO)
    attempt = _join_supervisor(folder)
    try:
        if "--clone" in options:
            make_clone(folder)
        else:
            run_trial(folder, attempt=attempt)
    except Exception as error:  # noqa: BLE001 - the border of the process; the traceback is for its log
        traceback.print_exc()
        return _exit_code(error)
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    # The outcome is on file: libraries that tidy up at exit could only spoil it, or take their time.
    os._exit(code)
