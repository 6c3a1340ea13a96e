"""What a report refuses to claim: the aliases of known designs, as `arena plan` finds them."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.design_limits import Estimable, read_estimable, refusals
from arena.estimability import estimable
from arena.experimental_design import full


def shown(points: Sequence[Sequence[int]], names: Sequence[str]) -> Estimable:
    """What the plan of these points says, as it is read from `plan.json`."""
    cells = [(dict(zip(names, point, strict=True)),) for point in points]
    found = read_estimable(estimable(cells).document())
    assert found is not None
    return found


def test_a_full_design_refuses_nothing() -> None:
    assert refusals("full", shown(full((2, 3)), "ab")) == []


def test_a_half_fraction_names_what_each_main_effect_is_aliased_with() -> None:
    half = [point for point in full((2, 2, 2)) if sum(point) % 2 == 0]
    found = shown(half, "abc")
    assert found.alias_of("a") == ("b:c",)
    head, lines = refusals("fraction(share=0.5)", found)
    assert "fraction(share=0.5)" in head
    for one, pair in (("a", "b x c"), ("b", "a x c"), ("c", "a x b")):
        assert f"the main effect of `{one}` apart from `{pair}`: they are aliased" in lines


def test_what_always_changes_together_has_no_effect_of_its_own() -> None:
    _, lines = refusals("points", shown([(0, 0, 0), (1, 1, 0), (0, 0, 1), (1, 1, 1)], "abc"))
    assert "no main effect of `a` and `b`" in lines
    assert "no main effect of `c`" not in lines


def test_a_resolution_four_fraction_loses_pairs_of_interactions_only() -> None:
    half = [point for point in full((2, 2, 2, 2)) if sum(point) % 2 == 0]
    _, lines = refusals("fraction", shown(half, "abcd"))
    assert "main effect" not in lines
    assert "`a x b` and `c x d` only as their sum" in lines


def test_a_plan_that_does_not_say_refuses_nothing() -> None:
    assert read_estimable(None) is None
    assert read_estimable({"main": ["a"]}) is None
    assert refusals("full", None) == []
    assert refusals("full", Estimable(factors=("a",))) == []


def test_interactions_that_were_not_looked_into_are_not_claimed() -> None:
    found = Estimable(factors=("a", "b"), main=("a", "b"), complete=False)
    assert "any interaction" in refusals("full", found)[1]
