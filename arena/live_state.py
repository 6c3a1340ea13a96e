"""How far the trials of a running study have come, read from their files a little at a time."""

from __future__ import annotations

import json
import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
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
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """folder: `<studies>/<name>`; at_once: how many trials run side by side.

        planned: seconds that the whole run should take, with all that comes before the first trial.
        """
        self.folder = folder
        self.planned = planned
        self.at_once = max(1, at_once)
        self.clock = clock
        self.began = clock()
        self.trials: list[TrialProgress] = []
        self.clones: list[CloneProgress] = []
        self._clone_starts: dict[str, tuple[float, int]] = {}
        self._starts: dict[str, float] = {}
        self._pace: tuple[float | None, float | None] = (None, None)
        self.add(trials)

    def add(self, trials: Sequence[ShownTrial]) -> None:
        """Trials that joined the study."""
        self.trials += [TrialProgress(trial, self.folder / "trials" / trial.id) for trial in trials]

    def look(self) -> None:
        """Read what is new in all files."""
        for trial in self.trials:
            before = trial.standing
            trial.look()
            if before != trial.standing:
                self._time(trial)
        self._pace = self._measured_pace()
        needed = {t.trial.clone for t in self.trials if t.standing != "ended"} - {""}
        self.clones = [clone for name in sorted(needed) if (clone := self._clone(name)) is not None]

    def standing(self, which: Standing) -> list[TrialProgress]:
        """The trials that wait, run or have ended."""
        return [trial for trial in self.trials if trial.standing == which]

    def outcomes(self) -> Counter[str]:
        """How many trials ended how."""
        return Counter(trial.outcome.outcome for trial in self.trials if trial.outcome is not None)

    @property
    def elapsed(self) -> float:
        """Seconds since the run began."""
        return self.clock() - self.began

    @property
    def share_done(self) -> float:
        """Of all update steps, those made or no longer to be made, from 0 to 1."""
        total = sum(trial.trial.steps for trial in self.trials)
        done = sum(t.trial.steps if t.standing == "ended" else t.step for t in self.trials)
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
        known = [(trial, trial.took) for trial in self.trials if trial.took is not None and trial.step]
        if not known:
            known = [(t, t.seconds) for t in self.trials if t.step >= ENOUGH_STEPS and t.seconds > 0]
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


def _finite(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) and value > 0 else 0.0
