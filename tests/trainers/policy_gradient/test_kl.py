"""KL estimators against their formulas, and KL in the reward."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from trainers.policy_gradient import kl
from trainers.policy_gradient.advantage import scores

FORMULAS: dict[str, Callable[[float], float]] = {
    "k1": lambda d: d,
    "k2": lambda d: d * d / 2,
    "k3": lambda d: min(math.exp(-d) + d - 1, 10.0),
}
every_estimator = pytest.mark.parametrize("name", sorted(FORMULAS))


@every_estimator
@pytest.mark.parametrize("d", [-25.0, -3.0, -0.4, -1e-5, 0.0, 1e-5, 0.4, 3.0, 25.0])
def test_estimates_are_those_of_the_formula(name: str, d: float) -> None:
    log_probs = torch.tensor([[d - 2.0]], dtype=torch.float64)
    estimate = kl.ESTIMATORS[name](log_probs, torch.full_like(log_probs, -2.0), torch.tensor([[True]]))  # type: ignore[index]
    assert float(estimate) == pytest.approx(FORMULAS[name](max(-20.0, min(20.0, d))), abs=1e-12)


@every_estimator
def test_gradients_are_those_of_finite_differences(name: str, make_batch: Callable[..., Any]) -> None:
    batch = make_batch(1)
    estimator = kl.ESTIMATORS[name]  # type: ignore[index]
    log_probs = batch.log_probs.clone().requires_grad_()
    assert torch.autograd.gradcheck(
        lambda x: estimator(x, batch.ref_log_probs, batch.rows.mask), (log_probs,), eps=1e-7, atol=1e-6
    )


@every_estimator
def test_nothing_counts_outside_the_mask(name: str, make_batch: Callable[..., Any]) -> None:
    batch = make_batch(2)
    junk = torch.where(batch.rows.mask, batch.log_probs, torch.nan)
    estimate = kl.ESTIMATORS[name](junk, batch.ref_log_probs, batch.rows.mask)  # type: ignore[index]
    assert not estimate[~batch.rows.mask].any()


@pytest.mark.parametrize("name", ["k1", "k3"])
def test_the_mean_over_samples_is_the_kl_divergence(name: str) -> None:
    p = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)
    q = torch.tensor([0.4, 0.4, 0.2], dtype=torch.float64)
    exact = float((p * (p / q).log()).sum())
    estimate = kl.ESTIMATORS[name](p.log()[None], q.log()[None], torch.ones(1, 3, dtype=torch.bool))  # type: ignore[index]
    assert float((p * estimate).sum()) == pytest.approx(exact)


def test_in_the_reward_a_return_loses_the_kl_of_all_its_rows(make_batch: Callable[..., Any]) -> None:
    batch = make_batch(3)
    rows = batch.rows
    charged = kl.charge_rewards(rows, batch.ref_log_probs, coefficient=0.1, estimator=kl.k1)
    for trajectory in set(rows.trajectory.tolist()):
        own = rows.trajectory == trajectory
        paid = sum(
            float(old - ref)
            for old_row, ref_row, kept in zip(
                rows.old_log_probs[own], batch.ref_log_probs[own], rows.mask[own], strict=True
            )
            for old, ref in zip(old_row[kept], ref_row[kept], strict=True)
        )
        difference = (scores(rows) - scores(charged))[own].tolist()
        assert difference == pytest.approx([0.1 * paid] * len(difference))
