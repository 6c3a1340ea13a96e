"""Integer arithmetic in words, one word per digit: problems that pay to compute with the tool.

`( 3 7 plus 8 ) times 2 5` asks for `(37+8)*25`; `take 8 from 3 7` asks for `37-8`.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice

from envs.text_env import Split
from envs.tir_math.config import ArithmeticConfig
from envs.tir_math.problem import Problem, Problems, distinct

GENERATOR = "arithmetic-1"
"""Names the algorithm below; to be raised whenever the same seed would give other problems."""

OPERATORS = {"plus": "+", "minus": "-", "times": "*"}
TAKE, FROM, OPEN, CLOSE = "take", "from", "(", ")"
PROBLEM_WORDS = (*"0123456789", *OPERATORS, TAKE, FROM, OPEN, CLOSE)
CODE_WORDS = (*"0123456789", *OPERATORS.values(), OPEN, CLOSE)
_BETWEEN_DIGITS = re.compile(r"(?<=\d) (?=\d)")
_PATIENCE = 1000


@dataclass(frozen=True, slots=True)
class Expression:
    """numbers joined by operators (words), which bind as usual.

    bracketed: the first two numbers are in brackets; reversed: asked as `take b from a` (two numbers, minus).
    """

    numbers: tuple[int, ...]
    operators: tuple[str, ...]
    bracketed: bool = False
    reversed: bool = False

    def question(self) -> str:
        """The problem, one word per digit."""
        spelled = [" ".join(str(number)) for number in self.numbers]
        if self.reversed:
            return f"{TAKE} {spelled[1]} {FROM} {spelled[0]}"
        return self._join(spelled, list(self.operators))

    def code(self) -> str:
        """Python for its value, one word per digit and sign."""
        return self._join([" ".join(str(n)) for n in self.numbers], [OPERATORS[o] for o in self.operators])

    def _join(self, numbers: list[str], operators: list[str]) -> str:
        words = [numbers[0]]
        for operator, number in zip(operators, numbers[1:], strict=True):
            words += [operator, number]
        if self.bracketed:
            words[:3] = [OPEN, *words[:3], CLOSE]
        return " ".join(words)

    def value(self) -> int:
        """Its value, without Python's own evaluation of code."""
        numbers, operators = list(self.numbers), list(self.operators)
        if self.bracketed:
            numbers[:2] = [_apply(operators.pop(0), numbers[0], numbers[1])]
        total, product, sign = 0, numbers[0], 1
        for operator, number in zip(operators, numbers[1:], strict=True):
            if operator == "times":
                product *= number
            else:
                total += sign * product
                product, sign = number, 1 if operator == "plus" else -1
        return total + sign * product

    def problem(self, *, spelled: bool = True) -> Problem:
        """The problem; spelled: one word per digit, in the code too, else as people write."""
        question, code = self.question(), self.code()
        if not spelled:
            question, code = _BETWEEN_DIGITS.sub("", question), f"print({''.join(code.split())})"
        return Problem(question, str(self.value()), code)


def _apply(operator: str, left: int, right: int) -> int:
    return left * right if operator == "times" else left + right if operator == "plus" else left - right


def draw(config: ArithmeticConfig, generator: random.Random) -> Expression:
    """A random expression."""
    span = config.max_numbers - config.min_numbers + 1
    count = config.min_numbers + int(generator.random() * span)
    numbers = tuple(_number(config.max_digits, generator) for _ in range(count))
    operators = tuple(_pick(tuple(OPERATORS), generator) for _ in range(count - 1))
    return Expression(
        numbers,
        operators,
        bracketed=count > 2 and generator.random() < config.brackets,
        reversed=count == 2 and operators[0] == "minus" and generator.random() < config.reversed,
    )


def slip(expression: Expression, generator: random.Random) -> Expression:
    """What someone might compute instead: one digit, operator or bracket is another."""
    kind, place = generator.random(), generator.random()
    if kind < 0.5:
        at = int(place * len(expression.numbers))
        digits = list(str(expression.numbers[at]))
        digit = int(generator.random() * len(digits))
        others = [d for d in "0123456789" if d != digits[digit] and (digit or len(digits) == 1 or d != "0")]
        digits[digit] = _pick(tuple(others), generator)
        numbers = (*expression.numbers[:at], int("".join(digits)), *expression.numbers[at + 1 :])
        return replace(expression, numbers=numbers, reversed=False)
    if kind < 0.9 or len(expression.numbers) == 2:
        at = int(place * len(expression.operators))
        others = [o for o in OPERATORS if o != expression.operators[at]]
        chosen = _pick(tuple(others), generator)
        operators = (*expression.operators[:at], chosen, *expression.operators[at + 1 :])
        return replace(expression, operators=operators, reversed=False)
    return replace(expression, bracketed=not expression.bracketed)


def expressions(
    config: ArithmeticConfig, *, train: int, evaluation: int, seed: int
) -> dict[Split, tuple[Expression, ...]]:
    """Different expressions for both splits, the eval ones first: more train problems leave them as they are.

    Raises ValueError when there are not enough.
    """
    taken: set[str] = set()
    found: dict[Split, tuple[Expression, ...]] = {}
    wanted: tuple[tuple[Split, int], ...] = (("eval", evaluation), ("train", train))
    for split, count in wanted:
        generator = random.Random(f"{GENERATOR} {split} {seed}")
        found[split] = tuple(islice(_different(config, generator, taken), count))
        if len(found[split]) < count:
            raise ValueError(
                f"only {len(found[split])} of {count} different {split} problems found: ask for fewer, "
                "or for more numbers or digits (arithmetic.max_numbers, arithmetic.max_digits)"
            )
    return found


def _different(config: ArithmeticConfig, generator: random.Random, taken: set[str]) -> Iterator[Expression]:
    fruitless = 0
    while fruitless < _PATIENCE:
        expression = draw(config, generator)
        fresh = list(distinct([expression.problem()], taken))
        fruitless = 0 if fresh else fruitless + 1
        if fresh:
            yield expression


def problems(config: ArithmeticConfig, *, train: int, evaluation: int, seed: int, spelled: bool) -> Problems:
    """The problems of both splits; see `expressions` and `Expression.problem`."""
    found = expressions(config, train=train, evaluation=evaluation, seed=seed)
    written = {split: tuple(e.problem(spelled=spelled) for e in every) for split, every in found.items()}
    return Problems(train=written["train"], eval=written["eval"])


def _number(max_digits: int, generator: random.Random) -> int:
    digits = 1 + int(generator.random() * max_digits)
    low = 0 if digits == 1 else 10 ** (digits - 1)
    return low + int(generator.random() * (10**digits - low))


def _pick(choices: tuple[str, ...], generator: random.Random) -> str:
    return choices[int(generator.random() * len(choices))]
