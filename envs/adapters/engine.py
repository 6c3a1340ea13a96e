"""What an adapter has to say about its library: one episode at a time, in text."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from envs.text_env import Split


class AdapterError(ValueError):
    """An adapted environment cannot be used as configured; the message says why and what to change."""


@dataclass(frozen=True, slots=True)
class Start:
    """The first text of an episode; admissible: the actions to choose from, None when any will do."""

    text: str
    admissible: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class Reply:
    """What an action led to. success: None where the library does not say."""

    text: str
    admissible: tuple[str, ...] | None
    reward: float
    terminated: bool
    truncated: bool
    success: bool | None = None


class Engine(ABC):
    """Plays one episode at a time. Equal seeds and actions give equal episodes."""

    inner: Any
    """The library's own environment, for experts."""

    @abstractmethod
    def start(self, seed: int, split: Split) -> Start:
        """Start the episode of a seed; train and eval get different ones."""

    @abstractmethod
    def act(self, action: str) -> Reply:
        """Take an action that is not empty, an admissible one where they are listed."""

    def close(self) -> None:  # noqa: B027 - most have nothing to release
        """Release what is held; safe to call twice."""


def named(path: str, what: str) -> Any:
    """What an import path leads to. Raises AdapterError, naming `what` was looked for."""
    module, _, name = path.replace(":", ".").rpartition(".")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise AdapterError(f"{what}: {path} cannot be imported ({error})") from error


def make_inner(
    config: Any, make: Callable[..., Any], parameters: dict[str, Any] | None = None
) -> tuple[Any, str]:
    """The environment of a `MadeConfig`, and a name for it. Raises AdapterError where it cannot be made.

    make: the library's own, for those that name no factory.
    """
    arguments = {**(parameters or {}), **config.parameters}
    if config.factory is None and config.id is None:
        raise AdapterError(f"{config.name}: give `id` (a name in the library) or `factory` (an import path)")
    factory = make if config.factory is None else named(config.factory, "factory")
    called = " ".join(filter(None, [config.factory, config.id]))
    try:
        made = factory(*([] if config.id is None else [config.id]), **arguments)
    except Exception as error:  # a library may raise anything for an id that it does not know
        raise AdapterError(f"{called} cannot be made: {type(error).__name__}: {error}") from error
    return made, called
