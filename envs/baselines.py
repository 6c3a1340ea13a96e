"""What success means in an environment: the best that is possible, and what acting at random gives."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, Protocol

from envs.text_env import Environment, Expert, Observation, Split, TextEnv


class Policy(Protocol):
    """Chooses actions in single episodes."""

    def act(self, env: TextEnv, observation: Observation) -> str:
        """The next action."""


class RandomPolicy:
    """An admissible action at random; the empty action where none is listed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def act(self, env: TextEnv, observation: Observation) -> str:
        """See `Policy.act`."""
        return self._random.choice(observation.admissible) if observation.admissible else ""


class ExpertPolicy:
    """The environment's expert; the empty action where it has none."""

    def __init__(self, expert: Expert) -> None:
        self._expert = expert

    def act(self, env: TextEnv, observation: Observation) -> str:
        """See `Policy.act`."""
        return self._expert.action(env) or ""


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
    successes, turns, total_reward = 0, 0, 0.0
    env = environment.make(config)
    try:
        for seed in range(episodes):
            text, info = env.reset(seed, {"split": split})
            over = False
            while not over:
                admissible = None if info["admissible"] is None else tuple(info["admissible"])
                action = policy.act(env, Observation(text, info["anchor"], admissible))
                text, reward, terminated, truncated, info = env.step(action)
                total_reward += reward
                turns += 1
                over = terminated or truncated
            successes += bool(info["success"])
    finally:
        env.close()
    return Score(episodes, successes / episodes, total_reward / episodes, turns / episodes)
