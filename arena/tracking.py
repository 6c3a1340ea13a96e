"""MLflow as a view of a study: the driver's background writer, and `arena sync`.

The files of a study are the truth. MLflow can be unreachable, lost or replaced at any time: training goes on,
and the next sync brings the store up to date.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from arena.cards import cell_name, distinctions, trial_name
from arena.ledger import trial_folders
from arena.locks import Lock, LockedError, describe, is_held
from arena.records import LOCK, TRIAL, CorruptRecordError
from arena.tracking_store import PortInUseError, open_experiment, serve_ui, store_uri
from arena.tracking_writer import StudyWriter, Written
from arena.trial_sheet import TrialSheet, read_sheet

__all__ = ["PortInUseError", "SyncResult", "Tracker", "serve_ui", "sync_study"]

logger = logging.getLogger(__name__)

LOCK_FILE = ".tracking.lock"


@dataclass(frozen=True)
class SyncResult:
    """What a sync did.

    trials: runs of trials that were made or changed; metrics: numbers sent; uploads: trials and reports whose
    artifacts were sent; seconds: how long it took. errors: what could not be done, for people; the next sync
    tries again. Empty when the store now says what the files say.
    """

    trials: int = 0
    metrics: int = 0
    uploads: int = 0
    seconds: float = 0.0
    errors: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the store now says what the files say."""
        return not self.errors


class Tracker:
    """Keeps one study's runs in MLflow up to date while the study runs.

    The driver calls `start`, then `request_sync` as often as it likes, then `close`. All work is done in one
    daemon thread; nothing here raises or waits because of MLflow, except `close`, which waits at most
    `timeout` seconds for the last sync. `sync` does one sync in the caller's thread.
    """

    def __init__(
        self,
        studies: Path,
        study: Path,
        uri: str | None = None,
        *,
        interval: float = 10.0,
        retry: float = 30.0,
    ) -> None:
        """Touches nothing yet.

        uri: the store; None takes MLFLOW_TRACKING_URI, else `<studies>/mlflow.db`. interval, retry: seconds
        between syncs, after a good one and after a failed one.
        """
        self.studies = studies
        self.study = study
        self.uri = store_uri(studies, uri)
        self.last: SyncResult | None = None
        self._interval, self._retry = interval, retry
        self._writer: StudyWriter | None = None
        self._troubled: set[str] = set()
        self._stale_cells: set[str] = set()
        self._sheets: dict[Path, tuple[int, TrialSheet]] = {}
        self._syncing = threading.Lock()
        self._alone: Lock | None = None
        self._wanted, self._closing = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def problem(self) -> str | None:
        """Why MLflow is behind, in one line; None when it is not."""
        return self.last.errors[0] if self.last is not None and self.last.errors else None

    def start(self) -> None:
        """Start the background thread, which syncs on request, and by itself every `interval` seconds."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="mlflow", daemon=True)
            self._thread.start()

    def request_sync(self) -> None:
        """Ask for a sync soon; returns at once."""
        self._wanted.set()

    def close(self, timeout: float = 60.0) -> SyncResult | None:
        """One last sync, for which this waits `timeout` seconds at most; the last result that is known."""
        self._closing.set()
        self._wanted.set()
        if self._thread is None:
            self.sync()
        else:
            self._thread.join(timeout)
            if self._thread.is_alive():
                logger.warning("MLflow is behind after %.0f s of waiting: `arena sync` catches up", timeout)
                return self.last
        self.release()
        return self.last

    def release(self) -> None:
        """Let another process write this study's runs."""
        alone, self._alone = self._alone, None
        if alone is not None:
            alone.release()

    def __enter__(self) -> Tracker:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def sync(self) -> SyncResult:
        """Bring the store up to date now. Never raises for what MLflow or a broken trial folder does."""
        with self._syncing:
            begun = time.monotonic()
            written = Written()
            errors: list[str] = []
            try:
                self._be_alone()
                if self._writer is None:
                    self._writer = self._connect()
                self._write(self._writer, written, errors)
            except LockedError as error:
                errors.append(f"MLflow is kept up to date by {describe(error.holder)}")
            except Exception as error:
                # Whatever MLflow and its database raise, training must not feel it.
                logger.debug("sync of %s failed", self.study, exc_info=True)
                errors.append(
                    f"MLflow at {self.uri} is behind and will be caught up with: {_one_line(error)}"
                )
                self._writer = None
            result = SyncResult(
                written.trials, written.metrics, written.uploads, time.monotonic() - begun, tuple(errors)
            )
            if errors and (self.last is None or self.last.errors != result.errors):
                logger.warning("%s", errors[0])
            self.last = result
            return result

    def _be_alone(self) -> None:
        """Hold the lock of this study's one writer until `release`."""
        if self._alone is None:
            self._alone = Lock(self.study / LOCK_FILE)
            self._alone.write({"pid": os.getpid(), "host": socket.gethostname()})

    def _work(self) -> None:
        while not self._closing.is_set():
            if self.sync().ok:
                self._wanted.wait(self._interval)
            else:
                self._closing.wait(self._retry)
            self._wanted.clear()
        self.sync()
        # `close` may not have waited for this.
        self.release()

    def _connect(self) -> StudyWriter:
        client, experiment = open_experiment(self.studies, self.uri, self.study.name)
        writer = StudyWriter(client, experiment, self.study)
        question, axes = _plan(self.study)
        writer.describe(question, axes)
        # What an earlier writer did not get to say of its cells is not known.
        self._stale_cells.update(writer.cells)
        return writer

    def _write(self, writer: StudyWriter, written: Written, errors: list[str]) -> None:
        sheets = self._read_sheets(errors)
        told = distinctions(sheets)
        cells: dict[str, list[TrialSheet]] = defaultdict(list)
        for sheet in sheets:
            cells[sheet.cell].append(sheet)
        # Whatever made a trial fail must not keep the others from being written.
        for sheet in sorted(sheets, key=lambda sheet: (sheet.trial in self._troubled, sheet.trial)):
            distinction = told[sheet.cell]
            self._troubled.add(sheet.trial)
            try:
                name, parent = trial_name(sheet, distinction), cell_name(sheet, distinction)
                running = is_held(self.study / "trials" / sheet.trial / LOCK)
                done = writer.write_trial(sheet, name, parent, running=running)
            except CorruptRecordError as error:
                errors.append(_one_line(error))
                continue
            self._troubled.discard(sheet.trial)
            written.add(done)
            if done.trials:
                self._stale_cells.add(sheet.cell)
        for cell in sorted(self._stale_cells & set(cells)):
            writer.write_cell(cells[cell], cell_name(cells[cell][0], told[cell]))
            self._stale_cells.discard(cell)
        written.add(writer.write_report())
        errors += written.problems

    def _read_sheets(self, errors: list[str]) -> list[TrialSheet]:
        sheets = []
        for path in [folder / TRIAL for folder in trial_folders(self.study)]:
            if not path.exists():
                continue
            try:
                changed = path.stat().st_mtime_ns
                known = self._sheets.get(path)
                if known is None or known[0] != changed:
                    known = self._sheets[path] = (changed, read_sheet(path.parent))
                sheets.append(known[1])
            except (OSError, ValueError) as error:
                errors.append(_one_line(error))
        return sheets


def sync_study(folder: Path, uri: str | None = None) -> SyncResult:
    """Bring MLflow up to date with a study that no driver is tracking; repeating it adds nothing.

    folder: `<studies>/<name>`. Raises FileNotFoundError when the folder holds no trials; everything else that
    goes wrong is in the result's `errors`.
    """
    if not any((trial / TRIAL).exists() for trial in trial_folders(folder)):
        raise FileNotFoundError(f"{folder} holds no trials: name a study's folder, one that `arena run` made")
    tracker = Tracker(folder.parent, folder, uri)
    result = tracker.sync()
    tracker.release()
    return result


def _plan(study: Path) -> tuple[str, list[str]]:
    """The question and the axes of the last plan, nothing where there is none."""
    try:
        plan = json.loads((study / "plan.json").read_text(encoding="utf-8"))
        return str(plan.get("question") or ""), list(plan.get("axes") or ())
    except (OSError, ValueError, AttributeError):
        return "", []


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 200 else text[:199] + "…"
