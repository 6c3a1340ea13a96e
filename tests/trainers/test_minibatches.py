"""Mini-batches: what they cover, what they keep together, and how they are filled up."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainers.config import MinibatchConfig, TrainerConfig
from trainers.minibatches import minibatches


def cut(trajectory: list[int], seed: int = 0, **config: object) -> list[tuple[list[int], list[bool]]]:
    trainer = TrainerConfig.model_validate(config)
    generator = torch.Generator().manual_seed(seed)
    return [
        (batch.index.tolist(), batch.copies.tolist())
        for batch in minibatches(torch.tensor(trajectory), trainer, generator)
    ]


@given(
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=12),
    minibatch=st.one_of(
        st.builds(lambda n: {"count": n}, st.integers(1, 6)),
        st.builds(lambda n: {"rows": n}, st.integers(1, 9)),
    ),
    shuffle=st.sampled_from(["rows", "trajectories", "none"]),
)
def test_every_row_is_in_exactly_one_mini_batch(
    lengths: list[int], minibatch: dict[str, int], shuffle: str
) -> None:
    trajectory = [number for number, length in enumerate(lengths) for _ in range(length)]
    batches = cut(trajectory, minibatch=minibatch, shuffle=shuffle)
    assert sorted(row for index, _ in batches for row in index) == list(range(len(trajectory)))
    assert all(index for index, _ in batches)
    if shuffle == "trajectories":
        homes = [{trajectory[row] for row in index} for index, _ in batches]
        assert sum(map(len, homes)) == len(lengths), "a trajectory was split"


def test_count_gives_equal_parts_of_the_shuffled_rows() -> None:
    batches = cut([0] * 10, minibatch={"count": 4})
    assert [len(index) for index, _ in batches] == [2, 3, 3, 2]
    assert [row for index, _ in batches for row in index] != list(range(10))


def test_without_shuffling_rows_stay_in_order() -> None:
    assert [index for index, _ in cut([0, 0, 1, 1, 2], minibatch={"rows": 2}, shuffle="none")] == [
        [0, 1],
        [2, 3],
        [4],
    ]


def test_copies_fill_the_last_mini_batch_and_are_marked() -> None:
    batches = cut([0] * 5, minibatch={"rows": 4}, shuffle="none", pad="copy")
    assert [len(index) for index, _ in batches] == [4, 4]
    assert batches[1][1] == [False, True, True, True]
    assert all(0 <= row < 5 for row in batches[1][0])


def test_same_generator_same_mini_batches() -> None:
    assert cut([0] * 50, seed=3) == cut([0] * 50, seed=3) != cut([0] * 50, seed=4)


@pytest.mark.parametrize("minibatch", [{}, {"count": 2, "rows": 3}, {"count": 0}])
def test_a_mini_batch_size_is_given_exactly_once(minibatch: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"exactly one|greater than or equal"):
        MinibatchConfig.model_validate(minibatch)
