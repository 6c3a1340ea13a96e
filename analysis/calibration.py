"""How wide a gate must be to hold back a given share of what moved: gates of two levels, made comparable.

`python -m analysis.calibration STUDY [FIRST LAST]` reads the updates FIRST to LAST (1 to 16) of unclipped
runs (`is_clipping: none`), before what a gate does can matter, and prints the `eps` of the `gated` option at
which a share q of the tokens of one sign of the advantage lies outside: below 1 - eps where A < 0, above
1 + eps where A > 0. At level `sequence` a token lies outside when the ratio of its row does.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.interpolate import PchipInterpolator
from scipy.optimize import brentq

from analysis.study import Histograms, Study, Trial, load_study

SHARES = (0.01, 0.05, 0.20, 0.50)
LEVELS = {"token": "log_ratio_token", "sequence": "log_ratio_row_of_token"}
SIDES = {"low": "negative", "high": "positive"}
UPDATES = (1, 16)


def gate_edge(histograms: Histograms, share: float, side: str) -> float:
    """The eps beyond which a share of the values lies, over all steps together: what `outside` inverts.

    histograms: of log ratios; side: `low` (ratio below 1 - eps) or `high` (above 1 + eps). Values in the bin
    of their own, which have not moved, count: they are never outside. Raises ValueError where fewer than that
    share moved to that side.
    """
    tail = _Tail.of(histograms, side)
    if len(tail.distance) < 2 or share > tail.beyond[-1]:
        where = "below" if side == "low" else "above"
        raise ValueError(f"less than {share:.0%} of the values lie {where} a ratio of 1")
    edge = float(brentq(lambda distance: tail.share(distance) - share, 0.0, tail.distance[0]))
    return float(-np.expm1(-edge) if side == "low" else np.expm1(edge))


def outside(histograms: Histograms, eps: float, side: str) -> float:
    """The share of the values that lies beyond a gate, as `gate_edge` takes it."""
    tail = _Tail.of(histograms, side)
    if len(tail.distance) < 2 or (side == "low" and eps >= 1):
        return 0.0
    return tail.share(float(-np.log1p(-eps) if side == "low" else np.log1p(eps)))


@dataclass(frozen=True)
class _Tail:
    """What moved to one side: at falling distances of the logarithm from 0, which share lies beyond.

    At the first distance no value lies beyond any more; half of one is taken to.
    """

    distance: np.ndarray
    beyond: np.ndarray

    @classmethod
    def of(cls, histograms: Histograms, side: str) -> _Tail:
        counts, edges = histograms.counts.sum(0), histograms.edges
        total = max(float(counts.sum() + histograms.exact.sum()), 1.0)
        if side == "high":
            counts, edges = counts[::-1], -edges[::-1]
        counts = counts[: np.searchsorted(edges, 0.0)]
        empty = len(counts) if not counts.any() else int(np.argmax(counts > 0))
        reached = np.cumsum(counts[empty:])
        return cls(-edges[empty : len(counts) + 1], np.append(0.5, reached) / total)

    def share(self, distance: float) -> float:
        """The share beyond a distance: a monotone cubic of its logarithm between the bins' edges."""
        if distance > self.distance[0]:
            return 0.0
        return float(np.exp(PchipInterpolator(-self.distance, np.log(self.beyond))(-distance)))


def within(trials: Sequence[Trial], name: str, updates: tuple[int, int] = UPDATES) -> Histograms | None:
    """What several trials counted in steps all of whose updates lie within, a row each; None for nothing."""
    counts, exact, edges = [], [], None
    for trial in trials:
        found = trial.histograms(name)
        if found is None or (edges is not None and not np.array_equal(found.edges, edges)):
            continue
        last = trial.train["train/updates"].cumsum()
        first = last.shift(fill_value=0) + 1
        steps = last.index[(first >= updates[0]) & (last <= updates[1])]
        chosen = np.isin(found.steps, steps)
        edges = found.edges
        counts.append(found.counts[chosen].sum(0))
        exact.append(found.exact[chosen].sum())
    if edges is None or not np.sum(counts) + np.sum(exact):
        return None
    return Histograms(np.arange(len(counts)), edges, np.array(counts), np.array(exact))


def edges_of(study: Study, updates: tuple[int, int] = UPDATES) -> dict[tuple[str, str, str, float], float]:
    """eps by (label of the cell, level, side, share), of every cell whose runs were not clipped."""
    cells: dict[str, list[Trial]] = {}
    for trial in study.trials:
        if trial.options.get("is_clipping") == "none" and trial.has_result:
            cells.setdefault(trial.label, []).append(trial)
    found = {}
    for label, trials in cells.items():
        for level, quantity in LEVELS.items():
            for side, sign in SIDES.items():
                histograms = within(trials, f"{quantity}/{sign}", updates)
                if histograms is None:
                    continue
                for share in SHARES:
                    try:
                        found[label, level, side, share] = gate_edge(histograms, share, side)
                    except ValueError:
                        continue
    return found


if __name__ == "__main__":
    chosen = (int(sys.argv[2]), int(sys.argv[3])) if len(sys.argv) > 3 else UPDATES
    for (cell, level, side, share), eps in edges_of(load_study(Path(sys.argv[1])), chosen).items():
        sys.stdout.write(f"{cell}: {level}, {side} side, {share:.0%} outside: eps {eps:.4g}\n")
