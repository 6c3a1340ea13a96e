"""What success means in an environment: the best that is possible, and what acting at random gives."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from envs.playing import Move, Policy, Turn, play
from envs.prompts import write_response
from envs.text_env import Environment, Expert, Observation, Split, TextEnv


class RandomPolicy:
    """An admissible action at random; the empty action where none is listed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def act(self, env: TextEnv, observation: Observation, turns: Sequence[Turn]) -> Move:
        """See `Policy.act`."""
        return Move(self._random.choice(observation.admissible) if observation.admissible else "")


class ExpertPolicy:
    """The environment's expert; the empty action where it has none.

    aloud: its moves come as the responses that policies are cloned from, thoughts included.
    """

    def __init__(self, expert: Expert, *, aloud: bool = False) -> None:
        self._expert, self._aloud = expert, aloud

    def act(self, env: TextEnv, observation: Observation, turns: Sequence[Turn]) -> Move:
        """See `Policy.act`."""
        action = self._expert.action(env) or ""
        if not self._aloud or not action:
            return Move(action)
        return Move(action, write_response(self._expert.thought(env, action), action))


@dataclass(frozen=True, slots=True)
class Score:
    """Means over episodes: share of successes, return (sum of rewards), length in turns."""

    episodes: int
    success: float
    total_reward: float
    turns: float


def evaluate(environment: Environment, config: Any, policy: Policy, *, episodes: int, split: Split) -> Score:
    """Play the episodes of seeds 0, 1, ... of a split, one after the other.

    config: the environment's checked configuration. Raises ValueError without episodes.
    """
    if episodes < 1:
        raise ValueError(f"episodes must be at least 1, got {episodes}")
    env = environment.make(config)
    try:
        played = [play(env, policy, seed=seed, split=split) for seed in range(episodes)]
    finally:
        env.close()
    return Score(
        episodes,
        sum(episode.success for episode in played) / episodes,
        sum(episode.total_reward for episode in played) / episodes,
        sum(len(episode.turns) for episode in played) / episodes,
    )
