"""Every clipping option against a loop over tokens written from its formula, values and gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trainers.policy_gradient import is_clipping
from trainers.policy_gradient.parameters import Gate

# (option, parameters); every option of the axis is here at least once
CASES: list[tuple[str, dict[str, Any]]] = [
    ("token", {"lo": 0.2, "hi": 0.2}),
    ("token", {"lo": 0.1, "hi": 0.3, "dual_clip": 1.4}),
    ("token_higher", {"lo": 0.2, "hi": 0.28}),
    ("sequence", {"lo": 0.05, "hi": 0.08}),
    ("sequence", {"lo": 0.05, "hi": 0.08, "unit": "trajectory"}),
    ("soft", {"tau_pos": 1.0, "tau_neg": 1.05}),
    ("soft", {"tau_pos": 3.0, "tau_neg": 0.5}),
    ("cispo", {"lo": 1.0, "hi": 0.2}),
    ("cispo", {"lo": 0.3, "hi": 4.0}),
    ("gated", {}),
    ("gated", {"weight": "one"}),
    ("gated", {"weight": "sequence", "low": Gate(level="token", eps=0.2)}),
    ("gated", {"weight": "token", "high": Gate(level="sequence", eps=0.02), "unit": "trajectory"}),
    (
        "gated",
        {"low": Gate(level="token", eps=0.2), "high": Gate(level="sequence", eps=0.1), "rule": "truncate"},
    ),
    ("none", {}),
]
# controls that silence tokens at random, whatever their ratio: no policy gradient where nothing has moved
AT_RANDOM: list[tuple[str, dict[str, Any]]] = [
    ("gated", {"low": Gate(level="token", share=0.3)}),
    ("gated", {"weight": "one", "high": Gate(level="sequence", share=0.5)}),
    (
        "gated",
        {"low": Gate(level="sequence", share=0.4), "high": Gate(level="token", eps=0.1), "rule": "truncate"},
    ),
    ("gated", {"low": Gate(level="token", share=1.0), "high": Gate(level="token", share=0.0)}),
]


def name_of(case: tuple[str, dict[str, Any]]) -> str:
    return case[0] + "".join(f"-{key}={value}" for key, value in case[1].items())


every_option = pytest.mark.parametrize("case", [*CASES, *AT_RANDOM], ids=name_of)


def draws_of(batch: Any) -> torch.Tensor:
    return torch.rand(batch.rows.mask.shape, generator=torch.Generator().manual_seed(11))


def written_out(
    option: str, parameters: dict[str, Any], batch: Any
) -> tuple[list[list[float]], list[list[float]]]:
    """Objective and its gradient with respect to the token's log-prob, token by token.

    The gradient of `sequence` is that of the sum over the row's tokens.
    """
    rows = batch.rows
    log_w = [
        [float(new - old) for new, old, kept in zip(*row, strict=True) if kept]
        for row in zip(batch.log_probs, rows.old_log_probs, rows.mask, strict=True)
    ]
    by_trajectory: dict[int, list[float]] = {}
    for row, trajectory in zip(log_w, rows.trajectory.tolist(), strict=True):
        by_trajectory.setdefault(trajectory, []).extend(row)
    values, gradients = [], []
    draws = draws_of(batch).tolist()
    for number, row in enumerate(log_w):
        a = float(batch.advantages[number])
        pool = row
        if parameters.get("unit") == "trajectory":
            pool = by_trajectory[int(rows.trajectory[number])]
        s = math.exp(min(sum(pool) / len(pool), 10))
        pairs = [
            token_of(option, parameters, math.exp(min(max(lw, -20), 20)), s, a, float(log_prob), drawn)
            for lw, log_prob, *drawn in zip(
                row, batch.log_probs[number], draws[number], [draws[number][0]] * len(row), strict=False
            )
        ]
        values.append([value for value, _ in pairs])
        gradients.append([gradient for _, gradient in pairs])
    return values, gradients


def token_of(
    option: str, p: dict[str, Any], w: float, s: float, a: float, log_prob: float, drawn: list[float]
) -> tuple[float, float]:
    if option == "none":
        return w * a, w * a
    if option == "soft":
        tau = p["tau_pos"] if a > 0 else p["tau_neg"]
        sigmoid = 1 / (1 + math.exp(-tau * (w - 1)))
        return 4 / tau * sigmoid * a, 4 * sigmoid * (1 - sigmoid) * w * a
    if option == "cispo":
        weight = min(max(w, 1 - p["lo"]), 1 + p["hi"])
        return weight * a * log_prob, weight * a
    if option == "gated":
        ratios = {"token": w, "sequence": s, "one": 1.0}
        weight, outside = ratios[p.get("weight", "token")], False
        low, high = p.get("low"), p.get("high")
        by_level = dict(zip(("token", "sequence"), drawn, strict=True))
        for gate, concerned in ((low, a < 0), (high, a > 0)):
            if gate and gate.share is not None and concerned:
                outside = outside or by_level[gate.level] < gate.share
        if low and low.eps and a < 0 and ratios[low.level] < 1 - low.eps:
            outside = True
            weight = max(weight, 1 - low.eps) if p.get("rule") == "truncate" else weight
        if high and high.eps and a > 0 and ratios[high.level] > 1 + high.eps:
            outside = True
            weight = min(weight, 1 + high.eps) if p.get("rule") == "truncate" else weight
        silent = outside and p.get("rule", "gate") == "gate"
        return weight * a, 0.0 if silent else weight * a
    ratio = s if option == "sequence" else w
    clipped = min(max(ratio, 1 - p["lo"]), 1 + p["hi"])
    value = min(ratio * a, clipped * a)
    gradient = ratio * a if ratio * a <= clipped * a else 0.0
    if "dual_clip" in p and a < 0 and value < p["dual_clip"] * a:
        value, gradient = p["dual_clip"] * a, 0.0
    return value, gradient


def objective_of(case: tuple[str, dict[str, Any]], batch: Any, log_probs: torch.Tensor) -> torch.Tensor:
    rows = batch.rows
    function = getattr(is_clipping, case[0])
    drawn = [draws_of(batch)] if case[0] == "gated" else []
    result: torch.Tensor = function(
        log_probs, rows.old_log_probs, batch.advantages, rows.mask, rows.trajectory, *drawn, **case[1]
    )
    return result


def gradient_of(case: tuple[str, dict[str, Any]], batch: Any, log_probs: torch.Tensor) -> torch.Tensor:
    log_probs = log_probs.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(objective_of(case, batch, log_probs).sum(), log_probs)
    return gradient


def test_every_option_has_a_case() -> None:
    files = (Path(is_clipping.__file__).parents[2] / "arena/conf/is_clipping").glob("*.yaml")
    assert {file.stem for file in files} == {option for option, _ in CASES}


@every_option
@pytest.mark.parametrize("seed", range(4))
def test_value_and_gradient_are_the_written_out_ones(
    case: tuple[str, dict[str, Any]], seed: int, make_batch: Callable[..., Any]
) -> None:
    batch = make_batch(seed)
    values, gradients = written_out(*case, batch)
    objective = objective_of(case, batch, batch.log_probs)
    gradient = gradient_of(case, batch, batch.log_probs)
    for number, (row_values, row_gradients) in enumerate(zip(values, gradients, strict=True)):
        length = len(row_values)
        assert objective[number, :length].tolist() == pytest.approx(row_values, abs=1e-12)
        assert gradient[number, :length].tolist() == pytest.approx(row_gradients, abs=1e-12)
        assert not objective[number, length:].any()
        assert not gradient[number, length:].any()


@pytest.mark.parametrize(
    "case",
    [case for case in CASES if case[0] not in ("cispo", "gated") and "unit" not in case[1]],
    ids=name_of,
)
def test_gradient_is_that_of_finite_differences(
    case: tuple[str, dict[str, Any]], make_batch: Callable[..., Any]
) -> None:
    batch = make_batch(3)
    log_probs = batch.log_probs.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: objective_of(case, batch, x), (log_probs,), eps=1e-7, atol=1e-6)


@pytest.mark.parametrize("case", CASES, ids=name_of)
@given(seed=st.integers(0, 2**31))
@settings(max_examples=15, deadline=None)
def test_where_nothing_has_moved_every_option_is_the_policy_gradient(
    case: tuple[str, dict[str, Any]], seed: int, make_batch: Callable[..., Any]
) -> None:
    batch = make_batch(seed)
    gradient = gradient_of(case, batch, batch.rows.old_log_probs)
    torch.testing.assert_close(gradient, batch.rows.mask * batch.advantages[:, None])


@every_option
@pytest.mark.parametrize("shift", [-1e4, -50.0, 50.0, 1e4])
def test_extreme_ratios_stay_finite(
    case: tuple[str, dict[str, Any]], shift: float, make_batch: Callable[..., Any]
) -> None:
    batch = make_batch(5)
    for log_probs in (batch.log_probs + shift, (batch.log_probs + shift).float()):
        assert objective_of(case, batch, log_probs).isfinite().all()
        assert gradient_of(case, batch, log_probs).isfinite().all()


@every_option
def test_what_stands_outside_the_mask_is_ignored(
    case: tuple[str, dict[str, Any]], make_batch: Callable[..., Any]
) -> None:
    batch = make_batch(6)
    junk = torch.where(batch.rows.mask, batch.log_probs, torch.nan)
    torch.testing.assert_close(objective_of(case, batch, junk), objective_of(case, batch, batch.log_probs))
    torch.testing.assert_close(gradient_of(case, batch, junk), gradient_of(case, batch, batch.log_probs))


@every_option
@given(seed=st.integers(0, 2**31), extra=st.integers(1, 4))
@settings(max_examples=10, deadline=None)
def test_padding_and_row_order_change_nothing(
    case: tuple[str, dict[str, Any]], seed: int, extra: int, make_batch: Callable[..., Any]
) -> None:
    batch = make_batch(seed)
    rows, function = batch.rows, getattr(is_clipping, case[0])
    plain = objective_of(case, batch, batch.log_probs)
    wide = [torch.nn.functional.pad(x, (0, extra)) for x in (batch.log_probs, rows.old_log_probs, rows.mask)]
    drawn = [draws_of(batch)] if case[0] == "gated" else []
    wide_draws = [torch.nn.functional.pad(draws, (0, extra)) for draws in drawn]
    padded = function(wide[0], wide[1], batch.advantages, wide[2], rows.trajectory, *wide_draws, **case[1])
    torch.testing.assert_close(padded[:, : plain.shape[1]], plain)
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))
    shuffled = function(
        batch.log_probs[order],
        rows.old_log_probs[order],
        batch.advantages[order],
        rows.mask[order],
        rows.trajectory[order],
        *[draws[order] for draws in drawn],
        **case[1],
    )
    torch.testing.assert_close(shuffled, plain[order])


@pytest.mark.parametrize("level", ["token", "sequence"])
def test_a_gate_at_one_level_has_the_gradient_of_the_option_of_that_level(
    level: str, make_batch: Callable[..., Any]
) -> None:
    batch = make_batch(7)
    low, high = Gate(level=level, eps=0.1), Gate(level=level, eps=0.15)  # type: ignore[arg-type]
    gated = gradient_of(("gated", {"weight": level, "low": low, "high": high}), batch, batch.log_probs)
    same = gradient_of((level, {"lo": 0.1, "hi": 0.15}), batch, batch.log_probs)
    torch.testing.assert_close(gated, same)


@pytest.mark.parametrize("unit", ["row", "trajectory"])
def test_a_random_gate_silences_its_share_of_whole_sequences(
    unit: str, make_batch: Callable[..., Any]
) -> None:
    batch = make_batch(1, groups=40, group_size=5)
    rows, low = batch.rows, Gate(level="sequence", share=0.25)
    negative = replace(batch, advantages=-torch.ones(len(rows)).double())
    gradient = gradient_of(("gated", {"low": low, "unit": unit}), negative, batch.log_probs)
    silent = (gradient == 0) & rows.mask
    sequence = rows.trajectory if unit == "trajectory" else torch.arange(len(rows))
    of_sequence = {
        number: silent[sequence == number][rows.mask[sequence == number]]
        for number in sequence.unique().tolist()
    }
    assert all(bool(part.all()) or not bool(part.any()) for part in of_sequence.values())
    share = sum(bool(part.all()) for part in of_sequence.values()) / len(of_sequence)
    assert share == pytest.approx(0.25, abs=0.1)
    other = gradient_of(("gated", {"high": low, "unit": unit}), negative, batch.log_probs)
    assert bool((other[rows.mask] != 0).all()), "a gate of the high side concerns A > 0 alone"


def test_a_gate_is_a_band_or_a_share(make_batch: Callable[..., Any]) -> None:
    for both in ({}, {"eps": 0.1, "share": 0.1}):
        with pytest.raises(ValueError, match=r"exactly one of eps .* and share"):
            Gate(level="token", **both)
    batch = make_batch()
    rows, gate = batch.rows, Gate(level="token", share=0.5)
    with pytest.raises(ValueError, match="needs draws"):
        is_clipping.gated(
            batch.log_probs, rows.old_log_probs, batch.advantages, rows.mask, rows.trajectory, low=gate
        )


def test_a_dual_clip_that_would_clip_ratios_of_one_is_refused(make_batch: Callable[..., Any]) -> None:
    batch = make_batch()
    with pytest.raises(ValueError, match="dual_clip must be greater than 1"):
        objective_of(("token", {"dual_clip": 1.0}), batch, batch.log_probs)


def test_a_trajectory_of_one_row_has_the_same_ratio_as_its_row(make_batch: Callable[..., Any]) -> None:
    batch = make_batch(8, max_turns=1)
    row, whole = (("sequence", {"lo": 0.05, "hi": 0.08, "unit": unit}) for unit in ("row", "trajectory"))
    torch.testing.assert_close(
        gradient_of(row, batch, batch.log_probs), gradient_of(whole, batch, batch.log_probs)
    )
