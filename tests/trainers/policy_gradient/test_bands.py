"""The band of an option as its parameters give it."""

from __future__ import annotations

import math
from typing import Any

import pytest

from trainers.config import OptionConfig
from trainers.policy_gradient.bands import Band, Edge


def band(**parameters: Any) -> Band:
    return Band.of(OptionConfig.model_validate({"option": "x", "function": "x.y", **parameters}))


def test_an_option_with_edges_has_a_band_around_one() -> None:
    assert band(lo=0.2, hi=0.28) == Band(Edge("token", math.log(0.8)), Edge("token", math.log(1.28)))


@pytest.mark.parametrize("unit", ["row", "trajectory"])
def test_the_band_of_a_sequence_ratio_is_at_its_unit(unit: str) -> None:
    found = band(lo=0.003, hi=0.004, unit=unit)
    assert (found.low, found.high) == (
        Edge(unit, math.log(0.997)),  # type: ignore[arg-type]
        Edge(unit, math.log(1.004)),  # type: ignore[arg-type]
    )


def test_no_floor_is_never_reached() -> None:
    assert band(lo=1.0, hi=0.2).low == Edge("token", -math.inf)


def test_gates_have_a_level_each() -> None:
    low, high = {"level": "token", "eps": 0.1}, {"level": "sequence", "eps": 0.02}
    assert band(low=low, high=high, unit="trajectory") == Band(
        Edge("token", math.log(0.9)), Edge("trajectory", math.log(1.02))
    )
    assert band(low=None, high=high, unit="row").low is None


def test_an_option_without_edges_has_no_band() -> None:
    assert band(tau_pos=1.0) == Band(None, None)


def test_a_gate_that_draws_at_random_has_no_edge() -> None:
    assert band(low={"level": "token", "share": 0.1}, high=None) == Band(None, None)
