"""Experts from any state, and that they leave this process as it was."""

from __future__ import annotations

import random
import re

import pytest

from envs.alfworld.environment import ALFWORLD
from envs.baselines import ExpertPolicy, evaluate
from envs.prompts import parse


def play(env, expert, seed, *, wander=0, chance=None):
    """The rewards of an episode of the expert, after some random turns."""
    _, info = env.reset(seed, {"split": "eval"})
    rewards, over = [], False
    while not over:
        expert_action = expert.action(env)
        action = chance.choice(info["admissible"]) if len(rewards) < wander else expert_action
        _, reward, terminated, truncated, info = env.step(action or "")
        rewards.append(reward)
        over = terminated or truncated
    return rewards, info["success"]


@pytest.mark.parametrize("expert", ["walkthrough", "handcoded"])
def test_finds_the_goal_also_after_going_astray(make_config, expert):
    config = make_config(max_turns=60, expert=expert)
    env, chosen, chance = ALFWORLD.make(config), ALFWORLD.expert(config), random.Random(0)
    for seed in range(18):
        rewards, success = play(env, chosen, seed, wander=6, chance=chance)
        assert success
        assert rewards[-1] == 10.0
        assert not any(rewards[:-1])


def test_the_walkthrough_is_followed_to_the_letter(make_config):
    config = make_config()
    env, expert = ALFWORLD.make(config), ALFWORLD.expert(config)
    for seed in range(12):
        env.reset(seed)
        walkthrough = list(env.game.walkthrough)
        rewards, _ = play(env, expert, seed)
        env.reset(seed, {"split": "train"})
        done = []
        while not env.node.won:
            done.append(expert.action(env))
            env.step(done[-1])
        assert done == walkthrough
        assert len(rewards) <= config.max_turns


def test_a_walkthrough_longer_than_the_episode_is_not_followed(make_config):
    config = make_config()
    env, expert = ALFWORLD.make(config), ALFWORLD.expert(config)
    env.reset(0)
    detour = ("look",) * 20 + env.game.walkthrough
    expected = expert.action(env)
    env.game.walkthrough, env.game._noted = detour, None
    try:
        assert expert.action(env) == expected
    finally:
        env.game.walkthrough, env.game._noted = detour[20:], None


def test_the_search_knows_only_what_was_seen_and_repeats_itself(make_config):
    config = make_config(expert="handcoded", max_turns=40)
    state = random.getstate()
    scores = [
        evaluate(ALFWORLD, config, ExpertPolicy(ALFWORLD.expert(config)), episodes=24, split="eval")
        for _ in range(2)
    ]
    assert random.getstate() == state
    assert scores[0] == scores[1]
    shortest = evaluate(
        ALFWORLD, make_config(), ExpertPolicy(ALFWORLD.expert(make_config())), episodes=24, split="eval"
    )
    assert scores[0].success > 0.9
    assert scores[0].turns > shortest.turns + 0.5


@pytest.mark.parametrize("expert", ["walkthrough", "handcoded"])
def test_thoughts_begin_with_the_action_and_keep_to_the_limit(make_config, expert):
    config = make_config(expert=expert, thought_words=9)
    turns = ALFWORLD.demonstrations(config, episodes=24, seed=0, explore=0.3, error=0.4, history=0)
    lengths = set()
    for turn in turns:
        parsed = parse(turn.response, turn.observation.admissible)
        assert parsed.rejection is None
        spoken = re.sub(r" (to|from|with) ", " ", parsed.action)
        assert f"{parsed.thought} ".startswith(f"{spoken} ")
        lengths.add(len(parsed.thought.split()))
    assert max(lengths) <= 9
    assert len(lengths) >= 4


def test_the_thought_of_a_good_action_is_the_rest_of_the_plan(make_config):
    config = make_config(thought_words=100)
    env, expert = ALFWORLD.make(config), ALFWORLD.expert(config)
    for seed in range(6):
        env.reset(seed)
        steps = [re.sub(r" (to|from|with) ", " ", command) for command in env.game.walkthrough]
        thought = expert.thought(env, expert.action(env)).split(" then ")
        assert thought[0] == steps[0]
        assert len(thought) == len(steps)
        assert thought[-1].split()[0] == steps[-1].split()[0]
