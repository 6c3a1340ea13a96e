"""Global random generators, one state per episode: libraries that draw from them stay repeatable."""

from __future__ import annotations

import random
from types import TracebackType
from typing import Any

import numpy as np

_SEEDS = 2**32


class OwnRandomness:
    """While entered, the global generators of `random` and numpy are this episode's; then they are as before.

    So episodes that take turns, and everything else in the process, do not disturb each other's draws.
    """

    def __init__(self) -> None:
        self._own: tuple[Any, Any] | None = None
        self._others: tuple[Any, Any] | None = None
        self._seed = 0

    def seed(self, seed: int) -> None:
        """Begin anew with this seed at the next entry."""
        self._own, self._seed = None, seed % _SEEDS

    def __enter__(self) -> None:
        self._others = (random.getstate(), np.random.get_state())
        if self._own is None:
            random.seed(self._seed)
            np.random.seed(self._seed)
        else:
            random.setstate(self._own[0])
            np.random.set_state(self._own[1])

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._own = (random.getstate(), np.random.get_state())
        assert self._others is not None
        random.setstate(self._others[0])
        np.random.set_state(self._others[1])
