"""Measures of runs: areas, budgets, what a stopped run goes on with, which settings count."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from analysis.arms import difference
from analysis.collapse import CollapseRule
from analysis.measures import mean_success, run_table, success_by
from analysis.results import varying_settings
from analysis.simulation import World, simulate
from analysis.study import load_study

New = Callable[..., Any]


def test_means_of_a_curve_by_hand() -> None:
    used, success = np.array([0.0, 10.0, 30.0]), np.array([0.2, 0.4, 0.6])
    assert mean_success(used, success, 10) == pytest.approx(0.3)
    assert mean_success(used, success, 30) == pytest.approx((10 * 0.3 + 20 * 0.5) / 30)
    assert mean_success(used, success, 50) == pytest.approx((10 * 0.3 + 20 * 0.5 + 20 * 0.6) / 50)
    assert mean_success(used, success, 30, since=20) == pytest.approx(0.55)
    assert np.isnan(mean_success(used[:0], success[:0], 30))


def test_budgets_are_what_every_run_had(new_study: New, methods: tuple[Any, ...]) -> None:
    """Rows with twice the episodes a step reach the others' budget at half their steps."""
    builder = new_study()
    rows = builder._rows(methods[0], 30, np.random.default_rng(0))
    for method, episodes in ((methods[0], 100), (methods[2], 200)):
        counted = [{**row, "rollout/episodes": episodes} if row["kind"] == "train" else row for row in rows]
        builder.trial(method, 0, rows=counted)
    runs = run_table(load_study(builder.plan()))
    assert runs.budgets["sokoban", "episode"] == 3000
    assert runs.budgets["sokoban", "update"] == 30 * 16
    assert ("sokoban", "token") not in runs.budgets
    one, two = runs.table["final_episode"], runs.table["final_step"]
    assert one.iloc[0] == pytest.approx(two.iloc[0])
    curve = {row["step"]: row["eval/success"] for row in rows if row["kind"] == "eval"}
    # Steps 12 to 15 of a run that uses 200 a step: evaluations at 12 and 14, and half the way to 16.
    half = (curve[14] + curve[16]) / 2
    expected = ((curve[12] + curve[14]) + (curve[14] + half) / 2) / 3
    assert one.iloc[1] == pytest.approx(expected)
    assert runs.table["final_token"].isna().all()


def test_a_run_stopped_at_its_collapse_goes_on_at_its_last_mean(
    new_study: New, methods: tuple[Any, ...]
) -> None:
    builder = new_study()
    builder.trial(methods[1], 0, rule=CollapseRule(stop=True))
    builder.trial(methods[2], 0)
    runs = run_table(load_study(builder.plan()))
    stopped = runs.table[runs.table["event"]].iloc[0]
    study = load_study(builder.folder)
    trial = next(t for t in study.trials if t.status == "collapsed")
    steps, _ = success_by(trial, "step")
    assert stopped["final_step"] == pytest.approx(trial.verdict.final)
    assert steps[-1] < 30
    assert (stopped["time"], runs.budgets["sokoban", "step"]) == (trial.verdict.onset, 30)
    assert stopped["area"] < runs.table["area"].max()


def test_what_is_no_run_and_what_is_censored(new_study: New, methods: tuple[Any, ...]) -> None:
    builder = new_study()
    builder.trial(methods[0], 0)
    builder.trial(methods[0], 1, outcome={"outcome": "failed"})
    builder.trial(methods[0], 2, outcome={"outcome": "interrupted"}, until=12)
    builder.entry(methods[0], 3)
    runs = run_table(load_study(builder.plan()))
    assert sorted(runs.excluded.values()) == ["failed", "missing"]
    assert len(runs.results) == 1
    cut = runs.table[runs.table["status"] == "interrupted"].iloc[0]
    assert (cut["time"], cut["event"]) == (12, False)
    assert np.isnan(cut["final"])


def test_keys_swept_together_are_one_setting(new_study: New, methods: tuple[Any, ...]) -> None:
    builder = new_study()
    for seed in range(2):
        for k, (rate, epochs) in enumerate(((3e-4, 1), (6e-4, 4))):
            trainer = {"steps": 30, "learning_rate": rate, "epochs": epochs}
            method = replace(methods[0], label=f"GRPO {k}")
            builder.trial(method, seed, trainer=trainer)
    runs = run_table(load_study(builder.plan()))
    assert runs.settings == ("trainer.learning_rate",)
    assert runs.together == {"trainer.learning_rate": ("trainer.epochs",)}
    assert runs.order("trainer.learning_rate") == ["0.0003", "0.0006"]
    assert runs.order("advantage") == []


def test_an_empty_study_has_an_empty_table(new_study: New, methods: tuple[Any, ...]) -> None:
    builder = new_study()
    builder.entry(methods[0], 0)
    runs = run_table(load_study(builder.plan()))
    assert runs.table.empty
    assert runs.settings == ()


def test_runs_are_never_compared_across_models(new_study: New, methods: tuple[Any, ...]) -> None:
    """A method that ran with one of two models has partners there alone."""
    builder = new_study()
    for hidden in (32, 64):
        model = {"name": "tiny", "hidden": hidden}
        for seed in range(2):
            for method in methods[:2] if hidden == 64 else methods[:1]:
                builder.trial(replace(method, label=f"{method.label} {hidden}"), seed, model=model)
    runs = run_table(load_study(builder.plan()))
    assert runs.settings == ("is_clipping",)
    assert runs.table["block"].nunique() == 4
    options = runs.order("is_clipping")
    found = difference(runs, "is_clipping", {"a": options[:1], "b": options[1:]}, "final")
    assert (found.blocks, found.runs) == (2, 4)
    mine = runs.table[runs.table["label"].str.endswith("64")]
    lead = mine.pivot_table(index="block", columns="is_clipping", values="final")
    assert found.effect.estimate == pytest.approx((lead[options[1]] - lead[options[0]]).mean())


@pytest.mark.parametrize("varied", [("is_clipping",), ("is_clipping", "advantage")])
def test_runs_are_alike_where_all_combinations_ran_in_the_same_place(varied: tuple[str, ...]) -> None:
    axes = {"is_clipping": ("token", "cispo"), "advantage": ("grpo", "gigpo"), "filter": ("none", "some")}
    runs = simulate(World(), 6, np.random.default_rng(0), axes=axes)
    kept = runs.table[np.random.default_rng(1).random(len(runs.table)) < 0.8]
    rows = kept.astype(str).to_dict("index")
    around = ["block", *(name for name in axes if name not in varied)]
    expected = []
    for name, row in rows.items():
        combinations = {
            tuple(other[key] for key in varied)
            for other in rows.values()
            if all(other[key] == row[key] for key in around)
        }
        if len(combinations) == 2 ** len(varied):
            expected.append(name)
    assert 0 < len(expected) < len(kept)
    assert list(replace(runs, table=kept).alike(*varied).index) == expected


def test_options_are_called_as_in_the_plan_where_that_tells_them_apart() -> None:
    def cell(number: int, label: str, mask: dict[str, Any] | None, rate: float) -> Any:
        choices = {"is_clipping": {"option": "cispo", "mask": mask}, "trainer": {"learning_rate": rate}}
        return SimpleNamespace(cell=f"c{number}", choices=choices, options={"is_clipping": label})

    masked = {"delta": 0.003, "denominator": "kept"}
    cells = [cell(0, "cispo", None, 1e-3), cell(1, "cispo(mask.delta=0.003)", masked, 1e-4)]
    table = varying_settings(cells)
    assert list(table["is_clipping"]) == ["cispo", "cispo(mask.delta=0.003)"]
    assert list(table["trainer.learning_rate"]) == ["0.001", "0.0001"]
    other = cell(2, "cispo(mask.delta=0.003)", {**masked, "denominator": "all"}, 1e-3)
    assert varying_settings([*cells, other])["is_clipping"].nunique() == 3
