"""KL of the policy to the reference policy, estimated per token from the tokens it wrote.

With d = log pi - log ref, clamped to [-20, 20] (Schulman 2020, http://joschu.net/blog/kl-approx.html). Every
estimator is `estimator(log_probs, ref_log_probs, mask) -> (rows, tokens)`, in nats, 0 outside the mask;
all three are (rows, tokens) and at the training temperature.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from trainers.rows import Rows

Estimator = Callable[[Tensor, Tensor, Tensor], Tensor]

MAX_LOG_RATIO = 20.0
MAX_K3 = 10.0


def k1(log_probs: Tensor, ref_log_probs: Tensor, mask: Tensor) -> Tensor:
    """d: unbiased, may be negative; as a loss its expected gradient on-policy is zero."""
    return torch.where(mask, log_probs - ref_log_probs, 0.0).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)


def k2(log_probs: Tensor, ref_log_probs: Tensor, mask: Tensor) -> Tensor:
    """d^2 / 2: biased, and as a loss its gradient on-policy is that of KL(pi || ref)."""
    return k1(log_probs, ref_log_probs, mask).square() / 2


def k3(log_probs: Tensor, ref_log_probs: Tensor, mask: Tensor) -> Tensor:
    """exp(-d) + d - 1, at most 10: unbiased below the bound and never negative."""
    d = k1(log_probs, ref_log_probs, mask)
    # expm1 keeps the digits that exp(-d) - 1 loses near d = 0
    return (torch.expm1(-d) + d).clamp(max=MAX_K3)


ESTIMATORS: Mapping[Literal["k1", "k2", "k3"], Estimator] = {"k1": k1, "k2": k2, "k3": k3}


def charge_rewards(rows: Rows, ref_log_probs: Tensor, *, coefficient: float, estimator: Estimator) -> Rows:
    """The rows with KL taken off their rewards: r_ik loses beta sum_t KL_t of pi_old, so R_i loses it all.

    ref_log_probs: (rows, tokens). For KL in the reward, after filtering and before the advantages.
    """
    charge = coefficient * estimator(rows.old_log_probs, ref_log_probs, rows.mask).sum(1)
    return replace(rows, rewards=rows.rewards - charge)
