"""What answering at random gives."""

from __future__ import annotations

import random
from collections.abc import Sequence

from envs.playing import Move, Turn
from envs.text_env import Observation, TextEnv
from envs.tir_math.expert import answer_with

_MOST_DIGITS = 4


class GuessingPolicy:
    """Answers every problem with a random number of up to four digits (`envs.baselines.Policy`).

    `envs.baselines.RandomPolicy` finds no list of admissible actions here and only waits.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def act(self, env: TextEnv, observation: Observation, turns: Sequence[Turn]) -> Move:
        """See `Policy.act`."""
        digits = 1 + int(self._random.random() * _MOST_DIGITS)
        return Move(answer_with(str(int(self._random.random() * 10**digits))))
