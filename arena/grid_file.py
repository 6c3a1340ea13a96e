"""Reading a grid file: every name in it gets its meaning, and every mistake is found at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from arena.configuration import GROUP_KEYS, Setting, scalar_keys
from arena.grid import (
    ADAPTIVE,
    LISTED,
    AdaptiveSeeds,
    BudgetSection,
    Choice,
    EstimateSection,
    Grid,
    LimitsSection,
    ResourcesSection,
    SeedsUntil,
    Sweep,
    TunedParameter,
    TuningSection,
)
from arena.grid_entries import (
    Entry,
    EnvEntry,
    GridFile,
    PointEntry,
    Preference,
    SweptKey,
    TunedEntry,
)
from arena.identity import TrialConfig
from arena.mistakes import Mistake, MistakesError, Place, brief, explain, nearest, unknown
from arena.options import AXES, Catalogue, FunctionError, make_option
from arena.rules import RULES, RuleReader
from arena.yaml_source import Path_, Source, dotted, flatten, parse, read

NOT_TUNED = ("env", "evaluation", "collapse", "seed", "model", "backend", "preset")
"""Sections of a configuration that say what is compared and how, not how it is trained."""


def read_grid(path: Path, assignments: Sequence[str], catalogue: Catalogue) -> GridFile:
    """Read a grid file and the `key=value` of a command line that go over it.

    All mistakes that can be seen without composing a configuration are in the result. Raises MistakesError
    when nothing can be made of the file.
    """
    source = read(path)
    mistakes: list[Mistake] = []
    assigned = _assign(source, assignments, mistakes)
    grid = _validate(source, mistakes)
    default_entries = {
        axis: Entry(catalogue.option(axis, catalogue.defaults[axis]), (), "", Place("conf/config.yaml"))
        for axis in AXES
    }
    file = GridFile(source, grid, tuple(assignments), default_entries, mistakes=mistakes)
    _Reader(file, catalogue).read(assigned)
    return file


def _assign(
    source: Source, assignments: Sequence[str], mistakes: list[Mistake]
) -> list[tuple[str, Any, Place]]:
    """Put grid keys of the command line into the source; give back those that are configuration keys."""
    settings = []
    for text in assignments:
        place = Place(f"command line ({text})")
        key, equals, written = text.partition("=")
        if not equals or not key:
            mistakes.append(Mistake(place, "", "expected key=value"))
            continue
        try:
            value = parse(written, str(place)).value
        except MistakesError as error:
            mistakes.extend(Mistake(place, "", mistake.message) for mistake in error.mistakes)
            continue
        first, _, rest = key.partition(".")
        if first not in Grid.model_fields:
            settings.append((key, value, place))
        elif first == "collapse" and rest:
            source.set((first, *rest.split(".")), value, place)
        else:
            source.set((first, rest) if rest else (first,), value, place)
    return settings


def _validate(source: Source, mistakes: list[Mistake]) -> Grid:
    """Check the structure. What is wrong is noted and left out, so that the rest can be checked further."""
    value = dict(source.value)
    for _ in range(len(Grid.model_fields) + 1):
        try:
            return Grid.model_validate(value)
        except ValidationError as error:
            for item in error.errors():
                loc = tuple(item["loc"])
                mistakes.append(_structural(source, loc, item))
                _prune(value, loc)
    raise AssertionError("a grid without any of its wrong keys is still wrong")


def _structural(source: Source, loc: Path_, item: Mapping[str, Any]) -> Mistake:
    path = tuple(part for part in loc if part not in (LISTED, ADAPTIVE, "int", "list[constrained-int]"))
    path = path[:1] if path[0] == "design" else path
    if item["type"] == "extra_forbidden":
        message = explain(item, _fields_at(path[:-1]))
        if len(path) == 1 and (path[0] in TrialConfig.model_fields or "." in str(path[0])):
            message = f"unknown key {str(path[0])!r}; configuration keys go under `overrides`"
        return Mistake(source.key_place(path), dotted(path), message)
    if item["type"] == "missing":
        return Mistake(source.place(path[:-1]), dotted(path), f"missing; add `{path[-1]}: ...`")
    message = explain(item)
    if item["type"] == "string_pattern_mismatch":
        message = f"{brief(item['input'])} cannot name a folder; use letters, digits, `-`, `_` and `.`"
    if item["type"] == "too_short":
        message = "empty; list at least one"
    return Mistake(source.place(path), dotted(path), message)


def _fields_at(path: Path_) -> Iterable[str]:
    sections: dict[Path_, type[BaseModel]] = {
        (): Grid,
        ("budget",): BudgetSection,
        ("estimate",): EstimateSection,
        ("limits",): LimitsSection,
        ("resources",): ResourcesSection,
        ("seeds",): AdaptiveSeeds,
        ("seeds", "until"): SeedsUntil,
        ("tuning",): TuningSection,
    }
    if path[:2] == ("tuning", "params") and len(path) == 3:
        return TunedParameter.model_fields
    return sections[path].model_fields if path in sections else ()


def _prune(value: dict[str, Any], loc: Path_) -> None:
    """Take out what is wrong: a key of a mapping of mappings (an axis, a swept key), else the whole key."""
    first = loc[0]
    if first == "name":
        value["name"] = "grid"
    elif (
        first in ("axes", "sweep", "resources", "budget", "estimate", "limits")
        and len(loc) > 1
        and isinstance(value.get(first), dict)
    ):
        value[first] = {key: inner for key, inner in value[first].items() if key != loc[1]}
    else:
        value.pop(str(first), None)


class _Reader:
    """Gives every name in a grid its meaning, noting those that have none."""

    def __init__(self, file: GridFile, catalogue: Catalogue) -> None:
        self.file = file
        self.source = file.source
        self.catalogue = catalogue

    def read(self, assigned: Sequence[tuple[str, Any, Place]]) -> None:
        file, grid = self.file, self.file.grid
        for axis, choices in grid.axes.items():
            if self._is_axis(axis, ("axes", axis)):
                entries = [self._entry(axis, choice, ("axes", axis, i)) for i, choice in enumerate(choices)]
                file.axes[axis] = [entry for entry in entries if entry]
                self._refuse_twice(choices, ("axes", axis))
        for index, choice in enumerate(grid.methods):
            self._method(choice, ("methods", index))
        self._refuse_twice(grid.methods, ("methods",))
        for index, point in enumerate(grid.points):
            self._point(point, ("points", index))
        for index, choice in enumerate(grid.envs or [Choice.model_validate(self.catalogue.defaults["env"])]):
            self._env(choice, ("envs", index))
        if grid.profile != "auto" and grid.profile not in self.catalogue.names("profile"):
            self._note(
                ("profile",), unknown("profile", grid.profile, ["auto", *self.catalogue.names("profile")])
            )
        for path, inner in flatten(grid.overrides, ("overrides",)):
            file.overrides += self._settings(path[1:], inner, path)
        for path, inner in flatten(grid.collapse, ("collapse",)):
            file.overrides += self._settings(path, inner, path)
        for key, swept in grid.sweep.items():
            self._sweep(key, swept)
        for key, parameter in (grid.tuning.params if grid.tuning else {}).items():
            self._tuned(key, parameter)
        for key, value, place in assigned:
            for path, inner in flatten({key: value}):
                file.assigned += self._settings(path, inner, path, place)
        rules = RuleReader(file, self.catalogue, self._note)
        for kind in RULES:
            for index, rule in enumerate(getattr(grid, kind)):
                if (found := rules.rule(kind, rule, (kind, index))) is not None:
                    file.rules.append(found)
        for index, rule in enumerate(grid.priority):
            path = ("priority", index)
            if (conditions := rules.conditions(rule, path)) is not None:
                file.priority.append(Preference(conditions, dotted(path), self.source.place(path)))
        self._design()

    def _design(self) -> None:
        grid = self.file.grid
        if grid.design.name == "points" and grid.axes:
            self._note(
                ("axes",), "not used by `design: points`; write the points under `points`, or remove `design`"
            )
        if grid.design.name == "points" and not grid.points and not grid.methods:
            self._note(("design",), "`design: points` needs `points` or `methods`")

    def _env(self, choice: Choice, path: Path_) -> None:
        """An environment; `environment` among its keys makes one of another package, by its import path."""
        name, keys = choice.name, dict(choice.parameters)
        inner = (*path, name)
        known = name in self.catalogue.names("env")
        if name in {entry.name for entry in self.file.envs}:
            self._note(path, f"{name} is listed twice")
            return
        if not known and "environment" not in keys:
            message = unknown("environment", name, self.catalogue.names("env"))
            self._note(path, f"{message}; one of another package needs its import path, `environment`")
            return
        refused = ["name", *(["environment"] if known else [])]
        for key in filter(keys.__contains__, refused):
            message = f"{name} has one; give an environment of your own another name"
            self._note((*inner, key), "the key of this entry names it" if key == "name" else message)
            return
        target = None if known else keys.pop("environment")
        settings = [
            self._setting(("env", *_split(leaf)), value, (*inner, *leaf)) for leaf, value in flatten(keys)
        ]
        self.file.envs.append(EnvEntry(name, target, tuple(settings), self.source.place(path)))

    def _is_axis(self, name: str, path: Path_) -> bool:
        if name in AXES:
            return True
        self._note(path, unknown("axis", name, AXES, plural="axes"), at_key=True)
        return False

    def _entry(self, axis: str, choice: Choice, path: Path_) -> Entry | None:
        """The option that a choice means; `function` among its parameters makes one of another package."""
        name, parameters = choice.name, dict(choice.parameters)
        inner = (*path, name)
        known = self.catalogue.names(axis)
        try:
            if "function" in parameters and name not in known:
                function = {"function": parameters.pop("function")}
                option = make_option(axis, name, function, set_elsewhere=parameters)
            elif name in known:
                option = self.catalogue.option(axis, name)
            else:
                self._note(path, unknown("option", name, known))
                return None
        except FunctionError as error:
            self._note((*inner, "function"), str(error))
            return None
        except MistakesError as error:
            self.file.mistakes.extend(error.mistakes)
            return None
        if "function" in parameters:
            self._note(
                (*inner, "function"), f"{name} has a function; give an option of your own another name"
            )
            return None
        settings = [
            self._setting((axis, *_split(leaf)), value, (*inner, *leaf))
            for leaf, value in flatten(parameters)
        ]
        return Entry(option, tuple(settings), dotted(path), self.source.place(path))

    def _point(self, point: Mapping[str, Choice], path: Path_) -> None:
        entries = {
            axis: self._entry(axis, choice, (*path, axis))
            for axis, choice in point.items()
            if self._is_axis(axis, (*path, axis))
        }
        chosen = {axis: entry for axis, entry in entries.items() if entry}
        if len(chosen) == len(point):
            place = self.source.place(path)
            self.file.points.append(
                PointEntry({**self.file.defaults, **chosen}, name=dotted(path), place=place)
            )

    def _method(self, choice: Choice, path: Path_) -> None:
        methods = self.catalogue.methods
        if choice.name not in methods:
            self._note(path, unknown("method", choice.name, methods))
            return
        place = self.source.place(path)
        settings: list[Setting] = []
        for leaf, value in flatten(choice.parameters):
            settings += self._settings(leaf, value, (*path, choice.name, *leaf))
        if groups := [setting for setting in settings if setting.key in {(key,) for key in GROUP_KEYS}]:
            self._note_setting(groups[0], "the same for all methods; use `overrides` or `sweep`")
            return
        choices = method_choices(methods[choice.name].point, self.catalogue)
        self.file.points.append(PointEntry(choices, tuple(settings), dotted(path), place))

    def _settings(self, leaf: Path_, value: Any, path: Path_, place: Place | None = None) -> list[Setting]:
        """The setting of a key, none when it cannot be set. A mapping sets each of its leaves."""
        if isinstance(value, Mapping) and value:
            return [
                setting
                for inner, below in flatten(value)
                for setting in self._settings((*leaf, *inner), below, (*path, *inner), place)
            ]
        setting = self._setting(_split(leaf), value, path, place)
        problem = self._refusal(setting.key, value)
        if problem:
            at = setting.place if setting.key in {(key,) for key in GROUP_KEYS} else setting.key_place
            self.file.mistakes.append(Mistake(at, setting.name, problem))
            return []
        return [setting]

    def _setting(self, key: tuple[str, ...], value: Any, path: Path_, place: Place | None = None) -> Setting:
        if place:
            return Setting(key, value, "", place, place)
        return Setting(key, value, dotted(path), self.source.place(path), self.source.key_place(path))

    def _refusal(self, key: tuple[str, ...], value: Any) -> str | None:
        """Why a configuration key cannot be set, None when it can (its value is checked later)."""
        section = key[0]
        if section == "seed":
            return "set by `seeds`"
        if section in GROUP_KEYS and len(key) == 1:
            names = self.catalogue.names(section)
            return None if value in names else unknown(section, value, names)
        if section not in TrialConfig.model_fields:
            return self._unknown_key(".".join(key))
        if section in AXES and (len(key) == 1 or key[1] in ("option", "function")):
            return "options are chosen under `axes`"
        if section == "env" and (len(key) == 1 or key[1] in ("name", "environment")):
            return "environments are chosen under `envs`"
        return None

    def _unknown_key(self, key: str) -> str:
        ends = [known for known in scalar_keys() if known.endswith(f".{key}")]
        near = ends[0] if ends else nearest(key, [*Grid.model_fields, *scalar_keys()])
        sections = sorted({*TrialConfig.model_fields, *GROUP_KEYS} - {"seed"})
        suggestion = f"; did you mean {near!r}?" if near else ""
        return f"unknown key {key!r}{suggestion} (configuration keys start with {', '.join(sections)})"

    def _sweep(self, key: str, swept: Sweep) -> None:
        path: Path_ = ("sweep", key)
        inner = (*path, "values") if (*path, "values") in self.source.places else path
        if isinstance(swept.values, list):
            found = [
                (value, self._settings((key,), value, (*inner, index)))
                for index, value in enumerate(swept.values)
            ]
            self._refuse_twice(swept.values, inner)
        elif key.partition(".")[0] in (*TrialConfig.model_fields, *GROUP_KEYS):
            self._note(inner, f"expected a list of values of {key}; keys that move together go under a name")
            return
        else:
            found = [(name, self._together(keys, (*inner, name))) for name, keys in swept.values.items()]
        when = RuleReader(self.file, self.catalogue, self._note).conditions(swept.when, (*path, "when"))
        if when is not None and all(settings for _, settings in found):
            choices = tuple((value, tuple(settings)) for value, settings in found)
            self.file.sweep.append(SweptKey(key, choices, when, dotted(path), self.source.place(path)))

    def _tuned(self, key: str, parameter: TunedParameter) -> None:
        path: Path_ = ("tuning", "params", key)
        inner = (*path, "choices") if (*path, "choices") in self.source.places else path
        if parameter.choices is None:
            ends = [(parameter.low, (*path, "low")), (parameter.high, (*path, "high"))]
        else:
            ends = [(value, (*inner, index)) for index, value in enumerate(parameter.choices)]
        section = key.partition(".")[0]
        if section in NOT_TUNED:
            self._note(
                path, f"{section} is the same for all that is compared; tune something else", at_key=True
            )
            return
        if key in self.file.grid.sweep:
            self._note(path, "swept as well as tuned; take it out of one of them", at_key=True)
            return
        if not self._settings((key,), ends[0][0], path):
            return
        when = RuleReader(self.file, self.catalogue, self._note).conditions(parameter.when, (*path, "when"))
        if when is not None:
            placed = tuple((value, self.source.place(at)) for value, at in ends)
            self.file.tuned.append(TunedEntry(key, parameter, when, placed, self.source.key_place(path)))

    def _together(self, keys: Mapping[str, Any], path: Path_) -> list[Setting]:
        """The settings of keys that move together; none when one of them cannot be set."""
        parts = [self._settings(leaf, value, (*path, *leaf)) for leaf, value in flatten(keys)]
        return [setting for part in parts for setting in part] if all(parts) else []

    def _refuse_twice(self, values: Sequence[Any], path: Path_) -> None:
        for index, value in enumerate(values):
            if value in values[:index]:
                shown = value.name if isinstance(value, Choice) else brief(value)
                self._note((*path, index), f"{shown} is listed twice")

    def _note(self, path: Path_, message: str, *, at_key: bool = False) -> None:
        place = self.source.key_place(path) if at_key else self.source.place(path)
        self.file.mistakes.append(Mistake(place, dotted(path), message))

    def _note_setting(self, setting: Setting, message: str) -> None:
        self.file.mistakes.append(Mistake(setting.key_place, setting.name, message))


def method_choices(
    point: Mapping[str, tuple[str, Mapping[str, Any]]], catalogue: Catalogue
) -> dict[str, Entry]:
    """The entries of a named method's point."""
    choices = {}
    for axis, (name, parameters) in point.items():
        place = Place("conf/method")
        settings = [
            Setting((axis, *_split(leaf)), value, dotted(leaf), place, place)
            for leaf, value in flatten(parameters)
        ]
        choices[axis] = Entry(catalogue.option(axis, name), tuple(settings), "", place)
    return choices


def _split(path: Path_) -> tuple[str, ...]:
    return tuple(part for piece in path for part in str(piece).split("."))
