"""Whether an answer is right: math-verify, in a sandbox.

The answer is text that a policy wrote, and sympy computes what it is told to: `9^{9^{9^9}}` would stop the
training process. Integers, the usual case, need none of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from envs.tir_math.sandbox.limits import Limits, Snippet

PACKAGE = "math-verify"
_LIMITS = Limits(cpu_seconds=3.0, wall_seconds=10.0, memory_mb=768, processes=4, output_kb=1)
_RIGHT = "right\n"
_INTEGER = re.compile(r"[+-]?[0-9]+")

# The parser remembers what it has seen; without this every snippet would begin anew.
_WARM_UP = r"""
from math_verify import parse, verify
for text in ("1", "-2.5", "1{,}000", r"\frac{1}{2}", r"2\sqrt{3}", "x^2+3x-1", "(1,2]", "1,2", "x=3"):
    verify(parse("\\boxed{%s}" % text), parse("\\boxed{%s}" % text))
"""

# `verify` takes a formula for its value; `plain` refuses one where a number is asked for.
_CODE = r"""
import json, sympy
from math_verify import parse, verify
truth, answer, plain = json.loads({job!r})
wanted, given = parse("\\boxed{{%s}}" % truth), parse("\\boxed{{%s}}" % answer)
number = lambda value: isinstance(value, sympy.Number) or isinstance(value, sympy.Eq) and number(value.rhs)
if plain and wanted and given and number(wanted[0]) and not number(given[0]):
    print("formula")
elif verify(wanted, given):
    print("right")
"""


def grade(pairs: Sequence[tuple[str, str]], *, plain_numbers: bool) -> list[bool]:
    """Whether each (truth, answer) agrees; plain_numbers: refuse a formula where the truth is a number.

    Integers are compared here, everything else by math-verify in a sandbox of its own. An answer that cannot
    be graded within its limits is wrong.
    """
    verdicts = [_at_once(*pair) for pair in pairs]
    open_pairs = [pair for pair, verdict in zip(pairs, verdicts, strict=True) if verdict is None]
    if not open_pairs:
        return [bool(verdict) for verdict in verdicts]
    from envs.tir_math.sandbox.pool import shared_pool

    jobs = [json.dumps([*pair, plain_numbers]) for pair in open_pairs]
    finished = shared_pool(_LIMITS, (PACKAGE,), _WARM_UP).run(
        [Snippet(_CODE.format(job=job)) for job in jobs]
    )
    graded = iter(result.ending == "done" and result.output == _RIGHT for result in finished)
    return [next(graded) if verdict is None else verdict for verdict in verdicts]


def _at_once(truth: str, answer: str) -> bool | None:
    """What needs no algebra: equal texts, and two integers."""
    if truth == answer:
        return True
    if _INTEGER.fullmatch(truth) and _INTEGER.fullmatch(answer):
        return same_integer(truth, answer)
    return None


def same_integer(truth: str, answer: str) -> bool:
    """Whether an answer is this integer, in digits; as texts, for converting thousands of them takes long."""
    return bool(_INTEGER.fullmatch(answer)) and _sign_and_digits(truth) == _sign_and_digits(answer)


def _sign_and_digits(text: str) -> tuple[bool, str]:
    digits = text.lstrip("+-").lstrip("0")
    return (text[0] == "-" and bool(digits), digits)
