"""From names to a configuration: Hydra composes the base, settings are merged in, the result is checked."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, TypeAdapter

from arena.identity import TrialConfig, canonical_json
from arena.mistakes import Mistake, MistakesError, Place, unknown
from arena.options import AXES, Catalogue

Key = tuple[str, ...]
"""A configuration key, `("trainer", "kl", "coefficient")` for `trainer.kl.coefficient`."""

GROUPS = ("env", "model", "backend", "preset", "profile")
"""The groups of files that decide a base."""

GROUP_KEYS = ("model", "backend", "preset")
"""Those that a grid chooses a file of by giving the configuration key of that name."""

NOT_SECTIONS = ("options", "resources", "cost", "estimate", "chooses")
"""What a base holds beside the sections of a TrialConfig."""


@dataclass(frozen=True, eq=False)
class Setting:
    """A value that a grid gives to a configuration key. Compared by identity: each was written once.

    name: its dotted path in the grid file; place, key_place: where its value and its key stand.
    """

    key: Key
    value: Any
    name: str
    place: Place
    key_place: Place


@dataclass(frozen=True, eq=False)
class Base:
    """What all trials of an environment, model, ... and profile have in common, before a grid's choices.

    origin: what to blame for the environment's own values. sections: those that are no axis, as plain data;
    options: other defaults for options, {axis: {option: {parameter: value}}}; resources, cost,
    estimate: as in `conf/config.yaml`.
    """

    env: str
    origin: Place
    sections: Mapping[str, Any]
    options: Mapping[str, Mapping[str, Mapping[str, Any]]]
    resources: Mapping[str, float]
    cost: Mapping[str, float]
    estimate: Mapping[str, float]


class Composer:
    """Composes bases from the groups of a catalogue's folder, each once."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.catalogue = catalogue
        self._bases: dict[tuple[str, ...], Base] = {}
        self._chosen: dict[str, Mapping[str, str]] = {}

    def base(self, **names: str) -> Base:
        """Compose the base of an `env`, `model`, `backend`, `preset` and `profile`, all in the catalogue.

        What is left out is what the profile chooses, else what `conf/config.yaml` names. A model and a
        preset may say more for an environment, in `model/<model>/<env>.yaml` and
        `preset/<preset>/<env>.yaml`.
        """
        whole = self._whole(GROUPS, names)
        key = tuple(whole.values())
        if key not in self._bases:
            self._bases[key] = self._compose(whole)
        return self._bases[key]

    def foreign_base(self, name: str, target: str, origin: Place, **names: str) -> Base:
        """The base of an environment without a file: a name for it, its import path, where a grid names it.

        names: as `base` takes them, without `env`. The other keys of its section are the grid's.
        """
        groups = [group for group in GROUPS if group != "env"]
        whole = self._whole(groups, names)
        key = (name, target, *whole.values())
        if key not in self._bases:
            made = self._compose(whole)
            sections = {**made.sections, "env": {"name": name, "environment": target}}
            self._bases[key] = replace(made, env=name, origin=origin, sections=sections)
        return self._bases[key]

    def _whole(self, groups: Iterable[str], names: Mapping[str, str]) -> dict[str, str]:
        """The name of each group's file."""
        profile = names.get("profile", self.catalogue.defaults["profile"])
        if profile not in self._chosen:
            self._chosen[profile] = self.catalogue.chosen_by(profile)
        known = {**self.catalogue.defaults, **self._chosen[profile], **names}
        return {group: known[group] for group in groups}

    def _compose(self, names: Mapping[str, str]) -> Base:
        from hydra import compose, initialize_config_dir
        from omegaconf import OmegaConf

        overrides = [f"{group}={name}" for group, name in names.items()]
        env = names.get("env", "")
        for folder in (f"model/{names['model']}", f"preset/{names['preset']}"):
            if env in self.catalogue.names(folder):
                overrides.append(f"+{folder}={env}")
        with initialize_config_dir(version_base="1.3", config_dir=str(self.catalogue.folder.resolve())):
            composed = compose("config", overrides=overrides)
        values: Any = OmegaConf.to_container(composed, resolve=True)
        sections = {key: value for key, value in values.items() if key not in (*AXES, *NOT_SECTIONS)}
        self._check_names(sections, values["options"])
        return Base(
            env=env,
            origin=Place(f"conf/env/{env}.yaml"),
            sections=sections,
            options=values["options"],
            resources=values["resources"],
            cost=values["cost"],
            estimate=values["estimate"],
        )

    def _check_names(self, sections: Mapping[str, Any], options: Mapping[str, Mapping[str, Any]]) -> None:
        """Refuse what our own files set and nothing would read. Values are checked with those of a grid."""
        known = set(TrialConfig.model_fields) - {"seed", *AXES}
        mistakes = [unknown("section", name, known) for name in sections if name not in known]
        for axis, named in options.items():
            if axis not in AXES:
                mistakes.append(unknown("axis", axis, AXES, plural="axes"))
                continue
            there = self.catalogue.names(axis)
            mistakes += [unknown("option", name, there) for name in named if name not in there]
        if mistakes:
            place = Place(self.catalogue.folder.name)
            raise MistakesError(Mistake(place, "", message) for message in mistakes)


@cache
def _adapter(section: str) -> TypeAdapter[Any]:
    kind: Any = TrialConfig.model_fields[section].rebuild_annotation()
    return TypeAdapter(kind)


@cache
def default_section(section: str) -> Any:
    """What a section is before anything is set, as plain data, which nobody may change."""
    default = TrialConfig.model_fields[section].get_default()
    return {} if default is not None and known_keys(section, ()) is not None else default


def check_section(section: str, text: str) -> Any:
    """The checked section from its canonical JSON. Raises pydantic's ValidationError, paths relative to it.

    Strict: the string "3" is no number, `no` is no boolean; 60.0 is the integer 60, as in YAML 1.2 it may be.
    """
    return _adapter(section).validate_json(text, strict=True)


def check_model(model: type[BaseModel], value: Mapping[str, Any]) -> BaseModel:
    """Check plain data against a schema as `check_section` does."""
    return model.model_validate_json(canonical_json(value), strict=True)


def merge(value: Any, settings: Iterable[tuple[Key, Any]]) -> Any:
    """Plain data with settings put in, in order; what is not on the way to a setting is shared, not copied.

    A setting below something that is no mapping (a parameter that is off: null) makes it one.
    """
    for key, setting in settings:
        value = _put(value, key, setting)
    return value


def _put(value: Any, key: Key, setting: Any) -> Any:
    if not key:
        return setting
    inner = dict(value) if isinstance(value, Mapping) else {}
    inner[key[0]] = _put(inner.get(key[0]), key[1:], setting)
    return inner


def known_keys(section: str, path: Key, model: type[BaseModel] | None = None) -> list[str] | None:
    """The keys that the schema knows at a path of a section; None when there is no mapping of fixed keys."""
    fields: Any = model or TrialConfig.model_fields[section].annotation
    for part in path:
        fields = _model_in(fields)
        if fields is None or part not in fields.model_fields:
            return None
        fields = fields.model_fields[part].annotation
    fields = _model_in(fields)
    return None if fields is None else list(fields.model_fields)


@cache
def scalar_keys() -> tuple[str, ...]:
    """The dotted keys of all single values that every configuration has: no options, no environment's own."""

    def below(name: str, annotation: Any) -> Iterator[str]:
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            for inner, field in annotation.model_fields.items():
                yield from below(f"{name}.{inner}", field.annotation)
        else:
            yield name

    sections = {name: field for name, field in TrialConfig.model_fields.items() if name not in (*AXES, "env")}
    return tuple(key for name, field in sections.items() for key in below(name, field.annotation))


def _model_in(annotation: Any) -> type[BaseModel] | None:
    candidates = [annotation, *getattr(annotation, "__args__", ())]
    models = [kind for kind in candidates if isinstance(kind, type) and issubclass(kind, BaseModel)]
    return models[0] if models else None


def visible_gpus() -> int:
    """How many NVIDIA GPUs this process may use, by their device files (no library is loaded)."""
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    present = len([path for path in Path("/dev").glob("nvidia*") if path.name[6:].isdigit()])
    if listed is None:
        return present
    return min(present, len([part for part in listed.split(",") if part.strip() and part.strip() != "-1"]))


def resolve_profile(name: str) -> str:
    """`auto` is `gpu` where a GPU is visible, else `laptop`; any other name is itself."""
    if name != "auto":
        return name
    return "gpu" if visible_gpus() else "laptop"
