"""Someone who writes the right code, reads its output and answers with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from envs.tir_math.actions import ANSWER_WORD, CODE_WORD, read_action, write_answer, write_code
from envs.tir_math.config import TirMathConfig
from envs.tir_math.observation import Computation
from envs.tir_math.problem import Problem

if TYPE_CHECKING:
    from envs.tir_math.environment import TirMathEnv

COMPUTE, READ, GUESS = "compute", "read", "guess"
"""A thought: the next action is code; an answer read off an output; an answer out of thin air."""

THOUGHT_WORDS = (COMPUTE, READ, GUESS)


class TirMathExpert:
    """Runs the problem's code where that is known, then gives the right answer."""

    def __init__(self, config: TirMathConfig) -> None:
        self._words = config.spelling == "words"

    def action(self, env: TirMathEnv) -> str | None:
        """See `Expert.action`."""
        problem, done = env.episode.problem, env.episode.done
        if problem.code is None or computed(problem, done, joined=self._words):
            return answer_with(problem.truth) if self._words else write_answer(problem.truth)
        return compute_with(problem.code) if self._words else write_code(problem.code)

    def thought(self, env: TirMathEnv, action: str) -> str:
        """See `Expert.thought`."""
        return thought(action, env.episode.done, joined=self._words)


def computed(problem: Problem, done: Sequence[Computation], *, joined: bool) -> bool:
    """Whether the last computation is that of the problem's code; joined: as in `read_action`."""
    code = problem.code or ""
    return bool(done) and done[-1].code == ("".join(code.split()) if joined else code)


def thought(action: str, done: Sequence[Computation], *, joined: bool) -> str:
    """The word for an action after some computations."""
    if read_action(action, joined=joined).kind != "answer":
        return COMPUTE
    return READ if done else GUESS


def compute_with(code: str) -> str:
    """The action that runs code in words."""
    return f"{CODE_WORD} {code}"


def answer_with(number: str) -> str:
    """The action that answers with a number, one word per sign."""
    return f"{ANSWER_WORD} {' '.join(number)}"
