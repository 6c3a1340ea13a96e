"""Brings one study's runs in an MLflow store up to date with the study's files."""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from arena import tracking_runs as runs
from arena import tracking_traces as traces
from arena.identity import FIRST_TUNING_SEED
from arena.records import EPISODES, METRICS, TRIAL, Outcome, read_lines, read_outcome
from arena.tail import Position, Tail
from arena.tracking_artifacts import write_trial_artifacts
from arena.tracking_views import GROUP, view_tags
from arena.trial_sheet import TrialSheet

logger = logging.getLogger(__name__)

METRICS_PER_BATCH = 900
"""MLflow takes 1000 metrics, tags and parameters together in one request."""
PARAMETERS_PER_BATCH = 90
ORIGIN_FILE = ".tracking.json"
NO_TRACES = ("", "ENDPOINT_NOT_FOUND", "FEATURE_DISABLED", "NOT_IMPLEMENTED")
"""What stores answer that do not know traces (files, old servers)."""


@dataclass
class Written:
    """What a sync added to the store."""

    trials: int = 0
    metrics: int = 0
    uploads: int = 0
    problems: list[str] = field(default_factory=list)

    def add(self, other: Written) -> None:
        """Count what `other` counts too."""
        self.trials += other.trials
        self.metrics += other.metrics
        self.uploads += other.uploads
        self.problems += other.problems


@dataclass
class _Run:
    """A run as the store has it, so that only what differs is sent."""

    id: str
    status: str
    start: float
    tags: dict[str, str] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    parameters: frozenset[str] = frozenset()


@dataclass
class _Trial:
    """A trial's run, how much of its record the run holds, and the measured seconds of that part."""

    run: _Run
    tail: Tail
    elapsed: float

    @property
    def end(self) -> float:
        return self.run.start + self.elapsed


class StudyWriter:
    """The one writer of a study's runs.

    Runs are found by their tags, so a new writer continues where the last one stopped. How much of a record a
    run holds is a tag of that run, sent after the metrics it speaks of: after a crash in between, the same
    points are sent again, and MLflow keeps equal points once. A record that was cut back to a checkpoint and
    grew anew makes a new run (the old one goes to MLflow's bin), so a run never holds two values for a step.

    When a method raises, what this object believes of the store may be wrong: make a new writer.
    """

    def __init__(self, client: Any, experiment: str, study: Path) -> None:
        self.client = client
        self.experiment = experiment
        self.study = study
        self._trials: dict[str, _Trial] = {}
        self._cells: dict[str, _Run] = {}
        self._report: _Run | None = None
        found = list(self._stored_runs())
        self.origin = self._read_origin(found)
        for run in found:
            if run.tags.get(runs.ORIGIN) == self.origin:
                self._adopt(run)

    @property
    def cells(self) -> frozenset[str]:
        """The cells that have a run."""
        return frozenset(self._cells)

    def write_trial(self, sheet: TrialSheet, name: str, parent_name: str, *, running: bool) -> Written:
        """Bring a trial's run up to date; its cell's run is made if there is none.

        running: whether it is being trained now. Raises CorruptRecordError for a damaged outcome, before
        anything is sent.
        """
        folder = self._folder(sheet.trial)
        outcome = read_outcome(folder)
        if running and outcome is not None and not outcome.is_result:
            outcome = None
        parent = self._cell_run(sheet, parent_name)
        trial = self._trials.get(sheet.trial)
        if trial is not None:
            chunk = trial.tail.read()
            if chunk.rewound:
                logger.info("%s was cut back to a checkpoint; its MLflow run is made anew", sheet.trial)
                del self._trials[sheet.trial]
                self._delete(trial.run)
                trial = None
        if trial is None:
            run = self._create(self._start(sheet), name, {runs.TRIAL: sheet.trial, runs.PARENT: parent.id})
            trial = self._trials[sheet.trial] = _Trial(run, Tail(folder / METRICS), 0.0)
            chunk = trial.tail.read()
        status = runs.trial_status(outcome, running=running, begun=trial.tail.position.offset > 0)
        tags = runs.trial_tags(sheet, self.study.name, outcome, status)
        tags |= {runs.NAME: name, GROUP: parent_name}
        found, elapsed = runs.points(chunk.rows, trial.run.start, trial.elapsed)
        position = {runs.POSITION: trial.tail.position.dumps(), runs.ELAPSED: f"{elapsed:.3f}"}
        changed = self._send(trial.run, found, tags | position)
        trial.elapsed = elapsed
        self._send_parameters(trial.run, sheet)
        written = Written(metrics=len(found))
        if outcome is not None:
            written.add(self._upload(trial, sheet, outcome))
        changed |= self._set_status(trial.run, status, trial.end)
        written.trials = int(changed or written.uploads > 0)
        return written

    def write_cell(self, sheets: Sequence[TrialSheet], name: str) -> None:
        """Bring a cell's run up to date with its trials' runs; those of tuning do not count beside others."""
        sheets = [sheet for sheet in sheets if sheet.seed < FIRST_TUNING_SEED] or sheets
        run = self._cell_run(sheets[0], name)
        members, ends = [], [run.start]
        for sheet in sheets:
            trial = self._trials.get(sheet.trial)
            if trial is not None:
                tags, metrics = trial.run.tags, trial.run.metrics
                members.append(runs.Member(tags["outcome"], trial.run.status, metrics.get("final/success")))
                ends.append(trial.end)
        metrics, words = runs.cell_summary(members)
        changed = {key: value for key, value in metrics.items() if run.metrics.get(key) != value}
        self._send(run, _summary_points(changed), {"outcomes": words, runs.NAME: name})
        run.metrics |= metrics
        self._set_status(run, runs.cell_status(members), max(ends))

    def describe(self, question: str, axes: Sequence[str]) -> None:
        """Describe the experiment by the study's question, until a report takes its place, and by its views.

        What is there already stays: people edit descriptions and views.
        """
        # Without its kind the page asks every reader whether these are language-model applications.
        wanted = {runs.KIND: "custom_model_development", runs.NOTE: question, **view_tags(axes)}
        present = self.client.get_experiment(self.experiment).tags
        for key, value in wanted.items():
            if value and key not in present:
                self.client.set_experiment_tag(self.experiment, key, value)

    def write_report(self) -> Written:
        """Attach the study's report, if there is one that is not attached yet."""
        report = self.study / "report" / "report.md"
        try:
            text = report.read_bytes()
            written = report.stat().st_mtime
        except FileNotFoundError:
            return Written()
        digest = sha256(text).hexdigest()[:16]
        if self._report is not None and self._report.tags.get(runs.UPLOADED) == digest:
            return Written()
        note = runs.report_note(text.decode("utf-8", errors="replace"))
        if self._report is None:
            tags = {"kind": "report", "study": self.study.name, runs.REPORT: self.study.name}
            self._report = self._create(written, "report", tags)
        self.client.log_artifacts(self._report.id, str(report.parent), "report")
        self._send(self._report, [], {runs.NOTE: note, runs.UPLOADED: digest})
        self._set_status(self._report, "FINISHED", written)
        self.client.set_experiment_tag(self.experiment, runs.NOTE, note)
        return Written(uploads=1)

    def _upload(self, trial: _Trial, sheet: TrialSheet, outcome: Outcome) -> Written:
        """Final metrics and artifacts of a trial that ended, unless this very end was uploaded before."""
        digest = sha256(f"{outcome} {trial.tail.position}".encode()).hexdigest()[:16]
        run = trial.run
        if run.tags.get(runs.UPLOADED) == digest:
            return Written()
        folder = self._folder(sheet.trial)
        metrics: dict[str, float] = {}
        written = Written(uploads=1)
        with TemporaryDirectory(prefix="arena-artifacts-") as target:
            try:
                if outcome.is_result:
                    metrics = runs.verdict_metrics(sheet, read_lines(folder / METRICS).rows, outcome)
                write_trial_artifacts(folder, Path(target))
            except (ValueError, KeyError, TypeError) as error:
                # A record this version cannot make sense of; what there is is worth showing all the same.
                written.problems.append(f"{sheet.trial}: not all of its artifacts could be made: {error!r}")
            self.client.log_artifacts(run.id, target)
        traced = self._send_traces(trial, sheet, outcome, written)
        changed = {key: value for key, value in metrics.items() if run.metrics.get(key) != value}
        self._send(run, _summary_points(changed), {runs.UPLOADED: digest, **traced})
        run.metrics |= metrics
        return written

    def _send_traces(
        self, trial: _Trial, sheet: TrialSheet, outcome: Outcome, written: Written
    ) -> dict[str, str]:
        """Send some of a trial's episodes, unless they were sent before; the tag that says which were."""
        from mlflow.exceptions import MlflowException

        episodes = traces.choose_episodes(
            read_lines(self._folder(sheet.trial) / EPISODES).rows, outcome.onset
        )
        tags = runs.trace_tags(sheet, self.study.name, outcome)
        owner = traces.Owner(self.experiment, trial.run.id, tags, trial.run.start, trial.end, outcome.steps)
        sent = trial.run.tags.get(runs.TRACES, "").split()
        missing = {
            name: episode for episode in episodes if (name := traces.trace_id(owner, episode)) not in sent
        }
        if not missing:
            return {}
        try:
            traces.send_traces(str(self.client.tracking_uri), owner, list(missing.values()))
        except (MlflowException, NotImplementedError) as error:
            if getattr(error, "error_code", "") not in NO_TRACES:
                raise
            written.problems.append(f"{sheet.trial}: this MLflow store keeps no traces of episodes")
            return {}
        return {runs.TRACES: " ".join([*sent, *missing])}

    def _delete(self, run: _Run) -> None:
        """Move a run to MLflow's bin; its traces have none."""
        if names := run.tags.get(runs.TRACES, "").split():
            self.client.delete_traces(experiment_id=self.experiment, trace_ids=names)
        self.client.delete_run(run.id)

    def _send(self, run: _Run, found: Sequence[runs.Point], tags: Mapping[str, str]) -> bool:
        """Send points in batches, and with the last one the tags that differ; whether anything was sent."""
        from mlflow.entities import Metric, RunTag

        changed = {key: value for key, value in tags.items() if run.tags.get(key) != value}
        batches = [found[i : i + METRICS_PER_BATCH] for i in range(0, len(found), METRICS_PER_BATCH)]
        if changed and not batches:
            batches = [[]]
        for index, batch in enumerate(batches, start=1):
            last = index == len(batches)
            self.client.log_batch(
                run.id,
                metrics=[Metric(point.key, point.value, point.timestamp, point.step) for point in batch],
                tags=[RunTag(key, value) for key, value in changed.items()] if last else [],
            )
        run.tags |= changed
        return bool(batches)

    def _send_parameters(self, run: _Run, sheet: TrialSheet) -> None:
        """Send the parameters the run lacks: MLflow never changes one it has."""
        from mlflow.entities import Param

        missing = {k: v for k, v in runs.parameters(sheet).items() if k not in run.parameters}
        items = list(missing.items())
        for start in range(0, len(items), PARAMETERS_PER_BATCH):
            batch = [Param(key, value) for key, value in items[start : start + PARAMETERS_PER_BATCH]]
            self.client.log_batch(run.id, params=batch)
        run.parameters |= frozenset(missing)

    def _set_status(self, run: _Run, status: runs.Status, end: float) -> bool:
        if run.status == status:
            return False
        if status in {"RUNNING", "SCHEDULED"}:
            self.client.update_run(run.id, status=status)
        else:
            self.client.set_terminated(run.id, status=status, end_time=int(end * 1000))
        run.status = status
        return True

    def _cell_run(self, sheet: TrialSheet, name: str) -> _Run:
        run = self._cells.get(sheet.cell)
        if run is None:
            tags = {**runs.cell_tags(sheet, self.study.name), "kind": "cell", runs.CELL: sheet.cell}
            run = self._cells[sheet.cell] = self._create(self._start(sheet), name, tags)
        return run

    def _create(self, start: float, name: str, tags: Mapping[str, str]) -> _Run:
        tags = {**tags, runs.ORIGIN: self.origin, runs.NAME: name}
        created = self.client.create_run(
            self.experiment, start_time=int(start * 1000), tags=dict(tags), run_name=name
        )
        return _Run(created.info.run_id, "RUNNING", int(start * 1000) / 1000, dict(tags))

    def _stored_runs(self) -> Iterator[_Run]:
        token = None
        while True:
            page = self.client.search_runs(
                [self.experiment], max_results=500, order_by=["attributes.start_time"], page_token=token
            )
            yield from (_stored(run) for run in page)
            token = page.token
            if not token:
                return

    def _adopt(self, run: _Run) -> None:
        tags = run.tags
        if runs.TRIAL in tags:
            tail = Tail(self._folder(tags[runs.TRIAL]) / METRICS, Position.loads(tags.get(runs.POSITION, "")))
            self._trials.setdefault(tags[runs.TRIAL], _Trial(run, tail, float(tags.get(runs.ELAPSED, 0.0))))
        elif runs.CELL in tags:
            self._cells.setdefault(tags[runs.CELL], run)
        elif runs.REPORT in tags and self._report is None:
            self._report = run

    def _folder(self, trial: str) -> Path:
        return self.study / "trials" / trial

    def _start(self, sheet: TrialSheet) -> float:
        when = runs.created(sheet)
        return (self._folder(sheet.trial) / TRIAL).stat().st_mtime if when is None else when

    def _read_origin(self, stored: Sequence[_Run]) -> str:
        """The id that tells this study's runs from those of another copy of the grid on the same server.

        It is kept in the study. When that file is lost, a run that holds the beginning of one of our records
        tells it; the measured seconds in a record make it unlike any other.
        """
        path = self.study / ORIGIN_FILE
        try:
            return str(json.loads(path.read_text(encoding="utf-8"))["origin"])
        except FileNotFoundError:
            pass
        except (ValueError, KeyError, TypeError) as error:
            logger.warning("%s is damaged (%s) and is written anew", path, error)
        origin = next((run.tags[runs.ORIGIN] for run in stored if self._is_ours(run)), uuid.uuid4().hex)
        text = json.dumps({"origin": origin, "since": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())})
        path.write_text(text + "\n", encoding="utf-8")
        return origin

    def _is_ours(self, run: _Run) -> bool:
        position = Position.loads(run.tags.get(runs.POSITION, ""))
        if not position.offset or runs.TRIAL not in run.tags or runs.ORIGIN not in run.tags:
            return False
        return Tail(self._folder(run.tags[runs.TRIAL]) / METRICS, position).holds()


def _summary_points(metrics: Mapping[str, float]) -> list[runs.Point]:
    """Numbers that sum a run up: no curves, so of step 0, and of now, so that the last word counts."""
    now = int(time.time() * 1000)
    return [runs.Point(key, value, now, 0) for key, value in metrics.items()]


def _stored(run: Any) -> _Run:
    return _Run(
        run.info.run_id,
        run.info.status,
        run.info.start_time / 1000,
        dict(run.data.tags),
        dict(run.data.metrics),
        frozenset(run.data.params),
    )
