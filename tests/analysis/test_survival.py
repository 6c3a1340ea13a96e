"""Survival curves, tests and hazard ratios equal those of lifelines (stored) and statsmodels (run here)."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from analysis.survival import (
    cox,
    kaplan_meier,
    log_rank,
    log_rank_scores,
    permutation_log_rank,
    restricted_mean,
    restricted_means,
)

STORED = json.loads((Path(__file__).parents[1] / "golden" / "statistics" / "values.json").read_text())


@pytest.fixture(scope="module")
def runs() -> pd.DataFrame:
    return pd.DataFrame(STORED["runs"])


@pytest.mark.parametrize("option", ["loose", "token", "tight"])
def test_curves_equal_those_of_lifelines(runs: pd.DataFrame, option: str) -> None:
    mine = runs[runs["option"] == option]
    curve, stored = kaplan_meier(mine["time"], mine["event"]), STORED["kaplan_meier"][option]
    assert curve.times.tolist() == stored["times"]
    assert curve.survival == pytest.approx(stored["survival"], abs=1e-9)
    if (
        option == "token"
    ):  # the other curves reach 0 or stay at 1, where the packages differ in what they call it
        assert curve.low == pytest.approx(stored["low"], abs=1e-7)
        assert curve.high == pytest.approx(stored["high"], abs=1e-7)
    restricted = restricted_mean(mine["time"], mine["event"], 20)
    assert restricted == pytest.approx(stored["restricted_mean_20"], abs=1e-9)


def test_a_curve_by_hand() -> None:
    """Five runs: 2 collapses, 4 censored, 4 collapses, 6 censored, 8 collapses: 4/5, 4/5 x 2/3..."""
    curve = kaplan_meier([2, 4, 4, 6, 8], [True, False, True, False, True])
    assert curve.times.tolist() == [2, 4, 8]
    assert curve.survival == pytest.approx([0.8, 0.8 * 3 / 4, 0.0])
    assert curve.at_risk.tolist() == [5, 4, 1]
    assert (curve.at(1), curve.at(5), curve.median) == (1.0, pytest.approx(0.6), 8)
    assert restricted_mean([2, 4, 4, 6, 8], [1, 0, 1, 0, 1], 6) == pytest.approx(2 + 2 * 0.8 + 2 * 0.6)


def test_a_mean_beyond_what_was_followed_is_refused() -> None:
    with pytest.raises(ValueError, match="no run was followed to step 30; the last was seen at 12"):
        restricted_mean([4, 12], [True, False], 30)
    assert restricted_mean([4, 12], [True, True], 30) == 8  # all collapsed: the curve is known to be 0


def test_the_log_rank_test_equals_lifelines_and_statsmodels(runs: pd.DataFrame) -> None:
    from statsmodels.duration.survfunc import survdiff

    three = log_rank(runs["time"], runs["event"], runs["option"])
    assert three.statistic == pytest.approx(STORED["log_rank"]["statistic"])
    assert three.p == pytest.approx(STORED["log_rank"]["p"])
    two = runs[runs["option"] != "tight"]
    for strata in (None, two["block"]):
        statistic, p = survdiff(two["time"], two["event"], two["option"], strata=strata)
        mine = log_rank(two["time"], two["event"], two["option"], strata)
        assert (mine.statistic, mine.p) == (pytest.approx(statistic), pytest.approx(p))


def test_nothing_to_compare_has_no_difference() -> None:
    healthy = log_rank([9, 9, 9], [False] * 3, ["a", "b", "b"])
    assert (healthy.statistic, healthy.p, healthy.difference) == (0, 1, 0)


def test_scores_sum_to_observed_minus_expected(runs: pd.DataFrame) -> None:
    scores = log_rank_scores(runs["time"], runs["event"], runs["block"])
    groups = (runs["option"] != "tight").to_numpy()
    test = log_rank(runs["time"], runs["event"], np.where(groups, "a", "b"), runs["block"])
    assert scores[groups].sum() == pytest.approx(test.difference)
    assert pd.Series(scores).groupby(runs["block"]).sum().abs().max() < 1e-12


def test_the_permutation_test_takes_every_arrangement() -> None:
    """Against a slow count over all 3^4 assignments of which option is the first group."""
    random = np.random.default_rng(3)
    blocks = [random.normal(size=3) for _ in range(4)]
    observed = sum(block[1] for block in blocks)
    sums = [
        sum(block[k] for block, k in zip(blocks, chosen, strict=True))
        for chosen in itertools.product(range(3), repeat=4)
    ]
    expected = np.mean([abs(value) >= abs(observed) - 1e-12 for value in sums])
    test = permutation_log_rank(blocks, [1])
    assert (test.p, test.arrangements, test.exhaustive) == (pytest.approx(expected), 81, True)
    drawn = permutation_log_rank(blocks, [1], most=80)
    assert not drawn.exhaustive
    assert drawn.p == pytest.approx(expected, abs=0.12)


def test_eight_blocks_of_one_verdict_are_as_improbable_as_can_be() -> None:
    blocks = [np.array([0.5, -0.5])] * 8
    assert permutation_log_rank(blocks, [0]).p == 2 / 2**8


@pytest.mark.parametrize("stratified", [False, True])
def test_hazard_ratios_equal_lifelines_and_statsmodels(runs: pd.DataFrame, stratified: bool) -> None:
    from statsmodels.duration.hazard_regression import PHReg

    two = runs[runs["option"] != "tight"]
    x = np.stack([two["option"] == "loose", two["context"]], axis=1).astype(float)
    strata = two["block"].to_numpy() if stratified else None
    mine = cox(two["time"], two["event"], x, strata)
    stored = STORED["cox"]["stratified" if stratified else "plain"]
    assert mine.coefficients == pytest.approx(stored["coefficients"], abs=1e-5)
    assert mine.errors == pytest.approx(stored["errors"], abs=1e-5)
    other = PHReg(two["time"], x, two["event"], strata=strata, ties="efron").fit()
    assert mine.coefficients == pytest.approx(other.params, abs=1e-5)
    assert mine.p == pytest.approx(other.pvalues, abs=1e-4)
    assert mine.ratios()[0, 0] == pytest.approx(np.exp(mine.coefficients[0]))
    assert not mine.penalised


def test_an_option_that_never_collapses_has_a_finite_ratio(runs: pd.DataFrame) -> None:
    x = np.stack([runs["option"] == "loose", runs["option"] == "tight"], axis=1).astype(float)
    found = cox(runs["time"], runs["event"], x)
    assert found.penalised
    assert found.ratios()[0, 0] > 1 > found.ratios()[1, 0] > 0
    assert np.isfinite(found.ratios()[1]).all()


def test_penalised_ratios_maximise_firths_likelihood(runs: pd.DataFrame) -> None:
    """By another road: the likelihood written out, its curvature by differences, a search without slopes."""
    from scipy.optimize import minimize

    x = np.stack([runs["option"] == "loose", runs["option"] == "tight"], axis=1).astype(float)
    time, event = runs["time"].to_numpy(), runs["event"].to_numpy(dtype=bool)

    def likelihood(beta: np.ndarray) -> float:
        total, score = 0.0, x @ beta
        for at in sorted(set(time[event])):
            dying = event & (time == at)
            risk = np.exp(score[time >= at]).sum()
            total += score[dying].sum()
            for rank in range(dying.sum()):
                total -= np.log(risk - rank / dying.sum() * np.exp(score[dying]).sum())
        return float(total)

    def penalised(beta: np.ndarray) -> float:
        h, unit = 1e-3, np.eye(2)
        curvature = np.empty((2, 2))
        for i, j in itertools.product(range(2), repeat=2):
            corners = [
                sign * other * likelihood(beta + h * (sign * unit[i] + other * unit[j]))
                for sign, other in itertools.product((1, -1), repeat=2)
            ]
            curvature[i, j] = -sum(corners) / (4 * h * h)
        return -likelihood(beta) - 0.5 * float(np.log(np.linalg.det(curvature)))

    best = minimize(penalised, [0.0, 0.0], method="Nelder-Mead", options={"xatol": 1e-6, "fatol": 1e-9})
    assert cox(time, event, x).coefficients == pytest.approx(best.x, abs=1e-3)


def test_without_collapses_there_is_no_hazard() -> None:
    with pytest.raises(ValueError, match="no run collapsed"):
        cox([5, 5], [False, False], [[0.0], [1.0]])
    with pytest.raises(ValueError, match="cannot be told apart"):
        cox([5, 6, 7], [True, True, False], [[0.0, 0.0], [1.0, 1.0], [0.0, 0.0]])


def test_resampled_means_equal_those_of_the_repeated_runs(runs: pd.DataFrame) -> None:
    mine = runs[runs["option"] == "token"]
    random = np.random.default_rng(0)
    counts = random.multinomial(8, [1 / 8] * 8, size=20).astype(float)
    fast = restricted_means(mine["time"], mine["event"], mine["block"], counts, 20)
    for row, value in zip(counts, fast, strict=True):
        repeated = mine.loc[np.repeat(mine.index, row[mine["block"]].astype(int))]
        assert value == pytest.approx(_area(repeated, 20))


def _area(table: Any, horizon: float) -> float:
    """The area under the curve, step by step."""
    survival, area = 1.0, 0.0
    for step in range(int(horizon)):
        area += survival
        at_risk = (table["time"] >= step + 1).sum()
        fell = ((table["time"] == step + 1) & (table["event"] == 1)).sum()
        survival *= 1 - fell / at_risk if at_risk else 1.0
    return area
