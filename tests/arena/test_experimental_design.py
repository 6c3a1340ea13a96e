"""Designs: which points they take."""

from __future__ import annotations

import itertools
import math

from hypothesis import given
from hypothesis import strategies as st

from arena.experimental_design import full, one_factor, points

axes = st.dictionaries(
    st.sampled_from("abcd"),
    st.lists(st.integers(), min_size=1, max_size=4, unique=True),
    min_size=1,
    max_size=4,
)


@given(axes)
def test_full_takes_every_combination_once(given_axes: dict[str, list[int]]) -> None:
    taken = {tuple(point[axis] for axis in given_axes) for point in full(given_axes)}
    assert taken == set(itertools.product(*given_axes.values()))
    assert len(full(given_axes)) == math.prod(map(len, given_axes.values()))


@given(axes)
def test_one_factor_changes_one_thing_at_a_time(given_axes: dict[str, list[int]]) -> None:
    baseline, *changed = one_factor(given_axes)
    assert baseline == {axis: choices[0] for axis, choices in given_axes.items()}
    for point in changed:
        assert sum(point[axis] != baseline[axis] for axis in given_axes) == 1
    assert len(changed) == sum(len(choices) - 1 for choices in given_axes.values())
    assert all(
        any(point[axis] == choice for point in [baseline, *changed])
        for axis, choices in given_axes.items()
        for choice in choices
    )


def test_points_takes_nothing_from_the_axes() -> None:
    assert points("points", {"a": [1, 2]}) == []
    assert points("full", {"a": [1, 2]}) == full({"a": [1, 2]})
    assert points("one_factor", {"a": [1, 2]}) == one_factor({"a": [1, 2]})
