"""Intervals over blocks: how far a number would move with other seeds.

Seeds are resampled as blocks, jointly over every cell they occur in, because cells of one block share their
seed and clone. Trials, episodes and steps are never resampled on their own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, stdtrit

LEAST_BLOCKS = 5
FEW_BLOCKS = 8
SHARE = (0.0, 1.0)
"""What a share lies within."""
RESAMPLES = 4000
Floats = NDArray[np.float64]
Statistic = Callable[[Floats], Floats]
"""Maps tables (..., blocks, columns) to numbers (...). NaN marks a cell that a block lacks."""


@dataclass(frozen=True)
class Interval:
    """An estimate with how far it reaches.

    kind: `interval` (bootstrap over blocks), or with too few blocks the `range` of the blocks' own values:
    what was seen, without any claim about what was not. `blocks` is their number; 0 leaves NaN everywhere.
    """

    estimate: float
    low: float
    high: float
    kind: Literal["interval", "range"]
    blocks: int


def mean_of_columns(table: Floats) -> Floats:
    """(..., blocks, columns) -> (...): mean over blocks of each column, then over columns."""
    with np.errstate(invalid="ignore"):
        counts = np.sum(~np.isnan(table), axis=-2)
        means: Floats = np.nansum(table, axis=-2) / np.where(counts > 0, counts, np.nan)
    result: Floats = means.mean(axis=-1)
    return result


def seed_interval(
    values: ArrayLike, *, level: float = 0.95, within: tuple[float, float] | None = None
) -> Interval:
    """The mean of one number per block, with its interval (`block_interval` of one column)."""
    return block_interval(np.asarray(values, dtype=float)[:, None], level=level, within=within)


def block_interval(
    table: ArrayLike,
    statistic: Statistic = mean_of_columns,
    *,
    level: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
    within: tuple[float, float] | None = None,
) -> Interval:
    """Bootstrap a statistic of a table (blocks, columns) over its blocks (rows).

    The percentile interval, its tails widened for small samples so that for a mean it agrees with Student's t
    (Hesterberg 2015, "What teachers should know about the bootstrap", section 5.3). Blocks without any number
    are left out; with fewer than five, the range of the blocks' own statistics is returned instead. Ends
    are cut off at `within`.
    Deterministic: equal tables and seeds give equal intervals.
    """
    values = np.asarray(table, dtype=float)
    values = values[~np.isnan(values).all(axis=1)]
    blocks = len(values)
    if blocks == 0:
        return Interval(np.nan, np.nan, np.nan, "range", 0)
    estimate = float(statistic(values[None])[0])
    if blocks < LEAST_BLOCKS:
        own = np.array([float(statistic(values[None, k : k + 1])[0]) for k in range(blocks)])
        if np.isnan(own).all():
            return Interval(estimate, np.nan, np.nan, "range", blocks)
        return Interval(estimate, float(np.nanmin(own)), float(np.nanmax(own)), "range", blocks)
    random = np.random.default_rng(seed)
    chosen = random.integers(0, blocks, size=(resamples, blocks))
    return _widened(estimate, statistic(values[chosen]), blocks, level, within)


def counts_interval(
    statistic: Callable[[Floats], Floats],
    blocks: int,
    *,
    level: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
    within: tuple[float, float] | None = None,
) -> Interval:
    """As `block_interval`, for a statistic of how often each block occurs.

    statistic: counts (resamples, blocks) -> numbers (resamples,), NaN where a resample says nothing; all of
    them 1 is the estimate. For what is not a function of one row per block: pairs of runs from two blocks,
    runs at risk. With fewer than five blocks the range is that of leaving one block out.
    """
    if blocks == 0:
        return Interval(np.nan, np.nan, np.nan, "range", 0)
    estimate = float(statistic(np.ones((1, blocks)))[0])
    if blocks < LEAST_BLOCKS:
        own = statistic(1.0 - np.eye(blocks)) if blocks > 1 else np.array([estimate])
        if np.isnan(own).all():
            return Interval(estimate, np.nan, np.nan, "range", blocks)
        low, high = min(np.nanmin(own), estimate), max(np.nanmax(own), estimate)
        return Interval(estimate, float(low), float(high), "range", blocks)
    random = np.random.default_rng(seed)
    counts = random.multinomial(blocks, np.full(blocks, 1 / blocks), size=resamples).astype(float)
    return _widened(estimate, statistic(counts), blocks, level, within)


def _widened(
    estimate: float, drawn: Floats, blocks: int, level: float, within: tuple[float, float] | None
) -> Interval:
    """The percentile interval of resampled statistics, its tails widened for the number of blocks.

    Resamples of few blocks hardly reach that far: below eight blocks the interval is at least as wide as
    Student's t with the bootstrap's standard error, which for a mean is the ordinary one. `within` cuts off
    what cannot be.
    """
    tail = _small_sample_tail((1 - level) / 2, blocks)
    if np.isnan(drawn).all():
        return Interval(estimate, np.nan, np.nan, "range", blocks)
    low, high = np.nanquantile(drawn, [tail, 1 - tail])
    if blocks < FEW_BLOCKS:
        error = float(np.nanstd(drawn)) * np.sqrt(blocks / (blocks - 1))
        reach = float(-stdtrit(blocks - 1, (1 - level) / 2)) * error
        low, high = min(low, estimate - reach), max(high, estimate + reach)
    if within is not None:
        low, high = max(low, within[0]), min(high, within[1])
    return Interval(estimate, float(low), float(high), "interval", blocks)


def _small_sample_tail(tail: float, blocks: int) -> float:
    """The normal tail beyond t(tail, n-1) sqrt(n/(n-1)): undoes the bootstrap's n for n-1 and z for t."""
    return float(ndtr(stdtrit(blocks - 1, tail) * np.sqrt(blocks / (blocks - 1))))


def interquartile_means(table: Floats) -> Floats:
    """(..., blocks, columns) -> (...): `interquartile_mean` of all numbers of each table."""
    values = np.sort(table.reshape(*table.shape[:-2], -1), axis=-1)  # NaN comes last
    counts = np.sum(~np.isnan(values), axis=-1, keepdims=True)
    place = np.arange(values.shape[-1])
    kept = (place >= counts // 4) & (place < counts - counts // 4)
    with np.errstate(invalid="ignore"):
        means: Floats = np.where(kept, values, 0.0).sum(-1) / np.where(kept.any(-1), kept.sum(-1), np.nan)
    return means


def interquartile_mean(values: ArrayLike) -> float:
    """Mean of the middle half: a quarter of the values, rounded down, is cut at each end; NaN is left out."""
    kept = np.sort(np.asarray(values, dtype=float).ravel())
    kept = kept[~np.isnan(kept)]
    if not len(kept):
        return float("nan")
    cut = len(kept) // 4
    return float(kept[cut : len(kept) - cut].mean())
