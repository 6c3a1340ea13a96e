"""P-values and their correction equal scipy's and statsmodels'; improvement equals rliable's (stored)."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from analysis.improvement import probability_of_improvement
from analysis.resampling import counts_interval, interquartile_means
from analysis.significance import block_p_value, holm, sign_flip_p_value

STORED = json.loads((Path(__file__).parents[1] / "golden" / "statistics" / "values.json").read_text())


def test_holm_equals_statsmodels() -> None:
    from statsmodels.stats.multitest import multipletests

    p_values = [0.04, 0.001, 0.3, 0.012, 0.04]
    assert holm(p_values) == pytest.approx(multipletests(p_values, method="holm")[1])
    assert holm([None, 0.02, None, 0.03]) == [None, pytest.approx(0.04), None, pytest.approx(0.04)]
    assert holm([]) == []


def test_a_difference_of_blocks_is_tested_with_t() -> None:
    values = np.random.default_rng(0).normal(0.3, 1, 9)
    assert block_p_value(values) == pytest.approx(stats.ttest_1samp(values, 0).pvalue)
    assert block_p_value([*values, np.nan]) == pytest.approx(stats.ttest_1samp(values, 0).pvalue)
    assert block_p_value(values[:4]) is None


def test_differences_of_few_values_are_tested_exactly() -> None:
    """Eight blocks that all agree: 2 of 2^8 patterns are as extreme, where t says p = 0."""
    assert block_p_value([1.0] * 8) == 2 / 2**8
    assert block_p_value([0.0] * 8) == 1.0
    assert block_p_value([1, 0, 0, 1, 1, 0, -1, 1]) == sign_flip_p_value([1, 0, 0, 1, 1, 0, -1, 1])


def test_sign_flips_are_counted_one_by_one() -> None:
    values = [0.5, -0.1, 0.4, 0.8, 0.3]
    sums = [
        abs(sum(s * v for s, v in zip(signs, values, strict=True)))
        for signs in itertools.product((-1, 1), repeat=5)
    ]
    expected = np.mean([value >= abs(sum(values)) - 1e-12 for value in sums])
    assert sign_flip_p_value(values) == pytest.approx(expected)
    assert sign_flip_p_value(values, most=4) == pytest.approx(expected, abs=0.2)


def test_improvement_and_interquartile_mean_equal_rliable() -> None:
    stored = STORED["rliable"]
    first, second = np.array(stored["first"]), np.array(stored["second"])
    found = probability_of_improvement(first, second)
    # rliable asks whether its first beats its second.
    assert found.estimate == pytest.approx(1 - stored["probability_of_improvement"])
    assert found.low < found.estimate < found.high
    assert float(interquartile_means(first[None])[0]) == pytest.approx(stored["interquartile_mean"])


def test_missing_runs_are_no_part_of_an_improvement() -> None:
    first = np.array([[0.2, np.nan], [0.3, 0.9]])
    second = np.array([[0.4, 0.5], [0.1, np.nan]])
    # context 1: (.4>.2, .1<.2, .4>.3, .1<.3) = 1/2; context 2: .5 < .9 = 0
    assert probability_of_improvement(first, second).estimate == pytest.approx(0.25)


def test_interquartile_means_leave_out_what_is_missing() -> None:
    table = np.array([[[1.0, np.nan], [2.0, 3.0], [100.0, 4.0]]])
    assert interquartile_means(table)[0] == pytest.approx(3.0)  # 1 and 100 are cut
    assert np.isnan(interquartile_means(np.full((1, 2, 2), np.nan))[0])


def test_an_interval_of_counts_is_that_of_the_blocks() -> None:
    values = np.random.default_rng(5).normal(size=12)
    interval = counts_interval(lambda counts: counts @ values / counts.sum(1), 12)
    assert interval.estimate == pytest.approx(values.mean())
    reach = stats.t.ppf(0.975, 11) * values.std(ddof=1) / np.sqrt(12)
    assert interval.high - interval.estimate == pytest.approx(reach, rel=0.15)
    few = counts_interval(lambda counts: counts @ values[:3] / counts.sum(1), 3)
    assert few.kind == "range"
    assert few.low == pytest.approx(np.sort(values[:3])[:2].mean())
