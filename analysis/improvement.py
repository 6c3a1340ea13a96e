"""How probable it is that a run with one option beats a run with another."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from analysis.resampling import SHARE, Interval, counts_interval

Floats = NDArray[np.float64]


def probability_of_improvement(first: ArrayLike, second: ArrayLike, *, level: float = 0.95) -> Interval:
    """P(a run of `second` > a run of `first`), ties as half, averaged over contexts; 0.5 is no difference.

    first, second: (blocks, contexts) scores, NaN where a run is missing. Runs are compared within a context,
    over all pairs of blocks (the Mann-Whitney statistic; Agarwal et al. 2021, "Deep RL at the edge of the
    statistical precipice"); the interval resamples blocks jointly over both.
    """
    a, b = np.asarray(first, dtype=float).T, np.asarray(second, dtype=float).T
    difference = b[:, None, :] - a[:, :, None]
    seen = ~np.isnan(difference)
    with np.errstate(invalid="ignore"):
        better = np.where(seen, (difference > 0) + 0.5 * (difference == 0), 0.0)

    def statistic(counts: Floats) -> Floats:
        wins = np.einsum("rb,cbd,rd->rc", counts, better, counts, optimize=True)
        pairs = np.einsum("rb,cbd,rd->rc", counts, seen.astype(float), counts, optimize=True)
        held = pairs > 0
        shares = np.where(held, wins / np.where(held, pairs, 1.0), 0.0)
        result: Floats = shares.sum(1) / np.where(held.any(1), held.sum(1), np.nan)
        return result

    return counts_interval(statistic, a.shape[1], level=level, within=SHARE)
