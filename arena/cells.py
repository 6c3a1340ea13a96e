"""From a grid to its cells: every point in every environment under every swept value, resolved and checked.

A section of a configuration depends on few of a grid's choices, so a cell is put together from sections that
are checked once per combination of what touches them.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from pydantic import ValidationError

from arena.backends import find_backend
from arena.clones import clone_id
from arena.combinations import conflicts
from arena.conditions import MISSING
from arena.configuration import Base, Composer, Key
from arena.grid import Design
from arena.grid_entries import GridFile, PointEntry, Rule
from arena.identity import TrialConfig, digest
from arena.mistakes import Mistake, explain
from arena.naming import Namer
from arena.options import AXES, Catalogue
from arena.plan import Point
from arena.resolving import Resolved, Resolver, facts_of
from arena.rules import is_narrowed
from arena.sections import CheckedEnv, blame
from arena.surroundings import Places, Surroundings, by_section


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell: everything of its trials but their seeds.

    label, name: of its point with and without the swept values.
    clone: the id of the clone that seed 0 starts from, and all others unless each has its own; data: what the
    environment's episodes are made of; problems: why they cannot run on this machine.
    surroundings, levels: the level of every factor that may vary: of environment and swept keys, and of axes
    and a point's own settings. rank: of the first rule of `priority` that is about it. swept: the value of
    every swept key that it takes.
    """

    id: str
    label: str
    name: str
    methods: tuple[str, ...]
    point: Point
    env: str
    config: TrialConfig
    base: Base
    clone: str
    data: str
    problems: tuple[str, ...]
    surroundings: Mapping[str, Hashable]
    levels: Mapping[str, Hashable]
    rank: int = 0
    swept: Mapping[str, Any] = field(default_factory=dict)


def make_cells(
    file: GridFile, catalogue: Catalogue, composer: Composer, profile: str
) -> tuple[list[Cell], list[Mistake]]:
    """All cells of a grid, and everything that is wrong with their configurations; equal cells come once.

    Environments vary slowest, then swept values, then points. Given a file with mistakes it finds what else
    is wrong with what could be read.
    """
    maker = _Maker(file, catalogue, composer, profile)
    cells = maker.make()
    return cells, [*maker.resolver.sections.mistakes, *maker.mistakes]


class _Maker:
    def __init__(self, file: GridFile, catalogue: Catalogue, composer: Composer, profile: str) -> None:
        self.file = file
        self.places = Places(file, composer, profile)
        self.idle = set(self.places.conditional)
        self.unused = set(file.priority)
        self.resolver = Resolver()
        self.mistakes: dict[Mistake, None] = {}
        self.namer = Namer(file, catalogue)
        self.removed: dict[Rule, int] = dict.fromkeys(file.rules, 0)
        self.considered = 0
        self.unseen = {rule: {one.key for one in (*rule.conditions, *rule.when)} for rule in file.rules}
        self._clones: dict[tuple[Any, ...], str] = {}
        self._chosen: dict[tuple[int, ...], list[PointEntry]] = {}

    def make(self) -> list[Cell]:
        cells: dict[str, Cell] = {}
        for plain in self.places:
            for point in self._points(plain):
                for around, whole in self._variants(plain, point):
                    cell = self._cell(around, point, whole)
                    if cell is None:
                        continue
                    known = cells.get(cell.id)
                    if known is None:
                        cells[cell.id] = cell
                    elif set(cell.methods) - set(known.methods):
                        methods = tuple(dict.fromkeys((*known.methods, *cell.methods)))
                        cells[cell.id] = replace(known, methods=methods)
        if not self.file.mistakes:
            wrong = self.mistakes or self.resolver.sections.mistakes
            self._report_rules(empty=not cells and not wrong)
        return list(cells.values())

    def _points(self, around: Surroundings) -> list[PointEntry]:
        """The design's points, then those written out. A grid of methods alone has no product of axes."""
        design = self.file.grid.design
        if not self.file.has_product:
            return self.file.points
        if design.name == "full":
            return self._product + self.file.points
        allowed = tuple(index for index, point in enumerate(self._product) if self._is_allowed(around, point))
        if allowed and allowed not in self._chosen:
            self._chosen[allowed] = self._choose(design, allowed)
        return self._chosen.get(allowed, []) + self.file.points

    def _is_allowed(self, around: Surroundings, point: PointEntry) -> bool:
        """Whether rules leave anything of a point. What is wrong is not left out, but told."""
        variants = list(self._variants(around, point))
        removed = [whole is not None and self._is_removed(at, point, whole) for at, whole in variants]
        return not all(removed)

    def _variants(
        self, plain: Surroundings, point: PointEntry
    ) -> Iterator[tuple[Surroundings, Resolved | None]]:
        """A point in its surroundings, under every value of the conditional keys that it takes."""
        whole = self.resolver.resolve(plain, point)
        taken = [
            swept
            for swept in self.places.conditional
            if whole is not None and all(one.holds(facts_of(plain, point, whole)) for one in swept.when)
        ]
        if not taken:
            yield plain, whole
            return
        self.idle.difference_update(taken)
        for around in self.places.variants(plain, taken):
            yield around, self.resolver.resolve(around, point)

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

    def _cell(self, around: Surroundings, point: PointEntry, whole: Resolved | None) -> Cell | None:
        if whole is None or self._is_removed(around, point, whole):
            return None
        sections, env = whole.sections, whole.env
        try:
            config = TrialConfig.model_validate({name: section.value for name, section in sections.items()})
        except ValidationError as error:
            for item in error.errors():
                self._note(around, point, tuple(map(str, item["loc"])), explain(item))
            return None
        if found := conflicts(config, whole.axes.data, has_anchors=env.has_anchors):
            for conflict in found:
                self._note(around, point, conflict.key, conflict.message)
            return None
        name = self.namer.name(around, point, whole)
        texts = {name: section.text for name, section in sections.items()}
        return Cell(
            id=digest(texts, env.data_id, stops=config.collapse.stop),
            label=name.label + around.suffix,
            name=name.label,
            methods=name.methods,
            point=name.point,
            env=around.base.env,
            config=config,
            base=around.base,
            clone=self._clone(config, env, texts),
            data=env.data_id,
            problems=(*env.problems, *find_backend(config.backend).problems(config)),
            surroundings=around.levels,
            levels=_decided(around, name.levels),
            rank=self._rank(around, point, whole),
            swept=around.swept,
        )

    def _clone(self, config: TrialConfig, env: CheckedEnv, texts: Mapping[str, str]) -> str:
        key = (env, *(texts[name] for name in ("model", "prompt", "cloning", "backend")))
        if key not in self._clones:
            self._clones[key] = clone_id(config, env.data_id)
        return self._clones[key]

    def _is_removed(self, around: Surroundings, point: PointEntry, whole: Resolved) -> bool:
        if not self.removed:
            return False
        facts = facts_of(around, point, whole)
        self.considered += 1
        removed = False
        for rule in self.removed:
            if unseen := self.unseen[rule]:
                unseen -= {key for key in unseen if facts(key) is not MISSING}
            if rule.removes(facts):
                self.removed[rule] += 1
                removed = True
        return removed

    def _rank(self, around: Surroundings, point: PointEntry, whole: Resolved) -> int:
        """Which rule of `priority` is the first that is about a cell; their number when none is."""
        preferences = self.file.priority
        if not preferences:
            return 0
        facts = facts_of(around, point, whole)
        about = [rank for rank, preference in enumerate(preferences) if preference.prefers(facts)]
        self.unused.difference_update(preferences[rank] for rank in about)
        return min(about, default=len(preferences))

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
        """Note what the rules of the file did not do, or did too much of."""
        narrowed = is_narrowed(self.file)
        for swept in () if narrowed else self.idle:
            message = "its `when` never holds; nothing takes these values"
            self.mistakes[Mistake(swept.place, swept.name, message)] = None
        for preference in () if narrowed or empty else self.file.priority:
            if preference in self.unused:
                message = "nothing in this grid is meant by this; correct it or take it out"
                self.mistakes[Mistake(preference.place, preference.name, message)] = None
        alone = [rule for rule, count in self.removed.items() if count and count == self.considered]
        for rule in alone if empty else ():
            message = "this rule removes everything; nothing is left to run"
            self.mistakes[Mistake(rule.place, rule.name, message)] = None
        if empty and not alone and any(self.removed.values()):
            kind = next(rule.kind for rule, count in self.removed.items() if count)
            message = "these rules remove everything; nothing is left to run"
            self.mistakes[Mistake(self.file.source.key_place((kind,)), kind, message)] = None
        for rule, count in self.removed.items():
            if not count and not narrowed:
                absent = ", ".join(sorted(".".join(key) for key in self.unseen[rule]))
                why = f"nothing in this grid has {absent}" if absent else "this rule removes nothing"
                message = f"{why}; correct it or take it out"
                self.mistakes[Mistake(rule.place, rule.name, message)] = None


def _decided(around: Surroundings, levels: Mapping[str, Hashable]) -> Mapping[str, Hashable]:
    """Levels of factors, with the values that only some of them take as part of the level."""
    if not around.conditional:
        return levels
    own = {factor: (levels.get(factor), values) for factor, values in around.conditional.items()}
    return {**levels, **own}
