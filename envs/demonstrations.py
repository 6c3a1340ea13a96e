"""Turns of a more or less good expert, for behaviour cloning."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from envs.prompts import write_response
from envs.text_env import Demonstration, Expert, Observation, TextEnv


@dataclass(frozen=True, slots=True)
class Draws:
    """All randomness of demonstrations, drawn in advance: the same for every way to play the episodes.

    seeds        (E,)    of the episodes
    executed     (E, K)  in [0, 1): which random action is executed; -1: the written one
    written      (E, K)  in [0, 1): which random action is written; -1: the expert's
    fallback     (E, K)  in [0, 1): which action is written where the expert has none
    """

    seeds: NDArray[np.int64]
    executed: NDArray[np.float64]
    written: NDArray[np.float64]
    fallback: NDArray[np.float64]


def draw(episodes: int, turns: int, *, seed: int, explore: float, error: float) -> Draws:
    """Draw for `episodes` of at most `turns` turns; explore and error as in `Environment.demonstrations`."""
    random = np.random.default_rng(seed)
    seeds = (random.random(episodes) * 2**31).astype(np.int64)
    happens, which = random.random((2, episodes, turns)), random.random((3, episodes, turns))
    return Draws(
        seeds=seeds,
        executed=np.where(happens[0] < explore, which[0], -1.0),
        written=np.where(happens[1] < error, which[1], -1.0),
        fallback=which[2],
    )


def demonstrate(
    make: Callable[[], TextEnv],
    expert: Expert,
    *,
    max_turns: int,
    episodes: int,
    seed: int,
    explore: float,
    error: float,
    history: int,
) -> list[Demonstration]:
    """Play train episodes one after the other in one environment of `make`, turn by turn.

    Random actions are admissible ones; where the environment lists none, the expert's action is kept. Turns
    in which there is neither are executed as the empty action and not demonstrated. max_turns: the turn limit
    of the environment. The other arguments are those of `Environment.demonstrations`.
    """
    draws = draw(episodes, max_turns, seed=seed, explore=explore, error=error)
    demonstrations: list[Demonstration] = []
    env = make()
    try:
        for episode in range(episodes):
            text, info = env.reset(int(draws.seeds[episode]), {"split": "train"})
            past: list[tuple[str, str]] = []
            for turn in range(max_turns):
                admissible = None if info["admissible"] is None else tuple(info["admissible"])
                best = expert.action(env)
                written = _choose(admissible, draws.written[episode, turn])
                if written is None:
                    written = best if best is not None else _choose(admissible, draws.fallback[episode, turn])
                executed = _choose(admissible, draws.executed[episode, turn]) or written or ""
                if written is not None:
                    demonstrations.append(
                        Demonstration(
                            history=tuple(past[len(past) - min(history, len(past)) :]),
                            observation=Observation(text, info["anchor"], admissible),
                            response=write_response(expert.thought(env, written), written),
                        )
                    )
                past.append((text, executed))
                text, _, terminated, truncated, info = env.step(executed)
                if terminated or truncated:
                    break
    finally:
        env.close()
    return demonstrations


def _choose(admissible: tuple[str, ...] | None, draw: float) -> str | None:
    """The admissible action that a number in [0, 1) stands for; None below 0 or when none is listed."""
    if draw < 0 or not admissible:
        return None
    return admissible[int(draw * len(admissible))]
