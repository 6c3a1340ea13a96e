"""Statistics of updates and rollouts against loops, and what stays out of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from trainers.collection import Collected
from trainers.diagnostics import (
    EXACT,
    SPLIT,
    EntropyMedian,
    Ratios,
    StepDiagnostics,
    minibatch_statistics,
    repeated_ngrams,
    rollout_metrics,
)
from trainers.histograms import LOG_RATIO_EDGES
from trainers.policy_gradient.bands import Band
from trainers.policy_gradient.objective import Objective, Pass
from trainers.rollout import Episodes, Rollout

SHARES = {f"clip_{band}{side}" for band in ("", "token_", "row_") for side in ("low", "high")}
NEGATIVE_LOW = {f"neg_low_{name}" for name in ("share", "given_negative", "depth", "depth_p95")}
OTHERS = {"entropy", "kl_old", "kl_ref", "masked", "effective_sample_size", "min_sequence_ratio"}
NAMES = SHARES | NEGATIVE_LOW | OTHERS


def pass_of(batch: Any, seed: int = 0) -> Pass:
    """As after a backward pass in which some rows were dropped."""
    generator = torch.Generator().manual_seed(seed)
    kept = batch.rows.mask & (torch.rand(len(batch.rows), 1, generator=generator) < 0.7)
    entropies = torch.rand(batch.rows.mask.shape, generator=generator)
    return Pass(0.5, batch.log_probs, entropies, kept)


def written_out(
    batch: Any, output: Pass, low: tuple[str, float], high: tuple[str, float]
) -> dict[str, float]:
    """Every statistic, token by token; low and high: level of the option's edge and its ratio."""
    rows = batch.rows
    lengths = rows.tokens.tolist()
    trajectory = rows.trajectory.tolist()
    log_w = [
        [float(batch.log_probs[i, t] - rows.old_log_probs[i, t]) for t in range(length)]
        for i, length in enumerate(lengths)
    ]
    log_s = [sum(row) / len(row) for row in log_w]
    whole = [
        sum(sum(log_w[j]) for j in range(len(log_w)) if trajectory[j] == trajectory[i])
        / sum(lengths[j] for j in range(len(log_w)) if trajectory[j] == trajectory[i])
        for i in range(len(log_w))
    ]
    tokens = [(i, t) for i, length in enumerate(lengths) for t in range(length)]
    a = batch.advantages.tolist()

    def ratio(level: str, i: int, t: int) -> float:
        return math.exp({"token": log_w[i][t], "row": log_s[i], "trajectory": whole[i]}[level])

    def token_share(test: Callable[[int, int], bool]) -> float:
        return sum(test(i, t) for i, t in tokens) / len(tokens)

    depths = [-s for s, value in zip(log_s, a, strict=True) if value < 0 and s < 0]
    w = [math.exp(log_w[i][t]) for i, t in tokens]
    negatives = sum(value < 0 for value in a)
    return {
        "entropy": sum(float(output.entropies[i, t]) for i, t in tokens) / len(tokens),
        "kl_old": sum(x - 1 - math.log(x) for x in w) / len(w),
        "kl_ref": sum(
            math.exp(-d) + d - 1
            for i, t in tokens
            for d in [float(batch.log_probs[i, t] - batch.ref_log_probs[i, t])]
        )
        / len(tokens),
        "clip_low": token_share(lambda i, t: a[i] < 0 and ratio(low[0], i, t) < low[1]),
        "clip_high": token_share(lambda i, t: a[i] > 0 and ratio(high[0], i, t) > high[1]),
        "clip_token_low": token_share(lambda i, t: a[i] < 0 and ratio("token", i, t) < 0.8),
        "clip_token_high": token_share(lambda i, t: a[i] > 0 and ratio("token", i, t) > 1.2),
        "clip_row_low": sum(x < 0 and math.exp(s) < 0.997 for x, s in zip(a, log_s, strict=True)) / len(a),
        "clip_row_high": sum(x > 0 and math.exp(s) > 1.004 for x, s in zip(a, log_s, strict=True)) / len(a),
        "neg_low_share": len(depths) / len(a),
        "neg_low_given_negative": len(depths) / negatives,
        "neg_low_depth": sum(depths) / len(depths),
        "neg_low_depth_p95": float(np.quantile(depths, 0.95)),
        "masked": token_share(lambda i, t: not output.kept[i, t]),
        "effective_sample_size": sum(w) ** 2 / (len(w) * sum(x * x for x in w)),
        "min_sequence_ratio": math.exp(min(log_s)),
    }


BANDS: list[tuple[dict[str, Any], tuple[str, float], tuple[str, float]]] = [
    ({"token": {"lo": 0.1, "hi": 0.3}}, ("token", 0.9), ("token", 1.3)),
    ({"sequence": {"lo": 0.02, "hi": 0.05, "unit": "row"}}, ("row", 0.98), ("row", 1.05)),
    (
        {"sequence": {"lo": 0.02, "hi": 0.05, "unit": "trajectory"}},
        ("trajectory", 0.98),
        ("trajectory", 1.05),
    ),
    (
        {"gated": {"low": {"level": "sequence", "eps": 0.1}, "high": {"level": "token", "eps": 0.2}}},
        ("row", 0.9),
        ("token", 1.2),
    ),
    ({"soft": {}}, ("token", -1.0), ("token", math.inf)),
]


@pytest.mark.parametrize(("option", "low", "high"), BANDS)
@pytest.mark.parametrize("seed", range(3))
def test_statistics_are_the_written_out_ones(
    option: dict[str, Any],
    low: tuple[str, float],
    high: tuple[str, float],
    seed: int,
    make_batch: Callable[..., Any],
    make_config: Callable[..., Any],
) -> None:
    batch = make_batch(seed)
    output = pass_of(batch)
    statistics = minibatch_statistics(
        batch.rows,
        output,
        Ratios.of(batch.rows, batch.log_probs, batch.advantages),
        band=Band.of(make_config(is_clipping=option).is_clipping),
        ref_log_probs=batch.ref_log_probs,
    )
    expected = written_out(batch, output, low, high)
    assert set(statistics) == set(expected) == NAMES
    assert {name: float(value) for name, value in statistics.items()} == pytest.approx(expected, rel=1e-5)


def started(make_config: Callable[..., Any], **sections: Any) -> StepDiagnostics:
    diagnostics = StepDiagnostics(make_config(is_clipping={"token": {"lo": 0.2, "hi": 0.2}}, **sections))
    diagnostics.start(1)
    return diagnostics


def add(diagnostics: StepDiagnostics, batch: Any, **measured: Any) -> None:
    diagnostics.add(pass_of(batch), batch.rows, batch.advantages, batch.ref_log_probs, **measured)


def test_a_step_reports_mean_first_and_last(
    make_batch: Callable[..., Any], make_config: Callable[..., Any]
) -> None:
    alone = []
    for seed in range(3):
        diagnostics = started(make_config)
        add(diagnostics, make_batch(seed), gradient_norm=float(seed))
        alone.append(diagnostics.metrics())
    diagnostics = started(make_config)
    for seed in range(3):
        add(diagnostics, make_batch(seed), gradient_norm=float(seed))
    metrics = diagnostics.metrics()
    for name in NAMES | {"loss", "gradient_norm"}:
        values = [one[f"train/{name}"] for one in alone]
        assert metrics[f"train/{name}"] == pytest.approx(sum(values) / 3)
        assert metrics[f"train/{name}_first"] == values[0]
        assert metrics[f"train/{name}_last"] == values[2]
    assert metrics["train/updates"] == 3
    assert metrics["train/gradient_clipped"] == pytest.approx(1 / 3)
    assert metrics["train/rows_per_update"] == pytest.approx(
        sum(len(make_batch(s).rows) for s in range(3)) / 3
    )
    assert metrics["train/engine_gap"] == alone[0]["train/engine_gap"]


def test_a_step_without_updates_says_so(make_config: Callable[..., Any]) -> None:
    diagnostics = started(make_config)
    assert diagnostics.metrics() == {"train/updates": 0.0}
    assert diagnostics.histograms() == []


def test_before_the_first_update_nothing_has_moved(
    make_batch: Callable[..., Any], make_config: Callable[..., Any]
) -> None:
    batch = make_batch(1)
    noise = 1e-8 * torch.randn(batch.log_probs.shape, generator=torch.Generator().manual_seed(0))
    batch = replace(batch, log_probs=batch.rows.old_log_probs + noise)
    diagnostics = started(make_config)
    add(diagnostics, batch)
    metrics = diagnostics.metrics()
    for name in NAMES - {"entropy", "kl_ref", "masked", "effective_sample_size", "min_sequence_ratio"}:
        assert metrics[f"train/{name}"] == pytest.approx(0, abs=1e-12)
    assert metrics["train/effective_sample_size"] == pytest.approx(1)
    assert not any(metrics[f"train/split/{cell}_tokens"] for cell in SPLIT)
    for histogram in diagnostics.histograms()[:4]:
        assert not any(histogram.counts)
        assert histogram.exact > 0


def test_copies_stay_out_of_every_statistic(
    make_batch: Callable[..., Any], make_config: Callable[..., Any]
) -> None:
    batch = make_batch(2)
    filled = torch.cat([torch.arange(len(batch.rows)), torch.tensor([0, 0, 3])])
    copies = torch.arange(len(filled)) >= len(batch.rows)
    output = pass_of(batch)
    plain, padded = started(make_config), started(make_config)
    plain.add(output, batch.rows, batch.advantages, batch.ref_log_probs)
    wide = Pass(output.loss, output.log_probs[filled], output.entropies[filled], output.kept[filled])
    padded.add(wide, batch.rows.select(filled), batch.advantages[filled], batch.ref_log_probs[filled], copies)
    assert padded.metrics() == pytest.approx(plain.metrics())
    assert padded.histograms() == plain.histograms()


def test_numbers_that_are_not_finite_are_reported(
    make_batch: Callable[..., Any], make_config: Callable[..., Any]
) -> None:
    batch = make_batch(3)
    batch = replace(batch, log_probs=torch.full_like(batch.log_probs, torch.nan))
    diagnostics = started(make_config)
    add(diagnostics, batch, gradient_norm=math.nan)
    metrics = diagnostics.metrics()
    assert math.isnan(metrics["train/kl_old"])
    assert math.isnan(metrics["train/gradient_norm"])
    diagnostics.histograms()


def test_histograms_hold_every_row_and_token_once(
    make_batch: Callable[..., Any], make_config: Callable[..., Any]
) -> None:
    batch = make_batch(4)
    diagnostics = started(make_config)
    add(diagnostics, batch)
    found = {histogram.name: sum(histogram.counts) for histogram in diagnostics.histograms()}
    positive = batch.advantages > 0
    assert found == {
        "log_ratio_token/positive": int(batch.rows.tokens[positive].sum()),
        "log_ratio_token/negative": int(batch.rows.tokens[~positive].sum()),
        "log_ratio_row/positive": int(positive.sum()),
        "log_ratio_row/negative": int((~positive).sum()),
        "log_ratio_row_of_token/positive": int(batch.rows.tokens[positive].sum()),
        "log_ratio_row_of_token/negative": int(batch.rows.tokens[~positive].sum()),
        "advantage/all": len(batch.rows),
    }


def test_rows_are_counted_as_often_as_they_have_tokens(
    make_batch: Callable[..., Any], make_config: Callable[..., Any]
) -> None:
    batch = make_batch(6)
    diagnostics = started(make_config)
    add(diagnostics, batch)
    found = {histogram.name: histogram for histogram in diagnostics.histograms()}
    log_s = [
        sum((batch.log_probs[i, :length] - batch.rows.old_log_probs[i, :length]).tolist()) / length
        for i, length in enumerate(batch.rows.tokens.tolist())
    ]
    for sign, of_sign in (("positive", batch.advantages > 0), ("negative", batch.advantages < 0)):
        rows = of_sign.nonzero().flatten().tolist()
        expected, _ = np.histogram(
            [log_s[i] for i in rows], LOG_RATIO_EDGES, weights=[int(batch.rows.tokens[i]) for i in rows]
        )
        assert found[f"log_ratio_row_of_token/{sign}"].counts == tuple(expected.tolist())


def test_the_eight_way_split_is_the_written_out_one(
    make_batch: Callable[..., Any], make_config: Callable[..., Any]
) -> None:
    batch = make_batch(5)
    rows = replace(batch.rows, token_entropies=torch.rand(batch.rows.mask.shape).double())
    batch = replace(batch, rows=rows)
    diagnostics = started(make_config)
    add(diagnostics, batch)
    metrics, median = diagnostics.metrics(), diagnostics.median.value
    sums: dict[str, list[float]] = {cell: [0.0, 0.0, 0.0] for cell in SPLIT}
    total = [0.0, 0.0, 0.0]
    assert rows.token_entropies is not None
    for i, length in enumerate(rows.tokens.tolist()):
        for t in range(length):
            d_old = float(batch.log_probs[i, t] - rows.old_log_probs[i, t])
            d_ref = float(batch.log_probs[i, t] - batch.ref_log_probs[i, t])
            values = [1.0, math.exp(d_old) - 1 - d_old, math.exp(-d_ref) + d_ref - 1]
            sign = "positive" if batch.advantages[i] > 0 else "negative"
            side = "below" if d_old < 0 else "above"
            level = "low" if rows.token_entropies[i, t] <= median else "high"
            for place, value in enumerate(values):
                total[place] += value
                sums[f"{sign}_{side}_{level}"][place] += value
    for cell in SPLIT:
        for place, quantity in enumerate(("tokens", "kl_old", "kl_ref")):
            found = metrics[f"train/split/{cell}_{quantity}"]
            assert found == pytest.approx(sums[cell][place] / total[place], rel=1e-5)


def test_without_a_reference_there_is_no_kl_to_it(
    make_batch: Callable[..., Any], make_config: Callable[..., Any]
) -> None:
    batch = make_batch(6)
    diagnostics = started(make_config)
    diagnostics.add(pass_of(batch), batch.rows, batch.advantages, None)
    assert not [name for name in diagnostics.metrics() if "kl_ref" in name]


def test_the_entropy_median_is_that_of_the_first_ten_steps_and_then_frozen() -> None:
    generator = torch.Generator().manual_seed(0)
    median = EntropyMedian()
    assert median.value == 0.0
    values = []
    for step in range(1, 15):
        entropies = torch.rand(20, 8, generator=generator).pow(4) * step
        written = torch.rand(20, 8, generator=generator) < 0.6
        median.observe(step, entropies, written)
        values.append(entropies[written])
    assert median.value == pytest.approx(float(torch.cat(values[:10]).median()), rel=0.03)


def test_a_restored_median_continues_the_same(
    make_batch: Callable[..., Any], make_config: Callable[..., Any]
) -> None:
    one = started(make_config)
    add(one, make_batch(7))
    other = started(make_config)
    other.restore(one.state())
    for diagnostics in (one, other):
        diagnostics.start(2)
        add(diagnostics, make_batch(8))
    assert one.metrics() == other.metrics()
    assert one.state() == other.state()


def test_exact_is_far_below_what_an_update_moves() -> None:
    assert EXACT <= 1e-6


def test_repeated_ngrams_are_counted_within_a_response(make_batch: Callable[..., Any]) -> None:
    rows = make_batch(0).rows.select(torch.tensor([0, 1, 2]))
    responses = torch.tensor([[1, 2, 1, 2, 1, 2, 1], [3, 3, 3, 3, 3, 0, 0], [1, 2, 1, 2, 1, 2, 3]])
    lengths = torch.tensor([7, 5, 3])
    rows = replace(rows, responses=responses, mask=torch.arange(7) < lengths[:, None])
    # 1212 2121 1212 2121 | 3333 3333 | too short
    assert repeated_ngrams(rows) == (3, 6)


def rollout_of(batch: Any, group_size: int) -> Rollout:
    rows = batch.rows
    episodes = int(rows.trajectory.max()) + 1
    of = [rows.trajectory == episode for episode in range(episodes)]
    return Rollout(
        rows=rows,
        episodes=Episodes(
            returns=torch.stack([rows.rewards[own].sum() for own in of]).float(),
            turns=torch.tensor([int(own.sum()) for own in of]),
            success=torch.tensor([bool(rows.success[own].any()) for own in of]),
            valid_format=torch.tensor([1.0, 0.5, *[0.0] * (episodes - 2)]),
            valid_action=torch.ones(episodes),
            response_tokens=rows.tokens,
        ),
        transcripts=(),
    )


def test_rollouts_are_measured_before_filtering(
    make_batch: Callable[..., Any], make_config: Callable[..., Any]
) -> None:
    parts = [rollout_of(make_batch(seed), 3) for seed in (1, 2)]
    used = (parts[0].rows.group < 0, parts[1].rows.group != 1)
    objective = Objective(make_config())
    metrics = rollout_metrics(Collected(tuple(parts), used, None), objective, 3)
    returns = [part.episodes.returns.view(3, 3).tolist() for part in parts]
    groups = [group for part in returns for group in part]
    lengths = torch.cat([part.rows.tokens for part in parts]).double().numpy()
    turns = [part.episodes.turns.tolist() for part in parts]
    assert metrics["rollout/success"] == pytest.approx(
        sum(float(part.episodes.success.float().mean()) for part in parts) / 2
    )
    assert metrics["rollout/return"] == pytest.approx(np.mean(groups), rel=1e-6)
    assert metrics["rollout/turns"] == pytest.approx(np.mean(turns))
    good = sum(own[0] + 0.5 * own[1] for own in turns)
    assert metrics["rollout/valid_format"] == pytest.approx(good / sum(map(sum, turns)))
    assert metrics["rollout/valid_action"] == 1.0
    assert metrics["rollout/group_reward_std"] == pytest.approx(
        np.mean([np.std(group, ddof=1) for group in groups]), rel=1e-6
    )
    assert metrics["rollout/uniform_groups_return"] == np.mean([len(set(group)) == 1 for group in groups])
    assert metrics["rollout/response_tokens"] == pytest.approx(lengths.mean())
    assert metrics["rollout/response_tokens_cv"] == pytest.approx(lengths.std() / lengths.mean())
    assert metrics["rollout/unique_prompts"] == 1.0
    assert metrics["rollout/episodes"] == 18
    assert metrics["rollout/episodes_used"] == 6
    assert metrics["rollout/tries"] == 2
    assert metrics["rollout/tokens"] == lengths.sum()
    sizes = [objective.advantages(part.rows).abs() for part in parts]
    thrown = sizes[0].sum() + sizes[1][~used[1]].sum()
    assert metrics["rollout/advantage_discarded"] == pytest.approx(float(thrown / torch.cat(sizes).sum()))


def test_nothing_is_discarded_where_nothing_is_filtered(
    make_batch: Callable[..., Any], make_config: Callable[..., Any]
) -> None:
    part = rollout_of(make_batch(1), 3)
    everything = torch.ones(len(part.rows), dtype=torch.bool)
    refuses = SimpleNamespace()
    metrics = rollout_metrics(Collected((part,), (everything,), None), refuses, 3)  # type: ignore[arg-type]
    assert metrics["rollout/advantage_discarded"] == 0.0
