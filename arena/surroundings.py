"""What surrounds a grid's points: environments, settings and swept values."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from arena.configuration import GROUP_KEYS, Base, Composer, Key, Setting
from arena.grid_entries import EnvEntry, GridFile, SweptKey
from arena.identity import canonical_json
from arena.labels import settings_text
from arena.options import AXES
from arena.sections import Settings

Picks = tuple[tuple[str, int], ...]
"""Swept keys, each with the index of one of its values."""


@dataclass(frozen=True, eq=False)
class Surroundings:
    """What points are put into: a base, and the settings below and above their own, by section.

    picks: of every swept key which of its values; swept: those values; suffix: what labels say of those that
    vary; levels: the environment and the swept values as levels of factors; conditional: by the factor that
    decides, the values that only some points take.
    """

    base: Base
    low: Mapping[str, Settings]
    high: Mapping[str, Settings]
    picks: Picks
    swept: Mapping[str, Any]
    suffix: str
    levels: Mapping[str, Hashable]
    conditional: Mapping[str, Hashable]

    @property
    def axes_key(self) -> tuple[Any, ...]:
        """Equal for surroundings in which a point's axes are the same."""
        return (self.base, *(self.settings(axis, ()) for axis in AXES))

    def settings(self, section: str, own: Settings) -> Settings:
        """All settings of a section, those of highest precedence last."""
        return self.low.get(section, ()) + own + self.high.get(section, ())


class Places:
    """The surroundings of a grid's points, each made once."""

    def __init__(self, file: GridFile, composer: Composer, profile: str) -> None:
        self.file, self.composer, self.profile = file, composer, profile
        self.conditional = [swept for swept in file.sweep if swept.when]
        self._envs = {entry.name: entry for entry in file.envs}
        self._low = {
            entry.name: by_section([*entry.settings, *file.overrides]) for entry in self._envs.values()
        }
        self._made: dict[tuple[str, Picks], Surroundings] = {}

    def __iter__(self) -> Iterator[Surroundings]:
        """Without conditional keys. Environments vary slowest, then swept values."""
        everywhere = [swept for swept in self.file.sweep if not swept.when]
        for env in self._envs:
            for picks in _picks(everywhere):
                yield self._at(env, picks)

    def variants(self, around: Surroundings, swept: Sequence[SweptKey]) -> Iterator[Surroundings]:
        """Surroundings with every combination of values of some conditional keys as well."""
        for picks in _picks(swept):
            yield self._at(around.base.env, (*around.picks, *picks))

    def _at(self, env: str, picks: Picks) -> Surroundings:
        if (env, picks) not in self._made:
            made = self._make(env, dict(picks))
            if not self.conditional:
                return made
            self._made[env, picks] = made
        return self._made[env, picks]

    def _make(self, env: str, picks: Mapping[str, int]) -> Surroundings:
        file = self.file
        chosen = [(swept, *swept.choices[picks[swept.key]]) for swept in file.sweep if swept.key in picks]
        above = [setting for _, _, settings in chosen for setting in settings] + file.assigned
        groups = {
            setting.key[0]: setting.value for setting in [*file.overrides, *above] if _is_group(setting)
        }
        varied = {
            tuple(swept.key.split(".")): value
            for swept, value, _ in chosen
            if len(swept.choices) > 1  # what decides whether a single value is taken is told already
        }
        levels = {swept.key: canonical_json(value) for swept, value, _ in chosen if not swept.when}
        decided: dict[str, tuple[str, ...]] = {}
        for swept, value, _ in chosen:
            if swept.when:
                factor = _factor(swept.when[0].key)
                decided[factor] = (*decided.get(factor, ()), f"{swept.key}={canonical_json(value)}")
        return Surroundings(
            base=self._base(self._envs[env], groups),
            low=self._low[env],
            high=by_section(above),
            picks=tuple(picks.items()),
            swept={swept.key: value for swept, value, _ in chosen},
            suffix="".join(f", {text}" for text in settings_text(varied)),
            levels={"env": env, **levels},
            conditional=decided,
        )

    def _base(self, entry: EnvEntry, groups: Mapping[str, str]) -> Base:
        if entry.target is None:
            return self.composer.base(env=entry.name, profile=self.profile, **groups)
        return self.composer.foreign_base(
            entry.name, entry.target, entry.place, profile=self.profile, **groups
        )


def _picks(swept: Sequence[SweptKey]) -> Iterator[Picks]:
    keys = [one.key for one in swept]
    for picks in itertools.product(*(range(len(one.choices)) for one in swept)):
        yield tuple(zip(keys, picks, strict=True))


def _factor(key: Key) -> str:
    """The factor that a condition's key belongs to: an axis or environment for its parameters."""
    return key[0] if key[0] in (*AXES, "env") else ".".join(key)


def _is_group(setting: Setting) -> bool:
    return len(setting.key) == 1 and setting.key[0] in GROUP_KEYS


def by_section(settings: Iterable[Setting]) -> dict[str, Settings]:
    """Settings by the section they are for, in order; those that choose a file of a group are for none."""
    sections: defaultdict[str, list[Setting]] = defaultdict(list)
    for setting in settings:
        if not _is_group(setting):
            sections[setting.key[0]].append(setting)
    return {name: tuple(inner) for name, inner in sections.items()}
