"""Playing single episodes, whoever chooses the actions: baselines, people, policies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from envs.prompts import Rejection
from envs.text_env import Observation, Split, TextEnv


@dataclass(frozen=True, slots=True)
class Move:
    """What was chosen in a turn.

    action: what the environment is given; response: the whole text that it was taken from, if there was one;
    rejection: why a response is penalised, None when it is not.
    """

    action: str
    response: str | None = None
    rejection: Rejection | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn that was played: what was shown, what was done, what it earned."""

    observation: str
    move: Move
    reward: float


class Policy(Protocol):
    """Chooses in single episodes."""

    def act(self, env: TextEnv, observation: Observation, turns: Sequence[Turn]) -> Move:
        """The next move; turns: those of the episode so far."""


@dataclass(frozen=True, slots=True)
class Episode:
    """An episode that was played to its end: its turns, what was seen last, whether it succeeded."""

    seed: int
    success: bool
    terminated: bool
    last: str
    turns: tuple[Turn, ...] = field(repr=False)

    @property
    def total_reward(self) -> float:
        """The sum of the turns' rewards."""
        return float(sum(turn.reward for turn in self.turns))


Watch = Callable[[TextEnv, Observation, Sequence[Turn]], None]
"""Told what an episode looks like before every turn and at its end."""


def play(
    env: TextEnv, policy: Policy, *, seed: int, split: Split, watch: Watch = lambda env, seen, turns: None
) -> Episode:
    """Play the episode of a seed to its end."""
    text, info = env.reset(seed, {"split": split})
    turns: list[Turn] = []
    over = terminated = False
    while not over:
        admissible = None if info["admissible"] is None else tuple(info["admissible"])
        observation = Observation(text, info["anchor"], admissible)
        watch(env, observation, turns)
        move = policy.act(env, observation, turns)
        after, reward, terminated, truncated, info = env.step(move.action)
        turns.append(Turn(text, move, float(reward)))
        text, over = after, terminated or truncated
    watch(env, Observation(text, info["anchor"], None), turns)
    return Episode(seed, bool(info["success"]), terminated, text, tuple(turns))
