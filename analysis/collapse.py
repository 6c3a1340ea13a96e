"""When a run counts as collapsed, diverged, stable or unstable: defined by numbers, live and in replay.

Pure functions over metric rows (`{"step": n, "kind": "train" | "eval", "<metric>": number}`), in the order
in which they were recorded. `CollapseWatch` is fed row by row while a run trains; `judge` feeds it a whole
record. Both are the same code, so a stop falls on the same step every time. Definitions: docs/collapse.md.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from analysis.early_warning import EarlyWarning, WarningWatch, number

Outcome = Literal["stable", "unstable", "undecided", "collapsed", "diverged", "interrupted", "failed"]
Cause = Literal["from_best", "below_start", "format", "non_finite"]

FORMAT_STEPS = 5
LEAST_EVALUATIONS = 5
ROUNDING = 1e-9
"""Slack of comparisons with a threshold, so that 0.35 against 0.30 is a difference of 0.05."""

_MUST_BE_FINITE = ("train/loss", "train/gradient_norm", "train/parameter")


@dataclass(frozen=True)
class CollapseRule:
    """The thresholds; success is a share of episodes, a standard error (SE) comes from p(1-p)/n.

    stop             whether a run ends when its collapse is established
    window           evaluations in a trailing mean
    patience         evaluations in a row for which a criterion must hold
    best_share       from best: a drop of this share of the best trailing mean,
    best_floor       at least this much, and at least `standard_errors` SE
    start_floor      below start: this much below the clone, and at least `standard_errors` SE
    standard_errors  how many SE a difference must reach to count
    format_broken    format: share of well-formed responses (mean of 5 steps) below this,
    format_healthy   after having been above this
    learned_floor    learned: this much above the clone, and at least `standard_errors` SE
    stable_variance  stable: variance of success around a line, beyond sampling variance, below this
    """

    stop: bool = False
    window: int = 3
    patience: int = 3
    best_share: float = 0.5
    best_floor: float = 0.10
    start_floor: float = 0.05
    standard_errors: float = 3.0
    format_broken: float = 0.5
    format_healthy: float = 0.8
    learned_floor: float = 0.05
    stable_variance: float = 0.0025

    def __post_init__(self) -> None:
        if self.window < 1 or self.patience < 1:
            raise ValueError(f"window and patience are counts from 1, not {self.window} and {self.patience}")

    @classmethod
    def of(cls, values: Mapping[str, Any] | CollapseRule) -> CollapseRule:
        """The rule with these keys over the defaults; ValueError names keys that do not exist."""
        if isinstance(values, CollapseRule):
            return values
        known = {field.name for field in fields(cls)}
        if unknown := sorted(set(values) - known):
            raise ValueError(f"no such collapse threshold: {', '.join(unknown)}; there are {sorted(known)}")
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """The thresholds by name."""
        return asdict(self)


@dataclass(frozen=True)
class Level:
    """A success rate, the episodes behind it (0: unknown) and the step of the last of them."""

    value: float
    episodes: int
    step: int

    @property
    def variance(self) -> float:
        """Sampling variance p(1-p)/n; 0 where n is unknown."""
        return self.value * (1 - self.value) / self.episodes if self.episodes else 0.0


@dataclass(frozen=True)
class Established:
    """A collapse or divergence: why, since when, and the row that settled it.

    onset lies in the interval (after, onset]: success is only seen at evaluations.
    """

    cause: Cause
    onset: int
    after: int
    step: int
    reason: str


@dataclass(frozen=True)
class Verdict:
    """What a run came to.

    learned        whether it ended above its clone; None where that cannot be said
    onset          first step of the collapse, which lies in (onset_interval[0], onset_interval[1]]
    warnings_from  the first step at which a warning could fire; None while the warm-up lasts
    start, final   success of the clone and at the end (the last trailing mean when `carried`)
    carried        the run ended at its collapse, and its last trailing mean stands for the rest
    """

    outcome: Outcome
    learned: bool | None
    reason: str
    onset: int | None = None
    onset_interval: tuple[int, int] | None = None
    cause: Cause | None = None
    warnings: tuple[EarlyWarning, ...] = ()
    warnings_from: int | None = None
    start: float | None = None
    best: float | None = None
    final: float | None = None
    carried: bool = False


def _gap(high: Level, low: Level, floor: float, rule: CollapseRule) -> tuple[float, float]:
    """How far `low` lies below `high`, and how far it must lie to count."""
    standard_error = math.sqrt(high.variance + low.variance)
    return high.value - low.value, max(floor, rule.standard_errors * standard_error)


def _pool(levels: Iterable[Level]) -> Level:
    """The mean of evaluations of equal size."""
    levels = list(levels)
    return Level(
        sum(level.value for level in levels) / len(levels),
        sum(level.episodes for level in levels),
        levels[-1].step,
    )


class CollapseWatch:
    """Feed it a run's rows in order; it says when the collapse, or a divergence, has been established.

    What is established stays so, whatever follows: a run that recovers has collapsed all the same, and the
    outcome does not depend on whether it was stopped.
    """

    def __init__(self, rule: CollapseRule | Mapping[str, Any]) -> None:
        self.rule = CollapseRule.of(rule)
        self.established: Established | None = None
        self.start: Level | None = None
        self.best: Level | None = None
        self.evaluations: list[Level] = []
        self.last_step = 0
        self._recent: deque[Level] = deque(maxlen=self.rule.window)
        self._format: deque[float] = deque(maxlen=FORMAT_STEPS)
        self._format_was_healthy = False
        self._streaks: dict[Cause, list[tuple[int, int]]] = {"below_start": [], "from_best": [], "format": []}
        self._warning_watch = WarningWatch()
        self._names: tuple[str, ...] = ()
        self._must_be_finite: tuple[str, ...] = ()

    @property
    def warnings(self) -> tuple[EarlyWarning, ...]:
        """The early warnings so far."""
        return tuple(self._warning_watch.warnings)

    @property
    def trailing(self) -> Level | None:
        """m_t: the mean of the last `window` evaluations; None before there are as many."""
        return _pool(self._recent) if len(self._recent) == self.rule.window else None

    def update(self, row: Mapping[str, Any]) -> bool:
        """Take the next row; True once a collapse or a divergence has been established.

        A row without a usable `eval/success` is no evaluation. `eval/episodes` gives the standard errors;
        without it they are 0 and the floors alone decide.
        """
        self.last_step = int(row["step"])
        if row.get("kind") == "train":
            self._train(row)
        elif row.get("kind") == "eval":
            self._evaluation(row)
        self._warning_watch.update(row)
        return self.established is not None

    def _train(self, row: Mapping[str, Any]) -> None:
        valid = number(row.get("rollout/valid_format"))
        if valid is not None and math.isfinite(valid):
            self._format.append(valid)
            if len(self._format) == FORMAT_STEPS and self._format_rate() > self.rule.format_healthy:
                self._format_was_healthy = True
        if self.established is not None or number(row.get("train/updates")) == 0:
            return
        if self._names != (names := tuple(row)):
            self._names = names
            self._must_be_finite = tuple(name for name in names if name.startswith(_MUST_BE_FINITE))
        for name in self._must_be_finite:
            recorded = row[name]
            value = number(recorded)
            if value is not None and not math.isfinite(value):
                self.established = Established(
                    cause="non_finite",
                    onset=self.last_step,
                    after=self.last_step - 1,
                    step=self.last_step,
                    reason=f"{name} was {recorded} at step {self.last_step}.",
                )
                return

    def _evaluation(self, row: Mapping[str, Any]) -> None:
        success = number(row.get("eval/success"))
        if success is None or not math.isfinite(success):
            return
        episodes = number(row.get("eval/episodes"))
        level = Level(success, int(episodes) if episodes and math.isfinite(episodes) else 0, self.last_step)
        if level.step == 0:
            self.start = self.best = level
            # The clone's responses are those of the first rollout: a format that breaks within the first
            # five steps had been healthy all the same.
            valid = number(row.get("eval/valid_format"))
            self._format_was_healthy |= valid is not None and valid > self.rule.format_healthy
            return
        before = self.evaluations[-1].step if self.evaluations else 0
        self.evaluations.append(level)
        self._recent.append(level)
        trailing = self.trailing
        if trailing is not None and (self.best is None or trailing.value > self.best.value):
            self.best = trailing
        for cause, streak in self._streaks.items():
            reason = self._holds(cause, trailing)
            if reason is None:
                streak.clear()
                continue
            streak.append((before, level.step))
            if len(streak) >= self.rule.patience and self.established is None:
                after, onset = streak[0]
                since = f" It held for {self.rule.patience} evaluations in a row, since step {onset}."
                self.established = Established(cause, onset, after, level.step, reason + since)

    def _holds(self, cause: Cause, trailing: Level | None) -> str | None:
        """Whether a criterion holds at the newest evaluation: the sentence that says so, or None."""
        rule, step = self.rule, self.last_step
        if cause == "format":
            if not (self._format_was_healthy and self._format):
                return None
            if len(self._format) < FORMAT_STEPS or not self._format_rate() < rule.format_broken:
                return None
            return (
                f"Well-formed responses fell from above {rule.format_healthy:.2f} to"
                f" {self._format_rate():.2f} (mean of {FORMAT_STEPS} steps) at step {step},"
                f" below {rule.format_broken:.2f}."
            )
        high = self.best if cause == "from_best" else self.start
        if trailing is None or high is None:
            return None
        floor = (
            max(rule.best_share * high.value, rule.best_floor) if cause == "from_best" else rule.start_floor
        )
        drop, needed = _gap(high, trailing, floor, rule)
        if drop < needed - ROUNDING:
            return None
        reference = (
            f"its best of {high.value:.2f} (step {high.step})" if cause == "from_best" else "the clone's"
        )
        if cause == "below_start":
            reference += f" {high.value:.2f}"
        return (
            f"Success (mean of {rule.window} evaluations) fell from {reference} to {trailing.value:.2f}"
            f" at step {step}: {drop:.2f} down, where {needed:.2f} counts as a collapse."
        )

    def _format_rate(self) -> float:
        return sum(self._format) / len(self._format)

    def verdict(self, *, finished: bool, interrupted: bool = False) -> Verdict:
        """The verdict on what was seen so far.

        finished: the run came to its end (its last step, its collapse, its divergence). interrupted: it was
        stopped from outside. What is neither is still running: undecided, unless a collapse is established.
        """
        outcome, sentences = self._outcome(finished=finished, interrupted=interrupted)
        established = self.established
        carried = (
            established is not None
            and established.step == self.last_step
            and (self.rule.stop or outcome == "diverged")
        )
        final = self._final(carried)
        learned: bool | None = None
        if final is not None and self.start is not None and outcome != "interrupted":
            gain, needed = _gap(final, self.start, self.rule.learned_floor, self.rule)
            if finished or established is not None:
                learned = gain >= needed - ROUNDING
            if established is None:
                word = {True: " (learned)", False: " (flat)", None: " so far"}[learned]
                sentences.append(
                    f"Success {final.value:.2f} at the end against the clone's {self.start.value:.2f}:"
                    f" {gain:+.2f}, where {needed:+.2f} counts as learned{word}."
                )
        return Verdict(
            outcome=outcome,
            learned=learned,
            reason=" ".join(sentences),
            onset=established.onset if established else None,
            onset_interval=(established.after, established.onset) if established else None,
            cause=established.cause if established else None,
            warnings=self.warnings,
            warnings_from=self._warning_watch.watching_from,
            start=self.start.value if self.start else None,
            best=self.best.value if self.best else None,
            final=final.value if final else None,
            carried=carried,
        )

    def _outcome(self, *, finished: bool, interrupted: bool) -> tuple[Outcome, list[str]]:
        established = self.established
        if established is not None and established.cause == "non_finite":
            return "diverged", [established.reason]
        if interrupted and not (established is not None and self.rule.stop):
            sentences = [f"Interrupted after step {self.last_step}."]
            if established is not None:
                sentences.append(f"By then: {established.reason}")
            return "interrupted", sentences
        if established is not None:
            return "collapsed", [established.reason]
        if not finished:
            return "undecided", [f"Still running, at step {self.last_step}."]
        if len(self.evaluations) < LEAST_EVALUATIONS:
            count = len(self.evaluations)
            return "undecided", [f"{count} evaluations; stability takes {LEAST_EVALUATIONS}."]
        tail = self.evaluations[-max(LEAST_EVALUATIONS, _fifth(len(self.evaluations))) :]
        excess = _excess_variance(tail)
        stable = excess < self.rule.stable_variance - ROUNDING
        return ("stable" if stable else "unstable"), [
            f"Over the last {len(tail)} evaluations the variance of success around a line, sampling variance"
            f" taken off, is {excess:.4f}; stable is below {self.rule.stable_variance:.4f}."
        ]

    def _final(self, carried: bool) -> Level | None:
        """m_final: the mean of the last fifth of the evaluations, or the trailing mean carried forward."""
        if not self.evaluations:
            return None
        count = self.rule.window if carried else _fifth(len(self.evaluations))
        return _pool(self.evaluations[-count:])


def _fifth(count: int) -> int:
    return -(-count // 5)


def _excess_variance(levels: list[Level]) -> float:
    """Variance around the least-squares line (unbiased, n - 2) minus the sampling variance p(1-p)/E."""
    mean_step = sum(level.step for level in levels) / len(levels)
    mean = sum(level.value for level in levels) / len(levels)
    spread = sum((level.step - mean_step) ** 2 for level in levels)
    slope = (
        sum((level.step - mean_step) * (level.value - mean) for level in levels) / spread if spread else 0.0
    )
    residual = sum((level.value - mean - slope * (level.step - mean_step)) ** 2 for level in levels)
    episodes = sum(level.episodes for level in levels) / len(levels)
    sampling = mean * (1 - mean) / episodes if episodes else 0.0
    return residual / (len(levels) - 2) - sampling


def judge(
    rows: Iterable[Mapping[str, Any]],
    rule: CollapseRule | Mapping[str, Any],
    *,
    finished: bool,
    interrupted: bool = False,
) -> Verdict:
    """The verdict on a whole record: the same as that of a `CollapseWatch` fed the same rows."""
    watch = CollapseWatch(rule)
    for row in rows:
        watch.update(row)
    return watch.verdict(finished=finished, interrupted=interrupted)
