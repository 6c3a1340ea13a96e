"""The sections of configurations: each merged, checked and written out once per combination of settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

from arena.configuration import (
    Base,
    Key,
    Setting,
    check_model,
    check_section,
    default_section,
    known_keys,
    merge,
)
from arena.identity import canonical_json, section_text
from arena.mistakes import Mistake, Place, explain, unknown
from arena.options import AXES, Option
from envs.registry import UnknownEnvironmentError, find_environment
from envs.text_env import EnvConfig, Environment
from trainers.config import OptionConfig

Settings = tuple[Setting, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Checked:
    """A section that is right: as a configuration holds it, as plain data, as its text for the identity.

    implied: keys within an axis' parameters that have the value which saying nothing of them gives.
    """

    value: Any
    plain: Any
    text: str
    implied: frozenset[Key] = frozenset()


@dataclass(frozen=True, slots=True, eq=False)
class CheckedEnv:
    """The environment's section, and what planning asks of the environment with it."""

    section: Checked
    data_id: str
    problems: tuple[str, ...]
    has_anchors: bool


class Sections:
    """Checks sections, remembering each. What is wrong is in `mistakes`, blamed on a setting."""

    def __init__(self) -> None:
        self.mistakes: dict[Mistake, None] = {}
        self._axes: dict[tuple[Base, Option, Settings], Checked | None] = {}
        self._plain: dict[tuple[Base, str, Settings], Checked | None] = {}
        self._envs: dict[tuple[Base, Settings], CheckedEnv | None] = {}
        self._environments: dict[Base, Environment | None] = {}

    def axis(self, base: Base, option: Option, settings: Settings) -> Checked | None:
        """An option with settings over its defaults; None when they are wrong. Keys start with the axis."""
        key = (base, option, settings)
        if key not in self._axes:
            self._axes[key] = self._check_axis(base, option, settings)
        return self._axes[key]

    def plain(self, base: Base, name: str, settings: Settings) -> Checked | None:
        """Any other section but `env`, with settings over the base; None when they are wrong."""
        key = (base, name, settings)
        if key not in self._plain:
            self._plain[key] = self._check_plain(base, name, settings)
        return self._plain[key]

    def env(self, base: Base, settings: Settings) -> CheckedEnv | None:
        """The environment's section with settings over the base; None when they are wrong."""
        key = (base, settings)
        if key not in self._envs:
            self._envs[key] = self._check_env(base, settings)
        return self._envs[key]

    def _check_axis(self, base: Base, option: Option, settings: Settings) -> Checked | None:
        origin = Place(f"conf/{option.axis}/{option.name}.yaml")
        defaults = merge(
            option_defaults(base, option), [(setting.key[1:], setting.value) for setting in settings]
        )

        def known(path: Key) -> list[str] | None:
            return known_keys(option.axis, path, option.schema)

        what = f"parameters of {option.name}"
        checked = self._checked(
            lambda: check_model(option.schema, defaults), option.axis, settings, origin, known, what
        )
        if checked is None:
            return None
        plain = {"option": option.name, "function": option.function, **checked.model_dump(mode="json")}
        value = OptionConfig.model_validate(plain)
        return Checked(value, plain, section_text(option.axis, plain), frozenset(_implied(checked)))

    def _check_plain(self, base: Base, name: str, settings: Settings) -> Checked | None:
        raw = base.sections[name] if name in base.sections else default_section(name)
        merged = merge(raw, _with_replaced(settings))
        if merged is None:
            return Checked(None, None, section_text(name, None))  # a section that nothing has asked for
        text = canonical_json(merged)
        origin = Place(f"conf ({name} of {base.env})")
        value = self._checked(
            lambda: check_section(name, text), name, settings, origin, lambda path: known_keys(name, path)
        )
        if value is None:
            return None
        plain = value.model_dump(mode="json") if isinstance(value, BaseModel) else value
        return Checked(value, plain, section_text(name, plain))

    def _check_env(self, base: Base, settings: Settings) -> CheckedEnv | None:
        environment = self._environment(base)
        if environment is None:
            return None
        kind = environment.config_type
        merged = merge(base.sections["env"], [(setting.key[1:], setting.value) for setting in settings])
        config: EnvConfig | None = self._checked(
            lambda: check_model(kind, merged),
            "env",
            settings,
            base.origin,
            lambda path: known_keys("env", path, kind),
            f"keys of {base.env}",
        )
        if config is None:
            return None
        plain = config.model_dump(mode="json")
        return CheckedEnv(
            section=Checked(plain, plain, section_text("env", plain)),
            data_id=environment.data_id(config),
            problems=tuple(environment.problems(config)),
            has_anchors=environment.has_anchors(config),
        )

    def _environment(self, base: Base) -> Environment | None:
        if base not in self._environments:
            self._environments[base] = None
            try:
                self._environments[base] = find_environment(base.sections["env"])
            except UnknownEnvironmentError as error:
                self._note(Mistake(base.origin, "", str(error)))
        return self._environments[base]

    def _checked(
        self,
        check: Callable[[], Any],
        section: str,
        settings: Settings,
        origin: Place,
        known: Callable[[Key], list[str] | None],
        plural: str | None = None,
    ) -> Any:
        """What `check` gives, or None with its mistakes noted. origin: to blame when no setting is."""
        try:
            return check()
        except ValidationError as error:
            for item in error.errors():
                key = (section, *(str(part) for part in item["loc"]))
                missing = item["type"] == "missing"
                setting = blame(settings, key[:-1] if missing else key)
                if item["type"] == "extra_forbidden":
                    message = unknown("key", key[-1], known(key[1:-1]) or (), plural=plural)
                    if section in AXES and setting is not None and setting.name.startswith("sweep."):
                        message += f"; say which options take it: `{{values: ..., when: {{{section}: ...}}}}`"
                else:
                    message = explain(item)
                if setting is None:
                    self._note(Mistake(origin, ".".join(key), message))
                else:
                    at_key = item["type"] == "extra_forbidden" and len(key) == len(setting.key)
                    place = setting.key_place if at_key else setting.place
                    self._note(Mistake(place, _name(setting, key, missing=missing), message))
            return None

    def _note(self, mistake: Mistake) -> None:
        self.mistakes[mistake] = None


def _name(setting: Setting, key: Key, *, missing: bool) -> str:
    """What to call a key for which a setting is to blame: it may lie below it, or be missing beside it."""
    if not setting.name:
        return ".".join(key)
    above = len(setting.key) - len(key) + 1 if missing else 0
    parts = setting.name.split(".")
    return ".".join([*parts[: len(parts) - max(above, 0)], *key[len(setting.key) - max(above, 0) :]])


EXCLUSIVE: Mapping[Key, frozenset[str]] = {("trainer", "minibatch"): frozenset({"count", "rows"})}
"""Keys that say the same in two ways: of these one is given."""


def _with_replaced(settings: Settings) -> Iterator[tuple[Key, Any]]:
    """What to put into a section: a key that is given replaces the others of its kind.

    So a grid's `count` takes the place of the `rows` of its profile, and a sweep's that of the grid's
    overrides. What stands beside each other is left as it is, and is a mistake.
    """
    for setting in settings:
        *path, last = setting.key
        others = EXCLUSIVE.get(tuple(path), frozenset()) - {last}
        together = {one.key for one in settings if _layer(one) == _layer(setting)}
        for other in sorted(others) if setting.value is not None else ():
            if (*path, other) not in together:
                yield (*path[1:], other), None
        yield setting.key[1:], setting.value


def _layer(setting: Setting) -> str:
    return setting.name.partition(".")[0]


def option_defaults(base: Base, option: Option) -> dict[str, Any]:
    """An option's parameters unless a grid sets them: its file's, with what the base says otherwise."""
    others = base.options.get(option.axis, {}).get(option.name, {})
    merged: dict[str, Any] = merge(dict(option.defaults), [((key,), value) for key, value in others.items()])
    return merged


def blame(settings: Sequence[Setting], key: Key) -> Setting | None:
    """The setting of highest precedence that is at, above or below a key."""
    for setting in reversed(settings):
        shared = min(len(setting.key), len(key))
        if setting.key[:shared] == key[:shared]:
            return setting
    return None


def _implied(parameters: BaseModel) -> Iterator[Key]:
    """Keys of parameters' parts (a mask, a gate) that are at the part's own default."""
    for name, part in parameters:
        if isinstance(part, BaseModel):
            for inner, field in type(part).model_fields.items():
                if not field.is_required() and getattr(part, inner) == field.default:
                    yield name, inner
