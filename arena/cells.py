"""From a grid to its cells: every point in every environment under every swept value, resolved and checked.

A section of a configuration depends on few of a grid's choices, so a cell is put together from sections that
are checked once per combination of what touches them.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from pydantic import ValidationError

from arena.clones import clone_id
from arena.combinations import conflicts
from arena.configuration import Base, Composer, Key, merge
from arena.grid import Design
from arena.grid_file import GridFile, PointEntry, Rule
from arena.identity import TrialConfig, digest
from arena.labels import differences
from arena.mistakes import Mistake, explain
from arena.naming import Namer, option_parameters
from arena.options import AXES, Catalogue
from arena.plan import Point
from arena.sections import Checked, CheckedEnv, Sections, blame
from arena.surroundings import Resolved, Shared, Surroundings, by_section, surroundings_of
from arena.yaml_source import flatten

OTHER_SECTIONS = tuple(name for name in TrialConfig.model_fields if name not in (*AXES, "seed", "env"))


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell: everything of its trials but their seeds.

    clone: the id of the clone they start from; problems: why they cannot run on this machine.
    surroundings, levels: the level of every factor that may vary: of environment and swept keys, and of axes
    and a point's own settings.
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
    surroundings: Mapping[str, Hashable]
    levels: Mapping[str, Hashable]


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
        self.namer = Namer(file, catalogue)
        self.removed: dict[Rule, int] = dict.fromkeys(file.rules, 0)
        self._clones: dict[tuple[Any, ...], str] = {}
        self._chosen: dict[tuple[int, ...], list[PointEntry]] = {}

    def make(self) -> list[Cell]:
        cells: dict[str, Cell] = {}
        for around in surroundings_of(self.file, self.composer, self.profile):
            shared = self._shared(around)
            for point in self._points(around, shared):
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
            wrong = self.mistakes or self.sections.mistakes
            self._report_rules(empty=not cells and not wrong)
        return list(cells.values())

    def _points(self, around: Surroundings, shared: Shared) -> list[PointEntry]:
        """The design's points, then those written out. A grid of methods alone has no product of axes."""
        design = self.file.grid.design
        if not self.file.has_product:
            return self.file.points
        if design.name == "full":
            return self._product + self.file.points
        allowed = tuple(
            index
            for index, point in enumerate(self._product)
            if (whole := self._resolve(around, shared, point)) is None
            or not self._excluded(around, point, whole)
        )
        if allowed and allowed not in self._chosen:
            self._chosen[allowed] = self._choose(design, allowed)
        return self._chosen.get(allowed, []) + self.file.points

    @cached_property
    def _product(self) -> list[PointEntry]:
        """Every combination of the axes' options, in the order of `experimental_design.full`."""
        axes = [self.file.axes.get(axis) or [self.file.defaults[axis]] for axis in AXES]
        return [PointEntry(dict(zip(AXES, choices, strict=True))) for choices in itertools.product(*axes)]

    def _choose(self, design: Design, allowed: Sequence[int]) -> list[PointEntry]:
        """The points that a design takes of those combinations that rules allow."""
        from arena import experimental_design as designs

        levels = [len(self.file.axes.get(axis) or [None]) for axis in AXES]
        combinations = designs.full(levels)
        candidates = [combinations[index] for index in allowed]
        interactions = bool(design.interactions)
        match design.name:
            case "one_factor":
                chosen = designs.one_factor(candidates)
            case "pairwise":
                chosen = designs.pairwise(candidates)
            case "fraction":
                chosen = designs.fraction(candidates, levels, design.share or 1.0)
            case _:
                least = designs.least_runs(candidates, levels, interactions=interactions)
                runs = design.runs or least
                if runs < least:
                    what = "main effects and interactions" if interactions else "main effects"
                    message = f"{runs} runs cannot separate the {what} of these axes; give at least {least}"
                    place = self.file.source.place(("design",))
                    self.mistakes[Mistake(place, "design", message)] = None
                    return []
                chosen = designs.d_optimal(candidates, levels, runs, interactions=interactions)
        index_of = {candidate: index for index, candidate in zip(allowed, candidates, strict=True)}
        return [self._product[index_of[candidate]] for candidate in chosen]

    def _shared(self, around: Surroundings) -> Shared:
        """The sections that a point without settings of its own gets."""
        shared: dict[str, CheckedEnv | Checked | None] = {
            name: self.sections.plain(around.base, name, around.settings(name, ())) for name in OTHER_SECTIONS
        }
        shared["env"] = self.sections.env(around.base, around.settings("env", ()))
        return shared

    def _resolve(self, around: Surroundings, shared: Shared, point: PointEntry) -> Resolved | None:
        """A point's sections in these surroundings; None when one of them is wrong."""
        own = by_section(point.settings)
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
        sections: dict[str, Checked] = {**found, "env": env.section}  # type: ignore[dict-item]
        return Resolved(own, sections, env)

    def _cell(self, around: Surroundings, shared: Shared, point: PointEntry) -> Cell | None:
        whole = self._resolve(around, shared, point)
        if whole is None or self._excluded(around, point, whole):
            return None
        sections, env = whole.sections, whole.env
        try:
            config = TrialConfig.model_validate({name: section.value for name, section in sections.items()})
        except ValidationError as error:
            for item in error.errors():
                self._note(around, point, tuple(map(str, item["loc"])), explain(item))
            return None
        if not self._fits(config, around, point, env):
            return None
        name = self.namer.name(around, point, shared, whole)
        texts = {name: section.text for name, section in sections.items()}
        return Cell(
            id=digest(texts, env.data_id, stops=config.collapse.stop),
            label=name.label + around.suffix,
            methods=name.methods,
            point=name.point,
            env=around.base.env,
            config=config,
            base=around.base,
            clone=self._clone(config, env, texts),
            problems=env.problems,
            surroundings=around.levels,
            levels=name.levels,
        )

    def _clone(self, config: TrialConfig, env: CheckedEnv, texts: Mapping[str, str]) -> str:
        key = (env, *(texts[name] for name in ("model", "prompt", "cloning", "backend")))
        if key not in self._clones:
            self._clones[key] = clone_id(config, env.data_id)
        return self._clones[key]

    def _excluded(self, around: Surroundings, point: PointEntry, whole: Resolved) -> bool:
        excluded = False
        for rule in self.removed:
            if all(
                any(_matches(key, value, around, point, whole.sections) for value in values)
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
        own = by_section(point.settings).get(section, ())
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
    given = option_parameters(whole[key])
    asked = merge(given, [(tuple(map(str, path)), wanted) for path, wanted in flatten(parameters)])
    return point.choices[key].option.name == name and not differences(asked, given)
