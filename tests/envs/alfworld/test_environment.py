"""Episodes as policies see them, and which games are played."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from envs.alfworld import package
from envs.alfworld.engine import NOTHING_HAPPENS
from envs.alfworld.environment import ALFWORLD
from envs.alfworld.games import games
from envs.pool import SerialPool
from envs.prompts import render

ROOT = Path(__file__).parents[3]


def test_winning_earns_ten_and_ends_the_episode(make_config):
    env = ALFWORLD.make(make_config(rewards={"step": -0.5, "won": 10.0}))
    env.reset(0)
    *before, last = [env.step(command) for command in env.game.walkthrough]
    assert all(step[1:4] == (-0.5, False, False) for step in before)
    assert last[1:4] == (9.5, True, False)
    assert last[4]["success"]
    with pytest.raises(ValueError, match="over"):
        env.step("look")


def test_the_anchor_is_what_the_engine_said_last_of_the_state(make_config):
    env = ALFWORLD.make(make_config(observation="full"))
    text, info = env.reset(1)
    assert text == info["anchor"]
    goal = text[text.index("Your task is to:") :]
    command = info["admissible"][0]
    text, _, _, _, info = env.step(command)
    assert text == f"{info['anchor']}\n\n{goal}"
    anchor = info["anchor"]
    nothing, _, _, _, info = env.step("sing")
    assert nothing == f"{NOTHING_HAPPENS}\n\n{goal}"
    assert info["anchor"] == anchor
    assert env.step("")[0] == nothing


def test_full_observations_are_within_the_vocabulary(make_config):
    config = make_config(observation="full")
    env, random = ALFWORLD.make(config), np.random.default_rng(0)
    known = set(ALFWORLD.vocabulary(config))
    for seed in range(12):
        text, info = env.reset(seed)
        over = False
        while not over:
            assert not set(text.split()) - known
            assert not {word for command in info["admissible"] for word in command.split()} - known
            text, _, terminated, truncated, info = env.step(random.choice(info["admissible"]))
            over = terminated or truncated


def test_a_prompt_for_instruction_models_holds_all_there_is(make_config):
    config = make_config(observation="full")
    env = ALFWORLD.make(config)
    text, info = env.reset(0)
    pool = ALFWORLD.make_pool(config)
    (observation,) = pool.reset([0], "train")
    prompt = render("full", ALFWORLD.task(config), [("before", "look")], observation)
    for part in (text, "You have 15 turns", ", ".join(info["admissible"]), "Action: look"):
        assert part in prompt


def test_workers_play_as_this_process_does(make_config):
    config = make_config(workers=2)
    pool, serial = ALFWORLD.make_pool(config), SerialPool(lambda: ALFWORLD.make(config))
    try:
        for split in ("train", "eval"):
            seeds = [0, 0, 1, 2, 3, 3]
            seen = [(each.reset(seeds, split), _roll(each, len(seeds))) for each in (pool, serial)]
            assert seen[0] == seen[1]
    finally:
        pool.close()


def _roll(pool, count):
    outcomes, running = [], list(range(count))
    for command in ("look", "go to cabinet 1", "inventory", "go to sinkbasin 1", "", "nonsense"):
        outcomes.append(pool.step(running, [command] * count))
    return outcomes


@pytest.fixture
def official(make_config, tmp_path, monkeypatch):
    """A folder like the official one, with four training games and one or two of each evaluation split."""
    config = make_config()
    seen = make_config(eval_split="seen")
    for split, folder, source, count in (
        ("train", "train", config, 4),
        ("eval", "valid_unseen", config, 2),
        ("eval", "valid_seen", seen, 1),
    ):
        for number in range(count):
            trial = games(source, split).path(number).parent
            shutil.copytree(trial, tmp_path / "json_2.1.1" / folder / trial.parent.name / trial.name)
    monkeypatch.setenv("ALFWORLD_DATA", str(tmp_path))
    monkeypatch.setenv("ARENA_CACHE", str(tmp_path / "cache"))
    return tmp_path


def test_official_games_are_played_unchanged_when_their_folder_is_given(make_config, official):
    config = make_config(data="auto")
    theirs = official / "json_2.1.1"
    before = {path: path.read_bytes() for path in theirs.rglob("*") if path.is_file()}
    assert not ALFWORLD.problems(config)
    assert [len(games(config, split)) for split in ("train", "eval")] == [4, 2]
    assert len(games(make_config(data="official", eval_split="seen"), "eval")) == 1
    env = ALFWORLD.make(config)
    for seed in range(8):
        env.reset(seed)
        assert official in env.game.path.parents
        assert env.game.data == json.loads(env.game.path.read_text())
    assert {path: path.read_bytes() for path in theirs.rglob("*") if path.is_file()} == before


def test_only_games_that_alfworld_plays_are_taken(make_config, official):
    trials = sorted((official / "json_2.1.1" / "train").glob("*/*"))
    unsolvable = json.loads((trials[0] / "game.tw-pddl").read_text()) | {"solvable": False}
    (trials[0] / "game.tw-pddl").write_text(json.dumps(unsolvable))
    trials[1].parent.rename(trials[1].parent.with_name(f"{trials[1].parent.name}Sliced"))
    assert len(games(make_config(data="auto"), "train")) == 2
    kinds = [json.loads((trial / "traj_data.json").read_text())["task_type"] for trial in trials[2:]]
    assert len(games(make_config(data="auto", task_types=kinds[:1]), "train")) == 1


def test_the_data_is_part_of_a_trial_s_identity(make_config, official, monkeypatch):
    auto, generated = make_config(data="auto"), make_config(data="generated")
    ours = ALFWORLD.data_id(auto)
    assert ours.startswith("official-")
    assert ALFWORLD.data_id(generated).startswith("household-")
    monkeypatch.delenv("ALFWORLD_DATA")
    assert ALFWORLD.data_id(auto) == ALFWORLD.data_id(generated)
    copy = official.with_name("copy")
    shutil.copytree(official, copy)
    monkeypatch.setenv("ALFWORLD_DATA", str(copy))
    assert ALFWORLD.data_id(auto) == ours
    trial = next((copy / "json_2.1.1" / "train").glob("*/*"))
    shutil.rmtree(trial)
    monkeypatch.setenv("ALFWORLD_DATA", str(copy.rename(copy.with_name("less"))))
    assert ALFWORLD.data_id(auto) != ours


def test_what_is_missing_is_said_with_its_remedy(make_config, tmp_path, monkeypatch):
    assert ALFWORLD.problems(make_config(data="auto")) == []
    (problem,) = ALFWORLD.problems(make_config(data="official"))
    assert "ALFWORLD_DATA" in problem
    assert "alfworld-download" in problem
    monkeypatch.setenv("ALFWORLD_DATA", str(tmp_path / "nothing"))
    (problem,) = ALFWORLD.problems(make_config(data="auto"))
    assert str(tmp_path / "nothing") in problem
    assert "unset ALFWORLD_DATA" in problem
    with pytest.raises(ValueError, match="no games of the asked types"):
        ALFWORLD.make(make_config(data="auto")).reset(0)
    monkeypatch.setattr("envs.alfworld.environment.missing", lambda: ["textworld"])
    (problem,) = ALFWORLD.problems(make_config())
    assert "needs textworld: pip install 'arlarena[alfworld]'" in problem


def test_the_folder_that_importing_alfworld_names_does_not_count_as_given(make_config, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("ALFWORLD_DATA", str(tmp_path / ".cache" / "alfworld"))
    assert package.official_data() is None
    assert ALFWORLD.data_id(make_config(data="auto")).startswith("household-")


def test_planning_imports_neither_the_engine_nor_torch(make_config):
    script = (
        "import sys\n"
        "from envs.alfworld.config import AlfworldConfig\n"
        "from envs.alfworld.environment import ALFWORLD\n"
        "config = AlfworldConfig.model_validate_json(sys.stdin.read())\n"
        "ALFWORLD.data_id(config), ALFWORLD.problems(config), ALFWORLD.has_anchors(config)\n"
        "loaded = {'alfworld', 'textworld', 'fast_downward', 'torch'} & set(sys.modules)\n"
        "assert not loaded, loaded\n"
    )
    subprocess.run(
        [sys.executable, "-c", script],
        input=make_config().model_dump_json(),
        text=True,
        check=True,
        cwd=ROOT,
        env={**os.environ},
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task_types": []}, "one or more different"),
        ({"task_types": ["pick_and_place_simple"] * 2}, "one or more different"),
        ({"task_types": ["cook"]}, "task_types"),
        ({"max_turns": 5}, "exceeds max_turns"),
        ({"generated": {"objects": [6, 4]}}, "exceed the most"),
        ({"generated": {"objects": [1, 4]}}, "at least 2"),
        ({"generated": {"shortest": 13}}, "exceeds longest"),
        ({"generated": {"receptacles": 3}}, "receptacles"),
        ({"speed": 1}, "speed"),
    ],
)
def test_impossible_parameters_are_refused(make_config, changes, message):
    with pytest.raises(ValidationError, match=message):
        make_config(**changes)
