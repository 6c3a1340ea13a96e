"""Early warnings: a training statistic far outside what it was just after the learning-rate warm-up.

A warning is not an outcome. It says that something moved, so that a collapse can be read backwards: what
moved first, and how many steps before success fell.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

WARM_UP_STEPS = 10
STEPS_IN_A_ROW = 2
ROBUST_DEVIATIONS = 6.0
MAD_TO_SIGMA = 1.4826
SMALLEST_DEVIATION = math.log(1.05)
REWARD_STD_SHARE = 0.1
REWARD_STD_SUCCESS = 0.8

RISING = {
    "gradient_norm": "train/gradient_norm",
    "off_policy_kl": "train/kl_old",
    "depth": "train/neg_low_depth",
}
"""Warnings on a statistic that rises: name of the warning, metric it reads."""

REWARD_STD = "reward_std"
NAMES = (*RISING, REWARD_STD)


def number(value: Any) -> float | None:
    """A recorded metric as a float; None where there is no number (missing, text, null).

    Non-finite numbers are recorded as the strings "NaN", "Infinity" and "-Infinity".
    """
    if value is None or isinstance(value, bool):
        return None
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None


@dataclass(frozen=True)
class EarlyWarning:
    """A statistic was out of bounds for two steps in a row, the second of them `step`."""

    name: str
    step: int
    value: float
    threshold: float


@dataclass
class _Bound:
    """The threshold of one statistic: learnt from the warm-up, then frozen; fires once per excursion."""

    rising: bool
    seen: list[float] = field(default_factory=list)
    threshold: float | None = None
    outside: int = 0

    def learn(self, value: float) -> bool:
        """Take a value of the warm-up; whether it was the last."""
        if self.rising and not (0 < value < math.inf):
            return False
        self.seen.append(math.log(value) if self.rising else value)
        if len(self.seen) < WARM_UP_STEPS:
            return False
        centre = median(self.seen)
        if self.rising:
            spread = MAD_TO_SIGMA * median(abs(value - centre) for value in self.seen)
            self.threshold = math.exp(centre + ROBUST_DEVIATIONS * max(spread, SMALLEST_DEVIATION))
        else:
            self.threshold = REWARD_STD_SHARE * centre
        return True

    def fires(self, outside: bool) -> bool:
        self.outside = self.outside + 1 if outside else 0
        return self.outside == STEPS_IN_A_ROW


class WarningWatch:
    """Feed it a run's rows in order; `warnings` lists what fired so far, in order.

    `watching_from` is the first step at which one could fire, None while the warm-up lasts.

    The warm-up of a statistic is its first ten values after the learning rate stopped rising. A rising
    statistic warns above median x exp(6 sigma), where sigma = 1.4826 MAD of its logarithm, at least log 1.05.
    The within-group reward standard deviation warns below a tenth of its warm-up median while fewer than 80%
    of the episodes succeed (groups that all succeed have no spread, and need none).
    """

    def __init__(self) -> None:
        self.warnings: list[EarlyWarning] = []
        self.watching_from: int | None = None
        self._learning_rate: float | None = None
        self._warm = False
        self._bounds = {name: _Bound(rising=True) for name in RISING}
        self._bounds[REWARD_STD] = _Bound(rising=False)

    def update(self, row: Mapping[str, Any]) -> list[EarlyWarning]:
        """The warnings that fire at this row; evaluation rows never fire one."""
        if row.get("kind") != "train" or not self._past_learning_rate_warm_up(row):
            return []
        fired = []
        for name, metric in (*RISING.items(), (REWARD_STD, "rollout/group_reward_std")):
            value = number(row.get(metric))
            if value is None or math.isnan(value):
                continue
            bound = self._bounds[name]
            if bound.threshold is None:
                if bound.learn(value) and self.watching_from is None:
                    self.watching_from = int(row["step"]) + STEPS_IN_A_ROW
                continue
            success = number(row.get("rollout/success"))
            outside = (
                value > bound.threshold
                if bound.rising
                else value < bound.threshold and success is not None and success < REWARD_STD_SUCCESS
            )
            if bound.fires(outside):
                fired.append(EarlyWarning(name, int(row["step"]), value, bound.threshold))
        self.warnings.extend(fired)
        return fired

    def _past_learning_rate_warm_up(self, row: Mapping[str, Any]) -> bool:
        """From the first step whose learning rate is not above the step before (a constant rate: step 2)."""
        if not self._warm and number(row.get("train/updates")) != 0:
            rate = number(row.get("train/learning_rate"))
            if rate is None:
                return True
            self._warm = self._learning_rate is not None and rate <= self._learning_rate
            self._learning_rate = rate
        return self._warm
