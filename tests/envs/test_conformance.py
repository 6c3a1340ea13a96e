"""What every environment promises; a new one is tested as soon as its YAML file is there."""

from __future__ import annotations

import pickle
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from envs.baselines import ExpertPolicy, RandomPolicy, evaluate
from envs.pool import SerialPool
from envs.prompts import FORMAT_WORDS, parse, render, write_response
from envs.registry import load_environment

NAMES = sorted(path.stem for path in (Path(__file__).parents[2] / "arena" / "conf" / "env").glob("*.yaml"))
SPLITS = ("train", "eval")


@pytest.fixture(scope="module", params=NAMES)
def loaded(request, configuration):
    environment, config = load_environment(configuration(request.param))
    problems = environment.problems(config)
    if problems:
        pytest.skip("; ".join(problems))
    return environment, config


@pytest.fixture
def env(loaded):
    environment, config = loaded
    env = environment.make(config)
    yield env
    env.close()


def play(env, seed, split, random):
    """A random episode: everything that comes out of it."""
    text, info = env.reset(seed, {"split": split})
    seen = [(text, info)]
    over = False
    while not over:
        admissible = info["admissible"] or [""]
        action = admissible[int(random.integers(len(admissible)))]
        text, reward, terminated, truncated, info = env.step(action)
        seen.append((action, text, reward, terminated, truncated, info))
        over = terminated or truncated
    return seen


@pytest.mark.parametrize("split", SPLITS)
def test_a_seed_is_an_initial_state(loaded, env, split):
    environment, config = loaded
    fresh = environment.make(config)
    first = [env.reset(seed, {"split": split}) for seed in range(10)]
    assert [fresh.reset(seed, {"split": split}) for seed in reversed(range(10))] == first[::-1]
    assert len({text for text, _ in first}) > 1
    fresh.close()


def test_train_is_the_split_unless_another_is_named(env):
    assert env.reset(5) == env.reset(5, {"split": "train"}) == env.reset(5, {})
    with pytest.raises(ValueError, match="split"):
        env.reset(5, {"split": "test"})


@pytest.mark.parametrize("split", SPLITS)
def test_the_same_actions_give_the_same_episode(loaded, env, split):
    environment, config = loaded
    for seed in range(5):
        episode = play(env, seed, split, np.random.default_rng(seed))
        assert play(environment.make(config), seed, split, np.random.default_rng(seed)) == episode


def test_splits_share_no_initial_state(env):
    train, evaluation = ({env.reset(seed, {"split": split})[0] for seed in range(300)} for split in SPLITS)
    assert not train & evaluation


@pytest.mark.parametrize("split", SPLITS)
def test_the_turn_limit_truncates_and_the_empty_action_changes_nothing_else(loaded, env, split):
    text, info = env.reset(0, {"split": split})
    for turn in range(1, loaded[1].max_turns + 1):
        after, _, terminated, truncated, info_after = env.step("")
        assert not terminated
        assert truncated == (turn == loaded[1].max_turns)
        assert info_after["anchor"] == info["anchor"]
        assert info_after["success"] is False
        if info["anchor"] is not None:
            assert after == text
    with pytest.raises(ValueError, match="over"):
        env.step("")


def test_stepping_needs_a_reset(loaded):
    environment, config = loaded
    with pytest.raises(ValueError, match="reset"):
        environment.make(config).step("")


def test_anchors_are_hashable_and_absent_together(loaded, env):
    environment, config = loaded
    for _, info in [env.reset(seed) for seed in range(20)]:
        assert (info["anchor"] is not None) == environment.has_anchors(config)
        assert isinstance(hash(info["anchor"]), int)


def test_an_episode_survives_pickling(env):
    env.reset(3, {"split": "eval"})
    env.step("")
    copy = pickle.loads(pickle.dumps(env))
    admissible = env.step("")[-1]["admissible"] or [""]
    copy.step("")
    assert copy.step(admissible[0]) == env.step(admissible[0])
    copy.close()


def test_environment_and_configuration_pickle(loaded):
    environment, config = pickle.loads(pickle.dumps(loaded))
    assert config == loaded[1]
    assert environment.data_id(config) == loaded[0].data_id(config)


def test_closing_twice_is_harmless(loaded):
    environment, config = loaded
    for closes in (environment.make(config), environment.make_pool(config)):
        closes.close()
        closes.close()


def test_describes_itself(loaded):
    environment, config = loaded
    assert environment.data_id(config)
    assert environment.task(config)
    vocabulary = environment.vocabulary(config)
    assert len(set(vocabulary)) == len(vocabulary)
    assert not any(word.split() != [word] for word in vocabulary)
    assert not set(vocabulary) & set(FORMAT_WORDS)


def roll(pool, seeds, split, random):
    """Random episodes with some bad actions; everything that comes out of them."""
    observations = pool.reset(seeds, split)
    seen, running = [list(observations)], list(range(len(seeds)))
    while running:
        actions = []
        for episode in running:
            choices = [*(observations[episode].admissible or ()), "", "no such action"]
            actions.append(choices[int(random.integers(len(choices)))])
        outcomes = pool.step(running, actions)
        seen.append(outcomes)
        for episode, outcome in zip(running, outcomes, strict=True):
            observations[episode] = outcome.observation
            assert (outcome.observation is None) == (outcome.terminated or outcome.truncated)
        running = [e for e, outcome in zip(running, outcomes, strict=True) if outcome.observation is not None]
    return seen


@pytest.mark.parametrize("split", SPLITS)
def test_the_pool_plays_as_single_environments_do(loaded, split):
    environment, config = loaded
    pool, serial = environment.make_pool(config), SerialPool(lambda: environment.make(config))
    for count in (24, 7, 31):
        seeds = [seed // 2 for seed in range(count)]
        expected = roll(serial, seeds, split, np.random.default_rng(count))
        assert roll(pool, seeds, split, np.random.default_rng(count)) == expected
    pool.close()
    serial.close()


def test_a_group_shares_its_initial_state(loaded):
    environment, config = loaded
    pool = environment.make_pool(config)
    observations = pool.reset([4, 4, 9, 4], "train")
    assert observations[0] == observations[1] == observations[3]
    assert observations[0] != observations[2]
    # and the members are independent
    pool.step([1], [(observations[1].admissible or ("",))[0]])
    untouched = pool.step([0, 3], ["", ""])
    assert untouched[0] == untouched[1]
    assert untouched[0].observation == observations[0]
    pool.close()


def test_the_pool_refuses_steps_that_make_no_sense(loaded):
    environment, config = loaded
    pool = environment.make_pool(config)
    pool.reset([0, 1, 2], "train")
    assert pool.step([], []) == []
    for episodes, actions, message in (
        ([0, 1], [""], "2 episodes but 1 action"),
        ([1, 1], ["", ""], "twice"),
        ([3], [""], "episode 3 does not exist"),
        ([-1], [""], "episode -1 does not exist"),
    ):
        with pytest.raises(ValueError, match=message):
            pool.step(episodes, actions)
    for _ in range(config.max_turns):
        pool.step([2], [""])
    with pytest.raises(ValueError, match="episode 2 is over"):
        pool.step([2], [""])
    assert pool.reset([], "eval") == []
    with pytest.raises(ValueError, match="does not exist"):
        pool.step([0], [""])
    pool.close()


def test_the_expert_solves_everything_and_random_play_little(loaded):
    environment, config = loaded
    expert = evaluate(
        environment, config, ExpertPolicy(environment.expert(config)), episodes=200, split="eval"
    )
    random = evaluate(environment, config, RandomPolicy(0), episodes=200, split="eval")
    assert expert.success == 1.0
    assert random.success < 0.2
    assert expert.total_reward > random.total_reward
    assert expert.turns < random.turns <= config.max_turns


def test_demonstrations_are_well_formed_and_within_the_vocabulary(loaded):
    environment, config = loaded
    demonstrations = environment.demonstrations(
        config, episodes=100, seed=7, explore=0.35, error=0.5, history=2
    )
    known = {*environment.vocabulary(config), *FORMAT_WORDS}
    for turn in demonstrations:
        parsed = parse(turn.response, turn.observation.admissible)
        assert parsed.rejection is None
        assert parsed.thought
        assert write_response(parsed.thought, parsed.action) == turn.response
        assert len(turn.history) <= 2
        prompt = render("compact", environment.task(config), turn.history, turn.observation)
        assert not {*prompt.split(), *turn.response.split()} - known


def test_demonstrations_follow_their_arguments(loaded):
    environment, config = loaded

    def show(**changes):
        arguments = {"episodes": 40, "seed": 7, "explore": 0.3, "error": 0.5, "history": 0, **changes}
        return environment.demonstrations(config, **arguments)

    assert show() == show()
    assert show(seed=8) != show()
    assert all(turn.history == () for turn in show())
    # without exploration and errors, a demonstration is what the expert executes
    clean = show(explore=0.0, error=0.0, history=1)
    for before, turn in pairwise(clean):
        if turn.history:
            written = parse(before.response, None).action
            assert turn.history == ((before.observation.text, written),)
    env = environment.make(config)
    starts = {env.reset(seed, {"split": "eval"})[0] for seed in range(300)}
    env.close()
    assert not starts & {turn.observation.text for turn in clean if not turn.history}


def test_planning_needs_no_torch(configuration):
    script = (
        "import sys\n"
        "from envs.registry import load_environment\n"
        f"for config in {[configuration(name) for name in NAMES]!r}:\n"
        "    environment, checked = load_environment(config)\n"
        "    environment.data_id(checked), environment.problems(checked), environment.has_anchors(checked)\n"
        "assert 'torch' not in sys.modules and 'ray' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, cwd=Path(__file__).parents[2])
