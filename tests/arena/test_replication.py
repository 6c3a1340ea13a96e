"""Which seeds are added: those of somebody who looks at everything round by round, in any order of ending."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from arena.replication import Replication, interval_width, seeds_decided

Table = dict[str, list[float]]
"""The results that the seeds of every cell would have."""


def by_looking_at_all_results(table: Table, rule: Replication, most: int | None) -> dict[str, int]:
    counts = dict.fromkeys(table, rule.least)
    while True:
        wide = [
            (-interval_width(table[cell][:count]), list(table).index(cell), cell)
            for cell, count in counts.items()
            if count == max(counts.values()) and count < rule.most
        ]
        asking = [cell for width, _, cell in sorted(wide) if -width > rule.ci_width]
        if most is not None:
            asking = asking[: max(0, most - sum(counts.values()))]
        for cell in asking:
            counts[cell] += 1
        if not asking:
            return counts


def seen(table: Table, ended: Mapping[str, Sequence[int]]) -> dict[str, dict[int, float | None]]:
    return {cell: {seed: table[cell][seed] for seed in ended.get(cell, ())} for cell in table}


def test_the_interval_is_students() -> None:
    values = [0.71, 0.64, 0.8, 0.77]
    low, high = stats.t.interval(0.95, 3, loc=np.mean(values), scale=stats.sem(values))
    assert interval_width(values) == pytest.approx(high - low)
    assert interval_width([0.5]) == interval_width([]) == math.inf
    assert interval_width([0.4, 0.4]) == 0


def test_only_cells_in_doubt_get_more_seeds() -> None:
    rule = Replication(2, 5, 0.2)
    results = {"sure": {0: 0.7, 1: 0.71}, "doubtful": {0: 0.2, 1: 0.8}}
    assert seeds_decided(results, rule) == {"sure": 2, "doubtful": 3}


def test_the_widest_interval_comes_first_when_trials_are_short() -> None:
    rule = Replication(2, 5, 0.01)
    results = {"b": {0: 0.2, 1: 0.3}, "a": {0: 0.2, 1: 0.8}, "c": {0: 0.3, 1: 0.5}}
    assert seeds_decided(results, rule, 8) == {"b": 2, "a": 3, "c": 3}


def test_nothing_is_decided_that_a_trial_still_running_could_take() -> None:
    rule = Replication(2, 3, 0.01)
    results = {"running": {0: 0.2}, "doubtful": {0: 0.2, 1: 0.8}}
    assert seeds_decided(results, rule, 5)["doubtful"] == 2
    assert seeds_decided(results, rule, 6)["doubtful"] == 3


def test_a_failed_seed_is_not_replaced() -> None:
    assert seeds_decided({"a": {0: 0.1, 1: None, 2: 0.9}}, Replication(3, 9, 0.1)) == {"a": 3}


@st.composite
def studies(draw: st.DrawFn) -> tuple[Table, Replication, int | None]:
    least = draw(st.integers(2, 3))
    most = draw(st.integers(least + 1, 6))
    cells = "abcd"[: draw(st.integers(1, 4))]
    values = st.sampled_from([0.0, 0.1, 0.3, 0.35, 0.9])
    table = {cell: draw(st.lists(values, min_size=most, max_size=most)) for cell in cells}
    rule = Replication(least, most, draw(st.sampled_from([0.05, 0.3, 0.8])))
    budget = draw(st.none() | st.integers(least * len(cells), most * len(cells)))
    return table, rule, budget


@settings(deadline=None, max_examples=150)
@given(studies(), st.randoms(use_true_random=False))
def test_any_order_of_ending_leads_to_the_same_trials(
    study: tuple[Table, Replication, int | None], random: object
) -> None:
    table, rule, budget = study
    expected = by_looking_at_all_results(table, rule, budget)
    ended: dict[str, list[int]] = {cell: [] for cell in table}
    while True:
        decided = seeds_decided(seen(table, ended), rule, budget)
        assert all(decided[cell] <= expected[cell] for cell in table)
        running = [
            (cell, seed)
            for cell, count in decided.items()
            for seed in range(count)
            if seed not in ended[cell]
        ]
        if not running:
            break
        cell, seed = random.choice(running)  # type: ignore[attr-defined]
        ended[cell].append(seed)
    assert decided == expected
    assert budget is None or sum(decided.values()) <= max(budget, rule.least * len(table))
