"""What a grid file says once every name in it has its meaning: options, points, environments, swept keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from arena.conditions import Condition, Facts
from arena.configuration import Setting
from arena.grid import Grid, TunedParameter
from arena.mistakes import Mistake, Place
from arena.options import Option
from arena.yaml_source import Source


@dataclass(frozen=True, eq=False)
class Entry:
    """An option as chosen on an axis: with the parameters given there."""

    option: Option
    settings: tuple[Setting, ...]
    name: str
    place: Place


@dataclass(frozen=True, eq=False)
class PointEntry:
    """A point: per axis an entry, and what a named method sets beside them."""

    choices: Mapping[str, Entry]
    settings: tuple[Setting, ...] = ()
    name: str = ""
    place: Place = Place("")  # noqa: RUF009 (frozen)


@dataclass(frozen=True, eq=False)
class EnvEntry:
    """An environment with keys of its configuration; target: its import path if it is of another package."""

    name: str
    target: str | None
    settings: tuple[Setting, ...]
    place: Place


@dataclass(frozen=True, eq=False)
class SweptKey:
    """A swept key: its values, each with the settings it means; taken where all conditions of `when` hold."""

    key: str
    choices: tuple[tuple[Any, tuple[Setting, ...]], ...]
    when: tuple[Condition, ...]
    name: str
    place: Place


@dataclass(frozen=True, eq=False)
class TunedEntry:
    """A key that is tuned where all conditions of `when` hold. ends: what may be tried, with places."""

    name: str
    parameter: TunedParameter
    when: tuple[Condition, ...]
    ends: tuple[tuple[Any, Place], ...]
    place: Place


@dataclass(frozen=True, eq=False)
class Rule:
    """`exclude` leaves out what all conditions hold of; `require` what breaks one, where `when` holds.

    A key that a cell does not have makes neither leave it out.
    """

    kind: Literal["exclude", "require"]
    conditions: tuple[Condition, ...]
    when: tuple[Condition, ...]
    name: str
    place: Place

    def removes(self, facts: Facts) -> bool:
        """Whether a cell is left out."""
        if self.kind == "exclude":
            return all(condition.holds(facts) for condition in self.conditions)
        concerned = all(condition.holds(facts) for condition in self.when)
        return concerned and any(condition.is_broken(facts) for condition in self.conditions)


@dataclass(frozen=True, eq=False)
class Preference:
    """A rule of `priority`: the cells it is about go before those of later rules, and before all others."""

    conditions: tuple[Condition, ...]
    name: str
    place: Place

    def prefers(self, facts: Facts) -> bool:
        """Whether it is about a cell."""
        return all(condition.holds(facts) for condition in self.conditions)


@dataclass
class GridFile:
    """A grid file as read. With `mistakes`, what could be read of it, so that more can be found.

    axes: entries per axis as written; defaults: those of the options that need not be named; points: methods
    and written points; assigned: settings of the command line, which go above everything.
    """

    source: Source
    grid: Grid
    assignments: tuple[str, ...]
    defaults: Mapping[str, Entry]
    axes: dict[str, list[Entry]] = field(default_factory=dict)
    points: list[PointEntry] = field(default_factory=list)
    overrides: list[Setting] = field(default_factory=list)
    sweep: list[SweptKey] = field(default_factory=list)
    tuned: list[TunedEntry] = field(default_factory=list)
    assigned: list[Setting] = field(default_factory=list)
    rules: list[Rule] = field(default_factory=list)
    priority: list[Preference] = field(default_factory=list)
    envs: list[EnvEntry] = field(default_factory=list)
    mistakes: list[Mistake] = field(default_factory=list)

    @property
    def has_product(self) -> bool:
        """Whether the axes' options are crossed; a grid of methods or points alone has nothing to cross."""
        return self.grid.design.name != "points" and (bool(self.axes) or not self.points)
