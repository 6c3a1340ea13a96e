"""Small random batches, in float64 so that what is compared is the formula and not its rounding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from trainers.config import OptionConfig, TrainingConfig
from trainers.rows import Rows

torch.set_num_threads(1)


@dataclass(frozen=True)
class Batch:
    """Rows with what an update adds to them: the policy's log-probs, the reference's, advantages."""

    rows: Rows
    log_probs: Tensor
    ref_log_probs: Tensor
    advantages: Tensor


def _make_batch(
    seed: int = 0,
    *,
    groups: int = 3,
    group_size: int = 3,
    max_turns: int = 4,
    tokens: int = 6,
    drift: float = 0.4,
) -> Batch:
    """Groups of trajectories of 1 to `max_turns` turns, in shuffled row order, junk outside the mask.

    drift: standard deviation of the token log-ratios.
    """
    generator = torch.Generator().manual_seed(seed)

    def uniform(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator, dtype=torch.float64)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    turns = torch.randint(1, max_turns + 1, (groups * group_size,), generator=generator)
    trajectory = torch.arange(groups * group_size).repeat_interleave(turns)
    turn = torch.cat([torch.arange(count) for count in turns.tolist()])
    order = torch.randperm(len(trajectory), generator=generator)
    trajectory, turn = trajectory[order], turn[order]
    n = len(trajectory)
    lengths = torch.randint(1, tokens + 1, (n,), generator=generator)
    mask = torch.arange(tokens) < lengths[:, None]
    old = torch.where(mask, -3 * uniform(n, tokens), 5.0)
    success = torch.rand(groups * group_size, generator=generator) < 0.5
    last = turn == turns[trajectory] - 1
    rows = Rows(
        prompts=torch.zeros(n, 2, dtype=torch.long),
        prompt_lengths=torch.full((n,), 2),
        prompt_id=torch.arange(n),
        responses=torch.randint(2, 9, (n, tokens), generator=generator) * mask,
        mask=mask,
        old_log_probs=old,
        entropies=uniform(n) * 2,
        group=trajectory // group_size,
        trajectory=trajectory,
        turn=turn,
        rewards=torch.where(last & success[trajectory], 10.0, -0.1).double(),
        penalties=torch.where(uniform(n) < 0.3, 0.1, 0.0).double(),
        anchor=torch.randint(0, 4, (n,), generator=generator),
        success=success[trajectory],
        # two alike, one with the same letters in another order, one of its own
        anchor_texts=("abcdefghij", "abcdefghix", "jihgfedcba", "zzz"),
    )
    return Batch(
        rows=rows,
        log_probs=torch.where(mask, old + drift * normal(n, tokens), -7.0),
        ref_log_probs=torch.where(mask, old + drift * normal(n, tokens), 3.0),
        advantages=normal(n),
    )


def _make_config(**sections: Any) -> TrainingConfig:
    """A config by option names: `is_clipping="token"` or `is_clipping={"token": {"lo": 0.1}}`."""
    axes = {
        "loss_aggregation": "token_mean",
        "is_clipping": "token",
        "dynamic_filtering": "none",
        "advantage": "grpo",
    }
    options = {}
    for axis, default in axes.items():
        entry = sections.pop(axis, default)
        name, parameters = next(iter(entry.items())) if isinstance(entry, dict) else (entry, {})
        function = f"trainers.policy_gradient.{axis}.{name}"
        options[axis] = OptionConfig.model_validate({"option": name, "function": function, **parameters})
    return TrainingConfig.model_validate({**options, "env": {}, **sections})


@pytest.fixture(scope="session")
def make_batch() -> Callable[..., Batch]:
    return _make_batch


@pytest.fixture(scope="session")
def make_config() -> Callable[..., TrainingConfig]:
    return _make_config
