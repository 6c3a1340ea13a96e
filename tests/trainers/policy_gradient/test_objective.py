"""The loss of a mini-batch put together, against loops, and what must not change it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from trainers.policy_gradient.objective import Objective, Pass
from trainers.rows import Rows

CONF = Path(__file__).parents[3] / "arena" / "conf"
MASKS: dict[str, dict[str, Any]] = {
    "no mask": {},
    "sequence mask": {"sequence_mask": {"delta": 0.05}},
    "token mask, all": {"token_mask": {"delta": 0.1, "denominator": "all"}},
    "both": {"sequence_mask": {"delta": 0.05, "denominator": "all"}, "token_mask": {"delta": 0.3}},
}
AGGREGATIONS = ["token_mean", "seq_mean_token_mean", "seq_mean_token_sum", "seq_mean_token_sum_norm"]


class Table:
    """A policy whose parameters are the log-probs of the batch's tokens, one row per prompt."""

    def __init__(self, batch: Any) -> None:
        self.log_probs = batch.log_probs.clone().requires_grad_()
        self.calls = 0

    def score(self, rows: Rows) -> tuple[Tensor, Tensor]:
        self.calls += torch.is_grad_enabled()
        log_probs = self.log_probs[rows.prompt_id]
        return log_probs, log_probs.square()

    @property
    def gradient(self) -> Tensor:
        assert self.log_probs.grad is not None
        return self.log_probs.grad


def run(config: Any, batch: Any, generator: torch.Generator | None = None) -> tuple[Pass, Table]:
    policy = Table(batch)
    result = Objective(config).backward(
        batch.rows, batch.advantages, batch.ref_log_probs, policy.score, generator
    )
    return result, policy


def written_out(batch: Any, aggregation: str, masks: dict[str, Any], beta: float, eta: float) -> float:
    """-L_policy + beta KL (k3) - eta entropy of `token` clipping at 0.2, token by token."""
    rows, lengths = batch.rows, batch.rows.tokens.tolist()
    kept, counted = [], []
    for i, length in enumerate(lengths):
        log_w = [float(batch.log_probs[i, t] - rows.old_log_probs[i, t]) for t in range(length)]
        negative = float(batch.advantages[i]) < 0
        for t in range(length):
            falls = {"sequence_mask": -sum(log_w) / length, "token_mask": -log_w[t]}
            dropped = [mask for name, mask in masks.items() if negative and falls[name] > mask["delta"]]
            if not dropped:
                kept.append((i, t, log_w[t]))
            if all(mask.get("denominator") == "all" for mask in dropped):
                counted.append((i, t))
    everything = [(i, t) for i, length in enumerate(lengths) for t in range(length)]

    def weight(i: int, tokens: list[tuple[int, int]]) -> float:
        in_row = sum(row == i for row, _ in tokens)
        n = len({row for row, _ in tokens})
        return {
            "token_mean": 1 / len(tokens),
            "seq_mean_token_mean": 1 / (n * max(in_row, 1)),
            "seq_mean_token_sum": 1 / n,
            "seq_mean_token_sum_norm": 1 / (n * 32),
        }[aggregation]

    loss = 0.0
    for i, _, log_w_t in kept:
        a, w = float(batch.advantages[i]), math.exp(log_w_t)
        loss -= weight(i, counted) * min(w * a, min(max(w, 0.8), 1.2) * a)
    for i, t in everything:
        log_prob = float(batch.log_probs[i, t])
        d = log_prob - float(batch.ref_log_probs[i, t])
        loss += weight(i, everything) * (beta * (math.exp(-d) + d - 1) - eta * log_prob**2)
    return loss


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("masks", MASKS.values(), ids=MASKS.keys())
def test_the_loss_is_the_written_out_one(
    aggregation: str,
    masks: dict[str, Any],
    make_batch: Callable[..., Any],
    make_config: Callable[..., Any],
) -> None:
    batch = make_batch(1)
    config = make_config(
        loss_aggregation=aggregation,
        is_clipping={"token": masks},
        trainer={"kl": {"coefficient": 0.3}, "entropy_bonus": 0.2},
    )
    result, policy = run(config, batch)
    assert result.loss == pytest.approx(written_out(batch, aggregation, masks, 0.3, 0.2), rel=1e-5)
    i, t, step = 2, 0, 1e-6
    shifted = []
    for sign in (1, -1):
        log_probs = batch.log_probs.clone()
        log_probs[i, t] += sign * step
        shifted.append(written_out(replace(batch, log_probs=log_probs), aggregation, masks, 0.3, 0.2))
    assert float(policy.gradient[i, t]) == pytest.approx((shifted[0] - shifted[1]) / (2 * step), abs=1e-6)


@pytest.mark.parametrize(
    ("clipping", "aggregation", "masks"),
    [
        *itertools.product(
            [("token", {}), ("sequence", {"lo": 0.05, "hi": 0.05, "unit": "trajectory"})],
            AGGREGATIONS,
            ["no mask", "both"],
        ),
        (("gated", {"weight": "sequence", "unit": "trajectory"}), "token_mean", "sequence mask"),
        (("cispo", {}), "seq_mean_token_mean", "no mask"),
        (("soft", {}), "token_mean", "token mask, all"),
    ],
)
@given(
    seed=st.integers(0, 2**31), micro_rows=st.integers(1, 9), sequence=st.sampled_from(["row", "trajectory"])
)
@settings(max_examples=6, deadline=None)
def test_the_split_into_micro_batches_changes_nothing(
    clipping: tuple[str, dict[str, Any]],
    aggregation: str,
    masks: str,
    seed: int,
    micro_rows: int,
    sequence: str,
    make_batch: Callable[..., Any],
    make_config: Callable[..., Any],
) -> None:
    batch = make_batch(seed)
    option, parameters = clipping
    results = []
    for rows_at_once in (None, micro_rows):
        config = make_config(
            loss_aggregation={aggregation: {"sequence": sequence}},
            is_clipping={option: parameters | MASKS[masks]},
            trainer={"micro_rows": rows_at_once, "shuffle": "trajectories", "entropy_bonus": 0.1},
        )
        results.append(run(config, batch))
    (whole, policy), (split, split_policy) = results
    assert split.loss == pytest.approx(whole.loss, rel=1e-6, abs=1e-9)
    torch.testing.assert_close(split_policy.gradient, policy.gradient, rtol=1e-6, atol=1e-9)
    assert torch.equal(split.kept, whole.kept)
    assert torch.equal(split.log_probs, whole.log_probs)
    assert (policy.calls, split_policy.calls) == (1, math.ceil(len(batch.rows) / micro_rows))


def test_micro_batch_scope_averages_the_losses_of_the_parts(
    make_batch: Callable[..., Any], make_config: Callable[..., Any]
) -> None:
    batch = make_batch(2)
    size = math.ceil(len(batch.rows) / 2)
    scope = {"token_mean": {"scope": "microbatch"}}
    split, _ = run(make_config(loss_aggregation=scope, trainer={"micro_rows": size}), batch)
    losses = []
    for start in (0, size):
        part = batch.rows.select(torch.arange(start, min(start + size, len(batch.rows))))
        own = replace(
            batch,
            rows=part,
            advantages=batch.advantages[part.prompt_id],
            ref_log_probs=batch.ref_log_probs[part.prompt_id],
        )
        losses.append(run(make_config(), own)[0].loss)
    assert split.loss == pytest.approx(sum(losses) / 2, rel=1e-6)


def test_when_everything_is_dropped_only_kl_is_left(
    make_batch: Callable[..., Any], make_config: Callable[..., Any]
) -> None:
    batch = replace(make_batch(3, drift=0.0), advantages=-torch.ones(len(make_batch(3).rows)).double())
    batch = replace(batch, log_probs=batch.log_probs - 0.1, ref_log_probs=batch.rows.old_log_probs)
    masks = {"token": {"sequence_mask": {"delta": 0.05}}}
    result, policy = run(make_config(is_clipping=masks, trainer={"kl": {"coefficient": 0.5}}), batch)
    assert not result.kept.any()
    assert result.loss == pytest.approx(0.5 * (math.exp(0.1) - 0.1 - 1), rel=1e-6)
    assert bool((policy.gradient[batch.rows.mask] < 0).all())
    nothing, policy = run(make_config(is_clipping=masks, trainer={"kl": {"coefficient": 0.0}}), batch)
    assert nothing.loss == 0.0
    assert not policy.gradient.any()


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_with_one_update_per_rollout_all_clippings_have_the_same_gradient(
    aggregation: str, make_batch: Callable[..., Any], make_config: Callable[..., Any]
) -> None:
    batch = make_batch(4)
    batch = replace(batch, log_probs=batch.rows.old_log_probs)
    gate = {"level": "sequence", "eps": 0.1}
    gradients = []
    for clipping in (
        "none",
        "token",
        "token_higher",
        "soft",
        "cispo",
        "sequence",
        {"sequence": {"unit": "trajectory"}},
        {"gated": {"weight": "one", "low": gate, "high": gate}},
    ):
        config = make_config(
            loss_aggregation=aggregation, is_clipping=clipping, trainer={"shuffle": "trajectories"}
        )
        gradients.append(run(config, batch)[1].gradient)
    for gradient in gradients[1:]:
        torch.testing.assert_close(gradient, gradients[0])


@pytest.mark.parametrize("clipping", ["token", "soft", "cispo", "sequence", "none"])
def test_no_clipping_changes_the_aggregation(
    clipping: str, make_batch: Callable[..., Any], make_config: Callable[..., Any]
) -> None:
    batch = make_batch(5)
    batch = replace(
        batch, log_probs=batch.rows.old_log_probs, advantages=torch.ones(len(batch.rows)).double()
    )
    for aggregation, per_token in (
        ("token_mean", lambda tokens: 1 / tokens.sum().expand_as(tokens)),
        ("seq_mean_token_mean", lambda tokens: 1 / (len(tokens) * tokens)),
    ):
        config = make_config(
            loss_aggregation=aggregation, is_clipping=clipping, trainer={"kl": {"coefficient": 0.0}}
        )
        _, policy = run(config, batch)
        expected = -batch.rows.mask.float() * per_token(batch.rows.tokens)[:, None]
        torch.testing.assert_close(policy.gradient, expected.double())


@given(seed=st.integers(0, 2**31), extra=st.integers(1, 4))
@settings(max_examples=10, deadline=None)
def test_padding_changes_nothing(
    seed: int, extra: int, make_batch: Callable[..., Any], make_config: Callable[..., Any]
) -> None:
    batch = make_batch(seed)
    config = make_config(loss_aggregation="seq_mean_token_mean", is_clipping={"sequence": MASKS["both"]})

    def widen(values: Tensor) -> Tensor:
        return torch.nn.functional.pad(values, (0, extra))

    rows = replace(batch.rows, mask=widen(batch.rows.mask), old_log_probs=widen(batch.rows.old_log_probs))
    wide = replace(
        batch, rows=rows, log_probs=widen(batch.log_probs), ref_log_probs=widen(batch.ref_log_probs)
    )
    (plain, policy), (padded, wide_policy) = run(config, batch), run(config, wide)
    assert padded.loss == pytest.approx(plain.loss)
    torch.testing.assert_close(wide_policy.gradient, widen(policy.gradient))


def test_log_probs_outside_the_mask_may_be_anything(
    make_batch: Callable[..., Any], make_config: Callable[..., Any]
) -> None:
    batch = make_batch(6)
    config = make_config(is_clipping={"token": MASKS["both"]}, trainer={"entropy_bonus": 0.1})
    junk = replace(batch, log_probs=torch.where(batch.rows.mask, batch.log_probs, torch.nan))
    (plain, policy), (same, junk_policy) = run(config, batch), run(config, junk)
    assert same.loss == plain.loss
    torch.testing.assert_close(junk_policy.gradient[batch.rows.mask], policy.gradient[batch.rows.mask])


def test_a_random_mask_is_repeated_by_the_same_generator(
    make_batch: Callable[..., Any], make_config: Callable[..., Any]
) -> None:
    batch = make_batch(7)
    config = make_config(is_clipping={"token": {"random_mask": {"delta": 0.0}}})
    first, again = (run(config, batch, torch.Generator().manual_seed(3))[0] for _ in range(2))
    assert torch.equal(first.kept, again.kept)
    assert not torch.equal(first.kept, batch.rows.mask)


@pytest.mark.parametrize("unit", ["row", "trajectory"])
def test_a_random_gate_is_the_same_under_any_split_and_repeated_by_its_generator(
    unit: str, make_batch: Callable[..., Any], make_config: Callable[..., Any]
) -> None:
    batch = make_batch(7)
    gate = {"level": "sequence", "share": 0.5}

    def gradient(seed: int, rows_at_once: int | None = None) -> Tensor:
        config = make_config(
            is_clipping={"gated": {"low": gate, "high": {**gate, "level": "token"}, "unit": unit}},
            trainer={"micro_rows": rows_at_once, "shuffle": "trajectories"},
        )
        return run(config, batch, torch.Generator().manual_seed(seed))[1].gradient

    torch.testing.assert_close(gradient(3, 2), gradient(3))
    assert not torch.equal(gradient(4), gradient(3))
    with pytest.raises(ValueError, match="needs draws"):
        run(make_config(is_clipping={"gated": {"low": gate}}), batch)


def test_every_combination_of_options_gives_a_finite_loss_and_gradient(
    make_batch: Callable[..., Any], make_config: Callable[..., Any]
) -> None:
    batch = make_batch(12)
    options = {
        axis: sorted(path.stem for path in (CONF / axis).glob("*.yaml"))
        for axis in ("loss_aggregation", "is_clipping", "advantage")
    }
    for aggregation, clipping, advantage in itertools.product(*options.values()):
        objective = Objective(
            make_config(loss_aggregation=aggregation, is_clipping=clipping, advantage=advantage)
        )
        policy = Table(batch)
        advantages = objective.advantages(batch.rows)
        result = objective.backward(batch.rows, advantages, batch.ref_log_probs, policy.score)
        assert math.isfinite(result.loss), (aggregation, clipping, advantage)
        assert policy.gradient.isfinite().all()
        assert policy.gradient[batch.rows.mask].any()


# Void turns: out of the policy loss, in everything else.


def with_void(batch: Any) -> tuple[Any, Tensor]:
    """A batch of which every third row did nothing, and those rows."""
    rows = batch.rows
    idle = torch.arange(len(rows)) % 3 == 0
    return replace(batch, rows=replace(rows, void=rows.mask & idle[:, None])), idle


@pytest.mark.parametrize("denominator", ["kept", "all"])
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_void_turns_leave_the_policy_loss_and_nothing_else(
    aggregation: str, denominator: str, make_batch: Callable[..., Any], make_config: Callable[..., Any]
) -> None:
    batch, idle = with_void(make_batch(1))

    def config(beta: float, **trainer: Any) -> Any:
        return make_config(loss_aggregation=aggregation, trainer={"kl": {"coefficient": beta}, **trainer})

    dropped = {"void_turns": {"denominator": denominator}}
    objective = Objective(config(0.0, **dropped))
    assert objective.mark_void(batch.rows).void is batch.rows.void
    result, policy = run(config(0.0, **dropped), batch)
    assert torch.equal(result.kept, batch.rows.mask & ~idle[:, None])
    assert not policy.gradient[idle].any()
    # by hand: the loss of the other rows alone, over their number or everybody's
    rest = batch.rows.select(~idle)
    own = replace(batch, rows=rest, advantages=batch.advantages[~idle], ref_log_probs=batch.ref_log_probs)
    alone = run(config(0.0), own)[0].loss
    counts = {"token_mean": (rest.tokens.sum(), batch.rows.tokens.sum())}
    fewer, all_of_them = counts.get(aggregation, (len(rest), len(batch.rows)))
    scale = 1.0 if denominator == "kept" else float(fewer) / float(all_of_them)
    assert result.loss == pytest.approx(alone * scale, rel=1e-5)
    # KL keeps them
    with_kl = run(config(0.3, **dropped), batch)[0].loss - result.loss
    without = run(config(0.3), batch)[0].loss - run(config(0.0), batch)[0].loss
    assert with_kl == pytest.approx(without, rel=1e-4)


def test_a_trajectory_with_a_void_turn_is_dropped_whole_when_asked_to(
    make_batch: Callable[..., Any], make_config: Callable[..., Any]
) -> None:
    batch, idle = with_void(make_batch(2))
    objective = Objective(make_config(trainer={"void_turns": {"drop": "trajectory"}}))
    rows = objective.mark_void(batch.rows)
    touched = set(rows.trajectory[idle].tolist())
    expected = torch.tensor([int(trajectory) in touched for trajectory in rows.trajectory])
    assert rows.void is not None
    assert torch.equal(rows.void, rows.mask & expected[:, None])
    assert 0 < int(expected.sum()) > int(idle.sum())
    assert Objective(make_config()).mark_void(batch.rows).void is None


def test_kl_in_the_reward_leaves_the_loss_and_changes_the_scores(
    make_batch: Callable[..., Any], make_config: Callable[..., Any]
) -> None:
    batch = make_batch(8)
    plain = Objective(make_config(trainer={"kl": {"where": "log_only"}}))
    charged = Objective(make_config(trainer={"kl": {"where": "reward", "estimator": "k1"}}))
    assert not charged.needs_reference
    assert plain.charge_kl(batch.rows, batch.ref_log_probs) is batch.rows
    rows = charged.charge_kl(batch.rows, batch.ref_log_probs)
    assert not torch.equal(charged.advantages(rows), charged.advantages(batch.rows))


def test_kl_in_the_loss_needs_a_reference(
    make_batch: Callable[..., Any], make_config: Callable[..., Any]
) -> None:
    batch = make_batch(9)
    with pytest.raises(ValueError, match="needs ref_log_probs"):
        Objective(make_config()).backward(batch.rows, batch.advantages, None, Table(batch).score)


def test_an_entropy_bonus_without_a_gradient_is_refused(
    make_batch: Callable[..., Any], make_config: Callable[..., Any]
) -> None:
    batch = make_batch(9)
    policy = Table(batch)

    def score(rows: Rows) -> tuple[Tensor, Tensor]:
        log_probs, entropies = policy.score(rows)
        return log_probs, entropies.detach()

    objective = Objective(make_config(trainer={"entropy_bonus": 0.1}))
    with pytest.raises(ValueError, match="entropies with gradient"):
        objective.backward(batch.rows, batch.advantages, batch.ref_log_probs, score)


def test_trajectory_ratios_under_shuffled_rows_are_refused(make_config: Callable[..., Any]) -> None:
    with pytest.raises(ValueError, match="shuffle: trajectories"):
        Objective(make_config(is_clipping={"sequence": {"unit": "trajectory"}}))
