"""The loss as verl's workers compute it on parts of a mini-batch, against the native trainer's."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from trainers.config import TrainingConfig
from trainers.minibatches import Minibatch
from trainers.policy_gradient import advantage
from trainers.policy_gradient.objective import Objective
from trainers.rows import Rows
from trainers.verl.updates import Micro, engine_weights, micro_loss, prepare_update

TOLERANCE = 1e-6
MASK = {"delta": 0.05}
POINTS: dict[str, dict[str, Any]] = {
    "token": {"is_clipping": {"token": {"lo": 0.2, "hi": 0.2, "dual_clip": 3.0}}},
    "token_higher": {"is_clipping": {"token_higher": {"lo": 0.2, "hi": 0.28}}},
    "sequence": {
        "is_clipping": {"sequence": {"lo": 0.1, "hi": 0.1}},
        "loss_aggregation": "seq_mean_token_mean",
    },
    "trajectory": {
        "is_clipping": {"sequence": {"lo": 0.05, "hi": 0.05, "unit": "trajectory"}},
        "loss_aggregation": {"seq_mean_token_mean": {"sequence": "trajectory"}},
    },
    "soft": {"is_clipping": "soft", "loss_aggregation": "seq_mean_token_sum_norm"},
    "cispo": {"is_clipping": {"cispo": {"lo": 1.0, "hi": 0.2, "sequence_mask": MASK}}},
    "token_mask": {"is_clipping": {"token": {"token_mask": MASK | {"denominator": "all"}}}},
    "random_mask": {
        "is_clipping": {"cispo": {"random_mask": MASK}},
        "loss_aggregation": "seq_mean_token_sum",
    },
    "gated": {
        "is_clipping": {
            "gated": {
                "weight": "sequence",
                "low": {"level": "sequence", "eps": 0.1},
                "high": {"level": "token", "eps": 0.2},
                "rule": "gate",
            }
        }
    },
    "random_gate": {
        "is_clipping": {
            "gated": {
                "weight": "token",
                "low": {"level": "token", "share": 0.4},
                "high": {"level": "sequence", "share": 0.4},
                "rule": "gate",
            }
        }
    },
    "random_gate_of_trajectories": {
        "is_clipping": {
            "gated": {
                "weight": "sequence",
                "low": {"level": "sequence", "share": 0.5},
                "high": None,
                "rule": "gate",
                "unit": "trajectory",
            }
        }
    },
    "none": {"is_clipping": "none", "loss_aggregation": {"token_mean": {"scope": "microbatch"}}},
}


def trial(make_config: Callable[..., TrainingConfig], point: str, **trainer: Any) -> TrainingConfig:
    settings = {
        "kl": {"coefficient": 0.1, "estimator": "k3", "where": "loss"},
        "entropy_bonus": 0.05,
        "shuffle": "trajectories",
        "micro_rows": 4,
        **trainer,
    }
    return make_config(**POINTS[point], trainer=settings)


def native(objective: Objective, batch: Any, minibatch: Minibatch) -> tuple[float, Tensor, Tensor]:
    """The native loss of a mini-batch and its gradient by the step's log-probs and entropies."""
    leaf = batch.log_probs.clone().requires_grad_()
    entropies = (batch.log_probs.detach() * 0.1).requires_grad_()
    parts = torch.split(minibatch.index, objective.micro_rows or len(minibatch.index))
    indices = itertools.cycle(parts)  # a pass without gradient may come first

    def score(rows: Rows) -> tuple[Tensor, Tensor]:
        index = next(indices)
        assert len(index) == len(rows)
        return leaf[index], entropies[index]

    result = objective.backward(
        batch.rows.select(minibatch.index),
        batch.advantages[minibatch.index],
        batch.ref_log_probs[minibatch.index],
        score,
        torch.Generator().manual_seed(5),
    )
    assert leaf.grad is not None
    return result.loss, leaf.grad, torch.zeros_like(leaf) if entropies.grad is None else entropies.grad


def in_parts(
    objective: Objective, batch: Any, minibatch: Minibatch, part: int
) -> tuple[float, Tensor, Tensor]:
    """The same as workers compute it, `part` rows at a time, in another order."""
    known = batch.log_probs if objective.needs_every_row else batch.rows.old_log_probs
    update = prepare_update(
        objective,
        batch.rows,
        batch.advantages,
        known,
        minibatch,
        generator=torch.Generator().manual_seed(5),
    )
    leaf = batch.log_probs.clone().requires_grad_()
    entropies = (batch.log_probs.detach() * 0.1).requires_grad_()
    order = torch.randperm(len(update.index), generator=torch.Generator().manual_seed(1))
    total = 0.0
    for some in torch.split(order, part):
        index = update.index[some]
        micro = Micro(
            mask=batch.rows.mask[index],
            old_log_probs=batch.rows.old_log_probs[index],
            ref_log_probs=batch.ref_log_probs[index],
            advantages=batch.advantages[index],
            policy=update.weights.policy[some],
            every=update.weights.every[some],
            rest=None if update.rest is None else update.rest[some],
            draws=None if update.weights.draws is None else update.weights.draws[some],
        )
        loss = micro_loss(objective, micro, leaf[index], entropies[index])
        loss.backward()  # type: ignore[no-untyped-call]
        total += float(loss.detach())
    assert leaf.grad is not None
    assert entropies.grad is not None
    return total, leaf.grad, entropies.grad


def agree(ours: tuple[float, Tensor, Tensor], theirs: tuple[float, Tensor, Tensor]) -> None:
    assert ours[0] == pytest.approx(theirs[0], abs=TOLERANCE)
    assert float((ours[1] - theirs[1]).abs().max()) < TOLERANCE
    assert float((ours[2] - theirs[2]).abs().max()) < TOLERANCE
    assert float(theirs[1].abs().max()) > 1e-4


@pytest.mark.parametrize("part", [1, 3, 100])
@pytest.mark.parametrize("point", POINTS)
def test_parts_add_up_to_the_native_loss_and_gradient(
    point: str, part: int, make_batch: Callable[..., Any], make_config: Callable[..., TrainingConfig]
) -> None:
    batch = make_batch(3, groups=3, group_size=3)
    objective = Objective(trial(make_config, point))
    minibatch = Minibatch(torch.arange(len(batch.rows)), torch.zeros(len(batch.rows), dtype=torch.bool))
    agree(in_parts(objective, batch, minibatch, part), native(objective, batch, minibatch))


@pytest.mark.parametrize("point", ["token", "sequence", "cispo", "none", "trajectory"])
def test_copies_count_as_in_the_native_trainer(
    point: str, make_batch: Callable[..., Any], make_config: Callable[..., TrainingConfig]
) -> None:
    batch = make_batch(4, groups=3, group_size=3)
    objective = Objective(trial(make_config, point))
    # 3 twice more, 15 as a copy only
    index = torch.tensor([0, 1, 2, 3, 5, 8, 13, 3, 15, 3])
    minibatch = Minibatch(index, torch.arange(len(index)) >= 7)
    update = prepare_update(objective, batch.rows, batch.advantages, batch.log_probs, minibatch)
    assert update.index[update.copies].tolist() == [15]
    agree(in_parts(objective, batch, minibatch, 3), native(objective, batch, minibatch))


@pytest.mark.parametrize("per", ["token", "sequence"])
def test_engine_weights_are_verls(per: str, make_batch: Callable[..., Any]) -> None:
    helper = pytest.importorskip("verl.trainer.ppo.rollout_corr_helper")
    batch = make_batch(1)
    mask = batch.rows.mask
    ours = engine_weights(batch.log_probs, batch.rows.old_log_probs, mask, per=per, threshold=1.5)
    gap = torch.where(mask, batch.log_probs - batch.rows.old_log_probs, 0.0)
    theirs, _ = helper.compute_rollout_correction_weights(
        log_ratio=gap, response_mask=mask.double(), rollout_is=per, rollout_is_threshold=1.5
    )
    assert float((ours - theirs * mask).abs().max()) < TOLERANCE


@pytest.fixture(scope="module")
def registries() -> Any:
    """verl's core algorithms with our functions registered."""
    core = pytest.importorskip("verl.trainer.ppo.core_algos")
    pytest.importorskip("trainers.verl.plugin")
    return core


@pytest.mark.parametrize(
    ("option", "keys", "parameters"),
    [
        ("token", {"clip_ratio_low": 0.1, "clip_ratio_high": 0.3, "clip_ratio_c": 3.0}, {"dual_clip": 3.0}),
        ("sequence", {"clip_ratio_low": 0.1, "clip_ratio_high": 0.3}, {}),
        ("cispo", {"clip_ratio_low": 0.1, "clip_ratio_high": 0.3}, {}),
    ],
)
def test_a_registered_loss_is_the_option_under_verls_aggregation(
    option: str,
    keys: dict[str, float],
    parameters: dict[str, float],
    registries: Any,
    make_batch: Callable[..., Any],
    make_config: Callable[..., TrainingConfig],
) -> None:
    batch = make_batch(2)
    rows, mask = batch.rows, batch.rows.mask
    config = make_config(
        is_clipping={option: {"lo": 0.1, "hi": 0.3, **parameters}},
        trainer={"kl": {"coefficient": 0.0}},
    )
    objective = Objective(config)
    leaf = batch.log_probs.clone().requires_grad_()
    loss, _ = registries.get_policy_loss_fn(f"arlarena_{option}")(
        old_log_prob=rows.old_log_probs,
        log_prob=leaf,
        advantages=batch.advantages[:, None].expand_as(mask),
        response_mask=mask.double(),
        loss_agg_mode="token-mean",
        config=SimpleNamespace(**keys, global_batch_info={}),
    )
    loss.backward()
    minibatch = Minibatch(torch.arange(len(rows)), torch.zeros(len(rows), dtype=torch.bool))
    expected = native(objective, batch, minibatch)
    assert float(loss.detach()) == pytest.approx(expected[0], abs=TOLERANCE)
    assert leaf.grad is not None
    assert float((leaf.grad * mask - expected[1]).abs().max()) < TOLERANCE


@pytest.mark.parametrize("option", ["grpo", "dr_grpo", "rloo", "lite", "reinforce_pp"])
def test_a_registered_estimator_is_the_option(
    option: str, registries: Any, make_batch: Callable[..., Any]
) -> None:
    rows = make_batch(3, groups=4, group_size=5, max_turns=1).rows
    scores = torch.zeros_like(rows.old_log_probs)
    scores[torch.arange(len(rows)), rows.tokens - 1] = rows.rewards - rows.penalties
    found, _ = registries.get_adv_estimator_fn(f"arlarena_{option}")(
        token_level_rewards=scores,
        response_mask=rows.mask.double(),
        index=np.array(rows.group.tolist(), dtype=object),
    )
    expected = getattr(advantage, option)(rows)[:, None] * rows.mask
    assert float((found - expected).abs().max()) < TOLERANCE


def test_our_own_name_says_that_it_needs_our_trainer(registries: Any) -> None:
    with pytest.raises(RuntimeError, match="trainer_mode=arlarena"):
        registries.get_policy_loss_fn("arlarena")()


def test_patches_for_machines_without_gpu_wait_to_be_asked_for(registries: Any) -> None:
    platforms = pytest.importorskip("verl.plugin.platform")
    assert registries
    assert "trainers.verl.cpu_platform" not in sys.modules
    assert platforms.get_platform().device_name != "cpu"


@pytest.mark.parametrize("point", ["token", "sequence", "trajectory", "cispo", "random_gate"])
def test_verls_nested_batches_give_the_same_loss_and_gradient(
    point: str,
    registries: Any,
    make_batch: Callable[..., Any],
    make_config: Callable[..., TrainingConfig],
) -> None:
    """Through verl's own layout: packed outputs shifted by one, jagged fields, a mean over devices."""
    from tensordict import NonTensorData, TensorDict

    from trainers.verl import loss as module

    batch = make_batch(6, groups=3, group_size=3)
    rows = batch.rows
    config = trial(make_config, point, entropy_bonus=0.0)
    objective = Objective(config)
    minibatch = Minibatch(torch.arange(len(rows)), torch.zeros(len(rows), dtype=torch.bool))
    known = batch.log_probs if objective.needs_every_row else rows.old_log_probs
    update = prepare_update(
        objective,
        rows,
        batch.advantages,
        known,
        minibatch,
        generator=torch.Generator().manual_seed(5),
    )
    loss_function = module.MicroBatchLoss(config)
    leaf = batch.log_probs.clone().requires_grad_()
    lengths, prompt, devices = rows.tokens.tolist(), 2, 2

    def jagged(values: Tensor) -> Tensor:
        return torch.nested.as_nested_tensor(
            [row[:n] for row, n in zip(values, lengths, strict=True)], layout=torch.jagged
        )

    packed = [
        torch.cat([torch.zeros(prompt - 1).double(), row[:n], torch.zeros(1).double()])
        for row, n in zip(leaf, lengths, strict=True)
    ]
    model_output = {
        "log_probs": torch.nested.nested_tensor_from_jagged(
            torch.cat(packed), torch.tensor([0, *np.cumsum([prompt + n for n in lengths])])
        ),
    }
    model_output["entropy"] = model_output["log_probs"].detach()
    data = TensorDict(
        {
            "prompts": torch.nested.as_nested_tensor(
                [torch.zeros(prompt, dtype=torch.long)] * len(rows), layout=torch.jagged
            ),
            "responses": jagged(rows.responses),
            "response_mask": jagged(rows.mask.long()),
            "old_log_probs": jagged(rows.old_log_probs),
            "ref_log_prob": jagged(batch.ref_log_probs),
            module.POLICY: jagged(update.weights.policy),
            module.EVERY: jagged(update.weights.every),
            module.ADVANTAGE: batch.advantages,
            module.ROW: update.index,
            **({} if update.rest is None else {module.REST: update.rest}),
            **({} if update.weights.draws is None else {module.DRAWS: jagged(update.weights.draws)}),
        },
        batch_size=len(rows),
    )
    data["dp_size"] = NonTensorData(devices)
    loss, _ = loss_function(model_output=model_output, data=data)
    (loss / devices).backward()  # type: ignore[no-untyped-call]
    expected = native(objective, batch, minibatch)
    assert float(loss.detach()) / devices == pytest.approx(expected[0], abs=TOLERANCE)
    assert leaf.grad is not None
    assert float((leaf.grad - expected[1]).abs().max()) < TOLERANCE
    log_probs, _ = module.assemble(loss_function.take(), update.index, rows.mask.shape[1])
    assert float((log_probs - batch.log_probs)[rows.mask].abs().max()) < 1e-5
