"""A more or less good expert of arithmetic in words.

It needs no sandbox: the value of an expression is what its code prints.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from envs.demonstrations import Draws
from envs.prompts import write_response
from envs.text_env import Demonstration, Observation
from envs.tir_math.arithmetic import Expression, slip
from envs.tir_math.config import TirMathConfig
from envs.tir_math.expert import answer_with, compute_with, computed, thought
from envs.tir_math.observation import Computation, observe
from envs.tir_math.sandbox.limits import Finished

_GUESSES = 0.3
"""Of the mistakes before anything was computed: how many are guesses; the others are slips in the code."""
_MISREADS = 0.5
"""Of the mistakes after that: how many are misread answers; the others are slips in new code."""


@dataclass(frozen=True, slots=True)
class _Choice:
    """Code for an expression, or an answer."""

    expression: Expression | None
    answer: str = ""

    def action(self) -> str:
        if self.expression is None:
            return answer_with(self.answer)
        return compute_with(self.expression.code())


def demonstrate_arithmetic(
    config: TirMathConfig, expressions: tuple[Expression, ...], draws: Draws, history: int
) -> list[Demonstration]:
    """Turns of the drawn episodes; expressions: those of the train split.

    A random action, written or executed, is a mistake somebody might make in place of the right action, or of
    the written one: a slip in the code, a guess, a misread digit.
    """
    demonstrations: list[Demonstration] = []
    for row, seed in enumerate(draws.seeds.tolist()):
        expression = expressions[seed % len(expressions)]
        problem = expression.problem()
        done: list[Computation] = []
        past: list[tuple[str, str]] = []
        for number in range(config.max_turns):
            text = observe(config, problem, done)
            over = computed(problem, done, joined=True)
            right = _Choice(None, problem.truth) if over else _Choice(expression)
            written = _mistaken(right, expression, float(draws.written[row, number]))
            executed = _mistaken(written, expression, float(draws.executed[row, number]))
            action = written.action()
            demonstrations.append(
                Demonstration(
                    history=tuple(past[len(past) - min(history, len(past)) :]),
                    observation=Observation(text, None, None),
                    response=write_response(thought(action, done, joined=True), action),
                )
            )
            past.append((text, executed.action()))
            if executed.expression is None:
                break
            done.append(_run(executed.expression))
    return demonstrations


def _mistaken(choice: _Choice, expression: Expression, draw: float) -> _Choice:
    """The mistake that a number in [0, 1) stands for; the choice itself below 0."""
    if draw < 0:
        return choice
    generator = random.Random(draw)
    wrong = generator.random()
    if choice.expression is not None:
        if wrong < _GUESSES:
            return _Choice(None, _misread(str(expression.value()), generator, signs=None))
        return _Choice(slip(expression, generator))
    if wrong < _MISREADS:
        return _Choice(None, _misread(choice.answer, generator, signs=1))
    return _Choice(slip(expression, generator))


def _misread(number: str, generator: random.Random, *, signs: int | None) -> str:
    """The number with one digit drawn anew, or all of them (None)."""
    digits = list(number)
    places = [place for place, sign in enumerate(digits) if sign.isdigit()]
    chosen = places if signs is None else [places[int(generator.random() * len(places))]]
    for place in chosen:
        digits[place] = "0123456789"[int(generator.random() * 10)]
    return "".join(digits)


def _run(expression: Expression) -> Computation:
    code = "".join(expression.code().split())
    return Computation(code, Finished(f"{expression.value()}\n", "done", 0.0))
