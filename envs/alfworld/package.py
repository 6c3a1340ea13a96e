"""What the installed `alfworld` package holds, read without importing it.

Importing `alfworld` sets ALFWORLD_DATA for the whole process and its children and makes a folder in the
user's home; a look at its tables must do neither.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

EXTRA = "pip install 'arlarena[alfworld]' (compiles a planner: needs g++, cmake and make)"
"""The remedy when the engine is missing."""

DATA_VARIABLE = "ALFWORLD_DATA"


_DISTRIBUTIONS = {
    "alfworld": "alfworld",
    "textworld": "textworld",
    "fast_downward": "fast-downward-textworld",
}
"""By the module that is imported; the last one is the planner library."""


def missing() -> list[str]:
    """The packages of the engine that are not installed."""
    return [name for name in _DISTRIBUTIONS if find_spec(name) is None]


def packages() -> dict[str, str | None]:
    """The versions of the engine's packages, None for those that are not installed."""
    found: dict[str, str | None] = {}
    for module, distribution in _DISTRIBUTIONS.items():
        try:
            found[module] = version(distribution) if find_spec(module) else None
        except PackageNotFoundError:
            found[module] = "installed"
    return found


def folder() -> Path:
    """Where the package is; raises ModuleNotFoundError with the remedy."""
    spec = find_spec("alfworld")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"alfworld is not installed: {EXTRA}", name="alfworld")
    return Path(spec.origin).parent


@lru_cache(maxsize=1)
def domain() -> str:
    """The rules of the world, in PDDL."""
    return (folder() / "data" / "alfred.pddl").read_text(encoding="utf-8")


@lru_cache(maxsize=1)
def grammar() -> str:
    """The grammar of actions and observations; the goal is still to be filled in."""
    return (folder() / "data" / "alfred.twl2").read_text(encoding="utf-8")


@lru_cache(maxsize=1)
def constants() -> ModuleType:
    """`alfworld.gen.constants`: rooms, receptacles, objects and affordances."""
    return _module("gen/constants.py")


@lru_cache(maxsize=1)
def goals() -> ModuleType:
    """`alfworld.gen.goal_library`: the goal of each task type in PDDL, and its wordings."""
    return _module("gen/goal_library.py")


@contextmanager
def importing() -> Iterator[None]:
    """Import from `alfworld` in here: the environment variable is put back, and no folder is made."""
    before = os.environ.get(DATA_VARIABLE)
    if before is None:
        os.environ[DATA_VARIABLE] = str(folder())
    try:
        yield
    finally:
        if before is None:
            del os.environ[DATA_VARIABLE]


def official_data() -> Path | None:
    """The `json_2.1.1` folder of official games that ALFWORLD_DATA names; None when the variable is not set.

    The folder need not exist. A value that `import alfworld` put there by itself does not count as set.
    """
    value = os.environ.get(DATA_VARIABLE)
    if not value:
        return None
    games = Path(value).expanduser() / "json_2.1.1"
    if not games.is_dir() and Path(value) == Path("~/.cache/alfworld").expanduser():
        return None
    return games


def _module(name: str) -> ModuleType:
    path = folder() / name
    spec = spec_from_file_location(f"_arena_alfworld_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot read {path}")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
