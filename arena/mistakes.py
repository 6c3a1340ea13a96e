"""What is wrong with what a user wrote: where, what, and what to do about it. All of it at once."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A spot in a file (line and column count from 1; 0 when the file as a whole is meant) or elsewhere."""

    source: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.source}:{self.line}:{self.column}" if self.line else self.source


@dataclass(frozen=True, slots=True, order=True)
class Mistake:
    """One mistake. `key` is the dotted path of what is wrong, empty when it is the file itself."""

    place: Place
    key: str
    message: str

    def __str__(self) -> str:
        return ": ".join(part for part in (str(self.place), self.key, self.message) if part)


class MistakesError(Exception):
    """What a user wrote cannot be used. `mistakes` has every reason, in the order of the file."""

    def __init__(self, mistakes: Iterable[Mistake]) -> None:
        self.mistakes = tuple(sorted(set(mistakes)))
        super().__init__("\n".join(map(str, self.mistakes)))


def unknown(what: str, name: object, known: Iterable[str], *, plural: str | None = None) -> str:
    """Say that `name` is none of `known`: the nearest first, then all of them, up to thirty."""
    names = sorted(map(str, known))
    near = nearest(str(name), names)
    listed = ", ".join(names[:30]) + (", ..." if len(names) > 30 else "")
    suggestion = f"; did you mean {near!r}?" if near else ""
    return f"unknown {what} {str(name)!r}{suggestion} ({plural or what + 's'}: {listed or 'none'})"


def explain(error: Mapping[str, Any], known: Iterable[str] | None = None) -> str:
    """Say one of pydantic's errors (an item of `ValidationError.errors()`) in the words used here.

    known: the keys that are allowed beside an unknown one.
    """
    kind, message, given = error["type"], error["msg"], error.get("input")
    if kind == "extra_forbidden":
        return unknown("key", error["loc"][-1], known or ())
    if kind == "missing":
        return "missing"
    if kind == "value_error":
        return str(message).removeprefix("Value error, ")
    if kind == "literal_error":
        allowed = re.findall(r"'([^']*)'", error["ctx"]["expected"])
        return unknown("value", given, allowed)
    if message.startswith("Input should "):
        return f"{message.removeprefix('Input ')}, got {brief(given)}"
    return str(message)


def brief(value: Any) -> str:
    """A value as a message shows it: on one line, not too long."""
    text = "null" if value is None else str(value).lower() if isinstance(value, bool) else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The name that was most likely meant, None when nothing is near. Case and `-` for `_` do not matter."""
    folded = {_fold(candidate): candidate for candidate in names}
    close = difflib.get_close_matches(_fold(name), folded, n=1, cutoff=0.6)
    return folded[close[0]] if close else None


def _fold(name: str) -> str:
    return name.lower().replace("-", "_")
