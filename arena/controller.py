"""`arena run`: the driver. What a study lacks is run, watched, stopped cleanly when asked, and reported."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from arena.growth import live_growth
from arena.interrupts import counting_interrupts
from arena.jobs import Jobs
from arena.ledger import trial_state
from arena.lock_timer import WRITTEN_EVERY, Timer
from arena.locks import Lock
from arena.plan import PlannedTrial, State, Study
from arena.processes import sweep, sweep_orphans
from arena.provenance import provenance
from arena.ray_session import CannotRunError
from arena.reuse import take_over
from arena.spending import spent, used_up
from arena.study_files import DRIVER_LOCK, RAY_LOG, REPORT, EventLog, make_study_folder, write_plan
from arena.terminal import Terminal, output_into
from arena.tune_thread import TuneThread
from arena.up_to_date import UP_TO_DATE, fingerprint

if TYPE_CHECKING:
    from arena.live import LiveView
    from arena.tracking import Tracker

logger = logging.getLogger(__name__)

DONE, SOME_FAILED, WRONG, INTERRUPTED = 0, 1, 2, 130
"""Exit codes: every trial has a result; some have none; it may not be run (on); stopped by the user."""

_LOOK_EVERY = 0.5
_LAST_SYNC = 120.0


def run_study(
    study: Study,
    *,
    retry_failed: bool = False,
    available_only: bool = False,
    only: Collection[str] | None = None,
    address: str | None = None,
    reuse: Sequence[Path] = (),
) -> int:
    """Run what a study lacks, write its report, and return the exit code.

    Trials that have a result are left alone; interrupted ones go on; failed ones run again with
    `retry_failed`. available_only: leave out what cannot run here, where otherwise nothing is run. only: the
    ids of the trials this is about, None for all; the exit code is theirs. address: of a Ray cluster; without
    one Ray is started on this machine. reuse: folders of studies whose results of the same trials are taken
    over first. Writes for people to standard output.

    Raises LockedError when the study is being run already, and OSError when its folder cannot be written.
    """
    chosen = [trial for trial in study.trials if only is None or trial.id in only]
    if not available_only and any(trial.state == "unavailable" for trial in chosen):
        return WRONG
    make_study_folder(study)
    with ExitStack() as stack:
        lock = Lock(study.folder / DRIVER_LOCK)
        stack.callback(lock.release)
        timer = Timer(lock)
        stack.callback(timer.write, now=True)
        since = datetime.now().astimezone().isoformat(" ", "seconds")
        timer.sign({"pid": os.getpid(), "host": socket.gethostname(), "since": since})
        terminal = stack.enter_context(output_into(study.folder / RAY_LOG))
        for source in reuse:
            if taken := take_over(study, chosen, source):
                EventLog(study.folder).write("taken over", study=source.name, trials=taken)
        run = _Run(study, chosen, terminal, timer, retry_failed=retry_failed, grows=only is None)
        return run.to_the_end(address)


class _Run:
    """One run of a study, by the process that holds its lock."""

    def __init__(
        self,
        study: Study,
        chosen: Sequence[PlannedTrial],
        terminal: TextIO,
        timer: Timer,
        *,
        retry_failed: bool,
        grows: bool,
    ) -> None:
        self.study, self.chosen, self.timer = study, chosen, timer
        self.console = Terminal(file=terminal)
        self.events = EventLog(study.folder)
        self.retry_failed = retry_failed
        # What an earlier driver left running would write into the same files.
        swept = [*sweep_orphans(study.studies.absolute()), *sweep(study.folder.absolute())]
        self.states = self._look()
        self.todo = sorted(
            (trial for trial in chosen if self._is_to_run(self.states[trial.id])),
            key=lambda trial: trial.rank,
        )
        origin = self.origin = provenance()
        self.events.write("run started", todo=len(self.todo), swept=swept, **origin)
        write_plan(study, self.states)
        growth = live_growth(study) if grows else None
        self.jobs = Jobs(study, self.todo, self.states, self.events, origin, growth)
        self._take_added()
        self.refused = self.stopped = False
        self.used_up: str | None = None
        self._next_look = 0.0
        self.problem: str | None = None
        self.growth = growth

    def to_the_end(self, address: str | None) -> int:
        """Run the trials, then report; the exit code."""
        from arena.tracking import Tracker

        tracker = Tracker(self.study.studies, self.study.folder)
        handler = _Announcer(self.events)
        logging.getLogger("arena").addHandler(handler)
        try:
            if self.todo:
                self._run(tracker, handler, address)
            return self._finish(tracker, handler)
        finally:
            logging.getLogger("arena").removeHandler(handler)

    def _run(self, tracker: Tracker, handler: _Announcer, address: str | None) -> None:
        from arena.live import LiveView

        needs = sorted({(trial.resources.cpus, trial.resources.gpus) for trial in self.todo})
        retries = self.study.handling.retries
        tune = TuneThread(self.jobs, self.study.folder, needs, address, retries=retries)
        view = LiveView.of(
            self.study,
            self.chosen,
            retry_failed=self.retry_failed,
            console=self.console,
            begun=self.jobs.begun,
            notes=lambda: [] if tracker.problem is None else [tracker.problem],
        )
        with counting_interrupts() as interrupts, _shown(view):
            handler.say = view.say
            tracker.start()
            tune.start()
            handler.tell(f"Joining Ray at {address}." if address else "Starting Ray, which takes seconds.")
            asked = 0
            while tune.is_alive():
                interrupts.event.wait(_LOOK_EVERY)
                interrupts.event.clear()
                if interrupts.count > asked:
                    asked = interrupts.count
                    self._on_interrupt(asked, handler)
                elif asked or self.used_up:
                    # Whoever was being started while the others were asked.
                    self.jobs.stop(kill=asked > 1)
                self._look_at_the_budget(handler)
                self._take_added(view)
                _refresh(view)
            self._take_added(view)
        self.stopped = asked > 0
        self._look_after(tune)

    def _look_at_the_budget(self, handler: _Announcer) -> None:
        """Note how long the study has been run, and stop everything when its budget is used up."""
        self.timer.write()
        if self.used_up is not None or time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + WRITTEN_EVERY
        budget = self.study.budget
        cost = replace(spent(budget, self.study.folder, self.study.trials), hours=self.timer.seconds / 3600)
        self.used_up = used_up(budget, cost)
        if self.used_up is not None:
            handler.announce(self.used_up, level="warning")
            self.jobs.stop()

    def _take_added(self, view: LiveView | None = None) -> None:
        """Take in the trials that results added to the study."""
        from arena.live_state import shown_trials

        added = self.jobs.take_added()
        if not added:
            return
        self.study = self.jobs.study
        self.chosen = [*self.chosen, *added]
        self.todo += [trial for trial in added if self._is_to_run(trial.state)]
        if view is not None:
            planned = self.study.estimate.trial_seconds
            per_cell = {trial.cell: planned[trial.id] for trial in self.study.trials if trial.id in planned}
            seconds = {trial.id: per_cell[trial.cell] for trial in added if trial.cell in per_cell}
            view.add(shown_trials(added, seconds, retry_failed=self.retry_failed))
        with suppress(OSError):
            write_plan(self.study, self.states)

    def _on_interrupt(self, times: int, handler: _Announcer) -> None:
        with suppress(OSError):
            self.events.write("interrupted", times=times)
        if times > 2:
            sweep(self.study.folder.absolute())
            os._exit(INTERRUPTED)
        self.jobs.stop(kill=times > 1)
        if times > 1:
            handler.tell("Killing what runs.")
        elif running := self.jobs.running:
            handler.tell(f"Stopping: {running} running will finish their step. Ctrl-C again kills them.")
        else:
            handler.tell("Stopping.")

    def _look_after(self, tune: TuneThread) -> None:
        """Leave nothing running, nothing asked to stop; say what Ray could not do."""
        sweep(self.study.folder.absolute())
        self.jobs.clear_stops()
        if isinstance(tune.error, CannotRunError):
            self.problem, self.refused = str(tune.error), True
        elif tune.error is not None:
            self.problem = f"Ray gave up: {tune.error} (more in {self.study.folder / RAY_LOG})"
        if self.problem is not None:
            with suppress(OSError):
                self.events.write("run failed", problem=self.problem)

    def _finish(self, tracker: Tracker, handler: _Announcer) -> int:
        """Final states, report, last sync, summary; the exit code."""
        from arena.run_summary import summary

        handler.say = lambda message: self.console.print(message, markup=False, highlight=False)
        self.states.update(self._look())
        try:
            write_plan(self.study, self.states)
        except OSError as error:
            handler.announce(f"The plan could not be written: {error}")
        holds = self._report_holds()
        report = str(self.study.folder / REPORT) if holds else self._write_report(handler)
        if not holds:
            tracker.close(_LAST_SYNC)
        if holds or (report is not None and tracker.last is not None and tracker.last.ok):
            self.timer.note(UP_TO_DATE, fingerprint(self.study, self.origin) or "")
        if tracker.problem is not None:
            handler.announce(f"{tracker.problem}; `arena sync {self.study.name}` brings it up to date")
        self.problem = self.problem or self.jobs.problem
        code = self._exit_code() if report is not None else SOME_FAILED
        # The disk may be full and the terminal gone, which is no reason to lose the exit code.
        with suppress(OSError):
            self.events.write("run ended", exit=code)
        with suppress(OSError):
            self.console.print(summary(self.study, self.states))
            if self.used_up is not None:
                self._print(self.used_up, "yellow")
            if self.problem is not None:
                self._print(self.problem, "red")
            if report is not None:
                self._print(f"report: {report}")
        return code

    def _print(self, line: str, style: str = "") -> None:
        """Print a line that a program may look for: it is not wrapped."""
        self.console.print(line, style=style, markup=False, highlight=False, soft_wrap=True)

    def _report_holds(self) -> bool:
        """Whether there was nothing to do and the last run left report and MLflow as they would be now."""
        left = None if self.todo else self.timer.found.get(UP_TO_DATE)
        is_same = bool(left) and left == fingerprint(self.study, self.origin)
        return is_same and (self.study.folder / REPORT).exists()

    def _write_report(self, handler: _Announcer) -> str | None:
        from analysis.report import write_report

        try:
            with self.console.status("report") as status:
                return str(write_report(self.study.folder, lambda step: status.update(f"report: {step}")))
        except Exception as error:
            # The trials are on file; a report can be written again.
            logger.debug("no report", exc_info=True)
            handler.announce(f"The report could not be written: {type(error).__name__}: {error}")
            return None

    def _exit_code(self) -> int:
        states = [self.states[trial.id] for trial in self.chosen]
        lacking = [state for state in states if state not in ("done", "unavailable")]
        if self.refused or (self.used_up and lacking):
            return WRONG
        if self.stopped and (lacking or self._untuned()):
            return INTERRUPTED
        return SOME_FAILED if lacking or self.problem or self._untuned() else DONE

    def _untuned(self) -> tuple[str, ...]:
        """What should have been tuned and is not."""
        return () if self.growth is None else self.growth.unfinished

    def _look(self) -> dict[str, State]:
        """The state of every planned trial, from its folder; without a result, unavailable stays so."""
        states: dict[str, State] = {}
        for trial in self.study.trials:
            state: State = trial_state(self.study.trial_folder(trial))
            states[trial.id] = "unavailable" if trial.state == "unavailable" and state != "done" else state
        return states

    def _is_to_run(self, state: State) -> bool:
        return state in ("pending", "interrupted") or (state == "failed" and self.retry_failed)


class _Announcer(logging.Handler):
    """Tells people, once, what our own code warns of, and notes it in the events; Ray's log has it too."""

    def __init__(self, events: EventLog) -> None:
        super().__init__(logging.WARNING)
        self.say: Callable[[str], None] | None = None
        self._events = events
        self._told: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        """Tell a warning. Called in any thread."""
        self.announce(record.getMessage(), level=record.levelname.lower())

    def announce(self, message: str, *, level: str = "error") -> None:
        """Tell people something, unless they know it."""
        if message in self._told:
            return
        self._told.add(message)
        with suppress(OSError):
            self._events.write(level, message=message)
        self.tell(message)

    def tell(self, message: str) -> None:
        """Tell people something, if they are still there."""
        if self.say is not None:
            with suppress(OSError):
                self.say(message)


@contextmanager
def _shown(view: LiveView) -> Iterator[None]:
    """Show the view for as long as there is a terminal."""
    with suppress(OSError):
        view.__enter__()
    try:
        yield
    finally:
        with suppress(OSError):
            view.__exit__(None, None, None)


def _refresh(view: LiveView) -> None:
    """Redraw. What cannot be shown must not end what is being trained."""
    try:
        view.refresh()
    except Exception as error:
        logger.warning("the live view fails: %s: %s", type(error).__name__, error, exc_info=True)
