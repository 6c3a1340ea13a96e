"""How wide a gate must be to hold back a given share of what moved: gates of two levels, made comparable.

`python -m analysis.calibration STUDY` reads the first step of unclipped runs (`is_clipping: none`) and prints
the `eps` of the `gated` option at which a share q of the tokens, or of the rows, of one sign of the advantage
lies outside: below 1 - eps where A < 0, above 1 + eps where A > 0.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from analysis.factors import option_label
from analysis.study import Histograms, Study, Trial, load_study, read_histograms

SHARES = (0.01, 0.05, 0.20, 0.50)
LEVELS = {"token": "log_ratio_token", "sequence": "log_ratio_row"}
SIDES = {"low": "negative", "high": "positive"}


def gate_edge(histograms: Histograms, share: float, side: str) -> float:
    """The eps beyond which a share of the values of one step lies.

    histograms: one step of log ratios; side: `low` (ratio below 1 - eps) or `high` (above 1 + eps). Values in
    the bin of their own, which have not moved, count: they are never outside. Linear within a bin. Raises
    ValueError where fewer than that share moved to that side.
    """
    counts, edges = histograms.counts[0], histograms.edges
    total = float(counts.sum() + histograms.exact[0])
    if side == "low":
        reached = np.append(0.0, np.cumsum(counts))
        if share * total > reached[np.searchsorted(edges, 0.0)]:
            raise ValueError(f"less than {share:.0%} of the values lie below a ratio of 1")
        return float(-np.expm1(np.interp(share * total, reached, edges)))
    reached = np.append(0.0, np.cumsum(counts[::-1]))
    backwards = edges[::-1]
    if share * total > reached[np.searchsorted(-backwards, 0.0)]:
        raise ValueError(f"less than {share:.0%} of the values lie above a ratio of 1")
    return float(np.expm1(np.interp(share * total, reached, backwards)))


def first_step(trials: Sequence[Trial], name: str) -> Histograms | None:
    """The histograms of step 1 of several trials, added up; None where there is none."""
    found = [read_histograms(trial.folder / "histograms.jsonl", name) for trial in trials]
    usable = [one for one in found if one is not None and one.steps[0] == 1]
    if not usable:
        return None
    edges = usable[0].edges
    same = [one for one in usable if np.array_equal(one.edges, edges)]
    counts = np.sum([one.counts[:1] for one in same], axis=0)
    exact = np.sum([one.exact[:1] for one in same], axis=0)
    return Histograms(np.array([1]), edges, counts, exact)


def edges_of(study: Study) -> dict[tuple[str, str, str, float], float]:
    """eps by (label of the cell, level, side, share), of every cell whose runs were not clipped."""
    cells: dict[str, list[Trial]] = {}
    for trial in study.trials:
        if trial.options.get("is_clipping") == "none":
            cells.setdefault(_label(trial), []).append(trial)
    found = {}
    for label, trials in cells.items():
        for level, quantity in LEVELS.items():
            for side, sign in SIDES.items():
                histograms = first_step(trials, f"{quantity}/{sign}")
                if histograms is None:
                    continue
                for share in SHARES:
                    try:
                        found[label, level, side, share] = gate_edge(histograms, share, side)
                    except ValueError:
                        continue
    return found


def _label(trial: Trial) -> str:
    trainer = trial.config.get("trainer")
    minibatch = trainer.get("minibatch") if isinstance(trainer, dict) else None
    return f"{trial.label}, minibatch {option_label(minibatch)}"


if __name__ == "__main__":
    for (cell, level, side, share), eps in edges_of(load_study(Path(sys.argv[1]))).items():
        sys.stdout.write(f"{cell}: {level}, {side} side, {share:.0%} outside: eps {eps:.4g}\n")
