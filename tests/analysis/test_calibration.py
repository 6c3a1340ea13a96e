"""Gates of two levels that hold back the same share."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.calibration import gate_edge
from analysis.study import Histograms


def drawn(values: np.ndarray, edges: np.ndarray, exact: int = 0) -> Histograms:
    counts, _ = np.histogram(values, edges)
    return Histograms(np.array([1]), edges, counts[None].astype(float), np.array([float(exact)]))


@pytest.mark.parametrize("share", [0.01, 0.05, 0.2])
def test_the_share_outside_is_the_one_asked_for(share: float) -> None:
    values = np.random.default_rng(0).normal(0, 0.05, 200_000)
    histograms = drawn(values, np.linspace(-0.5, 0.5, 2001))
    low, high = gate_edge(histograms, share, "low"), gate_edge(histograms, share, "high")
    assert (np.exp(values) < 1 - low).mean() == pytest.approx(share, abs=0.002)
    assert (np.exp(values) > 1 + high).mean() == pytest.approx(share, abs=0.002)


def test_tokens_that_have_not_moved_count_but_are_never_outside() -> None:
    values = np.random.default_rng(1).normal(0, 0.05, 100_000)
    histograms = drawn(values, np.linspace(-0.5, 0.5, 2001), exact=100_000)
    low = gate_edge(histograms, 0.1, "low")
    assert (np.exp(values) < 1 - low).sum() / 200_000 == pytest.approx(0.1, abs=0.002)
    with pytest.raises(ValueError, match="less than 50% of the values lie below"):
        gate_edge(histograms, 0.5, "low")
