"""Hypotheses a grid declares, in a few fixed forms: the grammar, without the tests (`analysis.declared`).

    A beats B [in METRIC]                A, B: two options of an axis, or two methods
    A matches B [in METRIC]              they differ by less than the smallest effect of interest
    A collapses before B                 fewer steps until it collapses
    A collapses more than B              a larger share of runs (or: less than)
    A helps B more than C [in METRIC]    A gains more over the first option of its axis with B than with C

METRIC: final success (when left out), area under the curve, stability. Behind any form: `at equal episodes`
(or steps, updates, tokens), and `where SETTING=OPTION and SETTING=OPTION`.
"""

from __future__ import annotations

import contextlib
import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, cast

Form = Literal["beats", "matches", "collapses before", "collapses more than", "collapses less than", "helps"]

FORMS = (
    "A beats B [in METRIC]",
    "A matches B [in METRIC]",
    "A collapses before B",
    "A collapses more than B",
    "A collapses less than B",
    "A helps B more than C [in METRIC]",
)
METRICS = {"final success": "final", "area under the curve": "area", "stability": "healthy"}
UNITS = {"steps": "step", "episodes": "episode", "updates": "update", "tokens": "token"}

_NAME = r"[^\s()]+(?:\([^)]*\))*\)?"
_SENTENCE = re.compile(
    rf"(?P<first>{_NAME})\s+"
    r"(?P<verb>beats|matches|helps|collapses\s+(?:before|more\s+than|less\s+than))\s+"
    rf"(?P<second>{_NAME})"
    rf"(?:\s+more\s+than\s+(?P<third>{_NAME}))?"
    r"(?:\s+in\s+(?P<metric>.+?))?"
    r"(?:\s+at\s+equal\s+(?P<unit>\S+))?"
    r"(?:\s+where\s+(?P<where>.+))?"
)


@dataclass(frozen=True)
class Vocabulary:
    """The names that hypotheses of a grid may use: the options of every setting, and methods."""

    options: Mapping[str, Sequence[str]]
    methods: Sequence[str] = ()


@dataclass(frozen=True)
class Subject:
    """What a name stands for: options of a setting, or (setting empty) a method."""

    name: str
    setting: str
    options: tuple[str, ...]


@dataclass(frozen=True)
class Hypothesis:
    """A hypothesis as read. `third` is the C of `A helps B more than C`; `where` restricts the runs."""

    text: str
    form: Form
    first: Subject
    second: Subject
    third: Subject | None = None
    metric: str = "final"
    unit: str | None = None
    where: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


class HypothesisError(ValueError):
    """A sentence is no hypothesis, or names what the grid does not have. The message says what to write."""


def parse(text: str, vocabulary: Vocabulary) -> Hypothesis:
    """Read a hypothesis. Raises HypothesisError, whose message names the forms or the nearest name."""
    found = _SENTENCE.fullmatch(" ".join(text.split()).rstrip("."))
    if found is None:
        raise HypothesisError(f"not one of the forms: {'; '.join(FORMS)}")
    verb = found["verb"]
    if (verb == "helps") != (found["third"] is not None):
        raise HypothesisError("`helps` is written: A helps B more than C")
    first, second = (_subject(found[name], vocabulary) for name in ("first", "second"))
    third = _subject(found["third"], vocabulary) if found["third"] else None
    compared = (second, third) if third else (first, second)
    if compared[0].setting != compared[1].setting:
        raise HypothesisError(
            f"{compared[0].name!r} is {_kind(compared[0])} and {compared[1].name!r} {_kind(compared[1])}:"
            " only two of the same can be compared"
        )
    if compared[0].options == compared[1].options:
        raise HypothesisError(f"{compared[0].name!r} is compared with itself")
    if third is not None and (not first.setting or first.setting == second.setting):
        raise HypothesisError(f"{first.name!r} must be an option of another axis than {second.name!r}")
    metric = METRICS.get(found["metric"] or "final success")
    if metric is None:
        raise HypothesisError(_unknown("metric", found["metric"], METRICS))
    if found["metric"] and verb.startswith("collapses"):
        raise HypothesisError("a hypothesis on collapse has no metric; remove `in ...`")
    unit = UNITS.get(found["unit"]) if found["unit"] else None
    if found["unit"] and unit is None:
        raise HypothesisError(_unknown("unit", found["unit"], UNITS))
    if unit and (verb.startswith("collapses") or metric == "healthy"):
        raise HypothesisError("`at equal ...` goes with final success and area under the curve only")
    form = cast(Form, verb)
    return Hypothesis(text, form, first, second, third, metric, unit, _where(found["where"], vocabulary))


def _subject(name: str, vocabulary: Vocabulary) -> Subject:
    """`cispo`, `cispo(hi=4)`, `is_clipping=cispo`, or a method. A name without parameters is all variants."""
    setting, equals, option = name.partition("=")
    settings: Mapping[str, Sequence[str]] = vocabulary.options
    if equals and "(" not in setting:
        if setting not in settings:
            raise HypothesisError(_unknown("setting", setting, settings))
        settings, wanted = {setting: settings[setting]}, option
    else:
        wanted = name
    found = {}
    for setting, options in settings.items():
        exact = tuple(o for o in options if _canonical(o) == _canonical(wanted))
        named = exact or tuple(o for o in options if o.partition("(")[0] == wanted or _equal(o, wanted))
        if named:
            found[setting] = named
    if len(found) > 1:
        written = " or ".join(f"{setting}={wanted}" for setting in found)
        raise HypothesisError(f"{name!r} is an option of several axes; write {written}")
    if found:
        ((setting, options),) = found.items()
        return Subject(name, setting, tuple(options))
    if name in vocabulary.methods:
        return Subject(name, "", (name,))
    known = [o for options in settings.values() for o in options] + list(vocabulary.methods)
    raise HypothesisError(_unknown("option or method", wanted, known))


def _where(text: str | None, vocabulary: Vocabulary) -> dict[str, tuple[str, ...]]:
    where: dict[str, tuple[str, ...]] = {}
    for part in re.split(r"\s+and\s+", text) if text else ():
        if "=" not in part:
            raise HypothesisError(f"behind `where` stands SETTING=OPTION, not {part!r}")
        subject = _subject(part.strip(), vocabulary)
        where[subject.setting] = subject.options
    return where


def _canonical(label: str) -> tuple[str, frozenset[str]]:
    """A label apart from how it is written: `cispo(mask(delta=3e-3))` is `cispo(mask.delta=0.003)`."""
    name, _, inner = label.partition("(")
    if not label.endswith(")"):
        return label, frozenset()
    return name, frozenset(_leaves(inner[:-1], ""))


def _leaves(text: str, above: str) -> list[str]:
    """The `key=value` of a list of parameters, those of `key(...)` as `key.inner=value`."""
    found, start, depth = [], 0, 0
    for place, letter in enumerate(f"{text},"):
        depth += (letter == "(") - (letter == ")")
        if letter != "," or depth:
            continue
        part = text[start:place].strip()
        start = place + 1
        key, _, inner = part.partition("(")
        if part.endswith(")") and "=" not in key:
            found += _leaves(inner[:-1], f"{above}{key}.")
        elif part:
            key, _, value = part.partition("=")
            with contextlib.suppress(ValueError):
                value = repr(float(value))
            found.append(f"{above}{key}={value}")
    return found


def _equal(option: str, wanted: str) -> bool:
    """Whether both are the same number: 3e-4 and 0.0003."""
    try:
        return float(option) == float(wanted)
    except ValueError:
        return False


def _kind(subject: Subject) -> str:
    return f"an option of {subject.setting}" if subject.setting else "a method"


def _unknown(what: str, name: str, known: Sequence[str] | Mapping[str, object]) -> str:
    names = list(dict.fromkeys(map(str, known)))
    near = difflib.get_close_matches(name, names, 1)
    suggestion = f"; did you mean {near[0]!r}?" if near else ""
    return f"unknown {what} {name!r}{suggestion} (there are: {', '.join(names[:30]) or 'none'})"
