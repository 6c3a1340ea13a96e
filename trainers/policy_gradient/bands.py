"""The band of ratios outside which an option stops the gradient, for diagnostics.

An option's own band is read from its parameters: `lo` and `hi` (distance of the edges from 1) with `unit`
where the ratio is a sequence's, or the gates `low` and `high`. An option with none of these has no band, and
a gate that draws at random neither.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from trainers.config import OptionConfig
from trainers.policy_gradient.parameters import Gate

Level = Literal["token", "row", "trajectory"]


@dataclass(frozen=True)
class Edge:
    """One edge: of which level's ratio, and its logarithm there (-inf: never reached)."""

    level: Level
    log_ratio: float


@dataclass(frozen=True)
class Band:
    """The low edge concerns what has A < 0 and a ratio below, the high edge A > 0 and a ratio above."""

    low: Edge | None
    high: Edge | None

    @classmethod
    def around_one(cls, level: Level, lo: float, hi: float) -> Band:
        """The band [1 - lo, 1 + hi] at one level."""
        return cls(_low(level, lo), _high(level, hi))

    @classmethod
    def of(cls, option: OptionConfig) -> Band:
        """The option's own band."""
        parameters = option.parameters
        unit: Level = parameters.get("unit", "row")
        if "lo" in parameters and "hi" in parameters:
            level = unit if "unit" in parameters else "token"
            return cls.around_one(level, parameters["lo"], parameters["hi"])
        low, high = _gate(parameters.get("low")), _gate(parameters.get("high"))
        return cls(
            None if low is None else _low(unit if low[0] == "sequence" else "token", low[1]),
            None if high is None else _high(unit if high[0] == "sequence" else "token", high[1]),
        )


def _low(level: Level, distance: float) -> Edge:
    return Edge(level, math.log(1 - distance) if distance < 1 else -math.inf)


def _high(level: Level, distance: float) -> Edge:
    return Edge(level, math.log(1 + distance))


def _gate(value: Any) -> tuple[str, float] | None:
    """Level and eps of a gate that has a band."""
    gate = None if value is None else Gate.model_validate(value)
    return None if gate is None or gate.eps is None else (gate.level, gate.eps)


# the same for every option, so that options can be compared (arXiv 1707.06347 and 2507.18071)
TOKEN_REFERENCE = Band.around_one("token", 0.2, 0.2)
ROW_REFERENCE = Band.around_one("row", 3e-3, 4e-3)
