"""Intervals against scipy, Student's t and enumeration."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy import stats

from analysis.resampling import Interval, block_interval, interquartile_mean, mean_of_columns, seed_interval

VALUES = np.array([0.79, 0.80, 0.77, 0.74, 0.83, 0.69, 0.81, 0.76])


def test_few_blocks_give_their_range_and_no_interval() -> None:
    assert seed_interval([0.7, 0.6, 0.8]) == Interval(pytest.approx(0.7), 0.6, 0.8, "range", 3)
    assert seed_interval([0.7]) == Interval(0.7, 0.7, 0.7, "range", 1)
    nothing = seed_interval([])
    assert (nothing.blocks, nothing.kind) == (0, "range")
    assert np.isnan(nothing.estimate)


def test_five_blocks_give_an_interval() -> None:
    assert seed_interval(VALUES[:4]).kind == "range"
    assert seed_interval(VALUES[:5]).kind == "interval"


def test_blocks_without_a_number_are_left_out() -> None:
    assert seed_interval([0.5, np.nan, 0.7]).blocks == 2
    assert seed_interval([0.5, np.nan, 0.7]).estimate == pytest.approx(0.6)


def test_for_a_mean_the_interval_is_that_of_student() -> None:
    ours = seed_interval(VALUES)
    low, high = stats.t.interval(0.95, len(VALUES) - 1, VALUES.mean(), stats.sem(VALUES))
    assert ours.low == pytest.approx(low, abs=0.006)
    assert ours.high == pytest.approx(high, abs=0.006)


def test_with_many_blocks_the_interval_is_scipy_s_percentile_bootstrap() -> None:
    values = np.random.default_rng(1).beta(4, 2, size=120)
    theirs = stats.bootstrap(
        (values,), np.mean, method="percentile", n_resamples=9999, rng=np.random.default_rng(2)
    ).confidence_interval
    ours = block_interval(values[:, None], resamples=9999)
    assert ours.low == pytest.approx(theirs.low, abs=0.003)
    assert ours.high == pytest.approx(theirs.high, abs=0.003)


def test_five_blocks_agree_with_all_resamples_enumerated() -> None:
    values = VALUES[:5]
    means = np.array([np.mean(chosen) for chosen in product(values, repeat=5)])
    tail = stats.norm.cdf(stats.t.ppf(0.025, 4) * np.sqrt(5 / 4))
    low, high = np.quantile(means, [tail, 1 - tail])
    ours = seed_interval(values)
    assert ours.low == pytest.approx(low, abs=0.005)
    assert ours.high == pytest.approx(high, abs=0.005)


def test_the_interval_covers_the_truth_as_often_as_it_says() -> None:
    random = np.random.default_rng(0)
    covered = 0
    for _ in range(400):
        interval = block_interval(random.normal(0.6, 0.1, size=(8, 1)), resamples=600)
        covered += interval.low <= 0.6 <= interval.high
    assert 0.92 <= covered / 400 <= 0.98


def test_blocks_are_resampled_jointly_over_cells() -> None:
    # A block effect common to both columns cancels in the difference, whichever blocks are drawn.
    common = np.random.default_rng(0).normal(size=8)
    table = np.stack([common, common + 0.25], axis=1)
    interval = block_interval(table, lambda t: mean_of_columns(t[..., 1:]) - mean_of_columns(t[..., :1]))
    assert interval.low == pytest.approx(0.25)
    assert interval.high == pytest.approx(0.25)


def test_missing_cells_of_a_block_leave_the_column_s_mean() -> None:
    table = np.array([[1.0, 10.0], [3.0, np.nan]])
    assert block_interval(table).estimate == pytest.approx((2 + 10) / 2)


def test_intervals_are_deterministic() -> None:
    assert seed_interval(VALUES) == seed_interval(VALUES)


@pytest.mark.parametrize("count", [1, 3, 4, 5, 8, 11])
def test_interquartile_mean_is_scipy_s_trimmed_mean(count: int) -> None:
    values = np.random.default_rng(count).normal(size=count)
    assert interquartile_mean(values) == pytest.approx(stats.trim_mean(values, 0.25))
    assert interquartile_mean([*values, np.nan]) == pytest.approx(stats.trim_mean(values, 0.25))
