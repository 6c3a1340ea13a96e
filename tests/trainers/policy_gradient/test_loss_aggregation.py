"""Aggregation against sums written out, and what must not change it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trainers.policy_gradient import loss_aggregation
from trainers.policy_gradient.loss_aggregation import token_weights
from trainers.policy_gradient.parameters import AggregationSettings

OPTIONS = ["token_mean", "seq_mean_token_mean", "seq_mean_token_sum", "seq_mean_token_sum_norm"]
MAX_TOKENS = 11


def written_out(option: str, losses: list[list[float]], sequence: list[int]) -> float:
    """L of rows of token losses, from the formula: rows of one sequence are one longer sequence."""
    sequences: dict[int, list[float]] = {}
    for row, name in zip(losses, sequence, strict=True):
        sequences.setdefault(name, []).extend(row)
    lists = [values for values in sequences.values() if values]
    total = sum(map(sum, lists))
    if not lists:
        return 0.0
    if option == "token_mean":
        return total / sum(map(len, lists))
    if option == "seq_mean_token_mean":
        return sum(sum(values) / len(values) for values in lists) / len(lists)
    return total / len(lists) / (MAX_TOKENS if option.endswith("norm") else 1)


def weights_of(option: str, mask: torch.Tensor, trajectory: torch.Tensor, **kwargs: Any) -> torch.Tensor:
    splits = kwargs.pop("micro_batches", (slice(None),))
    return token_weights(
        getattr(loss_aggregation, option),
        mask,
        trajectory,
        settings=AggregationSettings(**kwargs),
        max_tokens=MAX_TOKENS,
        micro_batches=splits,
    )


def unpadded(values: torch.Tensor, mask: torch.Tensor) -> list[list[float]]:
    return [row[kept].tolist() for row, kept in zip(values, mask, strict=True)]


def test_every_option_has_a_case() -> None:
    files = (Path(loss_aggregation.__file__).parents[2] / "arena/conf/loss_aggregation").glob("*.yaml")
    assert {file.stem for file in files} == set(OPTIONS)


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("sequence", ["row", "trajectory"])
@pytest.mark.parametrize("seed", range(3))
def test_weights_give_the_written_out_loss(
    option: str, sequence: str, seed: int, make_batch: Callable[..., Any]
) -> None:
    batch = make_batch(seed)
    mask, trajectory = batch.rows.mask, batch.rows.trajectory
    loss = (weights_of(option, mask, trajectory, sequence=sequence) * batch.log_probs).sum()
    names = trajectory if sequence == "trajectory" else torch.arange(len(mask))
    expected = written_out(option, unpadded(batch.log_probs, mask), names.tolist())
    assert float(loss) == pytest.approx(expected, rel=1e-6)


@given(seed=st.integers(0, 2**31), extra=st.integers(0, 5))
@settings(max_examples=30, deadline=None)
@pytest.mark.parametrize("option", OPTIONS)
def test_padding_and_row_order_change_no_weight(
    option: str, seed: int, extra: int, make_batch: Callable[..., Any]
) -> None:
    rows = make_batch(seed).rows
    plain = weights_of(option, rows.mask, rows.trajectory, sequence="trajectory")
    padded = torch.nn.functional.pad(rows.mask, (0, extra))
    torch.testing.assert_close(
        weights_of(option, padded, rows.trajectory, sequence="trajectory")[:, : rows.mask.shape[1]], plain
    )
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))
    shuffled = weights_of(option, rows.mask[order], rows.trajectory[order], sequence="trajectory")
    torch.testing.assert_close(shuffled, plain[order])


@pytest.mark.parametrize("option", OPTIONS)
def test_rows_without_tokens_leave_the_denominator(option: str, make_batch: Callable[..., Any]) -> None:
    rows = make_batch(1).rows
    emptied = rows.mask.clone()
    emptied[::2] = False
    without = weights_of(option, rows.mask[1::2], rows.trajectory[1::2])
    torch.testing.assert_close(weights_of(option, emptied, rows.trajectory)[1::2], without)


@pytest.mark.parametrize("option", OPTIONS)
def test_an_empty_mini_batch_weighs_nothing(option: str) -> None:
    weights = weights_of(option, torch.zeros(3, 4, dtype=torch.bool), torch.arange(3))
    assert weights.tolist() == torch.zeros(3, 4).tolist()


@pytest.mark.parametrize("option", OPTIONS)
def test_micro_batch_scope_is_the_mean_of_the_parts(option: str, make_batch: Callable[..., Any]) -> None:
    batch = make_batch(2)
    rows, cut = batch.rows, len(batch.rows) // 3
    splits = (slice(0, cut), slice(cut, len(rows)))
    whole = weights_of(option, rows.mask, rows.trajectory, scope="microbatch", micro_batches=splits)
    parts = [
        (weights_of(option, rows.mask[part], rows.trajectory[part]) * batch.log_probs[part]).sum()
        for part in splits
    ]
    torch.testing.assert_close((whole * batch.log_probs).sum(), (parts[0] + parts[1]) / 2)


def test_with_equal_lengths_token_and_sequence_means_are_the_same() -> None:
    mask, trajectory = torch.ones(5, 3, dtype=torch.bool), torch.arange(5)
    torch.testing.assert_close(
        weights_of("token_mean", mask, trajectory), weights_of("seq_mean_token_mean", mask, trajectory)
    )
