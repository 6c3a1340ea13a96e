"""What to call points: their labels, the named methods they are, their levels of factors."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from arena.configuration import Key, merge
from arena.grid_entries import GridFile, PointEntry
from arena.grid_file import method_choices
from arena.identity import canonical_json
from arena.labels import differences, option_label, point_label
from arena.options import AXES, Catalogue
from arena.plan import Point
from arena.resolving import Resolved, option_parameters
from arena.sections import Checked, CheckedEnv, Sections, option_defaults
from arena.surroundings import Surroundings


@dataclass(frozen=True, slots=True)
class Name:
    """A point's label, the named methods it is, the point as plain data, and its levels of factors."""

    label: str
    methods: tuple[str, ...]
    point: Point
    levels: Mapping[str, Hashable]


class Namer:
    """Labels points, remembering what it was asked."""

    def __init__(self, file: GridFile, catalogue: Catalogue) -> None:
        listed = [choice.name for choice in file.grid.methods if choice.name in catalogue.methods]
        names = dict.fromkeys([*listed, *catalogue.methods])
        self.methods = {name: method_choices(catalogue.methods[name].point, catalogue) for name in names}
        # Their mistakes are passed over: a method that the grid does not run may be wrong under its settings.
        self.sections = Sections()
        self._tables: dict[Any, dict[str, _Resolved]] = {}
        self.baseline = {axis: catalogue.defaults[axis] for axis in AXES}
        self._names: dict[Any, Name] = {}

    def name(self, around: Surroundings, point: PointEntry, whole: Resolved) -> Name:
        """What to call a point, whatever surrounds it."""
        extra = _extra(whole) if whole.axes.own else {}
        key = (whole.axes, repr(extra)) if extra else whole.axes
        if key not in self._names:
            self._names[key] = self._name(around, point, whole.sections, extra)
        return self._names[key]

    def _name(
        self,
        around: Surroundings,
        point: PointEntry,
        whole: Mapping[str, Checked],
        extra: Mapping[Key, Any],
    ) -> Name:
        axes_around = around.axes_key
        if axes_around not in self._tables:
            self._tables[axes_around] = self._table(around)
        options = {axis: entry.option.name for axis, entry in point.choices.items()}
        parameters = {axis: option_parameters(whole[axis]) for axis in AXES}
        # What surrounds a point is told beside its label, so it is no difference here.
        defaults = {
            axis: merge(
                option_defaults(around.base, entry.option),
                [(setting.key[1:], setting.value) for setting in around.high.get(axis, ())],
            )
            for axis, entry in point.choices.items()
        }
        implied = {axis: whole[axis].implied for axis in AXES}
        label, methods = point_label(
            options,
            parameters,
            defaults=defaults,
            methods=self._tables[axes_around],
            baseline=self.baseline,
            extra=extra,
            implied=implied,
        )
        described: dict[str, str | dict[str, dict[str, Any]]] = {}
        levels: dict[str, Hashable] = {".".join(key): canonical_json(value) for key, value in extra.items()}
        swept = [tuple(key.split(".")) for key in around.swept]
        for axis in AXES:
            differs = differences(parameters[axis], dict(point.choices[axis].option.defaults), implied[axis])
            nested = merge({}, differs.items())
            described[axis] = {options[axis]: nested} if differs else options[axis]
            own = {key: value for key, value in differs.items() if not _is_set((axis, *key), swept)}
            levels[axis] = option_label(options[axis], own)
        return Name(label, methods, described, levels)

    def _table(self, around: Surroundings) -> dict[str, _Resolved]:
        table = {}
        for name, choices in self.methods.items():
            axes = {
                axis: self.sections.axis(around.base, entry.option, around.settings(axis, entry.settings))
                for axis, entry in choices.items()
            }
            right = {axis: option_parameters(section) for axis, section in axes.items() if section}
            options = {axis: entry.option.name for axis, entry in choices.items()}
            table[name] = (options, right if len(right) == len(axes) else None)
        return table


_Resolved = tuple[dict[str, str], dict[str, dict[str, Any]] | None]


def _is_set(key: Key, settings: Iterable[Key]) -> bool:
    """Whether a key is one of the settings, or lies below one."""
    return any(key[: len(setting)] == setting for setting in settings)


def _extra(whole: Resolved) -> dict[Key, Any]:
    """What a point's own settings changed beyond the axes."""
    changed: dict[Key, Any] = {}
    for name in whole.axes.own:
        if name not in AXES:
            before = whole.shared.sections[name]
            plain = before.section.plain if isinstance(before, CheckedEnv) else before.plain if before else {}
            changed |= {
                (name, *key): value for key, value in differences(whole.sections[name].plain, plain).items()
            }
    return changed
