"""What surrounds a grid's points: environments, settings and swept values; and points resolved in them."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from arena.configuration import Base, Composer, Setting
from arena.grid_file import GROUP_KEYS, GridFile
from arena.identity import canonical_json
from arena.labels import settings_text
from arena.sections import Checked, CheckedEnv, Settings

Shared = Mapping[str, CheckedEnv | Checked | None]
"""The sections that a point without settings of its own gets, None where they are wrong."""


@dataclass(frozen=True, eq=False)
class Surroundings:
    """What points are put into: a base, and the settings below and above their own, by section.

    swept: the value of every swept key; suffix: what labels say of those that vary; levels: the environment
    and the swept values as levels of factors.
    """

    base: Base
    low: Mapping[str, Settings]
    high: Mapping[str, Settings]
    swept: Mapping[str, Any]
    suffix: str
    levels: Mapping[str, Hashable]

    def settings(self, section: str, own: Settings) -> Settings:
        """All settings of a section, those of highest precedence last."""
        return self.low.get(section, ()) + own + self.high.get(section, ())


@dataclass(frozen=True, slots=True)
class Resolved:
    """A point in its surroundings: its own settings by section, and all its sections."""

    own: Mapping[str, Settings]
    sections: Mapping[str, Checked]
    env: CheckedEnv


def surroundings_of(file: GridFile, composer: Composer, profile: str) -> Iterator[Surroundings]:
    """Everything that the points of a grid are put into. Environments vary slowest, then swept values."""
    low = by_section(file.overrides)
    for env in file.envs:
        for choice in itertools.product(*file.sweep.values()):
            above = [setting for _, settings in choice for setting in settings] + file.assigned
            groups = {
                setting.key[0]: setting.value for setting in [*file.overrides, *above] if _is_group(setting)
            }
            base = composer.base(env=env, profile=profile, **groups)
            swept = {key: value for key, (value, _) in zip(file.sweep, choice, strict=True)}
            varied = {tuple(key.split(".")): swept[key] for key in swept if len(file.sweep[key]) > 1}
            suffix = "".join(f", {text}" for text in settings_text(varied))
            levels = {"env": env, **{key: canonical_json(value) for key, value in swept.items()}}
            yield Surroundings(base, low, by_section(above), swept, suffix, levels)


def _is_group(setting: Setting) -> bool:
    return len(setting.key) == 1 and setting.key[0] in GROUP_KEYS


def by_section(settings: Iterable[Setting]) -> dict[str, Settings]:
    """Settings by the section they are for, in order; those that choose a file of a group are for none."""
    sections: defaultdict[str, list[Setting]] = defaultdict(list)
    for setting in settings:
        if not _is_group(setting):
            sections[setting.key[0]].append(setting)
    return {name: tuple(inner) for name, inner in sections.items()}
