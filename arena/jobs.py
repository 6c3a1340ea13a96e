"""The jobs of one run of a study, and the bookkeeping around them: who may start, what became of whom."""

from __future__ import annotations

import logging
import os
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from arena.clones import clone_folder, clone_job_folder, is_ready
from arena.growth import Growth, GrowthError
from arena.job import Ending, Job
from arena.locks import is_held, read_holder
from arena.plan import PlannedTrial, State, Study
from arena.processes import ProcessMark
from arena.records import KILL, LOCK, STOP, CorruptRecordError, Outcome, read_outcome, write_outcome
from arena.remedies import NoRemedyError, fewer_rows, note_retry
from arena.schedule import Schedule, Waiting
from arena.study_files import EventLog, prepare_trial, trial_sheet
from arena.trial import prepare_clone

logger = logging.getLogger(__name__)


class Jobs:
    """Hands out the jobs of a run and takes note of their endings, in any thread.

    todo: the trials to be run, of which none is running. states: of all trials of the study; kept up to date.
    growth: what results add; `study` is kept up to date too, and `problem` says why that failed.
    """

    def __init__(
        self,
        study: Study,
        todo: Sequence[PlannedTrial],
        states: dict[str, State],
        events: EventLog,
        origin: Mapping[str, Any],
        growth: Growth | None = None,
    ) -> None:
        self.study, self.states, self.events = study, states, events
        self.endings: dict[str, Ending] = {}
        self._origin, self._growth = dict(origin), growth
        self._added: list[PlannedTrial] = []
        self.problem: str | None = None
        self._driver = str(ProcessMark.of())
        self._attempts: dict[str, int] = {}
        self._begun: dict[str, None] = {}
        self._retried: Counter[str] = Counter()
        self._trials = {trial.id: trial for trial in todo}
        self._alone = threading.RLock()
        waiting = [Waiting(self._trial_job(trial), trial.clone) for trial in todo]
        self._schedule = Schedule(waiting, self._clone_job, self._is_ready)
        self._grow()

    def take(self) -> Job | None:
        """The next job, its folder prepared; None when there is none for now."""
        with self._alone:
            while (job := self._schedule.next()) is not None:
                try:
                    job = self._prepared(job)
                except OSError as error:
                    self.ended(job, Ending("not_started", f"Its folder could not be prepared: {error}."))
                    continue
                self._attempts[job.name] = _attempts(job)
                if job.kind == "trial":
                    self._begun[job.id] = None
                self._note(f"{job.kind} queued", job)
                return job
            return None

    def begun(self) -> list[str]:
        """The ids of the trials that have been handed out, or have failed without."""
        with self._alone:
            return list(self._begun)

    def is_finished(self) -> bool:
        """Whether no job will come any more."""
        with self._alone:
            return self._schedule.is_finished

    def ended(self, job: Job, ending: Ending | None) -> None:
        """Take note of how a job ended; None: its supervisor was lost.

        What failed for no fault of its own is handed out again, as the study's handling says.
        """
        with self._alone:
            ending = self._lost(job) if ending is None else ending
            if self._schedule.is_stopped:
                ending = self._interrupted(job, ending)
            elif self._starts_again(job, ending):
                return
            without_clone = self._schedule.ended(job, ending)
            self._note(f"{job.kind} {ending.kind}", job, **_told(ending))
            if job.kind == "trial":
                self._settle(job, ending)
            for trial, reason in without_clone:
                self._note("trial failed", trial, reason=reason)
                self._settle(trial, Ending("failed", reason, log=ending.log))
            self._grow()

    def session_lost(self) -> None:
        """Take note that everything that ran jobs is gone. Those that were not begun lose nothing by it."""
        with self._alone:
            for job in self._schedule.out:
                if _attempts(job) > self._attempts.get(job.name, 0):
                    self.ended(job, None)
                else:
                    self._schedule.again(job)

    def stop(self, *, kill: bool = False) -> None:
        """Start nothing more; ask what runs to stop before its next step, or have it killed. Repeat at will.

        A clone cannot go on from where it stopped, so it is killed either way.
        """
        with self._alone:
            self._schedule.stop()
            for job in self._schedule.out:
                text = KILL if kill or job.kind == "clone" else ""
                path = Path(job.folder) / STOP
                with suppress(OSError):
                    if not path.exists() or path.read_text() != text:
                        path.write_text(text)

    def clear_stops(self) -> None:
        """Take back what `stop` asked for, when nothing runs any more."""
        for folder in [self.study.trial_folder(trial) for trial in self._trials.values()]:
            with suppress(OSError):
                (folder / STOP).unlink(missing_ok=True)

    @property
    def running(self) -> int:
        """How many jobs are running now."""
        with self._alone:
            return sum(is_held(Path(job.folder) / LOCK) for job in self._schedule.out)

    def take_added(self) -> list[PlannedTrial]:
        """The trials that results added to the study since this was asked last."""
        with self._alone:
            added, self._added = self._added, []
            return added

    def _grow(self) -> None:
        """Add what the results ask for. A result that cannot be read must not end what is being trained."""
        if self._growth is None or self._schedule.is_stopped:
            return
        try:
            added = self._growth.more(self.study.trials, self.states)
        except (OSError, ValueError, GrowthError) as error:
            self.problem = f"Nothing could be added to the study: {error}"
            logger.error("%s", self.problem)
            return
        if not added:
            return
        self.study = replace(
            self.study,
            trials=(*self.study.trials, *added),
            progress=dict(self._growth.progress),
        )
        self.states |= {trial.id: trial.state for trial in added}
        self._added += added
        to_run = [trial for trial in added if trial.state in ("pending", "interrupted")]
        self._trials |= {trial.id: trial for trial in to_run}
        self._schedule.add([Waiting(self._trial_job(trial), trial.clone) for trial in to_run])
        for trial in added:
            self._note_added(trial)

    def _note_added(self, trial: PlannedTrial) -> None:
        with suppress(OSError):
            self.events.write("trial added", trial=trial.id, state=trial.state)

    def _prepared(self, job: Job) -> Job:
        """A job whose folder is ready. Raises OSError."""
        if job.kind == "trial":
            sheet = prepare_trial(self.study, self._trials[job.id], self._origin)
            return replace(job, retries=len(sheet.retries), micro_rows=sheet.micro_rows)
        trial = next(trial for trial in self._trials.values() if trial.clone == job.id)
        folder = prepare_clone(self.study.studies, trial_sheet(self.study, trial, self._origin))
        (folder / STOP).unlink(missing_ok=True)
        return job

    def _lost(self, job: Job) -> Ending:
        """How a job ended whose supervisor is gone: as its process wrote down, if it did."""
        outcome = None
        if job.kind == "trial":
            with suppress(CorruptRecordError):
                outcome = read_outcome(Path(job.folder))
        if outcome is not None and outcome.is_result:
            return Ending("finished", attempts=outcome.attempts)
        if outcome is not None and outcome.outcome == "failed":
            return Ending(outcome.cause or "failed", outcome.reason, outcome.exit, attempts=outcome.attempts)
        return Ending("lost", "Its supervisor was lost.", attempts=_attempts(job))

    def _interrupted(self, job: Job, ending: Ending) -> Ending:
        """While everything stops, what fails for no fault of its own is stopped like the others."""
        if not ending.is_of_the_machine:
            return ending
        folder = Path(job.folder)
        with suppress(OSError, CorruptRecordError):
            outcome = read_outcome(folder) if job.kind == "trial" else None
            if outcome is not None and outcome.outcome == "failed":
                write_outcome(folder, replace(outcome, outcome="interrupted"))
        return replace(ending, kind="stopped")

    def _starts_again(self, job: Job, ending: Ending) -> bool:
        """Hand a job out again where that may help; whether it was."""
        handling, rows = self.study.handling, None
        try:
            if ending.is_of_the_machine:
                if self._retried[job.name] >= handling.retries:
                    return False
                self._retried[job.name] += 1
            elif (
                ending.kind == "out_of_memory"
                and job.kind == "trial"
                and handling.on_out_of_memory == "halve_micro_batch"
            ):
                rows = fewer_rows(self._trials[job.id].config, job.micro_rows, Path(job.folder))
            else:
                return False
            if job.kind == "trial":
                note_retry(Path(job.folder), ending, rows)
        except NoRemedyError as error:
            logger.warning("%s ran out of memory and is not tried with less: %s", job.name, error)
            return False
        except (OSError, CorruptRecordError) as error:
            logger.error("%s is not started again: %s", job.name, error)
            return False
        told = {} if rows is None else {"micro_rows": rows}
        self._note(f"{job.kind} retried", job, cause=ending.kind, **told, **_told(ending))
        with_rows = "" if rows is None else f" with {rows} rows in memory at once"
        logger.warning("%s is started again%s. %s", job.name, with_rows, ending.reason)
        return self._schedule.again(job)

    def _settle(self, job: Job, ending: Ending) -> None:
        """Set a trial's state, and see to it that a failure is written down."""
        self.endings[job.id] = ending
        self._begun[job.id] = None
        if ending.kind == "finished":
            self.states[job.id] = "done"
        elif ending.kind == "stopped":
            self.states[job.id] = "interrupted"
        elif ending.kind == "busy":
            self.states[job.id] = "running"
        else:
            self.states[job.id] = "failed"
            self._write_failure(job, ending)

    def _write_failure(self, job: Job, ending: Ending) -> None:
        folder = Path(job.folder)
        try:
            with suppress(CorruptRecordError):
                if read_outcome(folder) is not None:
                    return
            folder.mkdir(parents=True, exist_ok=True)
            outcome = Outcome(
                "failed",
                reason=ending.reason,
                steps=job.steps,
                exit=ending.exit,
                attempts=ending.attempts,
                retries=job.retries,
                micro_rows=job.micro_rows,
            )
            write_outcome(folder, outcome)
        except OSError as error:
            logger.error(
                "%s failed (%s), which could not be written down: %s", job.name, ending.reason, error
            )

    def _note(self, event: str, job: Job, **details: Any) -> None:
        try:
            self.events.write(event, **{job.kind: job.id}, **details)
        except OSError as error:
            logger.error("an event could not be written: %s", error)

    def _is_ready(self, clone: str) -> bool:
        return is_ready(clone_folder(self.study.studies, clone))

    def _trial_job(self, trial: PlannedTrial) -> Job:
        folder = self.study.trial_folder(trial).absolute()
        return self._job("trial", trial.id, folder, trial)

    def _clone_job(self, waiting: Waiting) -> Job:
        studies = self.study.studies.absolute()
        folder = clone_job_folder(studies, waiting.clone)
        target = clone_folder(studies, waiting.clone)
        return self._job("clone", waiting.clone, folder, self._trials[waiting.job.id], target=str(target))

    def _job(self, kind: Any, name: str, folder: Path, trial: PlannedTrial, *, target: str = "") -> Job:
        limits = self.study.handling.limits
        if kind == "clone":
            # The time limit is a trial's, and many may wait for one clone.
            limits = replace(limits, total=None)
        return Job(
            kind,
            name,
            str(folder),
            target=target,
            cwd=os.getcwd(),
            driver=self._driver,
            steps=trial.config.trainer.steps,
            cpus=trial.resources.cpus,
            gpus=trial.resources.gpus,
            limits=limits,
        )


def _attempts(job: Job) -> int:
    """How often a job's process has been started."""
    attempts = read_holder(Path(job.folder) / LOCK).get("attempt")
    return attempts if isinstance(attempts, int) else 0


def _told(ending: Ending) -> dict[str, Any]:
    """What an event says of an ending: its log is in the trial's folder."""
    return {
        key: value
        for key, value in asdict(ending).items()
        if key not in ("kind", "log") and value not in ("", None)
    }
