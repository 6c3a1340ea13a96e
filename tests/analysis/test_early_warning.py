"""Warnings on hand-made statistics."""

from __future__ import annotations

import math
from typing import Any

import pytest

from analysis.collapse import CollapseRule, judge
from analysis.early_warning import WarningWatch

RATES = (1e-4, 2e-4)


def run(metric: str, values: list[Any], **others: Any) -> list[tuple[str, int]]:
    """Warnings (name, step) of a run whose learning rate rises for two steps and is constant from then on."""
    watch = WarningWatch()
    for step, value in enumerate(values, start=1):
        rate = RATES[step - 1] if step <= len(RATES) else 3e-4
        watch.update({"step": step, "kind": "train", metric: value, "train/learning_rate": rate, **others})
    return [(warning.name, warning.step) for warning in watch.warnings]


# Steps 1-3 raise the learning rate (to its top in 3): the warm-up is steps 4 to 13.
NORMAL = [50.0, 50.0, 50.0, 1.0, 1.1, 0.9, 1.0, 1.2, 0.8, 1.0, 1.1, 0.9, 1.0]


@pytest.mark.parametrize(
    ("metric", "name"),
    [
        ("train/gradient_norm", "gradient_norm"),
        ("train/kl_old", "off_policy_kl"),
        ("train/neg_low_depth", "depth"),
    ],
)
def test_two_steps_in_a_row_far_above_the_warm_up_are_a_warning(metric: str, name: str) -> None:
    assert run(metric, [*NORMAL, 9.0, 1.0, 9.0, 9.0, 9.0, 9.0]) == [(name, 17)]


def test_a_warning_fires_once_per_excursion() -> None:
    assert [step for _, step in run("train/kl_old", [*NORMAL, 9, 9, 9, 1, 9, 9])] == [15, 19]


def test_the_threshold_is_six_robust_deviations_of_the_logarithm() -> None:
    a = 0.2
    warm = [1.0] * 5 + [math.exp(a), math.exp(-a), math.exp(a), math.exp(-a), math.exp(a)]
    # Ten values: sorted logs -a -a 0 0 0 0 0 a a a, median 0; absolute 0 x5, a x5, median a/2.
    threshold = math.exp(6 * 1.4826 * a / 2)
    calm = [1.0] * 3 + warm
    assert run("train/gradient_norm", [*calm, threshold * 0.999, threshold * 0.999]) == []
    assert run("train/gradient_norm", [*calm, threshold * 1.001, threshold * 1.001]) == [
        ("gradient_norm", 15)
    ]


def test_a_warm_up_without_spread_still_leaves_five_per_cent_a_deviation() -> None:
    calm = [1.0] * 13
    assert run("train/gradient_norm", [*calm, 1.05**6 * 0.999, 1.05**6 * 0.999]) == []
    assert run("train/gradient_norm", [*calm, 1.05**6 * 1.001, 1.05**6 * 1.001]) == [("gradient_norm", 15)]


def test_infinite_statistics_are_above_every_threshold_and_missing_ones_below() -> None:
    assert run("train/kl_old", [*NORMAL, "Infinity", "Infinity"]) == [("off_policy_kl", 15)]
    assert run("train/kl_old", [*NORMAL, None, "NaN", 0.0]) == []


def test_reward_spread_that_vanishes_warns_unless_all_succeed() -> None:
    metric, values = "rollout/group_reward_std", [0.4] * 13 + [0.03, 0.03]
    assert run(metric, values, **{"rollout/success": 0.1}) == [("reward_std", 15)]
    assert run(metric, values, **{"rollout/success": 0.9}) == []
    assert run(metric, [0.4] * 13 + [0.041, 0.041], **{"rollout/success": 0.1}) == []


def test_a_short_run_never_warns_and_says_that_it_could_not() -> None:
    assert run("train/kl_old", [1.0] * 12) == []
    watch = WarningWatch()
    for step in range(1, 15):
        assert watch.watching_from is None or step > 11
        watch.update({"step": step, "kind": "train", "train/kl_old": 1.0, "train/learning_rate": 1e-3})
    # The rate stops rising at step 2, ten steps make the warm-up, two in a row a warning.
    assert watch.watching_from == 13


def test_steps_without_updates_do_not_end_the_learning_rate_warm_up() -> None:
    watch = WarningWatch()
    for step, (rate, updates) in enumerate([(1e-4, 4), (1e-4, 0), (2e-4, 4), (3e-4, 4)], start=1):
        watch.update(
            {"step": step, "kind": "train", "train/kl_old": 9.0, "train/learning_rate": rate}
            | {"train/updates": updates}
        )
    for step in range(5, 15):
        watch.update({"step": step, "kind": "train", "train/kl_old": 1.0, "train/learning_rate": 3e-4})
    for step in range(15, 17):
        watch.update({"step": step, "kind": "train", "train/kl_old": 2.0, "train/learning_rate": 3e-4})
    assert [warning.step for warning in watch.warnings] == [16]


def test_a_verdict_carries_the_warnings() -> None:
    rows = [
        {
            "step": step,
            "kind": "train",
            "train/kl_old": 1.0 if step <= 13 else 9.0,
            "train/learning_rate": 1e-3,
        }
        for step in range(1, 20)
    ]
    verdict = judge(rows, CollapseRule(), finished=True)
    assert [(warning.name, warning.step) for warning in verdict.warnings] == [("off_policy_kl", 15)]
