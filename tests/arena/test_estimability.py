"""What cells can show: the alias structure of known designs, and ranks computed the slow way."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pydoe
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arena.contrasts import columns
from arena.estimability import estimable
from arena.experimental_design import full
from arena.plan import Estimable


def shown(points: Sequence[Sequence[int]], names: str = "abcdef") -> Estimable:
    return estimable([(dict(zip(names, point, strict=False)),) for point in points])


def groups(found: Estimable) -> set[frozenset[str]]:
    return {frozenset(group) for group in found.aliased}


def test_all_combinations_show_everything() -> None:
    found = shown(full((2, 3, 4)))
    assert found.main == found.clear == ("a", "b", "c")
    assert found.interactions == ("a:b", "a:c", "b:c")
    assert found.aliased == ()
    assert found.d_efficiency == 1


FRACTIONS = ["a b c abc", "a b ab", "a b c ab ac", "a b c d abc bcd", "a b c d abcd"]


@pytest.mark.parametrize("generators", FRACTIONS)
def test_regular_fractions_have_the_aliases_that_pydoe_finds(generators: str) -> None:
    design = pydoe.fracfact(generators)
    found = shown(design.astype(int).tolist())
    aliases = pydoe.fracfact_aliasing(design)[0]
    expected = set()
    for line in aliases:
        low = [effect.strip() for effect in line.split("=")]
        low = [":".join(effect) for effect in low if len(effect) <= 2]
        if len(low) > 1:
            expected.add(frozenset(low))
    assert groups(found) == expected
    assert found.main == tuple("abcdef"[: design.shape[1]])
    assert found.d_efficiency == pytest.approx(1)


def test_single_changes_show_main_effects_only_if_nothing_interacts() -> None:
    found = shown([(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (0, 0, 2)])
    assert found.main == ("a", "b", "c")
    assert found.clear == ()
    assert found.interactions == ()
    assert 0 < found.d_efficiency < 1


def test_what_always_changes_together_is_one_effect() -> None:
    found = shown([(0, 0, 0), (1, 1, 0), (0, 0, 1), (1, 1, 1)])
    assert found.main == ("c",)
    assert frozenset({"a", "b"}) in groups(found)
    assert found.d_efficiency == 0


def test_methods_that_change_everything_show_no_effect_of_an_axis() -> None:
    assert shown([(0, 0, 0), (1, 1, 0), (2, 1, 1)]).main == ()


def test_a_combination_that_is_missing_takes_its_interaction_away_and_no_other() -> None:
    found = shown([point for point in full((2, 2, 3)) if point[:2] != (1, 1)])
    assert found.main == ("a", "b", "c")
    assert found.interactions == ("a:c", "b:c")
    assert groups(found) == {frozenset({"a", "b", "a:b"})}


def test_what_does_not_vary_is_no_factor_and_repetitions_add_nothing() -> None:
    cells = [({"a": "x", "b": value}, {"c": other}) for value in (1, 2) for other in (1, 2)]
    assert estimable(cells).factors == ("b", "c")
    assert estimable(cells) == estimable(cells * 3)
    assert estimable(cells, ignoring="c").factors == ("b",)
    nothing = estimable([({"a": 1},)])
    assert (nothing.factors, nothing.main, nothing.aliased) == ((), (), ())
    assert estimable([]).factors == ()


def test_a_setting_that_some_cells_lack_is_a_level_of_its_own() -> None:
    assert estimable([({"a": 1},), ({"a": 1, "b": 2},)]).factors == ("b",)


def test_models_too_large_are_not_looked_into() -> None:
    found = shown([(i, i % 30, (i * 7) % 30) for i in range(30)])
    assert not found.complete
    assert (found.interactions, found.clear) == ((), ())
    assert found.document()["complete"] is False


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_an_effect_is_shown_exactly_when_leaving_it_out_loses_its_rank(data: st.DataObject) -> None:
    levels = data.draw(st.lists(st.integers(2, 3), min_size=2, max_size=3))
    everything = full(levels)
    points = data.draw(st.lists(st.sampled_from(everything), min_size=2, unique=True))
    occurring = [sorted({point[axis] for point in points}) for axis in range(len(levels))]
    varying = [axis for axis in range(len(levels)) if len(occurring[axis]) > 1]
    coded = np.array([[occurring[axis].index(point[axis]) for axis in varying] for point in points])
    counts = [len(occurring[axis]) for axis in varying]
    found = shown([[point[axis] for axis in varying] for point in points])
    for interactions, effects in ((False, found.main), (True, found.interactions)):
        model = columns(coded.reshape(len(points), len(varying)), counts, interactions=interactions)
        rank = np.linalg.matrix_rank(model.matrix, tol=1e-6)
        for effect in set(model.effects):
            if len(effect) != 1 + interactions:
                continue
            own = np.array([other == effect for other in model.effects])
            without = np.linalg.matrix_rank(model.matrix[:, ~own], tol=1e-6)
            name = ":".join("abc"[axis] for axis in effect)
            assert (name in effects) == (rank - without == own.sum())
            if interactions:
                assert (name in effects) != any(name in group for group in found.aliased)


def test_groups_are_told_apart_by_what_the_null_space_ties_together() -> None:
    """In a 2^(6-3) fraction every group is a coset of the defining relation, main effects included."""
    design = (pydoe.fracfact("a b c ab ac bc") > 0).astype(int)
    expected: dict[frozenset[int], set[str]] = {}
    words = {"d": {0, 1}, "e": {0, 2}, "f": {1, 2}}

    def coset(letters: str) -> frozenset[int]:
        value: set[int] = set()
        for letter in letters:
            value ^= words.get(letter, {"abc".find(letter)})
        return frozenset(value)

    for size in (1, 2):
        for letters in itertools.combinations("abcdef", size):
            expected.setdefault(coset("".join(letters)), set()).add(":".join(letters))
    aliased = {frozenset(group) for group in expected.values() if len(group) > 1}
    assert groups(shown(design.tolist())) == aliased
