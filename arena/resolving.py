"""Points in their surroundings: every section of their configurations, put together from checked ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from arena.conditions import MISSING, Facts, dig
from arena.configuration import Key
from arena.grid_entries import PointEntry
from arena.identity import TrialConfig
from arena.options import AXES
from arena.sections import Checked, CheckedEnv, Sections, Settings
from arena.surroundings import Surroundings, by_section

OTHER_SECTIONS = tuple(name for name in TrialConfig.model_fields if name not in (*AXES, "seed", "env"))


@dataclass(frozen=True, slots=True, eq=False)
class Axes:
    """The axes' sections of a point under some settings, None where one is wrong; compared by identity.

    own: the point's own settings by section; data: what the axes' functions are given.
    """

    sections: Mapping[str, Checked] | None
    own: Mapping[str, Settings]
    data: Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True, eq=False)
class Shared:
    """The sections that points without settings of their own get in surroundings, None where they are wrong.

    right: all of them as they are in a cell, when none is wrong. axes: those of the points met so far.
    """

    sections: Mapping[str, CheckedEnv | Checked | None]
    right: Mapping[str, Checked] | None
    axes: dict[PointEntry, Axes]


@dataclass(frozen=True, slots=True, eq=False)
class Resolved:
    """A point in its surroundings: all its sections. shared: what it would be without settings of its own."""

    sections: Mapping[str, Checked]
    env: CheckedEnv
    axes: Axes
    shared: Shared


class Resolver:
    """Resolves points, remembering what cells have in common. What is wrong is in `sections.mistakes`."""

    def __init__(self) -> None:
        self.sections = Sections()
        self._shared: dict[Surroundings, Shared] = {}
        self._axes: dict[tuple[Any, ...], dict[PointEntry, Axes]] = {}

    def resolve(self, around: Surroundings, point: PointEntry) -> Resolved | None:
        """A point's sections in its surroundings; None when one of them is wrong."""
        shared = self._shared.get(around) or self._share(around)
        axes = shared.axes.get(point) or self._take_axes(around, point, shared)
        sections, right, env = axes.sections, shared.right, shared.sections["env"]
        if axes.own:
            found = dict(shared.sections)
            for name, settings in axes.own.items():
                if name == "env":
                    found[name] = self.sections.env(around.base, around.settings(name, settings))
                elif name not in AXES:
                    found[name] = self.sections.plain(around.base, name, around.settings(name, settings))
            right, env = _all_right(found), found["env"]
        if sections is None or right is None or not isinstance(env, CheckedEnv):
            return None
        return Resolved({**right, **sections}, env, axes, shared)

    def _share(self, around: Surroundings) -> Shared:
        sections: dict[str, CheckedEnv | Checked | None] = {
            name: self.sections.plain(around.base, name, around.settings(name, ())) for name in OTHER_SECTIONS
        }
        sections["env"] = self.sections.env(around.base, around.settings("env", ()))
        axes = self._axes.setdefault(around.axes_key, {})
        self._shared[around] = Shared(sections, _all_right(sections), axes)
        return self._shared[around]

    def _take_axes(self, around: Surroundings, point: PointEntry, shared: Shared) -> Axes:
        own = by_section(point.settings)
        found = {
            axis: self.sections.axis(
                around.base, entry.option, around.settings(axis, entry.settings + own.get(axis, ()))
            )
            for axis, entry in point.choices.items()
        }
        right = {axis: section for axis, section in found.items() if section}
        data = {axis: entry.option.data for axis, entry in point.choices.items()}
        axes = Axes(right if len(right) == len(found) else None, own, data)
        shared.axes[point] = axes
        return axes


def facts_of(around: Surroundings, point: PointEntry, whole: Resolved) -> Facts:
    """A resolved point as rules see it."""

    def facts(key: Key) -> Any:
        first, *rest = key
        if ".".join(key) in around.swept:
            return around.swept[".".join(key)]
        if first == "env" and not rest:
            return around.base.env
        if first not in whole.sections:
            return MISSING
        if not rest and first in AXES:
            return point.choices[first].option.name
        plain = whole.sections[first].plain
        if not rest and isinstance(plain, Mapping):
            return plain.get("name", MISSING)
        return dig(plain, tuple(rest))

    return facts


def option_parameters(section: Checked) -> dict[str, Any]:
    """The parameters of an axis' section, without which option it is."""
    return {key: value for key, value in section.plain.items() if key not in ("option", "function")}


def _all_right(found: Mapping[str, CheckedEnv | Checked | None]) -> dict[str, Checked] | None:
    right: dict[str, Checked] = {}
    for name, section in found.items():
        if section is None:
            return None
        right[name] = section.section if isinstance(section, CheckedEnv) else section
    return right
