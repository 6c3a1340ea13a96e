"""verl's own functions as a second oracle: the same numbers to 1e-6 wherever both have a thing.

Left out because verl means something else: groups of one (verl gives them A = R), and SAPO under other
aggregations (verl's own is fixed).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from trainers.policy_gradient import advantage, is_clipping, kl, loss_aggregation
from trainers.policy_gradient.loss_aggregation import token_weights
from trainers.policy_gradient.parameters import AggregationSettings

pytest.importorskip("verl")
core = pytest.importorskip("verl.trainer.ppo.core_algos")
workers = pytest.importorskip("verl.workers.config")

TOLERANCE = 1e-6
AGGREGATIONS = ["token_mean", "seq_mean_token_mean", "seq_mean_token_sum", "seq_mean_token_sum_norm"]
every_aggregation = pytest.mark.parametrize("aggregation", AGGREGATIONS)
every_seed = pytest.mark.parametrize("seed", range(5))


def weights(aggregation: str, mask: Tensor, max_tokens: int) -> Tensor:
    return token_weights(
        getattr(loss_aggregation, aggregation),
        mask,
        torch.arange(len(mask)),
        settings=AggregationSettings(),
        max_tokens=max_tokens,
    )


def close(ours: Tensor, theirs: Tensor) -> None:
    assert float((ours.double() - theirs.double()).abs().max()) < TOLERANCE


@every_aggregation
@every_seed
def test_aggregation(aggregation: str, seed: int, make_batch: Callable[..., Any]) -> None:
    batch = make_batch(seed)
    mask, losses = batch.rows.mask.clone(), torch.where(batch.rows.mask, batch.log_probs, 0.0)
    mask[0] = False
    mode = aggregation.replace("_", "-")
    theirs = core.agg_loss(losses, mask.double(), mode, loss_scale_factor=11)
    close((weights(aggregation, mask, 11) * losses).sum(), theirs)


# our option and parameters, verl's name and its config's keys
LOSSES: list[tuple[str, dict[str, Any], str, dict[str, Any]]] = [
    (
        "token",
        {"lo": 0.2, "hi": 0.2, "dual_clip": 3.0},
        "vanilla",
        {"clip_ratio_low": 0.2, "clip_ratio_high": 0.2, "clip_ratio_c": 3.0},
    ),
    (
        "token",
        {"lo": 0.1, "hi": 0.3, "dual_clip": 1.2},
        "vanilla",
        {"clip_ratio_low": 0.1, "clip_ratio_high": 0.3, "clip_ratio_c": 1.2},
    ),
    (
        "token_higher",
        {"lo": 0.2, "hi": 0.28, "dual_clip": 1e9},
        "vanilla",
        {"clip_ratio_low": 0.2, "clip_ratio_high": 0.28, "clip_ratio_c": 1e9},
    ),
    (
        "sequence",
        {"lo": 3e-3, "hi": 4e-3},
        "gspo",
        {"clip_ratio_low": 3e-3, "clip_ratio_high": 4e-3},
    ),
    ("sequence", {"lo": 0.1, "hi": 0.2}, "gspo", {"clip_ratio_low": 0.1, "clip_ratio_high": 0.2}),
    ("cispo", {"lo": 1.0, "hi": 0.2}, "cispo", {"clip_ratio_low": 1.0, "clip_ratio_high": 0.2}),
    ("soft", {"tau_pos": 1.0, "tau_neg": 1.05}, "sapo", {"tau_pos": 1.0, "tau_neg": 1.05}),
]


@pytest.mark.parametrize(
    ("option", "parameters", "name", "keys", "aggregation"),
    [
        (*loss, aggregation)
        for loss in LOSSES
        for aggregation in AGGREGATIONS
        if loss[2] != "sapo" or aggregation == "seq_mean_token_mean"
    ],
)
@every_seed
def test_clipping_value_and_gradient(
    option: str,
    parameters: dict[str, Any],
    name: str,
    keys: dict[str, Any],
    aggregation: str,
    seed: int,
    make_batch: Callable[..., Any],
) -> None:
    batch = make_batch(seed, drift=0.5)
    rows, mask = batch.rows, batch.rows.mask
    old = torch.where(mask, rows.old_log_probs, 0.0)
    gradients = []
    values = []
    for ours in (True, False):
        log_probs = torch.where(mask, batch.log_probs, 0.0).requires_grad_()
        if ours:
            objective = getattr(is_clipping, option)(
                log_probs, old, batch.advantages, mask, rows.trajectory, **parameters
            )
            loss = -(weights(aggregation, mask, mask.shape[1]) * objective).sum()
        else:
            config = workers.FSDPActorConfig(
                strategy="fsdp", rollout_n=1, ppo_micro_batch_size_per_gpu=1, **keys
            )
            loss, _ = core.get_policy_loss_fn(name)(
                old_log_prob=old,
                log_prob=log_probs,
                advantages=batch.advantages[:, None].expand_as(old),
                response_mask=mask.double(),
                loss_agg_mode=aggregation.replace("_", "-"),
                config=config,
            )
        loss.backward()
        values.append(loss.detach())
        assert log_probs.grad is not None
        gradients.append(log_probs.grad)
    close(values[0], values[1])
    close(gradients[0], gradients[1] * mask)


@pytest.mark.parametrize(("ours", "theirs"), [("k1", "kl"), ("k2", "mse"), ("k3", "low_var_kl")])
@every_seed
def test_kl_estimators(ours: str, theirs: str, seed: int, make_batch: Callable[..., Any]) -> None:
    batch = make_batch(seed, drift=1.0)
    estimate = kl.ESTIMATORS[ours](batch.log_probs, batch.ref_log_probs, batch.rows.mask)  # type: ignore[index]
    expected = core.kl_penalty(batch.log_probs, batch.ref_log_probs, theirs)
    close(estimate, expected * batch.rows.mask)


@pytest.mark.parametrize(
    ("option", "parameters", "name", "keys"),
    [
        ("grpo", {}, "grpo", {"norm_adv_by_std_in_grpo": True}),
        ("dr_grpo", {}, "grpo", {"norm_adv_by_std_in_grpo": False}),
        ("rloo", {}, "rloo", {}),
        ("reinforce_pp", {"over": "token"}, "reinforce_plus_plus", {"config": {"gamma": 1.0}}),
    ],
)
@every_seed
def test_advantages(
    option: str,
    parameters: dict[str, Any],
    name: str,
    keys: dict[str, Any],
    seed: int,
    make_batch: Callable[..., Any],
) -> None:
    # one row per trajectory, which is all that verl's estimators know
    rows = make_batch(seed, groups=4, group_size=5, max_turns=1).rows
    if "config" in keys:
        algorithm = pytest.importorskip("verl.trainer.config")
        keys = {"config": algorithm.AlgoConfig(**keys["config"])}
    scores = torch.zeros_like(rows.old_log_probs)
    scores[torch.arange(len(rows)), rows.tokens - 1] = rows.rewards - rows.penalties
    theirs, _ = core.get_adv_estimator_fn(name)(
        token_level_rewards=scores,
        response_mask=rows.mask.double(),
        index=np.array(rows.group.tolist(), dtype=object),
        **keys,
    )
    ours = getattr(advantage, option)(rows, **parameters)
    close(ours[:, None] * rows.mask, theirs)
