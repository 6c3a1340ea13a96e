"""Rules of a grid over what it runs: what they say, and reading them so that every name has a meaning."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from arena.conditions import Comparison, Condition, ConditionError, comparison
from arena.configuration import known_keys, scalar_keys
from arena.grid_entries import GridFile, Rule
from arena.identity import TrialConfig
from arena.mistakes import nearest, unknown
from arena.options import AXES, Catalogue
from arena.yaml_source import Path_, dotted

RULES: tuple[Literal["exclude", "require"], ...] = ("exclude", "require")

NARROWING = ("axes", "methods", "points", "design", "envs", "sweep")
"""Grid keys that, given on the command line, may leave rules of the file with nothing to do."""


def is_narrowed(file: GridFile) -> bool:
    """Whether the command line takes away some of what the rules of the file are about."""
    given = {assignment.partition("=")[0].partition(".")[0] for assignment in file.assignments}
    return not given.isdisjoint(NARROWING)


class RuleReader:
    """Reads rules and conditions. note: takes a path in the file, a message, and whether the key is meant."""

    def __init__(self, file: GridFile, catalogue: Catalogue, note: Callable[..., None]) -> None:
        self._file = file
        self._catalogue = catalogue
        self._note = note
        self._is_narrowed = is_narrowed(file)

    def rule(self, kind: Literal["exclude", "require"], rule: Mapping[str, Any], path: Path_) -> Rule | None:
        """A rule, None when it is wrong."""
        asked = {key: value for key, value in rule.items() if not (kind == "require" and key == "when")}
        given = rule.get("when", {}) if kind == "require" else {}
        if not isinstance(given, Mapping) or not asked:
            wanted = "{key: value}" if not isinstance(given, Mapping) else "something to require beside it"
            self._note((*path, "when"), f"expected {wanted}")
            return None
        conditions, when = self.conditions(asked, path), self.conditions(given, (*path, "when"))
        if conditions is None or when is None:
            return None
        return Rule(kind, conditions, when, dotted(path), self._file.source.place(path))

    def conditions(self, written: Mapping[str, Any], path: Path_) -> tuple[Condition, ...] | None:
        """Conditions by their keys, None when one of them is wrong."""
        found = [self._condition(key, value, (*path, key)) for key, value in written.items()]
        right = tuple(condition for condition in found if condition is not None)
        return right if len(right) == len(found) else None

    def _condition(self, key: str, value: Any, path: Path_) -> Condition | None:
        problem = self._unknown(key)
        if problem is not None:
            self._note(path, problem, at_key=True)
            return None
        values = value if isinstance(value, list) else [value]
        if not values:
            self._note(path, "empty; list at least one")
            return None
        right = []
        for index, item in enumerate(values):
            try:
                asked = comparison(key, item)
                problem = self._meaningless(key, asked)
            except ConditionError as error:
                problem = str(error)
            if problem is None:
                right.append(asked)
            else:
                self._note((*path, index) if isinstance(value, list) else path, problem)
        return (
            Condition(tuple(key.split(".")), tuple(right)) if values and len(right) == len(values) else None
        )

    def _unknown(self, key: str) -> str | None:
        """Why no cell can have a key. An environment's own keys are known when it is loaded."""
        section, *rest = key.split(".")
        if key in (*AXES, "env", *self._file.grid.sweep):
            return None
        if section in AXES:
            known = {name for option in self._options(section) for name in option.schema.model_fields}
            plural = f"parameters of options of {section} in this grid"
            return None if rest[0] in known else unknown("key", rest[0], known, plural=plural)
        if section in TrialConfig.model_fields and section != "seed":
            names = known_keys(section, tuple(rest[:-1])) if rest else None
            if section == "env" or not rest or (names is not None and rest[-1] in names):
                return None
            return unknown("key", rest[-1], names or ())
        keys = [*AXES, "env", *self._file.grid.sweep]
        near = nearest(key, [*keys, *scalar_keys()])
        suggestion = f"; did you mean {near!r}?" if near else ""
        listed = f"axes, env, swept and configuration keys: {', '.join(sorted(keys))}, ..."
        return f"unknown key of a rule {key!r}{suggestion} ({listed})"

    def _meaningless(self, key: str, asked: Comparison) -> str | None:
        """Why no cell can have a value."""
        if asked.operator not in ("==", "!="):
            return None
        value = asked.value
        known: Iterable[Any]
        if key == "env":
            what = "environment"
            here = [entry.name for entry in self._file.envs]
            known = [*self._catalogue.names("env"), *here] if self._is_narrowed else here
        elif key in AXES:
            what, known = "option", [*self._catalogue.names(key), *self._option_names(key)]
        elif key in self._file.grid.sweep and not self._is_narrowed:
            what, known = "swept value", list(self._file.grid.sweep[key].values)
        else:
            return None
        return None if value in known else unknown(what, value, map(str, known), plural="in this grid")

    def _option_names(self, axis: str) -> set[str]:
        return {option.name for option in self._options(axis)}

    def _options(self, axis: str) -> list[Any]:
        """The options of an axis that occur in the grid."""
        entries = self._file.axes.get(axis) or [self._file.defaults[axis]]
        chosen = [point.choices[axis] for point in self._file.points]
        return [entry.option for entry in (*entries, *chosen)]
