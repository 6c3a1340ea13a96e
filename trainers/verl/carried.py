"""The trial's configuration inside verl's, where all of verl's processes find it."""

from __future__ import annotations

from typing import Any

from trainers.config import TrainingConfig
from trainers.verl.translation import NAME


def trial_of(rollout: Any) -> TrainingConfig:
    """The trial, from verl's section `actor_rollout_ref.rollout`, an OmegaConf.

    What a trial has beside the part for back-ends (which back-end, the collapse rule) is left out. Raises
    ValueError when the section carries none.
    """
    from omegaconf import OmegaConf

    custom = OmegaConf.select(rollout, f"custom.{NAME}")
    if custom is None:
        raise ValueError(
            f"verl's configuration carries no trial in actor_rollout_ref.rollout.custom.{NAME}; "
            "`arena export TRIAL --to verl` writes one that does"
        )
    plain: Any = OmegaConf.to_container(custom, resolve=True)
    known = {name: value for name, value in plain.items() if name in TrainingConfig.model_fields}
    return TrainingConfig.model_validate(known)
