"""Any `gymnasium` environment: text spaces as they are, others put into words."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from envs.adapters.config import GemConfig, GymnasiumConfig
from envs.adapters.engine import AdapterError, Engine, Reply, Start, make_inner, named
from envs.adapters.environment import AdapterEnvironment
from envs.text_env import Split

_HIGHLIGHTED = re.compile(r"\x1b\[[0-9;]*m(.)\x1b\[0m")
_ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


class GymnasiumEngine(Engine):
    """`reset(seed)` and `step(action)` with five results, as gymnasium has them.

    The library's generators are seeded by `reset`. Info may list admissible actions as texts (`admissible`)
    or as a mask over the numbers of a `Discrete` space (`action_mask`).
    """

    def __init__(self, config: GymnasiumConfig | GemConfig, inner: Any, called: str) -> None:
        self.inner = inner
        self._text = getattr(config, "text", "observation")
        self._describe = None if self._text in ("observation", "render") else named(self._text, "text")
        names = getattr(config, "actions", None)
        self._actions = _actions(getattr(inner, "action_space", None), names, called)

    def start(self, seed: int, split: Split) -> Start:
        """See `Engine.start`."""
        observation, info = self.inner.reset(seed=seed)
        return Start(self._say(observation), self._admissible(info))

    def act(self, action: str) -> Reply:
        """See `Engine.act`."""
        told = action if self._actions is None else self._actions[action]
        observation, reward, terminated, truncated, info = self.inner.step(told)
        says = [info[key] for key in ("success", "is_success") if key in info]
        return Reply(
            self._say(observation),
            self._admissible(info),
            float(reward),
            bool(terminated),
            bool(truncated),
            bool(says[0]) if says else None,
        )

    def close(self) -> None:
        """See `Engine.close`."""
        if hasattr(self.inner, "close"):
            self.inner.close()

    def _admissible(self, info: Mapping[str, Any]) -> tuple[str, ...] | None:
        if self._actions is None:
            listed = info.get("admissible")
            return None if listed is None else tuple(map(str, listed))
        mask = info.get("action_mask")
        if mask is None:
            return tuple(self._actions)
        return tuple(name for name, allowed in zip(self._actions, mask, strict=True) if allowed)

    def _say(self, observation: Any) -> str:
        if self._describe is not None:
            return str(self._describe(observation, self.inner))
        if self._text == "render":
            return plain_screen(str(self.inner.render()))
        return in_words(observation)


def _actions(space: Any, names: Sequence[str] | None, called: str) -> dict[str, int] | None:
    """The actions of a `Discrete` space by name; None where any text will do."""
    kind = type(space).__name__
    if kind == "Discrete":
        wanted = [str(space.start + number) for number in range(space.n)] if names is None else names
        if len(set(wanted)) != space.n:
            raise AdapterError(f"{called} has {space.n} actions: `actions` must give each a name of its own")
        return {name: int(space.start) + number for number, name in enumerate(wanted)}
    if space is None or kind in ("Text", "NoneType"):
        return None
    raise AdapterError(
        f"{called} takes actions of {kind}: only Text and Discrete can be written; wrap it, and name the "
        "function that makes the wrapped environment in `factory`"
    )


def in_words(observation: Any) -> str:
    """Text as it is; numbers, sequences, arrays and mappings as words, numbers with three digits."""
    if isinstance(observation, str):
        return observation
    if isinstance(observation, Mapping):
        return " ".join(f"{key} {in_words(value)}" for key, value in observation.items())
    if hasattr(observation, "tolist"):
        observation = observation.tolist()
    if isinstance(observation, Sequence):
        return " ".join(map(in_words, observation))
    return f"{observation:.3g}" if isinstance(observation, float) else str(observation)


def plain_screen(text: str) -> str:
    """A screen without control sequences; a coloured sign, as the player is shown by, stands in brackets."""
    return _ESCAPES.sub("", _HIGHLIGHTED.sub(r"[\1]", text)).strip("\n")


def open_gymnasium(config: GymnasiumConfig) -> GymnasiumEngine:
    """The engine of a configuration. Raises AdapterError."""
    import gymnasium

    parameters = {"render_mode": "ansi"} if config.text == "render" else {}
    return GymnasiumEngine(config, *make_inner(config, gymnasium.make, parameters))


GYMNASIUM = AdapterEnvironment(
    GymnasiumConfig,
    open_gymnasium,
    module="gymnasium",
    distribution="gymnasium",
    remedy="pip install 'arlarena[adapters]'",
)
