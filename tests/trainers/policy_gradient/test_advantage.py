"""Advantages against loops over rows written from the formulas, and their invariants."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from difflib import SequenceMatcher
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trainers.policy_gradient import advantage
from trainers.policy_gradient.advantage import advantages
from trainers.rows import Rows

CASES: list[tuple[str, dict[str, Any]]] = [
    ("grpo", {}),
    ("grpo", {"statistics": "row"}),
    ("dr_grpo", {}),
    ("dr_grpo", {"statistics": "row"}),
    ("rloo", {}),
    ("reinforce_pp", {"over": "row"}),
    ("reinforce_pp", {"over": "token"}),
    ("reinforce_pp", {"over": "trajectory"}),
    ("lite", {}),
    ("lite", {"statistics": "row"}),
    ("gigpo", {}),
    ("gigpo", {"omega": 0.5, "gamma": 0.8, "norm": "mean", "statistics": "row"}),
    ("gigpo", {"fuzzy": 0.9}),
    ("gigpo", {"rescale": "match_grpo"}),
    ("empg", {}),
    ("empg", {"k": 2.0, "k_future": 0.5, "zeta": 0.3, "statistics": "row"}),
]


def name_of(case: tuple[str, dict[str, Any]]) -> str:
    return case[0] + "".join(f"-{key}={value}" for key, value in case[1].items())


every_option = pytest.mark.parametrize("case", CASES, ids=name_of)
relative_options = pytest.mark.parametrize("case", [case for case in CASES if case[0] != "empg"], ids=name_of)


def computed(case: tuple[str, dict[str, Any]], rows: Rows, penalty_where: str = "reward") -> torch.Tensor:
    option = partial(getattr(advantage, case[0]), **case[1])
    return advantages(rows, option, penalty_where=penalty_where)  # type: ignore[arg-type]


class Written:
    """The formulas, a row at a time in Python floats."""

    def __init__(self, rows: Rows) -> None:
        self.n = range(len(rows))
        self.group, self.trajectory = rows.group.tolist(), rows.trajectory.tolist()
        self.turn, self.anchor = rows.turn.tolist(), rows.anchor.tolist()
        self.rewards, self.penalties = rows.rewards.tolist(), rows.penalties.tolist()
        self.entropies, self.tokens = rows.entropies.tolist(), rows.tokens.tolist()
        self.texts = rows.anchor_texts
        self.u = [
            sum(self.rewards[m] for m in self.n if self.trajectory[m] == self.trajectory[i])
            - self.penalties[i]
            for i in self.n
        ]
        self.k = [self.trajectory.count(self.trajectory[i]) for i in self.n]

    def mates(self, i: int) -> list[int]:
        return [j for j in self.n if self.group[j] == self.group[i]]

    def moments(self, rows: list[int], weights: list[float], size: float) -> tuple[float, float]:
        mean = sum(w * self.u[j] for j, w in zip(rows, weights, strict=True)) / size
        squares = sum(w * (self.u[j] - mean) ** 2 for j, w in zip(rows, weights, strict=True))
        return mean, squares / (size - 1) if size > 1 else 0.0

    def group_moments(self, rows: list[int], statistics: str) -> tuple[float, float]:
        if statistics == "row":
            return self.moments(rows, [1.0] * len(rows), len(rows))
        size = len({self.trajectory[j] for j in rows})
        return self.moments(rows, [1 / self.k[j] for j in rows], size)

    def centred(self, i: int, statistics: str) -> float:
        mates = self.mates(i)
        alone = len({self.trajectory[j] for j in mates}) == 1
        if alone or max(self.u[j] for j in mates) - min(self.u[j] for j in mates) < 1e-9:
            return 0.0
        return self.u[i] - self.group_moments(mates, statistics)[0]

    def grpo(self, i: int, statistics: str = "trajectory") -> float:
        _, variance = self.group_moments(self.mates(i), statistics)
        return self.centred(i, statistics) / (math.sqrt(variance) + 1e-6)

    def dr_grpo(self, i: int, statistics: str = "trajectory") -> float:
        return self.centred(i, statistics)

    def rloo(self, i: int) -> float:
        others = sorted({self.trajectory[j] for j in self.mates(i)} - {self.trajectory[i]})
        if not others:
            return 0.0
        means = [fmean(self.u[j] for j in self.n if self.trajectory[j] == other) for other in others]
        return self.u[i] - fmean(means)

    def reinforce_pp(self, i: int, over: str) -> float:
        weights = {"row": [1.0 for _ in self.n], "token": self.tokens, "trajectory": [1 / k for k in self.k]}
        size = sum(weights[over])
        mean, variance = self.moments(list(self.n), weights[over], size)
        return (self.u[i] - mean) / math.sqrt(variance + 1e-8)

    def lite(self, i: int, statistics: str = "trajectory") -> float:
        _, variance = self.group_moments(list(self.n), statistics)
        return self.centred(i, statistics) / (math.sqrt(variance) + 1e-6)

    def cluster(self, i: int, fuzzy: float | None) -> int:
        if fuzzy is None:
            return int(self.anchor[i])
        representatives: list[int] = []
        for j in self.mates(i):
            text = self.texts[self.anchor[j]]
            for representative in representatives:
                if SequenceMatcher(None, text, self.texts[representative]).ratio() >= fuzzy:
                    break
            else:
                representative = self.anchor[j]
                representatives.append(representative)
            if j == i:
                return representative
        raise AssertionError

    def step_return(self, i: int, gamma: float) -> float:
        later = [
            gamma ** (self.turn[m] - self.turn[i]) * self.rewards[m]
            for m in self.n
            if self.trajectory[m] == self.trajectory[i] and self.turn[m] >= self.turn[i]
        ]
        return sum(later) - self.penalties[i]

    def gigpo_parts(self, i: int, p: Mapping[str, Any]) -> tuple[float, float]:
        statistics, norm = p.get("statistics", "trajectory"), p.get("norm", "mean_std")
        episode = self.grpo(i, statistics) if norm == "mean_std" else self.centred(i, statistics)
        fuzzy, gamma = p.get("fuzzy"), p.get("gamma", 0.95)
        own = self.cluster(i, fuzzy)
        values = [self.step_return(j, gamma) for j in self.mates(i) if self.cluster(j, fuzzy) == own]
        if len(values) == 1:
            return episode, 0.0
        step = self.step_return(i, gamma) - fmean(values)
        if norm == "mean_std":
            variance = sum((value - fmean(values)) ** 2 for value in values) / (len(values) - 1)
            step /= math.sqrt(variance) + 1e-6
        return episode, step

    def gigpo(self, i: int, **p: Any) -> float:
        episode, step = self.gigpo_parts(i, p)
        value = episode + p.get("omega", 1.0) * step
        if p.get("rescale") == "match_grpo":
            parts = [self.gigpo_parts(j, p) for j in self.n]
            value *= math.sqrt(fmean(e * e for e, _ in parts) / fmean((e + s) ** 2 for e, s in parts))
        return value

    def empg(self, i: int, **p: Any) -> float:
        low, high = min(self.entropies), max(self.entropies)
        scaled = [(h - low) / (high - low) for h in self.entropies]
        normaliser = fmean(math.exp(-p.get("k", 1.0) * h) for h in scaled)

        def raw(j: int) -> float:
            following = [
                math.exp(-p.get("k_future", 1.0) * scaled[m])
                for m in self.n
                if self.trajectory[m] == self.trajectory[j] and self.turn[m] == self.turn[j] + 1
            ]
            gain = math.exp(-p.get("k", 1.0) * scaled[j]) / normaliser
            return gain * self.grpo(j, p.get("statistics", "trajectory")) + p.get("zeta", 0.05) * sum(
                following
            )

        return raw(i) - fmean(raw(j) for j in self.n)


def test_every_option_has_a_case() -> None:
    files = (Path(advantage.__file__).parents[2] / "arena/conf/advantage").glob("*.yaml")
    assert {file.stem for file in files} == {option for option, _ in CASES}


@every_option
@pytest.mark.parametrize("seed", range(3))
def test_advantages_are_the_written_out_ones(
    case: tuple[str, dict[str, Any]], seed: int, make_batch: Callable[..., Any]
) -> None:
    rows = make_batch(seed).rows
    written = Written(rows)
    expected = [getattr(written, case[0])(i, **case[1]) for i in written.n]
    result = computed(case, rows)
    assert result.dtype == torch.float32
    assert result.tolist() == pytest.approx(expected, rel=1e-6, abs=1e-6)


@every_option
def test_penalties_outside_the_statistics_come_off_the_advantage(
    case: tuple[str, dict[str, Any]], make_batch: Callable[..., Any]
) -> None:
    rows = make_batch(4).rows
    free = replace(rows, penalties=torch.zeros_like(rows.penalties))
    expected = computed(case, free) - rows.penalties
    torch.testing.assert_close(computed(case, rows, "advantage"), expected.float(), check_dtype=False)


@relative_options
@given(seed=st.integers(0, 2**31), reward=st.sampled_from([0.0, 0.1, -3.7]))
@settings(max_examples=15, deadline=None)
def test_equal_rewards_give_no_advantage(
    case: tuple[str, dict[str, Any]], seed: int, reward: float, make_batch: Callable[..., Any]
) -> None:
    rows = make_batch(seed).rows
    # the whole reward on a first turn that all trajectories share, so that step returns are equal too
    rows = rows.select(rows.turn == 0)
    rows = replace(
        rows,
        rewards=torch.full_like(rows.rewards, reward),
        penalties=torch.zeros_like(rows.penalties),
    )
    assert not computed(case, rows).any()


@every_option
@given(seed=st.integers(0, 2**31))
@settings(max_examples=15, deadline=None)
def test_names_of_groups_and_trajectories_and_row_order_do_not_matter(
    case: tuple[str, dict[str, Any]], seed: int, make_batch: Callable[..., Any]
) -> None:
    rows = make_batch(seed).rows
    plain = computed(case, rows)
    renamed = replace(rows, group=rows.group.max() - rows.group + 7, trajectory=1000 - 3 * rows.trajectory)
    torch.testing.assert_close(computed(case, renamed), plain)
    if "fuzzy" in case[1]:
        return  # the first of a cluster stands for it, in row order
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))
    torch.testing.assert_close(computed(case, rows.select(order)), plain[order], rtol=1e-5, atol=1e-5)


@every_option
def test_a_failing_group_with_one_malformed_row_punishes_that_row_only(
    case: tuple[str, dict[str, Any]], make_batch: Callable[..., Any]
) -> None:
    rows = make_batch(5, groups=1, group_size=4, max_turns=1).rows
    penalties = torch.zeros(4, dtype=torch.float64)
    penalties[2] = 0.1
    rows = replace(
        rows,
        rewards=torch.zeros(4, dtype=torch.float64),
        penalties=penalties,
        entropies=torch.ones(4, dtype=torch.float64),
        anchor=torch.zeros(4, dtype=torch.long),
    )
    result = computed(case, rows)
    assert result.isfinite().all()
    assert result.argmin() == 2
    assert result[2] < 0
    assert (result[[0, 1, 3]] > 0).all()
    assert result.abs().max() < 4


@every_option
def test_a_batch_of_one_row_is_finite(
    case: tuple[str, dict[str, Any]], make_batch: Callable[..., Any]
) -> None:
    rows = make_batch(6).rows.select(torch.tensor([0]))
    assert computed(case, rows).isfinite().all()


@relative_options
def test_a_batch_of_one_trajectory_with_a_malformed_turn_stays_small(
    case: tuple[str, dict[str, Any]], make_batch: Callable[..., Any]
) -> None:
    rows = make_batch(6).rows.select(torch.tensor([0, 0]))
    rows = replace(rows, turn=torch.tensor([0, 1]), penalties=torch.tensor([0.0, 0.1]).double())
    assert computed(case, rows).abs().max() < 4


@pytest.mark.parametrize("option", ["grpo", "dr_grpo", "rloo", "lite"])
def test_a_group_of_one_trajectory_has_no_baseline(option: str, make_batch: Callable[..., Any]) -> None:
    rows = make_batch(7, group_size=1).rows
    assert not computed((option, {}), rows).any()


def test_trajectory_statistics_weigh_long_and_short_trajectories_the_same(
    make_batch: Callable[..., Any],
) -> None:
    # one group: a trajectory of four rows that returns 0 and one of one row that returns 1
    rows = make_batch(0, groups=1, group_size=2, max_turns=1).rows.select(torch.tensor([0, 0, 0, 0, 1]))
    rows = replace(
        rows,
        trajectory=torch.tensor([0, 0, 0, 0, 1]),
        turn=torch.tensor([0, 1, 2, 3, 0]),
        rewards=torch.tensor([0.0, 0.0, 0.0, 0.0, 1.0]),
        penalties=torch.zeros(5),
    )
    root = math.sqrt(0.5)
    by_trajectory = computed(("grpo", {}), rows).tolist()
    assert by_trajectory == pytest.approx([-0.5 / root] * 4 + [0.5 / root], abs=1e-4)
    by_row = computed(("grpo", {"statistics": "row"}), rows).tolist()
    root = math.sqrt(0.2)
    assert by_row == pytest.approx([-0.2 / root] * 4 + [0.8 / root], abs=1e-4)


def test_gigpo_finds_signal_where_returns_are_equal(make_batch: Callable[..., Any]) -> None:
    # two trajectories with the same return that met one state at different distances from the reward
    rows = make_batch(0, groups=1, group_size=2, max_turns=1).rows.select(torch.tensor([0, 0, 1, 1]))
    rows = replace(
        rows,
        group=torch.zeros(4, dtype=torch.long),
        trajectory=torch.tensor([0, 0, 1, 1]),
        turn=torch.tensor([0, 1, 0, 1]),
        rewards=torch.tensor([0.0, 1.0, 0.0, 1.0]),
        penalties=torch.zeros(4),
        anchor=torch.tensor([5, 6, 7, 5]),
    )
    result = computed(("gigpo", {"norm": "mean", "gamma": 0.5}), rows)
    assert result.tolist() == pytest.approx([-0.25, 0.0, 0.0, 0.25])


def test_gigpo_refuses_rows_without_anchors(make_batch: Callable[..., Any]) -> None:
    rows = make_batch(8).rows
    with pytest.raises(ValueError, match="states that recur"):
        computed(("gigpo", {}), replace(rows, anchor=torch.full_like(rows.anchor, -1)))
