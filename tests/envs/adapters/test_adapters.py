"""Episodes of real environments of other libraries, and what all adapted ones promise."""

from __future__ import annotations

import json
import pickle
import random
import sys
from pathlib import Path

import numpy as np
import pytest

from envs.adapters.engine import AdapterError
from envs.adapters.gymnasium import in_words, plain_screen
from envs.baselines import ExpertPolicy, evaluate
from envs.pool import SerialPool
from envs.prompts import FORMAT_WORDS, parse
from envs.registry import load_environment
from envs.text_env import Observation

for library in ("gymnasium", "textarena", "skyrl_gym"):
    pytest.importorskip(library, reason="needs the extra `adapters`")

BESIDE = Path(sys.prefix) / "beside"
"""Where `make install-all` puts gem, whose pins contradict ours."""
HERE = "tests.envs.adapters.libraries"

GYMNASIUM = {"environment": "envs.adapters.gymnasium.GYMNASIUM", "max_turns": 12}
TEXTARENA = {"environment": "envs.adapters.textarena.TEXTARENA", "max_turns": 12}
SKYRL = {"environment": "envs.adapters.skyrl.SKYRL_GYM", "max_turns": 6}
GEM = {"environment": "envs.adapters.gem.GEM", "max_turns": 6}

BLACKJACK = GYMNASIUM | {
    "name": "blackjack",
    "id": "Blackjack-v1",
    "text": f"{HERE}.blackjack",
    "actions": ["stick", "hit"],
    "splits": "seeds",
    "anchors": True,
}
CLIFF = GYMNASIUM | {"name": "cliff", "id": "CliffWalking-v1", "text": "render", "splits": "seeds"}
TAXI = GYMNASIUM | {
    "name": "taxi",
    "id": "Taxi-v4",
    "actions": ["south", "north", "east", "west", "in", "out"],
}
GUESS = TEXTARENA | {"name": "guess", "id": "GuessTheNumber-v0", "splits": "seeds", "train_seeds": 100}
LAKE = TEXTARENA | {"name": "lake", "id": "FrozenLake-v0", "train_seeds": 300, "eval_seeds": 20}
TICTACTOE = TEXTARENA | {
    "name": "tictactoe",
    "id": "TicTacToe-v0",
    "opponent": f"{HERE}.first_free",
    "splits": "seeds",
}
GEM_GUESS = GEM | {"name": "gem_guess", "id": "game:GuessTheNumber-v0-hard", "splits": "seeds"}
COIN = GEM | {"name": "coin", "factory": f"{HERE}.Coin", "shows": "last", "eval_seeds": 20}
DOORS = GEM | {"name": "doors", "factory": f"{HERE}.Doors", "shows": "last", "splits": "observations"}


@pytest.fixture(scope="module")
def gem():
    if not (BESIDE / "gem").is_dir():
        pytest.skip(f"gem is not in {BESIDE}: `make install-all` puts it there")
    sys.path.append(str(BESIDE))
    yield
    sys.path.remove(str(BESIDE))


@pytest.fixture(scope="module")
def sums(tmp_path_factory):
    """A data set of SkyRL's shape: sums, some of which are in both files."""
    folder = tmp_path_factory.mktemp("sums")

    def row(a, b):
        prompt = [{"role": "system", "content": "Add."}, {"role": "user", "content": f"{a} + {b}?"}]
        spec = {"method": "rule", "ground_truth": str(a + b)}
        return {"data_source": "sums", "prompt": prompt, "reward_spec": spec, "max_turns": 3}

    for name, rows in (("train", range(40)), ("eval", range(30, 50))):
        lines = [json.dumps(row(a, 7)) for a in rows]
        (folder / f"{name}.jsonl").write_text("\n".join(lines))
    return SKYRL | {
        "name": "sums",
        "id": "gsm8k_multi_turn",
        "train_path": str(folder / "train.jsonl"),
        "eval_path": str(folder / "eval.jsonl"),
    }


def load(config):
    environment, checked = load_environment(config)
    assert environment.problems(checked) == []
    return environment, checked


def play(env, seed, split, actions):
    """An episode of these actions, over and over: everything that comes out of it."""
    text, info = env.reset(seed, {"split": split})
    seen, over, turn = [(text, info)], False, 0
    while not over:
        choices = info["admissible"] or actions
        text, reward, terminated, truncated, info = env.step(choices[turn % len(choices)])
        seen.append((text, reward, terminated, truncated, info))
        over, turn = terminated or truncated, turn + 1
    return seen


EVERY = [
    pytest.param(BLACKJACK, (), id="gymnasium-blackjack"),
    pytest.param(CLIFF, (), id="gymnasium-cliff"),
    pytest.param(TAXI, (), id="gymnasium-taxi"),
    pytest.param(GUESS, ("[3]", "[17]", "[9]"), id="textarena-guess"),
    pytest.param(LAKE, ("[right]", "[down]"), id="textarena-lake"),
    pytest.param(TICTACTOE, ("[0]", "[4]", "[8]", "[2]", "[6]"), id="textarena-tictactoe"),
    pytest.param("sums", ("#### 40", "no idea", "#### 41"), id="skyrl-gsm8k"),
    pytest.param(GEM_GUESS, (r"\boxed{20}", r"\boxed{7}"), id="gem-guess"),
    pytest.param(COIN, ("3", "5"), id="duck-typed"),
]


@pytest.fixture
def loaded(request, config):
    if config == "sums":
        config = request.getfixturevalue("sums")
    if config["name"].startswith("gem"):
        request.getfixturevalue("gem")
    return load(config)


@pytest.mark.parametrize(("config", "actions"), EVERY)
def test_equal_seeds_and_actions_give_equal_episodes_whatever_else_is_drawn(loaded, actions):
    environment, config = loaded
    env, other = environment.make(config), environment.make(config)
    for split in ("train", "eval"):
        expected = play(env, 4, split, actions)
        random.seed(99), np.random.seed(99)
        before = random.getstate()
        assert play(other, 4, split, actions) == expected
        assert random.getstate() == before
    env.close(), other.close()


@pytest.mark.parametrize(("config", "actions"), EVERY)
def test_episodes_side_by_side_are_as_alone(loaded, actions):
    environment, config = loaded
    pool = environment.make_pool(config)
    alone = environment.make(config)
    seeds, chosen = [0, 1, 1, 5], (actions or ("",))[0]
    started = pool.reset(seeds, "eval")
    outcomes = [pool.step([episode], [_some(started[episode], chosen)])[0] for episode in (3, 0, 2, 1)]
    for episode, outcome in zip((3, 0, 2, 1), outcomes, strict=True):
        text, _ = alone.reset(seeds[episode], {"split": "eval"})
        assert started[episode].text == text
        after, reward, terminated, truncated, info = alone.step(_some(started[episode], chosen))
        assert (outcome.reward, outcome.terminated, outcome.truncated) == (reward, terminated, truncated)
        assert outcome.success == info["success"]
        if outcome.observation is not None:
            assert outcome.observation.text == after
    assert started[1] == started[2]
    pool.close(), alone.close()


def _some(observation: Observation, otherwise: str) -> str:
    return observation.admissible[0] if observation.admissible else otherwise


@pytest.mark.parametrize(("config", "actions"), EVERY)
def test_a_running_episode_can_be_copied(loaded, actions):
    environment, config = loaded
    env = environment.make(config)
    _, info = env.reset(2, {"split": "train"})
    first, second = ((info["admissible"] or actions) * 2)[:2]
    *_, terminated, truncated, _ = env.step(first)
    copy = pickle.loads(pickle.dumps(env))
    if not (terminated or truncated):
        assert copy.step(second) == env.step(second)
    env.close(), copy.close()
    env.close()


@pytest.mark.parametrize(("config", "actions"), EVERY)
def test_turns_without_an_action_are_void_and_limited(loaded, actions):
    environment, config = loaded
    env = environment.make(config)
    text, _ = env.reset(1)
    for turn in range(1, config.max_turns + 1):
        after, reward, terminated, truncated, info = env.step("")
        assert (after, reward, terminated) == (text, 0.0, False)
        assert truncated == (turn == config.max_turns)
        assert info["void"]
        assert info["success"] is False
    with pytest.raises(ValueError, match="over"):
        env.step("")
    env.close()


def test_blackjack_is_played_by_name_and_won_by_its_reward():
    environment, config = load(BLACKJACK)
    env = environment.make(config)
    results = []
    for seed in range(40):
        text, info = env.reset(seed)
        assert text.split()[0] == "hand"
        assert info["admissible"] == ["stick", "hit"]
        assert info["anchor"] == text
        _, reward, terminated, _, info = env.step("stick")
        assert terminated
        assert info["success"] == (reward >= 1.0)
        results.append(reward)
    assert {-1.0, 1.0} <= set(results)


def test_action_masks_limit_what_is_admissible():
    environment, config = load(TAXI)
    env = environment.make(config)
    text, info = env.reset(3)
    mask = env.engine.inner.unwrapped.action_mask(int(text))
    expected = [name for name, allowed in zip(TAXI["actions"], mask, strict=True) if allowed]
    assert info["admissible"] == expected != TAXI["actions"]
    refused = next(name for name in TAXI["actions"] if name not in expected)
    assert env.step(refused)[-1]["void"]


def test_a_rendered_screen_marks_the_player_and_has_no_escapes():
    environment, config = load(CLIFF)
    env = environment.make(config)
    text, _ = env.reset(0)
    assert "\x1b" not in text
    assert text.split().count("x") == 1
    assert plain_screen("\n\x1b[41mS\x1b[0mFF\n") == "[S]FF"
    assert in_words({"at": np.array([1.5, 2.0]), "lit": (True, 3)}) == "at 1.5 2 lit True 3"


def test_textarena_guessing_by_halves_wins():
    environment, config = load(GUESS)
    env = environment.make(config)
    for seed in range(5):
        env.reset(seed, {"split": "eval"})
        low, high, over = 1, 20, False
        while not over:
            guess = (low + high) // 2
            text, reward, terminated, truncated, info = env.step(f"[{guess}]")
            over = terminated or truncated
            if text.rstrip().endswith("higher."):
                low = guess + 1
            else:
                high = guess - 1
        assert info["success"]
        assert reward == 1.0


def test_textarena_games_for_two_are_played_against_the_opponent_given():
    environment, config = load(TICTACTOE)
    env = environment.make(config)
    won = play(env, 0, "train", ["[6]", "[7]", "[8]"])  # it takes 0, 1, and 2 comes too late
    assert won[-1][1] != 0.0
    assert won[-1][2]
    assert won[-1][4]["success"] == (won[-1][1] > 0)


def test_rows_of_eval_are_never_trained_on(sums):
    environment, config = load(sums)
    env = environment.make(config)
    starts = {split: {env.reset(s, {"split": split})[0] for s in range(100)} for split in ("train", "eval")}
    assert len(starts["train"]) == 30
    assert len(starts["eval"]) == 20
    assert not starts["train"] & starts["eval"]


def test_a_row_is_solved_by_its_ground_truth_after_an_attempt(sums):
    environment, config = load(sums)
    env = environment.make(config)
    text, _ = env.reset(5)
    assert text == "Add.\n\n5 + 7?"
    text, reward, terminated, _, _ = env.step("#### 40")
    assert not terminated
    assert reward < 0.2
    assert text.startswith("Add.\n\n5 + 7?\n> #### 40\nPlease provide")
    _, reward, terminated, _, info = env.step("#### 12")
    assert terminated
    assert reward == 1.0
    assert info["success"]


def test_gem_is_solved_within_its_turns(gem):
    environment, config = load(GEM_GUESS | {"max_turns": 10})
    env = environment.make(config)
    low, high, over = 1, 50, False
    env.reset(11)
    while not over:
        guess = (low + high) // 2
        text, _, terminated, truncated, info = env.step(rf"\boxed{{{guess}}}")
        over = terminated or truncated
        if "is higher than" in text.splitlines()[-1]:
            low = guess + 1
        else:
            high = guess - 1
    assert terminated
    assert info["success"]


def test_what_an_environment_says_of_success_and_admissible_actions_holds():
    environment, config = load(DOORS)
    env = environment.make(config)
    _, info = env.reset(4)
    assert info["admissible"] == ["door 0", "door 1", "door 2"]
    _, reward, _, _, info = env.step("door 0")
    assert (reward, info["success"]) == (5.0, False)
    env.reset(4)
    assert env.step("door 1")[-1]["success"]


def test_train_never_starts_as_eval_does():
    environment, config = load(LAKE)
    env = environment.make(config)
    starts = {split: {env.reset(s, {"split": split})[0] for s in range(300)} for split in ("train", "eval")}
    assert not starts["train"] & starts["eval"]


def test_environments_that_all_start_alike_say_what_to_do():
    environment, checked = load_environment(GUESS | {"splits": "observations", "train_seeds": 5})
    (problem,) = environment.problems(checked)
    assert "each of 5 train seeds starts as an eval episode does" in problem
    assert "splits: seeds" in problem


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (GYMNASIUM | {"name": "x", "id": "NoSuchEnv-v0"}, "NoSuchEnv-v0 cannot be made"),
        (GYMNASIUM | {"name": "x", "id": "Pendulum-v1"}, "takes actions of Box"),
        (GYMNASIUM | {"name": "x"}, "give `id`"),
        (GYMNASIUM | {"name": "x", "id": "Blackjack-v1", "actions": ["hit"]}, "has 2 actions"),
        (GEM | {"name": "x", "factory": "no_such_module.make"}, "no_such_module.make cannot be imported"),
        (GEM | {"name": "x", "factory": f"{HERE}.Broken"}, "RuntimeError: no board"),
        (SKYRL | {"name": "x", "id": "gsm8k", "train_path": "a.jsonl", "eval_path": "b.jsonl"}, "a.jsonl"),
        (DOORS | {"expert": "no.Such"}, "expert: no.Such"),
    ],
)
def test_what_cannot_run_says_why_when_a_study_is_planned(config, said):
    environment, checked = load_environment(config)
    assert said in "; ".join(environment.problems(checked))
    assert environment.data_id(checked)


def test_a_missing_library_is_a_problem_with_its_remedy(monkeypatch):
    environment, checked = load_environment(GUESS)
    monkeypatch.setattr(environment, "_module", "no_such_library")
    assert environment.problems(checked) == ["guess needs textarena: pip install 'arlarena[adapters]'"]


def test_without_an_expert_random_admissible_actions_are_demonstrated():
    environment, config = load(BLACKJACK)
    shown = environment.demonstrations(config, episodes=30, seed=1, explore=0.0, error=0.0, history=1)
    known = {*environment.vocabulary(config), *FORMAT_WORDS}
    actions = [parse(turn.response, turn.observation.admissible).action for turn in shown]
    assert {"stick", "hit"} == set(actions)
    for turn in shown:
        assert not {*turn.observation.text.split(), *turn.response.split()} - known


def test_the_guide_of_the_lakes_goes_the_shortest_way(configuration):
    environment, config = load(configuration("frozen_lake") | {"parameters": {"size": 3, "frozen": 0.9}})
    best = evaluate(environment, config, ExpertPolicy(environment.expert(config)), episodes=20, split="eval")
    assert best.success == 1.0
    assert best.turns == pytest.approx(4.0, abs=0.5)  # two down, two right, unless there are holes


def test_episodes_in_processes_of_their_own_are_the_same(configuration):
    environment, config = load(configuration("frozen_lake"))
    apart = environment.make_pool(config.model_copy(update={"workers": 1}))
    here = environment.make_pool(config)
    assert isinstance(here, SerialPool)
    assert apart.reset([0, 3], "eval") == here.reset([0, 3], "eval")
    assert apart.step([1, 0], ["down", "right"]) == here.step([1, 0], ["down", "right"])
    apart.close(), here.close()


def test_a_configuration_that_no_library_knows_is_refused():
    with pytest.raises(ValueError, match="tasks"):
        load_environment(BLACKJACK | {"tasks": "win"})
    environment, config = load_environment(DOORS | {"parameters": {"size": 3}})
    env = environment.make(config)
    with pytest.raises(AdapterError, match="no arguments"):
        env.reset(0)
