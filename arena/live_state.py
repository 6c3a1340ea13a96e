"""How far the trials of a running study have come, read from their files a little at a time."""

from __future__ import annotations

import json
import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from analysis.collapse import CollapseRule, CollapseWatch
from arena.clones import PROGRESS, clones_folder
from arena.locks import is_held
from arena.plan import PlannedTrial
from arena.records import LOCK, METRICS, CorruptRecordError, Outcome, read_last_rows, read_outcome
from arena.tail import Tail

logger = logging.getLogger(__name__)

Standing = Literal["waiting", "running", "ended"]

_MANY = 200
"""So many waiting trials are not given their places one by one."""
ENOUGH_STEPS = 2
"""Steps after which a trial's own pace tells its time left."""


@dataclass(frozen=True, slots=True)
class ShownTrial:
    """A trial as it was planned.

    seconds: what it should take by itself, None if nobody knows. runs: whether this run is to train it if it
    has no result yet.
    """

    id: str
    label: str
    env: str
    seed: int
    steps: int
    seconds: float | None = None
    runs: bool = True
    clone: str = ""
    rule: CollapseRule = field(default_factory=CollapseRule)


def shown_trials(
    trials: Sequence[PlannedTrial], seconds: Mapping[str, float], *, retry_failed: bool = False
) -> list[ShownTrial]:
    """Those trials that can run on this machine. seconds: what they should take, by id."""
    return [
        ShownTrial(
            id=trial.id,
            label=trial.label,
            env=trial.env,
            seed=trial.seed,
            steps=trial.config.trainer.steps,
            seconds=seconds.get(trial.id),
            runs=retry_failed or trial.state != "failed",
            clone=trial.clone,
            rule=CollapseRule.of(trial.config.collapse.model_dump()),
        )
        for trial in trials
        if trial.state != "unavailable"
    ]


class TrialProgress:
    """What is known of one trial; `look` reads what its files say now."""

    def __init__(self, trial: ShownTrial, folder: Path) -> None:
        self.trial = trial
        self.folder = folder
        self.standing: Standing = "waiting"
        self.outcome: Outcome | None = None
        self.took: float | None = None
        """Seconds by the clock from its start to its end, if this run saw all of it."""
        self._tail = Tail(folder / METRICS)
        self._forget()
        self._past = self._look_at_the_past()

    @property
    def seconds_left(self) -> float | None:
        """By the trial's own pace; None until that is known."""
        if self.step < ENOUGH_STEPS:
            return None
        return (self.trial.steps - self.step) * self.seconds / self.step

    @property
    def collapsed(self) -> int | None:
        """The step since which it counts as collapsed or diverged, None while it does not."""
        if self.outcome is not None:
            return self.outcome.onset
        return self.watch.established.onset if self.watch.established else None

    @property
    def warnings(self) -> list[tuple[str, int]]:
        """Early warnings so far: name and step."""
        if self.outcome is not None:
            return [(str(w.get("name")), int(w.get("step", 0))) for w in self.outcome.warnings]
        return [(warning.name, warning.step) for warning in self.watch.warnings]

    def look(self) -> None:
        """Read what was added to the trial's files. An ended trial with a result is not read again."""
        if self.outcome is not None and self.outcome.is_result:
            return
        running = is_held(self.folder / LOCK)
        outcome = None
        with suppress(CorruptRecordError):
            outcome = read_outcome(self.folder)
        if running and (outcome is None or not outcome.is_result):
            self.standing, self.outcome = "running", None
        elif outcome is not None and not (self.standing == "waiting" and outcome == self._past):
            self.standing, self.outcome = "ended", outcome
        elif self.standing == "running":
            # Between two attempts, or its supervisor is about to say what happened.
            self.standing = "waiting"
        if self.standing != "waiting":
            chunk = self._tail.read()
            if chunk.rewound:
                self._forget()
            self._take(chunk.rows)

    def _look_at_the_past(self) -> Outcome | None:
        """What an earlier run left. Of a trial with a result its end is enough: there may be thousands."""
        outcome = None
        with suppress(CorruptRecordError):
            outcome = read_outcome(self.folder)
        if outcome is not None and (outcome.is_result or not self.trial.runs):
            self.standing, self.outcome = "ended", outcome
            self._take(read_last_rows(self.folder / METRICS))
        return outcome

    def _forget(self) -> None:
        self.step = 0
        self.seconds = 0.0
        self.evaluations: list[float] = []
        self.watch = CollapseWatch(self.trial.rule)

    def _take(self, rows: Iterable[Mapping[str, Any]]) -> None:
        for row in rows:
            self.watch.update(row)
            if row.get("kind") == "train":
                self.step = int(row["step"])
            # The clone's evaluation, at step 0, is larger than those that follow.
            if row["step"] > 0:
                self.seconds += _finite(row.get("time/step")) + _finite(row.get("time/evaluation"))
            success = row.get("eval/success")
            if isinstance(success, int | float) and math.isfinite(success):
                self.evaluations.append(float(success))


@dataclass(frozen=True, slots=True)
class CloneProgress:
    """A clone that is being made. seconds_left: None until its pace is known."""

    id: str
    done: int
    total: int
    seconds_left: float | None


class StudyProgress:
    """All trials of a study that is being run, and the clones made for them."""

    def __init__(
        self,
        folder: Path,
        trials: Sequence[ShownTrial],
        *,
        at_once: int,
        planned: float | None = None,
        begun: Callable[[], Collection[str]] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """folder: `<studies>/<name>`; at_once: how many trials run side by side.

        planned: seconds that the whole run should take, with all that comes before the first trial. begun:
        the ids of the trials that this run has begun, so that the thousands that wait need not be looked at;
        None where nobody knows.
        """
        self.folder = folder
        self.planned = planned
        self.at_once = max(1, at_once)
        self.clock = clock
        self.began = clock()
        self.trials: list[TrialProgress] = []
        self._begun = begun
        self._by_id: dict[str, TrialProgress] = {}
        self._results: set[str] = set()
        self._changed: list[TrialProgress] = []
        self._census: _Census | None = None
        self.clones: list[CloneProgress] = []
        self._clone_starts: dict[str, tuple[float, int]] = {}
        self._starts: dict[str, float] = {}
        self._pace: tuple[float | None, float | None] = (None, None)
        self.add(trials)

    def add(self, trials: Sequence[ShownTrial]) -> None:
        """Trials that joined the study."""
        added = [TrialProgress(trial, self.folder / "trials" / trial.id) for trial in trials]
        self.trials += added
        self._by_id |= {one.trial.id: one for one in added}
        self._results |= {one.trial.id for one in added if _has_result(one)}
        self._census = None

    def look(self) -> None:
        """Read what is new in all files that may have changed."""
        for trial in self._to_look_at():
            before = trial.standing, trial.outcome
            trial.look()
            if before[0] != trial.standing:
                self._time(trial)
                self._changed.append(trial)
            if before != (trial.standing, trial.outcome):
                self._census = None
            if _has_result(trial):
                self._results.add(trial.trial.id)
        self._pace = self._measured_pace()
        self.clones = [clone for name in self._counted.clones if (clone := self._clone(name)) is not None]

    def _to_look_at(self) -> list[TrialProgress]:
        names = self._by_id if self._begun is None else self._begun()
        return [self._by_id[name] for name in names if name not in self._results and name in self._by_id]

    @property
    def _counted(self) -> _Census:
        """What is the same until a trial starts or ends."""
        if self._census is None:
            self._census = _Census(self.trials)
        return self._census

    def take_changed(self) -> list[TrialProgress]:
        """The trials that have started or ended since this was asked last."""
        changed, self._changed = self._changed, []
        return changed

    def standing(self, which: Standing) -> list[TrialProgress]:
        """The trials that wait, run or have ended."""
        return self._counted.lists[which]

    def outcomes(self) -> Counter[str]:
        """How many trials ended how."""
        return self._counted.outcomes

    @property
    def elapsed(self) -> float:
        """Seconds since the run began."""
        return self.clock() - self.began

    @property
    def share_done(self) -> float:
        """Of all update steps, those made or no longer to be made, from 0 to 1."""
        total = self._counted.steps
        done = self._counted.settled_steps + sum(trial.step for trial in self.standing("running"))
        return min(1.0, done / total) if total else 1.0

    def seconds_left(self) -> float | None:
        """Until the last trial ends, at the pace measured so far; None until there is anything to go by.

        Before the first trial it is what the plan says. Trials in the order of the plan take the slot that is
        free first; one that stops at a collapse ends earlier than is counted here.
        """
        running, waiting = self.standing("running"), self.standing("waiting")
        ready = max((clone.seconds_left or 0.0 for clone in self.clones), default=0.0)
        slots = [0.0] * max(self.at_once, len(running))
        for index, trial in enumerate(running):
            left = self.trial_seconds_left(trial)
            if left is None:
                return None
            slots[index] = left
        if len(waiting) > _MANY:
            return self._seconds_left_of_many(slots, ready)
        for trial in waiting:
            expected = self._expected(trial)
            if expected is None:
                return None
            first = slots.index(min(slots))
            slots[first] = max(slots[first], ready) + expected
        left = max(slots)
        if self.planned is not None and not self._starts:
            left = max(left, self.planned - self.elapsed)
        return left

    def _seconds_left_of_many(self, slots: list[float], ready: float) -> float | None:
        """The same where so many wait that the order hardly matters: their time is shared by the slots."""
        per_second, per_step = self._pace
        seconds, steps = self._counted.waiting_seconds, self._counted.waiting_steps
        if steps and per_step is None:
            return None
        work = seconds * (1.0 if per_second is None else per_second) + steps * (per_step or 0.0)
        left = max(max(slots), ready, (sum(slots) + work) / len(slots))
        return left if self._starts else max(left, (self.planned or 0.0) - self.elapsed)

    def trial_seconds_left(self, trial: TrialProgress) -> float | None:
        """Of one trial, by its own pace or else that of the others."""
        left = trial.seconds_left
        if left is not None:
            return left
        expected = self._expected(trial)
        start = self._starts.get(trial.trial.id)
        if expected is None or start is None or math.isnan(start):
            return expected
        return max(0.0, expected - (self.clock() - start))

    def _measured_pace(self) -> tuple[float | None, float | None]:
        """Seconds per planned second, and per step: by the clock of the trials that ended in this run.

        That has the starting of a process in it; until one has ended, what the records say has to do.
        """
        known = [
            (trial, trial.took) for trial in self._counted.timed if trial.took is not None and trial.step
        ]
        if not known:
            begun = [*self.standing("running"), *self._counted.begun]
            known = [(t, t.seconds) for t in begun if t.step >= ENOUGH_STEPS and t.seconds > 0]
        planned = [(s, t.trial.seconds * t.step / t.trial.steps) for t, s in known if t.trial.seconds]
        per_second = sum(s for s, _ in planned) / sum(p for _, p in planned) if planned else None
        per_step = sum(s for _, s in known) / sum(t.step for t, _ in known) if known else None
        return per_second, per_step

    def _time(self, trial: TrialProgress) -> None:
        """Note when a trial starts, and how long it took when it has ended."""
        if trial.standing == "running":
            self._starts.setdefault(trial.trial.id, self.clock() if trial.step == 0 else math.nan)
        elif trial.standing == "ended":
            took = self.clock() - self._starts.get(trial.trial.id, math.nan)
            trial.took = took if took > 0 else None

    def _expected(self, trial: TrialProgress) -> float | None:
        """Seconds that a trial still takes whose own pace is not known."""
        per_second, per_step = self._pace
        share = 1 - trial.step / trial.trial.steps if trial.trial.steps else 0.0
        if trial.trial.seconds is not None:
            return trial.trial.seconds * (1.0 if per_second is None else per_second) * share
        return None if per_step is None else per_step * trial.trial.steps * share

    def _clone(self, name: str) -> CloneProgress | None:
        job = clones_folder(self.folder.parent) / f"{name}.job"
        if not is_held(job / LOCK):
            self._clone_starts.pop(name, None)
            return None
        try:
            progress = json.loads((job / PROGRESS).read_bytes())
            done, total = int(progress["done"]), int(progress["total"])
        except (OSError, ValueError, KeyError, TypeError):
            return CloneProgress(name, 0, 0, None)
        start, first = self._clone_starts.setdefault(name, (self.clock(), done))
        left = (total - done) * (self.clock() - start) / (done - first) if done > first else None
        return CloneProgress(name, done, total, left)


def _has_result(trial: TrialProgress) -> bool:
    return trial.outcome is not None and trial.outcome.is_result


class _Census:
    """Sums over all trials, which are the same until one of them starts or ends.

    begun: those not running that have steps; timed: those whose time is known. clones: what is still needed.
    steps: of all; settled_steps: those made, or no longer to be made, by trials that do not run.
    waiting_seconds, waiting_steps: what is planned for those that wait, in seconds, or steps where it is not.
    """

    def __init__(self, trials: Sequence[TrialProgress]) -> None:
        self.lists: dict[Standing, list[TrialProgress]] = {"waiting": [], "running": [], "ended": []}
        for trial in trials:
            self.lists[trial.standing].append(trial)
        waiting, ended = self.lists["waiting"], self.lists["ended"]
        self.outcomes: Counter[str] = Counter(
            trial.outcome.outcome for trial in trials if trial.outcome is not None
        )
        self.begun = [trial for trial in (*waiting, *ended) if trial.step]
        self.timed = [trial for trial in ended if trial.took is not None]
        self.clones = sorted({one.trial.clone for one in (*waiting, *self.lists["running"])} - {""})
        self.steps = sum(trial.trial.steps for trial in trials)
        self.settled_steps = sum(t.trial.steps for t in ended) + sum(t.step for t in waiting)
        self.waiting_seconds = self.waiting_steps = 0.0
        for trial in waiting:
            share = 1 - trial.step / trial.trial.steps if trial.trial.steps else 0.0
            if trial.trial.seconds is None:
                self.waiting_steps += trial.trial.steps
            else:
                self.waiting_seconds += trial.trial.seconds * share


def _finite(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) and value > 0 else 0.0
