"""A trial small enough for tests: a few seconds of one core."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from trainers.config import TrainingConfig
from trainers.native.cloning import make_clone

CONF = Path(__file__).parents[3] / "arena" / "conf"
AXES = ("loss_aggregation", "is_clipping", "dynamic_filtering", "advantage")
DEFAULTS = ("token_mean", "token", "none", "grpo")


def option(axis: str, name: str, **parameters: object) -> dict[str, Any]:
    """An option's file as a section of a trial's config."""
    values = yaml.safe_load((CONF / axis / f"{name}.yaml").read_text())
    return {"option": name, **values, **parameters}


Configure = Callable[..., TrainingConfig]


@pytest.fixture(scope="session")
def configure() -> Configure:
    """configure(axis=option name, trainer={...}, seed=...) gives a small trial."""
    torch.set_num_threads(1)

    def make(
        trainer: dict[str, Any] | None = None, seed: int = 0, **axes: str | dict[str, Any]
    ) -> TrainingConfig:
        env = yaml.safe_load((CONF / "env" / "sokoban.yaml").read_text())
        env.update(train_levels=200, eval_levels=64, max_optimal=4, max_turns=4)
        chosen = {}
        for axis, default in zip(AXES, DEFAULTS, strict=True):
            entry = axes.get(axis, default)
            chosen[axis] = option(axis, entry) if isinstance(entry, str) else entry
        return TrainingConfig.model_validate(
            {
                "seed": seed,
                "env": env,
                **chosen,
                "model": {"hidden": 16, "heads": 2, "layers": 1, "intermediate": 32, "max_positions": 64},
                "trainer": {
                    "steps": 4,
                    "groups": 4,
                    "group_size": 4,
                    "checkpoint_every": 2,
                    "minibatch": {"count": 2},
                    **(trainer or {}),
                },
                "cloning": {
                    "episodes": 300,
                    "batch": 64,
                    "stages": [
                        {"steps": 60, "learning_rate": 1e-2},
                        {"steps": 20, "learning_rate": 5e-3, "error": 0.5},
                    ],
                },
                "evaluation": {"every": 2, "episodes": 16},
            }
        )

    return make


@pytest.fixture(scope="session")
def clone(configure: Configure, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone for every trial of `configure`."""
    folder = tmp_path_factory.mktemp("clone")
    make_clone(configure(), folder, lambda done, total: None)
    return folder
