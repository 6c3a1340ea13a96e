"""Which groups are kept, and which groups a step is filled with."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainers.policy_gradient import dynamic_filtering
from trainers.policy_gradient.dynamic_filtering import (
    another_try,
    group_variance,
    none,
    select_groups,
    top_variance,
)

RETURNS = torch.tensor([[1.0, 1.0], [0.7, 1.0], [0.0, 0.0], [-0.5, 9.0], [0.5, 0.7]])
SUCCESS = torch.tensor([[True, True], [True, True], [False, False], [False, True], [False, False]])


def keeps(*rows: str) -> list[torch.Tensor]:
    """One try per word: `+-+` keeps the first and last of three groups."""
    return [torch.tensor([sign == "+" for sign in row]) for row in rows]


# (option, parameters); every option of the axis is here at least once
CASES: list[tuple[str, dict[str, Any]]] = [
    ("none", {}),
    ("group_variance", {"signal": "return"}),
    ("group_variance", {"signal": "success"}),
    ("top_variance", {"keep_fraction": 0.4}),
    ("top_variance", {"keep_fraction": 1.0}),
]
every_option = pytest.mark.parametrize(("option", "parameters"), CASES, ids=[f"{o}-{p}" for o, p in CASES])


def written_out(
    option: str, parameters: dict[str, Any], returns: list[list[float]], success: list[list[bool]]
) -> list[bool]:
    """Which groups are kept, group by group."""
    if option == "none":
        return [True] * len(returns)
    differ = [len(set(group)) > 1 for group in returns]
    if option == "group_variance":
        some = [0 < sum(group) < len(group) for group in success]
        return differ if parameters["signal"] == "return" else some
    exact = [[Fraction(value) for value in group] for group in returns]
    spread = [sum((value - sum(group) / len(group)) ** 2 for value in group) for group in exact]
    wanted = math.ceil(parameters["keep_fraction"] * len(returns))
    ranked = sorted(range(len(returns)), key=lambda group: -spread[group])
    return [group in ranked[:wanted] and differ[group] for group in range(len(returns))]


def test_every_option_has_a_case() -> None:
    files = (Path(dynamic_filtering.__file__).parents[2] / "arena/conf/dynamic_filtering").glob("*.yaml")
    assert {file.stem for file in files} == {option for option, _ in CASES}


@every_option
@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from([-1.0, 0.0, 0.5, 9.0]), st.booleans()), min_size=3, max_size=3),
        min_size=1,
        max_size=8,
    )
)
def test_the_kept_groups_are_the_written_out_ones(
    option: str, parameters: dict[str, Any], groups: list[list[tuple[float, bool]]]
) -> None:
    returns = [[value for value, _ in group] for group in groups]
    success = [[won for _, won in group] for group in groups]
    function = getattr(dynamic_filtering, option)
    kept = function(torch.tensor(returns), torch.tensor(success), **parameters)
    assert kept.dtype == torch.bool
    assert kept.tolist() == written_out(option, parameters, returns, success)
    # the order of a group's episodes says nothing
    backwards = function(torch.tensor(returns).flip(1), torch.tensor(success).flip(1), **parameters)
    assert torch.equal(backwards, kept)


def test_none_keeps_every_group() -> None:
    assert none(RETURNS, SUCCESS).tolist() == [True] * 5


def test_group_variance_keeps_groups_whose_returns_differ() -> None:
    assert group_variance(RETURNS, SUCCESS, signal="return").tolist() == [False, True, False, True, True]


def test_group_variance_of_success_keeps_groups_where_some_succeed() -> None:
    assert group_variance(RETURNS, SUCCESS, signal="success").tolist() == [False, False, False, True, False]


def test_returns_that_differ_by_rounding_only_are_the_same() -> None:
    one = torch.tensor([0.1, 0.2, 0.3]).sum()
    other = torch.tensor([0.3, 0.2, 0.1]).flip(0).cumsum(0)[-1] + 3e-8
    group = torch.stack([one, other])[None]
    assert not group_variance(group, torch.ones(1, 2, dtype=torch.bool)).any()


def test_top_variance_keeps_the_most_varied_groups() -> None:
    assert top_variance(RETURNS, SUCCESS, keep_fraction=0.4).tolist() == [False, True, False, True, False]


def test_top_variance_rounds_up_and_never_keeps_a_uniform_group() -> None:
    assert top_variance(RETURNS, SUCCESS, keep_fraction=0.25).sum() == 2
    assert top_variance(RETURNS, SUCCESS, keep_fraction=1.0).tolist() == [False, True, False, True, True]


def test_top_variance_of_groups_of_one_keeps_nothing() -> None:
    assert not top_variance(RETURNS[:, :1], SUCCESS[:, :1]).any()


def test_the_surplus_is_cut_in_order() -> None:
    assert select_groups(keeps("-+-", "+++"), 3, fill="uniform") == [(0, 1), (1, 0), (1, 1)]


def test_uniform_groups_of_the_last_try_fill_the_step() -> None:
    assert select_groups(keeps("---", "-+-", "+--"), 3, fill="uniform") == [(1, 1), (2, 0), (2, 1)]


def test_shrink_uses_what_is_left() -> None:
    assert select_groups(keeps("---", "-+-"), 3, fill="shrink") == [(1, 1)]
    assert select_groups(keeps("---"), 3, fill="shrink") == []


def test_tries_end_when_enough_is_kept_or_none_are_left() -> None:
    assert another_try(keeps("-+-"), 3, max_tries=3)
    assert not another_try(keeps("-+-", "-++"), 3, max_tries=3)
    assert not another_try(keeps("---", "---"), 3, max_tries=2)


@given(
    st.lists(st.lists(st.booleans(), min_size=4, max_size=4), min_size=1, max_size=4),
    st.integers(1, 4),
    st.sampled_from(["uniform", "shrink"]),
)
def test_a_selection_is_never_too_large_and_has_no_group_twice(
    tries: list[list[bool]], wanted: int, fill: str
) -> None:
    chosen = select_groups([torch.tensor(one) for one in tries], wanted, fill=fill)  # type: ignore[arg-type]
    kept = sum(map(sum, tries))
    assert len(chosen) == len(set(chosen))
    assert len(chosen) == (wanted if fill == "uniform" else min(kept, wanted))
    if fill == "shrink":
        assert all(tries[attempt][group] for attempt, group in chosen)
