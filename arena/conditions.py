"""Conditions over what a cell is: `{is_clipping.hi: "> 0.3", env: [sokoban, webshop]}`.

A key is an axis (its option), `env`, a swept key or any key of the configuration. A value is what it must be,
a comparison (`> 0.3`, `!= grpo`), an option with parameters (`{cispo: {hi: "> 0.3"}}`), or a list of these,
of which one must hold.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from arena.configuration import Key
from arena.mistakes import MistakesError, brief
from arena.options import AXES
from arena.yaml_source import flatten, parse

MISSING: Any = object()
"""What facts say of a key that a cell does not have."""

Facts = Callable[[Key], Any]
"""A cell as conditions see it: the value of a key, or MISSING."""

_ORDER = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_COMPARISON = re.compile(r"(<=|>=|!=|==|<|>)\s*(.*)", re.DOTALL)
_ASSERTION = re.compile(r"\s*([\w.]+)\s*(<=|>=|!=|==|=|<|>)\s*(.*)", re.DOTALL)


class ConditionError(ValueError):
    """What a condition says cannot be understood; the message says why."""


@dataclass(frozen=True)
class Comparison:
    """A value compared with another; for an option, what must hold of its parameters too."""

    operator: str
    value: Any
    parameters: tuple[Condition, ...] = ()

    def holds(self, found: Any, facts: Facts) -> bool:
        """Whether it holds of a value. Only numbers are less or more than each other."""
        if self.operator in ("==", "!="):
            equal = bool(found == self.value) and isinstance(found, bool) == isinstance(self.value, bool)
            return equal == (self.operator == "==") and all(part.holds(facts) for part in self.parameters)
        if isinstance(found, bool) or not isinstance(found, int | float):
            return False
        return bool(_ORDER[self.operator](found, self.value))


@dataclass(frozen=True)
class Condition:
    """A key and the comparisons of which one must hold."""

    key: Key
    comparisons: tuple[Comparison, ...]

    def holds(self, facts: Facts) -> bool:
        """Whether it holds; never of a key that is not there."""
        found = facts(self.key)
        return found is not MISSING and any(one.holds(found, facts) for one in self.comparisons)

    def is_broken(self, facts: Facts) -> bool:
        """Whether the key is there and the condition does not hold."""
        return facts(self.key) is not MISSING and not self.holds(facts)


def condition(key: str, value: Any) -> Condition:
    """The condition that a key of a rule and its value mean. Raises ConditionError."""
    values = value if isinstance(value, list) else [value]
    return Condition(tuple(key.split(".")), tuple(comparison(key, item) for item in values))


def comparison(key: str, value: Any) -> Comparison:
    """One value of a condition. Raises ConditionError."""
    if key in AXES and isinstance(value, Mapping):
        if len(value) != 1:
            raise ConditionError(f"expected a name or {{name: {{parameter: value}}}}, got {brief(value)}")
        ((option, parameters),) = value.items()
        leaves = flatten(parameters) if isinstance(parameters, Mapping) else ()
        inner = tuple(condition(f"{key}.{'.'.join(map(str, leaf))}", asked) for leaf, asked in leaves)
        return Comparison("==", option, inner)
    matched = _COMPARISON.fullmatch(value) if isinstance(value, str) else None
    if matched is None:
        return Comparison("==", value)
    sign, wanted = matched[1], _value(matched[2])
    if sign in _ORDER and (isinstance(wanted, bool) or not isinstance(wanted, int | float)):
        raise ConditionError(f"`{sign}` compares numbers, got {brief(wanted)}")
    return Comparison(sign, wanted)


def assertion(text: str) -> Condition:
    """The condition that `key=value`, `key>value` ... of a command line means. Raises ConditionError."""
    matched = _ASSERTION.fullmatch(text)
    if matched is None or not matched[3]:
        raise ConditionError(f"expected key=value, key!=value, key<value ..., got {text!r}")
    key, sign, written = matched.groups()
    return condition(key, _value(written) if sign in ("=", "==") else f"{sign} {written}")


def dig(value: Any, path: Key) -> Any:
    """What lies at a path of nested mappings and models; MISSING when there is nothing."""
    for part in path:
        if isinstance(value, Mapping):
            value = value.get(part, MISSING)
        elif isinstance(value, BaseModel) and part in type(value).model_fields:
            value = getattr(value, part)
        else:
            return MISSING
    return value


def _value(text: str) -> Any:
    try:
        return parse(text, "").value
    except MistakesError as error:
        raise ConditionError(f"{text!r} is {error.mistakes[0].message}") from None
