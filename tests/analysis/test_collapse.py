"""Outcomes on hand-made curves: every branch of the rule, its boundaries, and live against replay."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.collapse import CollapseRule, CollapseWatch, judge
from analysis.detection import SCENARIOS, Scenario, collapse_share, delays, fall

Row = dict[str, Any]
MANY = 1_000_000  # so many episodes that standard errors vanish beside every floor


def evaluations(start: float, successes: list[float], *, episodes: int = MANY, every: int = 2) -> list[Row]:
    """The clone's evaluation on four times the episodes, then one evaluation every `every` steps."""
    first = {"step": 0, "kind": "eval", "eval/success": start, "eval/episodes": 4 * episodes}
    return [first] + [
        {"step": every * k, "kind": "eval", "eval/success": success, "eval/episodes": episodes}
        for k, success in enumerate(successes, start=1)
    ]


def with_train_rows(rows: list[Row], metric: str, values: dict[int, Any]) -> list[Row]:
    """The same record with a train row per step, in the order a trainer writes them."""
    train = [{"step": step, "kind": "train", metric: value} for step, value in values.items()]
    return sorted([*rows, *train], key=lambda row: (row["step"], row["kind"] == "eval"))


def test_a_run_that_rises_and_stays_is_stable_and_learned() -> None:
    verdict = judge(evaluations(0.3, [0.4, 0.5, 0.6, 0.7, 0.7, 0.7, 0.7, 0.7]), {}, finished=True)
    assert (verdict.outcome, verdict.learned, verdict.onset) == ("stable", True, None)
    assert verdict.start == 0.3
    assert verdict.final == pytest.approx(0.7)
    assert "0.30" in verdict.reason
    assert "+0.40" in verdict.reason


def test_a_run_that_stays_at_its_clone_is_stable_and_flat() -> None:
    verdict = judge(evaluations(0.3, [0.3] * 6), {}, finished=True)
    assert (verdict.outcome, verdict.learned) == ("stable", False)


def test_a_steady_climb_is_stable_because_it_is_a_line() -> None:
    verdict = judge(evaluations(0.1, [0.1 * k for k in range(1, 9)]), {}, finished=True)
    assert verdict.outcome == "stable"


def test_swings_around_a_level_are_unstable() -> None:
    verdict = judge(evaluations(0.3, [0.5, 0.7, 0.5, 0.7, 0.5, 0.7, 0.5]), {}, finished=True)
    assert (verdict.outcome, verdict.learned) == ("unstable", True)


def test_stability_takes_five_evaluations() -> None:
    assert judge(evaluations(0.3, [0.3] * 4), {}, finished=True).outcome == "undecided"
    assert judge(evaluations(0.3, [0.3] * 5), {}, finished=True).outcome == "stable"


def test_a_run_without_any_evaluation_is_undecided_and_says_nothing_about_learning() -> None:
    verdict = judge([], {}, finished=True)
    assert (verdict.outcome, verdict.learned, verdict.final) == ("undecided", None, None)


def test_a_running_run_is_undecided_and_an_interrupted_one_is_no_result() -> None:
    rows = evaluations(0.3, [0.3] * 8)
    running, interrupted = judge(rows, {}, finished=False), judge(rows, {}, finished=False, interrupted=True)
    assert (running.outcome, running.learned) == ("undecided", None)
    assert (interrupted.outcome, interrupted.learned) == ("interrupted", None)


@pytest.mark.parametrize(("swing", "outcome"), [(0.0445, "stable"), (0.0449, "unstable")])
def test_stable_variance_is_the_residual_variance_around_the_line(swing: float, outcome: str) -> None:
    # Residuals (s, -s, 0, -s, s) are orthogonal to a constant and to a line: variance 4 s^2 / (5 - 2) with
    # mean 0.6 over 5 equal steps. 4 s^2 / 3 = 0.0025 at s = 0.0433; sampling variance 0.24 / 1500 = 0.00016
    # moves the boundary to 4 s^2 / 3 = 0.00266, s = 0.04467.
    residuals = np.array([swing, -swing, 0, -swing, swing])
    residuals -= np.polyval(np.polyfit(range(5), residuals, 1), range(5))
    curve = list(0.6 + residuals)
    assert np.sum(residuals**2) / 3 == pytest.approx(np.var(residuals) * 5 / 3)
    expected = np.sum(residuals**2) / 3 - np.mean(curve) * (1 - np.mean(curve)) / 1500
    verdict = judge(evaluations(0.6, curve, episodes=1500), {}, finished=True)
    assert ("stable" if expected < 0.0025 else "unstable") == verdict.outcome == outcome


def test_a_fall_from_the_best_is_a_collapse_dated_at_the_first_evaluation_that_shows_it() -> None:
    # Trailing means from step 6: .6 .6 .6 .45 .3 .15 .1 ...: half of the best is reached at step 14.
    curve = [0.6, 0.6, 0.6, 0.6, 0.6, 0.15, 0.15, 0.1, 0.1, 0.1]
    verdict = judge(evaluations(0.1, curve), {}, finished=True)
    assert verdict.outcome == "collapsed"
    assert verdict.cause == "from_best"
    means = pd.Series(curve).rolling(3).mean()
    onset = 2 * (1 + int((means <= 0.3 + 1e-9).idxmax()))
    assert (verdict.onset, verdict.onset_interval) == (onset, (onset - 2, onset))
    assert verdict.best == pytest.approx(0.6)
    assert "0.60" in verdict.reason
    assert f"since step {onset}" in verdict.reason


def test_a_collapsed_run_may_have_learned() -> None:
    verdict = judge(evaluations(0.1, [0.9] * 4 + [0.4] * 8), {}, finished=True)
    assert (verdict.outcome, verdict.learned) == ("collapsed", True)


def test_below_the_start_is_a_collapse_though_half_the_best_is_not_lost() -> None:
    verdict = judge(evaluations(0.31, [0.31, 0.3, 0.25] + [0.21] * 6), {}, finished=True)
    assert (verdict.outcome, verdict.cause, verdict.learned) == ("collapsed", "below_start", False)


@pytest.mark.parametrize(("level", "collapsed"), [(0.25, True), (0.2501, False)])
def test_below_the_start_by_exactly_the_floor_counts(level: float, collapsed: bool) -> None:
    verdict = judge(evaluations(0.30, [level] * 6), {}, finished=True)
    assert (verdict.outcome == "collapsed") is collapsed


@pytest.mark.parametrize(("level", "collapsed"), [(0.40, True), (0.401, False)])
def test_half_of_the_best_lost_counts(level: float, collapsed: bool) -> None:
    verdict = judge(evaluations(0.2, [0.8, 0.8, 0.8] + [level] * 6), {}, finished=True)
    assert (verdict.outcome == "collapsed") is collapsed


@pytest.mark.parametrize(("level", "collapsed"), [(0.04, True), (0.041, False)])
def test_little_success_must_lose_a_tenth_not_half(level: float, collapsed: bool) -> None:
    rule = CollapseRule(start_floor=0.5)
    verdict = judge(evaluations(0.02, [0.14] * 3 + [level] * 6), rule, finished=True)
    assert (verdict.outcome == "collapsed") is collapsed


def test_noise_of_few_episodes_widens_the_threshold_by_the_standard_error_of_the_difference() -> None:
    # m_0 = .5 on 400 episodes, m_t on 3 x 100: three SE are 3 sqrt(.25/400 + p(1-p)/300).
    def boundary(p: float) -> float:
        return 0.5 - p - 3 * math.sqrt(0.25 / 400 + p * (1 - p) / 300)

    low, high = 0.0, 0.5
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if boundary(middle) > 0 else (low, middle)
    for level, collapsed in ((low - 1e-4, True), (low + 1e-4, False)):
        verdict = judge(evaluations(0.5, [level] * 6, episodes=100), {}, finished=True)
        assert (verdict.outcome == "collapsed") is collapsed


def test_patience_is_evaluations_in_a_row() -> None:
    rule = CollapseRule(window=1, patience=3)
    dips = [0.1, 0.1, 0.5] * 4
    assert judge(evaluations(0.5, dips), rule, finished=True).outcome != "collapsed"
    assert judge(evaluations(0.5, [*dips, 0.1, 0.1, 0.1]), rule, finished=True).outcome == "collapsed"


def test_nothing_is_judged_before_the_window_is_full() -> None:
    watch = CollapseWatch(CollapseRule())
    stops = [watch.update(row) for row in evaluations(0.5, [0.0] * 5)]
    # Trailing means exist from the third evaluation; three in a row of them make five evaluations.
    assert stops == [False] * 5 + [True]
    assert watch.established is not None
    assert watch.established.onset == 6


def test_the_best_includes_the_clone() -> None:
    verdict = judge(evaluations(0.8, [0.38] * 6), CollapseRule(start_floor=0.9), finished=True)
    assert (verdict.outcome, verdict.cause) == ("collapsed", "from_best")


def test_recovery_does_not_undo_a_collapse() -> None:
    verdict = judge(evaluations(0.5, [0.1] * 6 + [0.9] * 10), CollapseRule(stop=False), finished=True)
    assert (verdict.outcome, verdict.learned, verdict.carried) == ("collapsed", True, False)
    assert verdict.final == pytest.approx(0.9)


def test_a_run_stopped_at_its_collapse_carries_its_last_trailing_mean() -> None:
    curve = [0.6, 0.6, 0.6, 0.2, 0.1, 0.06, 0.02]
    rule = CollapseRule(stop=True)
    watch = CollapseWatch(rule)
    seen = []
    for row in evaluations(0.1, curve):
        seen.append(row)
        if watch.update(row):
            break
    verdict = judge(seen, rule, finished=True)
    last = [row["eval/success"] for row in seen][-3:]
    assert verdict.carried
    assert verdict.final == pytest.approx(sum(last) / 3)


def test_a_broken_format_is_a_collapse_though_success_is_not_known_to_fall() -> None:
    valid = {step: 0.95 if step <= 8 else 0.2 for step in range(1, 21)}
    rows = with_train_rows(evaluations(0.02, [0.02] * 10), "rollout/valid_format", valid)
    verdict = judge(rows, {}, finished=True)
    # Five-step means at even steps: step 10 has 3 x .95 + 2 x .2 = .65, step 12 has .95 + 4 x .2 = .35.
    assert (verdict.outcome, verdict.cause, verdict.onset) == ("collapsed", "format", 12)
    assert verdict.onset_interval == (10, 12)


def test_a_format_that_was_never_healthy_cannot_break() -> None:
    valid = {step: 0.75 if step <= 8 else 0.2 for step in range(1, 21)}
    rows = with_train_rows(evaluations(0.02, [0.02] * 10), "rollout/valid_format", valid)
    assert judge(rows, {}, finished=True).outcome == "stable"


def test_a_format_that_breaks_at_once_had_been_healthy_in_the_clone() -> None:
    valid = {step: 0.9 if step == 1 else 0.1 for step in range(1, 21)}
    rows = with_train_rows(evaluations(0.02, [0.02] * 10), "rollout/valid_format", valid)
    rows[0]["eval/valid_format"] = 0.9
    assert judge(rows, {}, finished=True).cause == "format"


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", math.nan, math.inf])
@pytest.mark.parametrize("metric", ["train/loss", "train/loss_last", "train/gradient_norm_first"])
def test_a_non_finite_loss_or_gradient_is_a_divergence(metric: str, value: Any) -> None:
    rows = with_train_rows(evaluations(0.3, [0.3, 0.3]), metric, {1: 0.1, 2: 0.1, 3: value})
    watch = CollapseWatch(CollapseRule())
    assert [watch.update(row) for row in rows].index(True) == [row["step"] for row in rows].index(3)
    verdict = watch.verdict(finished=True)
    assert (verdict.outcome, verdict.cause) == ("diverged", "non_finite")
    assert (verdict.onset, verdict.onset_interval) == (3, (2, 3))
    assert metric in verdict.reason


def test_a_step_without_updates_has_no_loss_to_diverge() -> None:
    rows = [{"step": 1, "kind": "train", "train/loss": "NaN", "train/updates": 0}]
    assert judge(rows, {}, finished=True).outcome == "undecided"


def test_other_statistics_may_be_infinite() -> None:
    rows = [{"step": 1, "kind": "train", "train/kl_old": "Infinity"}]
    assert judge(rows, {}, finished=True).outcome == "undecided"


def test_what_comes_first_counts_a_collapse_that_diverges_later_has_collapsed() -> None:
    rows = with_train_rows(evaluations(0.5, [0.1] * 6), "train/loss", {12: "NaN"})
    rule = CollapseRule(stop=False)
    assert judge(rows, rule, finished=True).outcome == "collapsed"
    rows = with_train_rows(evaluations(0.5, [0.1] * 6), "train/loss", {9: "NaN"})
    assert judge(rows, rule, finished=True).outcome == "diverged"


def test_an_interrupted_run_whose_collapse_would_have_stopped_it_has_collapsed() -> None:
    rows = evaluations(0.5, [0.1] * 6)
    stopping = judge(rows, CollapseRule(stop=True), finished=False, interrupted=True)
    going_on = judge(rows, CollapseRule(stop=False), finished=False, interrupted=True)
    assert stopping.outcome == "collapsed"
    assert (going_on.outcome, going_on.onset) == ("interrupted", 6)


@pytest.mark.parametrize(("gain", "learned"), [(0.05, True), (0.0499, False)])
def test_learned_takes_the_floor(gain: float, learned: bool) -> None:
    assert judge(evaluations(0.3, [0.3 + gain] * 5), {}, finished=True).learned is learned


def test_the_final_level_is_the_last_fifth_of_the_evaluations() -> None:
    curve = [0.5] * 12 + [0.6, 0.7, 0.8]
    assert judge(evaluations(0.5, curve), {}, finished=True).final == pytest.approx(0.7)
    assert judge(evaluations(0.5, curve[:10]), {}, finished=True).final == pytest.approx(0.5)


def test_evaluations_without_a_number_are_skipped() -> None:
    rows = evaluations(0.3, [0.3] * 6)
    rows.insert(3, {"step": 5, "kind": "eval", "eval/success": "NaN", "eval/episodes": 10})
    rows.insert(3, {"step": 5, "kind": "eval"})
    assert judge(rows, {}, finished=True).outcome == "stable"


def test_a_rule_refuses_keys_it_does_not_have() -> None:
    with pytest.raises(ValueError, match="windows"):
        CollapseRule.of({"windows": 3})
    with pytest.raises(ValueError, match="patience"):
        CollapseRule(patience=0)
    assert CollapseRule.of({"window": 5, "stop": False}) == CollapseRule(window=5, stop=False)
    assert CollapseRule(**CollapseRule().to_dict()) == CollapseRule()


def slow_reference(rows: list[Row], rule: CollapseRule) -> tuple[str, int] | None:
    """Cause and onset of the first collapse, recomputed with data frames from the definitions."""
    frame = pd.DataFrame([row for row in rows if row["kind"] == "eval"]).set_index("step")
    clone, later = frame.loc[0], frame.drop(index=0)
    mean = later["eval/success"].rolling(rule.window).mean()
    n = later["eval/episodes"].rolling(rule.window).sum()
    levels = pd.DataFrame({"p": mean, "n": n})
    levels.loc[0] = (clone["eval/success"], clone["eval/episodes"])
    levels = levels.sort_index()
    format_rate = (
        pd.Series({row["step"]: row["rollout/valid_format"] for row in rows if row["kind"] == "train"})
        .rolling(5)
        .mean()
    )
    holds: dict[str, list[bool]] = {"below_start": [], "from_best": [], "format": []}
    for step in later.index:
        so_far = levels.loc[:step].dropna()
        best, now = so_far.loc[so_far["p"].idxmax()], levels.loc[step]

        def error(a: pd.Series, b: pd.Series) -> float:
            return rule.standard_errors * float(np.sqrt(a.p * (1 - a.p) / a.n + b.p * (1 - b.p) / b.n))

        first = levels.loc[0]
        holds["from_best"].append(
            bool(best.p - now.p >= max(rule.best_share * best.p, rule.best_floor, error(best, now)) - 1e-9)
        )
        holds["below_start"].append(bool(first.p - now.p >= max(rule.start_floor, error(first, now)) - 1e-9))
        past = format_rate.loc[:step]
        holds["format"].append(
            bool((past > rule.format_healthy).any() and past.iloc[-1] < rule.format_broken)
        )
    for k in range(len(later)):
        for cause, flags in holds.items():
            if k + 1 >= rule.patience and all(flags[k + 1 - rule.patience : k + 1]):
                return cause, int(later.index[k + 1 - rule.patience])
    return None


shares = st.integers(0, 20).map(lambda k: k / 20)
records = st.lists(st.tuples(shares, shares, shares), min_size=3, max_size=14).map(
    lambda triples: with_train_rows(
        evaluations(triples[0][0], [success for success, _, _ in triples[1:]], episodes=40),
        "rollout/valid_format",
        {
            step: value
            for k, (_, first, second) in enumerate(triples[1:])
            for step, value in ((2 * k + 1, first), (2 * k + 2, second))
        },
    )
)
rules = st.builds(CollapseRule, window=st.integers(1, 4), patience=st.integers(1, 3), stop=st.booleans())


@settings(max_examples=150, deadline=None)
@given(records, rules)
def test_live_replay_and_a_slow_reference_agree_on_the_step(rows: list[Row], rule: CollapseRule) -> None:
    watch = CollapseWatch(rule)
    live = [watch.update(row) for row in rows]
    for k in range(len(rows)):
        replayed = judge(rows[: k + 1], rule, finished=False)
        assert (replayed.outcome == "collapsed") is live[k]
    assert live == sorted(live), "what is established stays established"
    final = judge(rows, rule, finished=True)
    assert final == watch.verdict(finished=True)
    expected = slow_reference(rows, rule)
    assert (expected is None) is (final.onset is None)
    if expected is not None:
        assert (final.cause, final.onset) == expected


@settings(max_examples=50, deadline=None)
@given(records, rules)
def test_a_record_read_back_from_json_gives_the_same_verdict(rows: list[Row], rule: CollapseRule) -> None:
    restored = [json.loads(json.dumps(row)) for row in rows]
    assert judge(restored, rule, finished=True) == judge(rows, rule, finished=True)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_simulated_false_alarms_are_rare_and_clear_collapses_are_found(scenario: Any) -> None:
    share = collapse_share(scenario.course, evaluations=30, episodes=256, runs=120)
    if scenario.collapses:
        assert share > 0.95
    else:
        assert share < 0.10


def test_without_noise_the_delay_is_that_of_window_and_patience() -> None:
    # .6, .6, ... .3, 0, 0: the mean of three is .5, .3, .1 after the fall, each below the clone's .6 - .05
    sudden = Scenario("", fall(0.6, 0.0, 0.5), collapses=True, begins=0.5)
    assert delays(sudden, evaluations=20, episodes=MANY, runs=3) == (3, 3)
    never = Scenario("", fall(0.6, 0.58, 0.5), collapses=True, begins=0.5)
    assert delays(never, evaluations=20, episodes=64, runs=3) == (math.inf, math.inf)
