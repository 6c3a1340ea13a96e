"""Gates of two levels that hold back the same share."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import numpy as np
import pandas as pd
import pytest

from analysis.calibration import gate_edge, outside, within
from analysis.study import Histograms, Trial
from trainers.histograms import LOG_RATIO_EDGES

FINE = np.linspace(-0.5, 0.5, 2001)


def drawn(values: np.ndarray, edges: np.ndarray, exact: int = 0) -> Histograms:
    counts, _ = np.histogram(values, edges)
    return Histograms(np.array([1]), edges, counts[None].astype(float), np.array([float(exact)]))


@pytest.mark.parametrize("share", [0.01, 0.05, 0.2])
def test_the_share_outside_is_the_one_asked_for(share: float) -> None:
    values = np.random.default_rng(0).normal(0, 0.05, 200_000)
    low, high = (gate_edge(drawn(values, FINE), share, side) for side in ("low", "high"))
    assert (np.exp(values) < 1 - low).mean() == pytest.approx(share, abs=0.002)
    assert (np.exp(values) > 1 + high).mean() == pytest.approx(share, abs=0.002)


@pytest.mark.parametrize("share", [0.01, 0.05, 0.2])
@pytest.mark.parametrize("scale", [0.002, 0.03, 0.2])
def test_the_wide_bins_of_a_trial_cost_little(share: float, scale: float) -> None:
    values = np.random.default_rng(2).laplace(0, scale, 200_000)
    low, high = (gate_edge(drawn(values, np.array(LOG_RATIO_EDGES)), share, side) for side in ("low", "high"))
    assert (np.exp(values) < 1 - low).mean() == pytest.approx(share, rel=0.1)
    assert (np.exp(values) > 1 + high).mean() == pytest.approx(share, rel=0.1)


@pytest.mark.parametrize("share", [0.002, 0.01, 0.05, 0.2, 0.45])
@pytest.mark.parametrize("side", ["low", "high"])
def test_what_lies_outside_a_gate_is_what_it_was_made_for(share: float, side: str) -> None:
    histograms = drawn(np.random.default_rng(3).laplace(0, 0.05, 100_000), np.array(LOG_RATIO_EDGES), 5000)
    assert outside(histograms, gate_edge(histograms, share, side), side) == pytest.approx(share, rel=1e-6)


def test_nothing_lies_outside_a_gate_beyond_all_values() -> None:
    histograms = drawn(np.random.default_rng(4).normal(0, 0.01, 1000), FINE)
    assert outside(histograms, 0.5, "low") == outside(histograms, 0.5, "high") == 0
    assert outside(histograms, 2.0, "low") == 0
    still = Histograms(np.array([1]), FINE, np.zeros((1, 2000)), np.array([10.0]))
    assert outside(still, 0.001, "low") == 0


def test_tokens_that_have_not_moved_count_but_are_never_outside() -> None:
    values = np.random.default_rng(1).normal(0, 0.05, 100_000)
    histograms = drawn(values, FINE, exact=100_000)
    low = gate_edge(histograms, 0.1, "low")
    assert (np.exp(values) < 1 - low).sum() / 200_000 == pytest.approx(0.1, abs=0.002)
    for side, where in (("low", "below"), ("high", "above")):
        with pytest.raises(ValueError, match=f"less than 50% of the values lie {where} a ratio of 1"):
            gate_edge(histograms, 0.5, side)


def trial_with(updates: list[int], counts: list[float]) -> Trial:
    steps = np.arange(1, len(updates) + 1)
    found = Histograms(steps, np.array([-1.0, 0.0, 1.0]), np.array([[one, 0.0] for one in counts]), 0 * steps)
    train = pd.DataFrame({"train/updates": updates}, index=steps)
    return cast(Trial, SimpleNamespace(train=train, histograms=lambda name: found))


@pytest.mark.parametrize(
    ("updates", "expected"),
    [((1, 4), [1.0, 2.0]), ((5, 8), [2.0, 8.0]), ((3, 8), [2.0, 9.0]), ((9, 12), [4.0, 0.0])],
)
def test_steps_count_by_their_updates(updates: tuple[int, int], expected: list[float]) -> None:
    trials = [trial_with([4, 4, 4], [1, 2, 4]), trial_with([2, 2, 4], [1, 1, 8])]
    found = within(trials, "any", updates)
    assert found is not None
    assert found.counts[:, 0].tolist() == expected


def test_without_steps_there_is_nothing_to_calibrate() -> None:
    assert within([trial_with([4, 4], [1, 2])], "any", (20, 30)) is None
