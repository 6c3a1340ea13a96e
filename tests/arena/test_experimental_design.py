"""Designs: which points they take, beside allpairspy and pydoe on the same candidates."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pydoe
import pytest
from allpairspy import AllPairs
from hypothesis import given, settings
from hypothesis import strategies as st

from arena.contrasts import columns, helmert
from arena.experimental_design import d_optimal, fraction, full, least_runs, one_factor, pairwise

Candidate = tuple[int, ...]
level_counts = st.lists(st.integers(1, 4), min_size=1, max_size=4)
SHAPES = [(2, 2, 2, 2), (2, 4, 2, 2), (3, 3, 3, 3), (4, 7, 3, 2), (5, 5, 5, 5), (2, 3, 4, 5), (3,) * 6]


def forbidden(candidate: Sequence[int]) -> bool:
    """A rule of the kind grids have, over axes of at least two options."""
    return (candidate[0], candidate[1]) == (0, 1) or (candidate[0], candidate[-1]) == (1, 1)


def pairs_of(points: Sequence[Candidate]) -> set[tuple[int, int, int, int]]:
    return {
        (a, b, point[a], point[b])
        for point in points
        for a, b in itertools.combinations(range(len(point)), 2)
    }


@st.composite
def allowed_candidates(draw: st.DrawFn) -> tuple[list[int], list[Candidate]]:
    levels = draw(level_counts)
    everything = list(itertools.product(*map(range, levels)))
    kept = draw(st.lists(st.sampled_from(everything), min_size=1, unique=True))
    return levels, sorted(kept)


@given(level_counts)
def test_full_takes_every_combination_once(levels: list[int]) -> None:
    assert full(levels) == list(itertools.product(*map(range, levels)))
    assert len(full(levels)) == math.prod(levels)


@given(level_counts)
def test_one_factor_changes_one_thing_at_a_time(levels: list[int]) -> None:
    taken = one_factor(full(levels))
    assert taken[0] == (0,) * len(levels)
    assert all(sum(index != 0 for index in point) == 1 for point in taken[1:])
    assert len(taken) == 1 + sum(count - 1 for count in levels)


@settings(deadline=None, max_examples=15)
@given(allowed_candidates())
def test_every_design_takes_some_of_the_candidates_each_once_and_always_the_same(
    drawn: tuple[list[int], list[Candidate]],
) -> None:
    levels, candidates = drawn
    for taken, again in (
        (pairwise(candidates), pairwise(candidates)),
        (fraction(candidates, levels, 0.5), fraction(candidates, levels, 0.5)),
        (d_optimal(candidates, levels, 3), d_optimal(candidates, levels, 3)),
    ):
        assert taken == again == sorted(set(taken))
        assert set(taken) <= set(candidates)


@settings(deadline=None, max_examples=40)
@given(allowed_candidates())
def test_pairwise_covers_all_pairs_that_are_possible_and_every_option(
    drawn: tuple[list[int], list[Candidate]],
) -> None:
    _, candidates = drawn
    taken = pairwise(candidates)
    assert pairs_of(taken) == pairs_of(candidates)
    assert {(axis, index) for point in taken for axis, index in enumerate(point)} == {
        (axis, index) for point in candidates for axis, index in enumerate(point)
    }


@pytest.mark.parametrize("levels", SHAPES, ids=str)
@pytest.mark.parametrize("ruled", [False, True], ids=["all", "with rules"])
def test_pairwise_needs_no_more_points_than_allpairspy(levels: tuple[int, ...], ruled: bool) -> None:
    def is_fine(values: Sequence[int]) -> bool:
        return len(values) < len(levels) or not (ruled and forbidden(values))

    candidates = [candidate for candidate in full(levels) if is_fine(candidate)]
    theirs = [tuple(row) for row in AllPairs([list(range(count)) for count in levels], filter_func=is_fine)]
    ours = pairwise(candidates)
    # Theirs, which never looks back, leaves out pairs that rules make hard; each needs one point at most.
    left_out = pairs_of(ours) - pairs_of(theirs)
    assert pairs_of(ours) == pairs_of(candidates)
    assert len(ours) <= len(theirs) + len(left_out)


def test_pairwise_finds_an_orthogonal_array() -> None:
    assert len(pairwise(full((3, 3, 3, 3)))) == 9


def word_lengths(points: Sequence[Candidate], levels: Sequence[int]) -> list[float]:
    """A_1 ... A_k of a design, from products of contrasts written out."""
    lengths = []
    for size in range(1, len(levels) + 1):
        total = 0.0
        for axes in itertools.combinations(range(len(levels)), size):
            for contrasts in itertools.product(*(range(levels[axis] - 1) for axis in axes)):
                products = [
                    math.prod(
                        helmert(levels[axis])[point[axis], column]
                        for axis, column in zip(axes, contrasts, strict=True)
                    )
                    for point in points
                ]
                total += (sum(products) / len(points)) ** 2
        lengths.append(total)
    return lengths


@pytest.mark.parametrize(("levels", "generators"), [((2,) * 4, "a b c abc"), ((2,) * 5, "a b c d abcd")])
def test_a_half_of_two_options_per_axis_is_the_regular_fraction(
    levels: tuple[int, ...], generators: str
) -> None:
    regular = [tuple(int(value > 0) for value in row) for row in pydoe.fracfact(generators)]
    ours = fraction(full(levels), levels, 0.5)
    assert len(ours) == len(regular)
    assert word_lengths(ours, levels)[:3] == pytest.approx(word_lengths(regular, levels)[:3])


@pytest.mark.parametrize(("levels", "reduction"), [((2, 4, 2, 2), 2), ((3, 3, 3), 3), ((4, 3, 2), 2)])
def test_a_fraction_is_as_balanced_as_a_generalised_subset_design(
    levels: tuple[int, ...], reduction: int
) -> None:
    theirs = [tuple(map(int, row)) for row in pydoe.gsd(list(levels), reduction)]
    ours = fraction(full(levels), levels, len(theirs) / math.prod(levels))
    assert len(ours) == len(theirs)
    for our, their in zip(word_lengths(ours, levels)[:2], word_lengths(theirs, levels)[:2], strict=True):
        assert our <= their + 1e-9
    for axis in range(len(levels)):
        counts = Counter(point[axis] for point in ours)
        assert max(counts.values()) - min(counts.values()) <= 1


def test_a_fraction_keeps_to_what_rules_leave() -> None:
    candidates = [candidate for candidate in full((4, 3, 2, 2)) if not forbidden(candidate)]
    taken = fraction(candidates, (4, 3, 2, 2), 0.25)
    assert len(taken) == round(0.25 * len(candidates))
    assert set(taken) <= set(candidates)
    assert fraction(candidates, (4, 3, 2, 2), 1.0) == candidates


def information(points: Sequence[Candidate], levels: Sequence[int], *, interactions: bool) -> float:
    matrix = columns(np.array(points), levels, interactions=interactions).matrix
    return float(np.linalg.det(matrix.T @ matrix / len(matrix)))


@pytest.mark.parametrize(
    ("levels", "runs", "interactions"),
    [((2, 4, 2, 2), 8, False), ((2, 4, 2, 2), 20, True), ((3, 3, 2), 7, False), ((4, 3, 2, 2), 12, False)],
    ids=str,
)
@pytest.mark.parametrize("ruled", [False, True], ids=["all", "with rules"])
def test_d_optimal_shows_at_least_as_much_as_pydoe(
    levels: tuple[int, ...], runs: int, interactions: bool, ruled: bool
) -> None:
    if ruled and interactions:
        pytest.skip("the rule leaves interactions that no design can show")
    candidates = [candidate for candidate in full(levels) if not (ruled and forbidden(candidate))]
    model = columns(np.array(candidates), levels, interactions=interactions).matrix[:, 1:]
    theirs = []
    for method in ("sequential", "fedorov", "modified_fedorov", "detmax"):
        chosen, _ = pydoe.optimal_design(model, runs, degree=1, method=method)
        with_mean = np.column_stack([np.ones(len(chosen)), chosen])
        theirs.append(pydoe.d_efficiency(with_mean))
    ours = d_optimal(candidates, levels, runs, interactions=interactions)
    matrix = columns(np.array(ours), levels, interactions=interactions).matrix
    assert len(ours) == runs
    # Theirs may take a candidate twice, which ours leaves to seeds.
    assert pydoe.d_efficiency(matrix) >= 0.99 * max(theirs)


@pytest.mark.parametrize(("levels", "runs"), [((2, 2, 2), 4), ((2, 3), 4), ((2, 2, 2), 5)])
def test_no_choice_of_candidates_is_better_than_the_d_optimal_one(levels: tuple[int, ...], runs: int) -> None:
    best = max(
        information(points, levels, interactions=False)
        for points in itertools.combinations(full(levels), runs)
    )
    ours = d_optimal(full(levels), levels, runs)
    assert information(ours, levels, interactions=False) == pytest.approx(best)


def test_least_runs_counts_what_is_to_be_told_apart() -> None:
    assert least_runs(full((2, 4, 2, 2)), (2, 4, 2, 2)) == 1 + 1 + 3 + 1 + 1
    assert least_runs(full((2, 3)), (2, 3), interactions=True) == 6
    without = [candidate for candidate in full((2, 4)) if candidate[1] != 2]
    assert least_runs(without, (2, 4)) == 1 + 1 + 2


@given(st.integers(2, 9))
def test_contrasts_are_orthogonal_and_of_mean_square_one(levels: int) -> None:
    contrasts = helmert(levels)
    assert contrasts.sum(0) == pytest.approx(np.zeros(levels - 1))
    assert contrasts.T @ contrasts / levels == pytest.approx(np.eye(levels - 1))
