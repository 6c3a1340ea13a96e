"""Environments in a grid: with keys of their configuration, or of another package by import path."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from arena.environments import choose_environment
from arena.mistakes import MistakesError
from arena.plan import Study
from arena.planning import plan_study

LAKE = {
    "environment": "envs.adapters.gymnasium.GYMNASIUM",
    "factory": "envs.adapters.frozen_lake.Lakes",
    "parameters": {"size": 3},
    "actions": ["left", "down", "right", "up"],
    "max_turns": 9,
    "eval_seeds": 4,
    "splits": "seeds",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    pytest.importorskip("gymnasium", reason="needs the extra `adapters`")
    return tmp_path


def plan(folder: Path, *assignments: str, **grid: Any) -> Study:
    path = folder / "g.yaml"
    path.write_text(yaml.safe_dump({"name": "tried", "methods": ["GRPO"], **grid}, sort_keys=False))
    return plan_study(path, assignments, studies=folder / "studies")


def test_an_environment_of_another_package_is_named_by_its_import_path(folder: Path) -> None:
    study = plan(folder, envs=["sokoban", {"lake": LAKE}])
    assert [trial.env for trial in study.trials] == ["sokoban", "lake"]
    env = study.trials[1].config.env
    assert env["name"] == "lake"
    assert {key: env[key] for key in LAKE} == LAKE
    assert study.trials[1].problems == ()


def test_keys_in_the_entry_are_that_environments_alone_and_below_overrides(folder: Path) -> None:
    other = {**LAKE, "max_turns": 20}
    envs = [{"sokoban": {"max_turns": 7, "rewards.step": -0.5}}, {"lake": LAKE}, {"longer": other}]
    study = plan(folder, envs=envs)
    assert [trial.config.env["max_turns"] for trial in study.trials] == [7, 9, 20]
    assert study.trials[0].config.env["rewards"]["step"] == -0.5
    assert len({trial.cell for trial in study.trials}) == 3
    overridden = plan(folder, envs=envs, overrides={"env.max_turns": 11})
    assert {trial.config.env["max_turns"] for trial in overridden.trials} == {11}


def test_the_same_keys_in_the_entry_and_in_overrides_are_the_same_trials(folder: Path) -> None:
    entry = plan(folder, envs=[{"sokoban": {"max_turns": 7}}])
    override = plan(folder, envs=["sokoban"], overrides={"env.max_turns": 7})
    assert [trial.id for trial in entry.trials] == [trial.id for trial in override.trials]


def test_rules_name_it_like_any_other(folder: Path) -> None:
    study = plan(
        folder,
        envs=["sokoban", {"lake": LAKE}],
        methods=["GRPO", "GIGPO"],
        exclude=[{"env": "lake", "advantage": "gigpo"}],
    )
    assert [(trial.env, trial.label) for trial in study.trials] == [
        ("sokoban", "GRPO"),
        ("sokoban", "GIGPO"),
        ("lake", "GRPO"),
    ]


def test_a_preset_of_the_default_environment_is_not_taken(folder: Path) -> None:
    both = plan(folder, envs=["sokoban", {"lake": LAKE}], overrides={"preset": "paper_code"})
    rows = [trial.config.trainer.minibatch.rows for trial in both.trials]
    assert rows == [64, 256]  # paper_code/sokoban.yaml, paper_code.yaml


def test_the_papers_choices_for_a_shop_hold_for_both_shops(folder: Path) -> None:
    shops = plan(
        folder, envs=["webshop", "webshop_full"], methods=["SAMPO"], overrides={"preset": "paper_code"}
    )
    small, full = (trial.config for trial in shops.trials)
    assert small.trainer.minibatch == full.trainer.minibatch
    assert small.trainer.minibatch.rows == 128
    assert small.advantage == full.advantage
    assert small.dynamic_filtering == full.dynamic_filtering


@pytest.mark.parametrize(
    ("envs", "said"),
    [
        (["sokobn"], "envs.0: unknown environment 'sokobn'; did you mean 'sokoban'?"),
        ([{"lake": {"max_turns": 3}}], "needs its import path, `environment`"),
        ([{"sokoban": {"environment": "a.B"}}], "envs.0.sokoban.environment: sokoban has one"),
        ([{"lake": {**LAKE, "name": "pond"}}], "envs.0.lake.name: the key of this entry names it"),
        ([{"lake": {**LAKE, "max_turn": 3}}], "envs.0.lake.max_turn: unknown key 'max_turn'"),
        ([{"lake": {**LAKE, "max_turns": "x"}}], "envs.0.lake.max_turns: "),
        ([{"lake": {"environment": LAKE["environment"]}}], "g.yaml:5:3: env.max_turns: missing"),
        ([{"lake": {"environment": "envs.adapters.gymnasium.NONE"}}], "did you mean GYMNASIUM?"),
        ([{"lake": LAKE}, {"lake": LAKE}], "envs.1: lake is listed twice"),
        ([{"sokoban": {}, "webshop": {}}], "expected a name or {name: {parameter: value}}"),
    ],
)
def test_mistakes_are_found_where_they_stand(folder: Path, envs: list[Any], said: str) -> None:
    with pytest.raises(MistakesError) as raised:
        plan(folder, envs=envs)
    assert said in str(raised.value)
    assert "g.yaml:" in str(raised.value)
    assert not (folder / "studies").exists()


def test_the_command_line_takes_an_import_path_too(folder: Path) -> None:
    keys = ("factory=envs.adapters.frozen_lake.Lakes", "actions=[a, b, c, d]", "max_turns=5", "splits=seeds")
    chosen = choose_environment("envs.adapters.gymnasium.GYMNASIUM", keys)
    assert chosen.name == "envs.adapters.gymnasium.GYMNASIUM"
    assert chosen.config.name == "gymnasium"
    assert chosen.problems == ()
    trained = {"env": {"name": "lake", **LAKE}}
    assert choose_environment("lake", ("max_turns=6",), trained=trained).config.max_turns == 6
    with pytest.raises(MistakesError, match="unknown environment 'lake'"):
        choose_environment("lake")


def test_a_model_says_more_for_an_environment_and_a_grid_more_than_it(folder: Path) -> None:
    shared = {"methods": ["GRPO"], "envs": ["sokoban", "alfworld", "tir_math"]}
    tiny = plan(folder, **shared)
    batches = {trial.env: trial.config.cloning.batch for trial in tiny.trials}
    assert batches == {"sokoban": 256, "alfworld": 192, "tir_math": 256}  # the schema's, model/tiny/*.yaml's
    mistakes = {trial.env: trial.config.cloning.stages[-1].error for trial in tiny.trials}
    assert mistakes == {"sokoban": 0.55, "alfworld": 0.55, "tir_math": 0.3}
    given = plan(folder, **shared, overrides={"cloning.batch": 7})
    assert {trial.config.cloning.batch for trial in given.trials} == {7}
    large = plan(folder, **shared, overrides={"model": "language_model", "model.path": "x"})
    assert {trial.config.cloning.batch for trial in large.trials} == {32}  # model/language_model.yaml's
