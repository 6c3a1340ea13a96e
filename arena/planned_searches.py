"""From a grid's `tuning` to its searches: who is tuned over which keys, all that may be tried checked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from arena.combinations import conflicts
from arena.configuration import check_model, merge
from arena.grid import TuningSection
from arena.grid_entries import TunedEntry
from arena.identity import FIRST_TUNING_SEED, canonical_json
from arena.mistakes import Mistake, explain, unknown
from arena.options import AXES, Catalogue, Option, make_option
from arena.plan import PlannedTrial, Search, TunedKey
from arena.searches import search_id, with_values
from arena.selection import facts_of


@dataclass(frozen=True)
class TunedCell:
    """A cell that may be tuned. group: equal for the cells of a method; name: what that is called."""

    trial: PlannedTrial
    group: Any
    name: str


def plan_searches(
    cells: Sequence[TunedCell], entries: Sequence[TunedEntry], tuning: TuningSection, catalogue: Catalogue
) -> tuple[tuple[Search, ...], list[Mistake]]:
    """The searches of a grid, and what is wrong with the values that they may try.

    A cell that no key is searched for is in none of them, and neither is one that cannot run here.
    """
    checker = _Checker(catalogue)
    idle = dict.fromkeys(entries)
    groups: dict[Any, list[tuple[TunedCell, tuple[TunedEntry, ...]]]] = {}
    for cell in cells:
        mine = tuple(entry for entry in entries if _is_for(entry, cell.trial))
        for entry in mine:
            idle.pop(entry, None)
            checker.check(cell.trial, entry)
        if mine and not cell.trial.problems:
            group = cell.trial.cell if tuning.per == "cell" else cell.group
            groups.setdefault((group, mine), []).append((cell, mine))
    unused = [
        Mistake(
            entry.place, f"tuning.params.{entry.name}", "its `when` never holds; nothing is tuned over it"
        )
        for entry in idle
    ]
    several_envs = len({cell.trial.env for cell in cells}) > 1
    searches = []
    for members in groups.values():
        trials = tuple(cell.trial for cell, _ in members)
        named = members[0][0].name
        if tuning.per == "cell":
            named = trials[0].label + (f" in {trials[0].env}" if several_envs else "")
        search = Search(
            id="",
            label=named,
            cells=trials,
            keys=tuple(_key(entry) for entry in members[0][1]),
            candidates=tuning.trials,
            seeds=tuple(range(FIRST_TUNING_SEED, FIRST_TUNING_SEED + tuning.seeds)),
            parallel=tuning.parallel,
            sampler=tuning.sampler,
            until_stable=tuning.until == "stable",
            storage=tuning.storage,
        )
        searches.append(replace(search, id=search_id(search)))
    return tuple(searches), [*checker.mistakes, *unused]


def _is_for(entry: TunedEntry, cell: PlannedTrial) -> bool:
    return all(condition.holds(facts_of(cell)) for condition in entry.when)


def _key(entry: TunedEntry) -> TunedKey:
    given = entry.parameter
    if given.choices is not None:
        return TunedKey(entry.name, choices=tuple(given.choices))
    low, high = given.low, given.high
    assert low is not None
    assert high is not None
    if isinstance(low, float) or isinstance(high, float):
        low, high = float(low), float(high)
    return TunedKey(entry.name, low=low, high=high, log=given.log)


class _Checker:
    """Tries the ends of what is searched on the cells it is searched for; equal cases once."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.mistakes: dict[Mistake, None] = {}
        self._catalogue = catalogue
        self._done: set[tuple[str, TunedEntry]] = set()

    def check(self, cell: PlannedTrial, entry: TunedEntry) -> None:
        section = entry.name.partition(".")[0]
        told = canonical_json(cell.config.model_dump(mode="json", include={section}))
        if (told, entry) in self._done:
            return
        self._done.add((told, entry))
        for value, place in entry.ends:
            try:
                self._check_option(cell, entry, value)
                tuned = with_values(cell, {entry.name: value})
                # Which states recur is not tuned.
                data = {axis: self._option(cell, axis).data for axis in AXES}
                for conflict in conflicts(tuned.config, data, has_anchors=True):
                    self.mistakes[Mistake(place, f"tuning.params.{entry.name}", conflict.message)] = None
            except ValidationError as error:
                absent = any(item["type"] == "extra_forbidden" for item in error.errors())
                for message in self._messages(error, cell, entry):
                    at = entry.place if absent else place
                    self.mistakes[Mistake(at, f"tuning.params.{entry.name}", message)] = None

    def _check_option(self, cell: PlannedTrial, entry: TunedEntry, value: Any) -> None:
        axis, *rest = entry.name.split(".")
        if axis in AXES:
            schema = self._option(cell, axis).schema
            parameters = getattr(cell.config, axis).parameters
            check_model(schema, merge(parameters, [(tuple(rest), value)]))

    def _option(self, cell: PlannedTrial, axis: str) -> Option:
        chosen = getattr(cell.config, axis)
        if chosen.option in self._catalogue.names(axis):
            return self._catalogue.option(axis, chosen.option)
        function = {"function": chosen.function}
        return make_option(axis, chosen.option, function, set_elsewhere=chosen.parameters)

    def _messages(self, error: ValidationError, cell: PlannedTrial, entry: TunedEntry) -> Iterator[str]:
        section, *rest = entry.name.split(".")
        for item in error.errors():
            if item["type"] != "extra_forbidden":
                yield explain(item)
            elif section in AXES:
                known = self._option(cell, section).schema.model_fields
                option = getattr(cell.config, section).option
                named = unknown("key", rest[-1], known, plural=f"parameters of {option}")
                yield f"{named}; say which options have it: `when: {{{section}: ...}}`"
            else:
                yield f"unknown key {entry.name!r}"
