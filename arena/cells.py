"""From a grid to its cells: every point in every environment under every swept value, resolved and checked.

A section of a configuration depends on few of a grid's choices, so a cell is put together from sections that
are checked once per combination of what touches them.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from arena import experimental_design
from arena.clones import clone_id
from arena.combinations import conflicts
from arena.configuration import Base, Composer, Key, Setting, merge
from arena.grid_file import GROUP_KEYS, GridFile, PointEntry, Rule, method_choices
from arena.identity import TrialConfig, digest
from arena.labels import differences, point_label, settings_text
from arena.mistakes import Mistake, explain
from arena.options import AXES, Catalogue
from arena.plan import Point
from arena.sections import Checked, CheckedEnv, Sections, Settings, blame, option_defaults
from arena.yaml_source import flatten

OTHER_SECTIONS = tuple(name for name in TrialConfig.model_fields if name not in (*AXES, "seed", "env"))


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell: everything of its trials but their seeds.

    clone: the id of the clone they start from; problems: why they cannot run on this machine.
    """

    id: str
    label: str
    methods: tuple[str, ...]
    point: Point
    env: str
    config: TrialConfig
    base: Base
    clone: str
    problems: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Surroundings:
    """What points are put into: a base, and the settings below and above their own, by section.

    swept: the value of every swept key; suffix: what labels say of those that vary.
    """

    base: Base
    low: Mapping[str, Settings]
    high: Mapping[str, Settings]
    swept: Mapping[str, Any]
    suffix: str

    def settings(self, section: str, own: Settings) -> Settings:
        """All settings of a section, those of highest precedence last."""
        return self.low.get(section, ()) + own + self.high.get(section, ())


def make_cells(
    file: GridFile, catalogue: Catalogue, composer: Composer, profile: str
) -> tuple[list[Cell], list[Mistake]]:
    """All cells of a grid, and everything that is wrong with their configurations; equal cells come once.

    Environments vary slowest, then swept values, then points. Given a file with mistakes it finds what else
    is wrong with what could be read.
    """
    maker = _Maker(file, catalogue, composer, profile)
    cells = maker.make()
    return cells, [*maker.sections.mistakes, *maker.mistakes]


class _Maker:
    def __init__(self, file: GridFile, catalogue: Catalogue, composer: Composer, profile: str) -> None:
        self.file = file
        self.composer = composer
        self.profile = profile
        self.sections = Sections()
        self.mistakes: dict[Mistake, None] = {}
        self.namer = _Namer(file, catalogue)
        self.removed: dict[Rule, int] = dict.fromkeys(file.rules, 0)
        self._clones: dict[tuple[Any, ...], str] = {}

    def make(self) -> list[Cell]:
        points = self._points()
        cells: dict[str, Cell] = {}
        considered = 0
        for around in self._surroundings():
            shared = self._shared(around)
            for point in points:
                considered += 1
                cell = self._cell(around, shared, point)
                if cell is None:
                    continue
                known = cells.get(cell.id)
                if known is None:
                    cells[cell.id] = cell
                elif set(cell.methods) - set(known.methods):
                    methods = tuple(dict.fromkeys((*known.methods, *cell.methods)))
                    cells[cell.id] = replace(known, methods=methods)
        if not self.file.mistakes:
            self._report_rules(empty=bool(considered) and not cells)
        return list(cells.values())

    def _points(self) -> list[PointEntry]:
        """The design's points, then those written out. A grid of methods alone has no product of axes."""
        file = self.file
        if not file.axes and file.points:
            return file.points
        axes = {axis: file.axes.get(axis) or [file.defaults[axis]] for axis in AXES}
        return [
            PointEntry(point) for point in experimental_design.points(file.grid.design, axes)
        ] + file.points

    def _surroundings(self) -> Iterator[Surroundings]:
        file = self.file
        low = _by_section(file.overrides)
        for env in file.envs:
            for choice in itertools.product(*file.sweep.values()):
                above = [setting for _, settings in choice for setting in settings] + file.assigned
                groups = {
                    setting.key[0]: setting.value
                    for setting in [*file.overrides, *above]
                    if _is_group(setting)
                }
                base = self.composer.base(env=env, profile=self.profile, **groups)
                swept = {key: value for key, (value, _) in zip(file.sweep, choice, strict=True)}
                varied = {tuple(key.split(".")): swept[key] for key in swept if len(file.sweep[key]) > 1}
                suffix = "".join(f", {text}" for text in settings_text(varied))
                yield Surroundings(base, low, _by_section(above), swept, suffix)

    def _shared(self, around: Surroundings) -> dict[str, CheckedEnv | Checked | None]:
        """The sections that a point without settings of its own gets."""
        shared: dict[str, CheckedEnv | Checked | None] = {
            name: self.sections.plain(around.base, name, around.settings(name, ())) for name in OTHER_SECTIONS
        }
        shared["env"] = self.sections.env(around.base, around.settings("env", ()))
        return shared

    def _cell(
        self, around: Surroundings, shared: Mapping[str, CheckedEnv | Checked | None], point: PointEntry
    ) -> Cell | None:
        own = _by_section(point.settings)
        found: dict[str, CheckedEnv | Checked | None] = dict(shared)
        for name, settings in own.items():
            if name == "env":
                found[name] = self.sections.env(around.base, around.settings(name, settings))
            elif name not in AXES:
                found[name] = self.sections.plain(around.base, name, around.settings(name, settings))
        for axis, entry in point.choices.items():
            settings = around.settings(axis, entry.settings + own.get(axis, ()))
            found[axis] = self.sections.axis(around.base, entry.option, settings)
        env = found["env"]
        if not isinstance(env, CheckedEnv) or not all(found.values()):
            return None
        whole: dict[str, Checked] = {**found, "env": env.section}  # type: ignore[dict-item]
        if self._excluded(around, point, whole):
            return None
        try:
            config = TrialConfig.model_validate({name: section.value for name, section in whole.items()})
        except ValidationError as error:
            for item in error.errors():
                self._note(around, point, tuple(map(str, item["loc"])), explain(item))
            return None
        if not self._fits(config, around, point, env):
            return None
        label, methods, described = self.namer.name(around, point, own, shared, whole)
        texts = {name: section.text for name, section in whole.items()}
        return Cell(
            id=digest(texts, env.data_id, stops=config.collapse.stop),
            label=label,
            methods=methods,
            point=described,
            env=around.base.env,
            config=config,
            base=around.base,
            clone=self._clone(config, env, texts),
            problems=env.problems,
        )

    def _clone(self, config: TrialConfig, env: CheckedEnv, texts: Mapping[str, str]) -> str:
        key = (env, *(texts[name] for name in ("model", "prompt", "cloning", "backend")))
        if key not in self._clones:
            self._clones[key] = clone_id(config, env.data_id)
        return self._clones[key]

    def _excluded(self, around: Surroundings, point: PointEntry, whole: Mapping[str, Checked]) -> bool:
        excluded = False
        for rule in self.removed:
            if all(
                any(_matches(key, value, around, point, whole) for value in values)
                for key, values in rule.conditions
            ):
                self.removed[rule] += 1
                excluded = True
        return excluded

    def _fits(self, config: TrialConfig, around: Surroundings, point: PointEntry, env: CheckedEnv) -> bool:
        data = {axis: entry.option.data for axis, entry in point.choices.items()}
        found = conflicts(config, data, has_anchors=env.has_anchors)
        for conflict in found:
            self._note(around, point, conflict.key, conflict.message)
        return not found

    def _note(self, around: Surroundings, point: PointEntry, key: Key, message: str) -> None:
        """Note a mistake at what set the key: a setting, the entry of the axis, the point, or the axes."""
        section = key[0] if key else ""
        entry = point.choices.get(section)
        own = _by_section(point.settings).get(section, ())
        settings = around.settings(section, (entry.settings if entry else ()) + own)
        setting = None if entry and len(key) == 1 else blame(settings, key)
        if setting is not None:
            name, place = setting.name or ".".join(setting.key), setting.place
        elif entry and entry.name:
            name, place = entry.name, entry.place
        elif point.name:
            name, place = point.name, point.place
        else:
            name, place = "axes", self.file.source.place(("axes",))
        self.mistakes[Mistake(place, name, message)] = None

    def _report_rules(self, *, empty: bool) -> None:
        for rule, count in self.removed.items():
            if not count:
                message = "this rule removes nothing; correct it or take it out"
                self.mistakes[Mistake(rule.place, rule.name, message)] = None
        if empty and any(self.removed.values()):
            place = self.file.source.key_place(("exclude",))
            message = "these rules remove every point; nothing is left to run"
            self.mistakes[Mistake(place, "exclude", message)] = None


class _Namer:
    """Labels points, remembering what it was asked."""

    def __init__(self, file: GridFile, catalogue: Catalogue) -> None:
        listed = [choice.name for choice in file.grid.methods if choice.name in catalogue.methods]
        names = dict.fromkeys([*listed, *catalogue.methods])
        self.methods = {name: method_choices(catalogue.methods[name].point, catalogue) for name in names}
        # Their mistakes are passed over: a method that the grid does not run may be wrong under its settings.
        self.sections = Sections()
        self._tables: dict[Any, dict[str, _Resolved]] = {}
        self.baseline = {axis: catalogue.defaults[axis] for axis in AXES}
        self._names: dict[Any, tuple[str, tuple[str, ...], Point]] = {}

    def name(
        self,
        around: Surroundings,
        point: PointEntry,
        own: Mapping[str, Settings],
        shared: Mapping[str, CheckedEnv | Checked | None],
        whole: Mapping[str, Checked],
    ) -> tuple[str, tuple[str, ...], Point]:
        """The label, the named methods, and the point as plain data."""
        axes_around = (around.base, *(around.settings(axis, ()) for axis in AXES))
        extra = _extra(own, shared, whole)
        key = (axes_around, tuple(whole[axis].text for axis in AXES), repr(extra))
        if key not in self._names:
            self._names[key] = self._name(around, axes_around, point, whole, extra)
        label, methods, described = self._names[key]
        return label + around.suffix, methods, described

    def _name(
        self,
        around: Surroundings,
        axes_around: Any,
        point: PointEntry,
        whole: Mapping[str, Checked],
        extra: Mapping[Key, Any],
    ) -> tuple[str, tuple[str, ...], Point]:
        if axes_around not in self._tables:
            self._tables[axes_around] = self._table(around)
        options = {axis: entry.option.name for axis, entry in point.choices.items()}
        parameters = {axis: _parameters(whole[axis]) for axis in AXES}
        defaults = {axis: option_defaults(around.base, entry.option) for axis, entry in point.choices.items()}
        label, methods = point_label(
            options,
            parameters,
            defaults=defaults,
            methods=self._tables[axes_around],
            baseline=self.baseline,
            extra=extra,
        )
        described: dict[str, str | dict[str, dict[str, Any]]] = {}
        for axis in AXES:
            differs = differences(parameters[axis], dict(point.choices[axis].option.defaults))
            nested = merge({}, differs.items())
            described[axis] = {options[axis]: nested} if differs else options[axis]
        return label, methods, described

    def _table(self, around: Surroundings) -> dict[str, _Resolved]:
        table = {}
        for name, choices in self.methods.items():
            axes = {
                axis: self.sections.axis(around.base, entry.option, around.settings(axis, entry.settings))
                for axis, entry in choices.items()
            }
            right = {axis: _parameters(section) for axis, section in axes.items() if section}
            if len(right) == len(axes):
                table[name] = ({axis: entry.option.name for axis, entry in choices.items()}, right)
        return table


_Resolved = tuple[dict[str, str], dict[str, dict[str, Any]]]


def _extra(
    own: Mapping[str, Settings],
    shared: Mapping[str, CheckedEnv | Checked | None],
    whole: Mapping[str, Checked],
) -> dict[Key, Any]:
    """What a point's own settings changed beyond the axes."""
    changed: dict[Key, Any] = {}
    for name in own:
        if name not in AXES:
            before = shared[name]
            plain = before.section.plain if isinstance(before, CheckedEnv) else before.plain if before else {}
            changed |= {(name, *key): value for key, value in differences(whole[name].plain, plain).items()}
    return changed


def _parameters(section: Checked) -> dict[str, Any]:
    return {key: value for key, value in section.plain.items() if key not in ("option", "function")}


def _matches(
    key: str, value: Any, around: Surroundings, point: PointEntry, whole: Mapping[str, Checked]
) -> bool:
    if key == "env":
        return bool(around.base.env == value)
    if key not in AXES:
        return bool(around.swept[key] == value)
    if not isinstance(value, Mapping):
        return bool(point.choices[key].option.name == value)
    ((name, parameters),) = value.items()
    given = _parameters(whole[key])
    asked = merge(given, [(tuple(map(str, path)), wanted) for path, wanted in flatten(parameters)])
    return point.choices[key].option.name == name and not differences(asked, given)


def _is_group(setting: Setting) -> bool:
    return len(setting.key) == 1 and setting.key[0] in GROUP_KEYS


def _by_section(settings: Iterable[Setting]) -> dict[str, Settings]:
    """Settings by the section they are for, in order; those that choose a file of a group are for none."""
    sections: defaultdict[str, list[Setting]] = defaultdict(list)
    for setting in settings:
        if not _is_group(setting):
            sections[setting.key[0]].append(setting)
    return {name: tuple(inner) for name, inner in sections.items()}
