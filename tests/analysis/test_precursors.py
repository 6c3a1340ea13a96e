"""What preceded collapses, on runs made by hand and against scikit-learn's ROC."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score, roc_curve

from analysis.early_warning import EarlyWarning
from analysis.precursors import Diagnostic, RunPanel, sequence_of_events, warning_order
from analysis.resampling import counts_interval

DEPTH = Diagnostic("depth", ("train/depth",), 1)


def run(
    values: Sequence[float],
    *,
    onset: int | None = None,
    seed: int = 0,
    warnings: Sequence[tuple[str, int]] = (),
    status: str = "",
    metric: str = "train/depth",
) -> Any:
    steps = pd.Index(range(1, len(values) + 1), name="step")
    return SimpleNamespace(
        id=f"run-{seed}-{values[0]}-{onset}",
        block=f"seed {seed}",
        seed=seed,
        status=status or ("collapsed" if onset else "stable"),
        has_result=True,
        train=pd.DataFrame({metric: values}, index=steps, dtype=float),
        evaluations=pd.DataFrame(),
        verdict=SimpleNamespace(
            onset=onset, warnings=tuple(EarlyWarning(n, s, 1.0, 0.5) for n, s in warnings), warnings_from=12
        ),
    )


def test_the_area_equals_that_of_scikit_learn() -> None:
    """Twelve collapses at step 20 and fifteen healthy runs: one risk set, an ordinary ROC curve."""
    random = np.random.default_rng(2)
    cases = [run(random.normal(1, 1, 20), onset=20, seed=k % 6) for k in range(12)]
    others = [run(random.normal(0, 1, 30), seed=k % 6) for k in range(15)]
    panel = RunPanel([*cases, *others])
    found = panel.separation(DEPTH, 5)
    at = [trial.train["train/depth"].iloc[12:15].mean() for trial in (*cases, *others)]
    labels = [1] * 12 + [0] * 15
    assert found.area.estimate == pytest.approx(roc_auc_score(labels, at))
    assert (found.cases, found.at_risk) == (12, 15)
    false, true, _ = roc_curve(labels, at, drop_intermediate=False)
    for rate, share in zip(*found.curve, strict=True):
        assert share == pytest.approx(true[false <= rate + 1e-9].max())


def test_the_interval_of_an_area_is_made_of_areas_of_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block that occurs twice in a resample weighs twice, its collapses and its healthy runs alike."""
    random = np.random.default_rng(5)
    cases = [run(random.normal(1, 1, 20), onset=20, seed=k % 6) for k in range(12)]
    others = [run(random.normal(0, 1, 30), seed=k % 6) for k in range(15)]
    resampled: list[Any] = []

    def spy(statistic: Any, blocks: int, **options: Any) -> Any:
        resampled.append(statistic)
        return counts_interval(statistic, blocks, **options)

    monkeypatch.setattr("analysis.precursors.counts_interval", spy)
    found = RunPanel([*cases, *others]).separation(DEPTH, 5)
    at = [trial.train["train/depth"].iloc[12:15].mean() for trial in (*cases, *others)]
    counts = random.multinomial(6, [1 / 6] * 6, size=100).astype(float)
    block = [*(k % 6 for k in range(12)), *(k % 6 for k in range(15))]
    expected = [
        roc_auc_score([1] * 12 + [0] * 15, at, sample_weight=[row[number] for number in block])
        for row in counts
    ]
    assert resampled[0](counts) == pytest.approx(expected)
    assert found.area.low < np.quantile(expected, 0.1) < np.quantile(expected, 0.9) < found.area.high


def test_cases_of_several_risk_sets_weigh_as_often_as_their_block_occurs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    random = np.random.default_rng(7)
    onsets = [9, 9, 12, 12, 15, 20, 20, 24]
    runs = [run(random.normal(1, 1, 30), onset=onset, seed=k % 5) for k, onset in enumerate(onsets)]
    runs += [run(random.normal(0, 1, 30), seed=k % 5) for k in range(9)]
    statistics: list[Any] = []

    def spy(statistic: Any, blocks: int, **options: Any) -> Any:
        statistics.append(statistic)
        return counts_interval(statistic, blocks, **options)

    monkeypatch.setattr("analysis.precursors.counts_interval", spy)
    RunPanel(runs).separation(DEPTH, 5)
    counts = random.multinomial(5, [1 / 5] * 5, size=200).astype(float)
    counts[0] = [0, 0, 0, 0, 5]  # the collapse of step 15 alone has runs at risk of its own block
    expected = []
    for row in counts:
        areas, weights = [], []
        for case, onset in enumerate(onsets):
            at = [float(one.train["train/depth"].iloc[onset - 8 : onset - 5].mean()) for one in runs]
            risk = [k for k in range(len(runs)) if k >= len(onsets) or onsets[k] > onset]
            occurs = [row[k % 5] if k < len(onsets) else row[(k - len(onsets)) % 5] for k in risk]
            if sum(occurs):
                won = sum(n * (at[case] > at[k]) for n, k in zip(occurs, risk, strict=True))
                areas.append(won / sum(occurs))
                weights.append(row[case % 5])
        expected.append(np.average(areas, weights=weights) if sum(weights) else np.nan)
    assert statistics[0](counts) == pytest.approx(expected, nan_ok=True)


def test_only_runs_at_risk_are_compared() -> None:
    """Neither a run that had collapsed before, nor one that was not followed so far, is compared with."""
    case = run([1.0] * 9 + [5.0] * 11, onset=20)
    fell_before = run([9.0] * 20, onset=12, seed=1)
    not_followed = run([9.0] * 16, seed=2, status="interrupted")
    falls_later = run([0.0] * 30, onset=28, seed=3)
    found = RunPanel([case, fell_before, not_followed, falls_later]).separation(DEPTH, 5)
    # The run of step 12 is held against the three others; the one of step 28 against nobody.
    assert found.cases == 2
    assert RunPanel([case, not_followed, falls_later]).separation(DEPTH, 5).area.estimate == 1.0


def test_what_grows_in_every_run_alike_separates_nothing() -> None:
    ramp = np.arange(1.0, 41.0)
    cases = [run(ramp, onset=step, seed=step) for step in (20, 25, 30)]
    healthy = [run(ramp, seed=k) for k in range(5)]
    assert RunPanel([*cases, *healthy]).separation(DEPTH, 5).area.estimate == 0.5


def test_a_rise_is_told_from_a_level() -> None:
    high = [run([5.0] * 40, onset=30, seed=k) for k in range(3)]
    low = [run([1.0] * 40, seed=k) for k in range(3)]
    assert RunPanel([*high, *low]).rise(DEPTH, 20, 5).area.estimate == 0.5
    rising = [run([1.0] * 12 + list(np.linspace(1, 4, 28)), onset=30, seed=k) for k in range(3)]
    found = RunPanel([*rising, *low]).rise(DEPTH, 20, 5)
    assert (found.area.estimate, found.cases) == (1.0, 3)
    early = RunPanel([run([1.0] * 30, onset=12), *low]).rise(DEPTH, 20, 5)
    assert early.cases == 0


def test_small_values_are_ominous_where_the_sign_says_so() -> None:
    ratio = Diagnostic("ratio", ("train/ratio",), -1)
    case = run([0.1] * 20, onset=20, metric="train/ratio")
    healthy = run([0.9] * 20, seed=1, metric="train/ratio")
    assert RunPanel([case, healthy]).separation(ratio, 5).area.estimate == 1.0
    invalid = Diagnostic("invalid", ("rollout/valid_action",), 1, complement=True)
    case = run([0.5] * 20, onset=20, metric="rollout/valid_action")
    healthy = run([0.9] * 20, seed=1, metric="rollout/valid_action")
    panel = RunPanel([case, healthy])
    assert panel.separation(invalid, 10).area.estimate == 1.0
    assert panel.statistic(invalid)[:, 5] == pytest.approx([0.5, 0.1])


def test_the_order_of_warnings_and_their_leads() -> None:
    first = run(
        [1.0] * 40,
        onset=30,
        warnings=[("depth", 22), ("gradient_norm", 18), ("depth", 27), ("reward_std", 31)],
    )
    second = run([1.0] * 40, onset=35, seed=1, warnings=[("depth", 33)])
    within_warm_up = run([1.0] * 40, onset=8, seed=2)
    healthy = run([1.0] * 40, seed=3, warnings=[("gradient_norm", 15)])
    assert sequence_of_events(first) == [("gradient_norm", 18), ("depth", 22)]
    orders = {order.name: order for order in warning_order([first, second, within_warm_up, healthy])}
    depth, norm = orders["depth"], orders["gradient_norm"]
    assert (depth.cases, depth.preceded, depth.first, depth.leads, depth.lead) == (2, 2, 1, (8, 2), 5)
    assert (norm.preceded, norm.first, norm.leads, norm.false, norm.healthy) == (1, 1, (12,), 1, 1)
    assert orders["reward_std"].preceded == 0  # it came after the collapse
