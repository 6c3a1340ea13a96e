"""How many seeds a cell gets: more where the interval of its final success is wide, cells in doubt first.

A function of results alone. Trials end in any order, and a run may be killed and started again: what is
decided is what somebody would decide who adds one round of seeds after another, each on all results so far.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from statistics import stdev
from typing import TypeVar

Cell = TypeVar("Cell", bound=Hashable)

Results = Mapping[int, float | None]
"""Final success by seed, of the trials that have ended; None where one ended without a result."""


@dataclass(frozen=True, slots=True)
class Replication:
    """Seeds 0, 1, ...: at least `least` and at most `most`, until the interval is at most `ci_width` wide."""

    least: int
    most: int
    ci_width: float


def interval_width(values: Sequence[float]) -> float:
    """The width of Student's 95% interval of a mean; infinite with fewer than two values."""
    count = len(values)
    if count < 2:
        return math.inf
    # Only here: planning a grid without adaptive seeds does without it.
    from scipy.special import stdtrit

    return 2 * float(stdtrit(count - 1, 0.975)) * stdev(values) / math.sqrt(count)


def seeds_decided(
    results: Mapping[Cell, Results], rule: Replication, most_trials: int | None = None
) -> dict[Cell, int]:
    """How many seeds every cell is to have, as far as these results decide it.

    Every cell has the least. Then rounds follow: a cell whose interval is too wide gets its next seed, the
    widest first (then in the order of the cells) while there are trials left of `most_trials`. A cell without
    a result for one of its seeds gets no more: a seed that failed is to be run again, not to be replaced.

    A seed is decided when no result that is still to come can take it away again. So the decisions on some
    of the results are among those on all of them, and when all seeds decided on have ended, none is to come.
    """
    decided = dict.fromkeys(results, rule.least)
    left = math.inf if most_trials is None else most_trials - rule.least * len(decided)
    used = 0
    open_cells: list[Cell] = []
    going = list(results)
    for seeds in range(rule.least, rule.most):
        in_doubt: list[tuple[float, int, Cell]] = []
        for cell in going:
            values = [results[cell].get(seed, math.nan) for seed in range(seeds)]
            known = [value for value in values if value is not None]
            if len(known) < len(values):
                continue
            if any(math.isnan(value) for value in known):
                open_cells.append(cell)
            elif (width := interval_width(known)) > rule.ci_width:
                in_doubt.append((-width, len(in_doubt), cell))
        # Cells whose results are not all there may be wider than any other, and go first.
        going, taken = [], used + len(open_cells)
        for _, _, cell in sorted(in_doubt):
            if taken < left:
                decided[cell] = seeds + 1
                going.append(cell)
            elif open_cells:
                open_cells.append(cell)
            taken += 1
        used += len(in_doubt) + len(open_cells)
    return decided
