"""From the `env` section of a configuration to the environment it names."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Any, cast

from envs.text_env import EnvConfig, Environment

_NEEDED = sorted(
    {
        "config_type",
        *(name for name, value in vars(Environment).items() if callable(value) and name[0] != "_"),
    }
)


class UnknownEnvironmentError(ValueError):
    """The import path names no environment; the message says why and what to do."""


def load_environment(config: Mapping[str, Any]) -> tuple[Environment, EnvConfig]:
    """The environment that `config["environment"]` names, and the configuration checked by its schema.

    Raises UnknownEnvironmentError for a path that leads to no environment, and pydantic's ValidationError for
    parameters that the environment refuses.
    """
    environment = find_environment(config)
    return environment, environment.config_type.model_validate(dict(config))


def find_environment(config: Mapping[str, Any]) -> Environment:
    """The environment alone, whatever else `config` holds. Raises UnknownEnvironmentError."""
    path = config.get("environment")
    if not isinstance(path, str):
        raise UnknownEnvironmentError(
            f"environment: expected an import path like envs.sokoban.environment.SOKOBAN, got {path!r}"
        )
    return _import(path)


def _import(path: str) -> Environment:
    module_name, _, name = path.rpartition(".")
    if not module_name:
        raise UnknownEnvironmentError(
            f"environment: {path!r} is no import path: expected package.module.NAME"
        )
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or module_name
        if module_name == missing or module_name.startswith(f"{missing}."):
            raise UnknownEnvironmentError(f"environment: no module {missing!r} (from {path})") from error
        raise UnknownEnvironmentError(
            f"environment: {module_name} needs the package {missing!r}, which is not installed"
        ) from error
    except (TypeError, ValueError) as error:
        raise UnknownEnvironmentError(f"environment: {path!r} is no import path: {error}") from error
    if not hasattr(module, name):
        offered = [
            key for key, value in vars(module).items() if not _lacks(value) and not isinstance(value, type)
        ]
        close = get_close_matches(name, offered, 1) or offered[:1]
        hint = f", did you mean {close[0]}?" if close else ""
        raise UnknownEnvironmentError(f"environment: {module_name} has no {name!r}{hint}")
    found = getattr(module, name)
    if isinstance(found, type):
        raise UnknownEnvironmentError(
            f"environment: {path} is a class, expected an instance of an Environment"
        )
    if lacks := _lacks(found):
        raise UnknownEnvironmentError(f"environment: {path} is no Environment, it lacks {', '.join(lacks)}")
    return cast(Environment, found)


def _lacks(candidate: object) -> list[str]:
    return [name for name in _NEEDED if not hasattr(candidate, name)]
