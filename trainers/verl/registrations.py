"""Our functions in verl's registries, under our names.

    policy losses          arlarena_<option of is_clipping>, aggregated by verl; their band from verl's keys
    advantage estimators   arlarena_<option of advantage> where a score per trajectory is all it needs
    trainer                trainer.v1.trainer_mode=arlarena: everything, as configured by the trial

Under the trainer, loss and advantages are the trial's (masks, units, anchors, entropies, filtering), which
verl's own signatures have no room for; their name in verl's registries is then `arlarena`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor
from verl.trainer.ppo.core_algos import (
    ADV_ESTIMATOR_REGISTRY,
    POLICY_LOSS_REGISTRY,
    agg_loss,
    register_adv_est,
    register_policy_loss,
)
from verl.trainer.ppo.v1 import PPOTrainerSync, register_trainer

from trainers.policy_gradient import advantage, is_clipping
from trainers.rows import Rows
from trainers.verl.translation import NAME, NO_DUAL_CLIP
from trainers.verl.updates import score_rows

CLIPS: Mapping[str, Mapping[str, str]] = {
    "token": {"lo": "clip_ratio_low", "hi": "clip_ratio_high", "dual_clip": "clip_ratio_c"},
    "token_higher": {"lo": "clip_ratio_low", "hi": "clip_ratio_high", "dual_clip": "clip_ratio_c"},
    "sequence": {"lo": "clip_ratio_low", "hi": "clip_ratio_high"},
    "soft": {"tau_pos": "tau_pos", "tau_neg": "tau_neg"},
    "cispo": {"lo": "clip_ratio_low", "hi": "clip_ratio_high"},
    "none": {},
}
"""Options as policy losses of verl's own trainer, and which of verl's keys their parameters are."""
ADVANTAGES = ("grpo", "dr_grpo", "rloo", "reinforce_pp", "lite")
"""Options that need no more than a score per trajectory."""


def policy_loss(
    option: str,
    old_log_prob: Tensor,
    log_prob: Tensor,
    advantages: Tensor,
    response_mask: Tensor,
    loss_agg_mode: str = "token-mean",
    config: Any = None,
    rollout_is_weights: Tensor | None = None,
) -> tuple[Tensor, dict[str, Any]]:
    """A clipping option with verl's signature and verl's aggregation; all tensors (rows, tokens).

    A row's advantage is that of its first token. Returns the loss and no metrics.
    """
    clip: Callable[..., Tensor] = getattr(is_clipping, option)
    parameters = {name: getattr(config, key) for name, key in CLIPS[option].items()}
    if parameters.get("dual_clip", 0.0) >= NO_DUAL_CLIP:
        parameters["dual_clip"] = None
    mask = response_mask.bool()
    first = mask.long().argmax(1, keepdim=True)
    row = torch.arange(len(mask), device=mask.device)
    objective = clip(log_prob, old_log_prob, advantages.gather(1, first)[:, 0], mask, row, **parameters)
    if rollout_is_weights is not None:
        objective = objective * rollout_is_weights
    return agg_loss(-objective, response_mask, loss_agg_mode, **config.global_batch_info), {}


def estimate(
    option: str,
    token_level_rewards: Tensor,
    response_mask: Tensor,
    index: Any = None,
    config: Any = None,
    **_: Any,
) -> tuple[Tensor, Tensor]:
    """An advantage option with verl's signature: a row per trajectory, `index` says which group it is of.

    Returns advantages and returns, both (rows, tokens).
    """
    groups: dict[Any, int] = {}
    numbers = torch.tensor([groups.setdefault(uid, len(groups)) for uid in index])
    rows: Rows = score_rows(token_level_rewards.sum(1).cpu(), response_mask.bool().cpu(), numbers)
    value = getattr(advantage, option)(rows).to(token_level_rewards)
    spread = value[:, None] * response_mask
    return spread, spread


def _only_under_our_trainer(*_: Any, **__: Any) -> Any:
    raise RuntimeError(
        f"the name {NAME!r} means what a trial of ARLArena configures, which needs its trainer: set "
        f"trainer.v1.trainer_mode={NAME} (`arena export TRIAL --to verl` writes the whole configuration)"
    )


class OurTrainer(PPOTrainerSync):
    """Stands in verl's registry for `trainers.verl.trainer.Trainer`, which is imported when one is made.

    That module imports verl, which imports this one.
    """

    def __new__(cls, config: Any) -> Any:
        """The trainer itself."""
        module = importlib.import_module("trainers.verl.trainer")
        return module.Trainer(config)


def register() -> None:
    """Put our functions into verl's registries; a second time changes nothing."""
    for option in CLIPS:
        if f"{NAME}_{option}" not in POLICY_LOSS_REGISTRY:
            register_policy_loss(f"{NAME}_{option}")(partial(policy_loss, option))
    for option in ADVANTAGES:
        if f"{NAME}_{option}" not in ADV_ESTIMATOR_REGISTRY:
            register_adv_est(f"{NAME}_{option}")(partial(estimate, option))
    if NAME not in POLICY_LOSS_REGISTRY:
        register_policy_loss(NAME)(_only_under_our_trainer)
        register_adv_est(NAME)(_only_under_our_trainer)
        register_trainer(NAME)(OurTrainer)


register()
