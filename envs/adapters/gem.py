"""gem's environments, or any object with their `reset(seed)` and `step(action)` in text."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from envs.adapters.config import GemConfig
from envs.adapters.engine import AdapterError, make_inner
from envs.adapters.environment import AdapterEnvironment
from envs.adapters.gymnasium import GymnasiumEngine


def open_gem(config: GemConfig) -> GymnasiumEngine:
    """The engine of a configuration. Raises AdapterError."""
    return GymnasiumEngine(config, *make_inner(config, _make))


def _make(name: str, **parameters: Any) -> Any:
    try:
        gem: Any = import_module("gem")
    except ImportError as error:
        raise AdapterError(
            f"{name} needs gem, which cannot be imported ({error}); its pins contradict ours, so install it "
            "alone: pip install --no-deps gem-llm"
        ) from error
    return gem.make(name, **parameters)


GEM = AdapterEnvironment(GemConfig, open_gem, module="envs", distribution="gem-llm", remedy="")
