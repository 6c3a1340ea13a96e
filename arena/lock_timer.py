"""How long locks have been held: a trial's by those who ran it, a study's by those who ran the study."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from arena.locks import Lock

SECONDS, GPU_SECONDS = "seconds", "gpu_seconds"
"""Keys of a lock file: seconds for which it has been held, by everybody together, and the same times GPUs."""
WRITTEN_EVERY = 5.0


class Timer:
    """Measures how long a lock is held and writes it into the lock, whenever `write` is called."""

    def __init__(self, lock: Lock, *, gpus: float = 0.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._lock, self._gpus, self._clock = lock, gpus, clock
        self._before = {key: seconds_in(lock.found, key) for key in (SECONDS, GPU_SECONDS)}
        self._began = clock()
        self._written = -WRITTEN_EVERY
        self._holder: dict[str, Any] = {}

    @property
    def seconds(self) -> float:
        """For which the lock has been held, the times before this one included."""
        return self._before[SECONDS] + self._clock() - self._began

    def sign(self, holder: Mapping[str, Any]) -> None:
        """Say in the lock who holds it. Raises OSError."""
        self._holder = dict(holder)
        self._write()

    def note(self, key: str, value: str) -> None:
        """Leave a word for who holds the lock next."""
        self._holder[key] = value
        self.write(now=True)

    @property
    def found(self) -> Mapping[str, Any]:
        """What the last holder left in the lock."""
        return self._lock.found

    def write(self, *, now: bool = False) -> None:
        """Bring the lock up to date, if the last time is a while ago."""
        held = self._clock() - self._began
        if now or held - self._written >= WRITTEN_EVERY:
            self._written = held
            # On a full disk what runs goes on, and costs more than is known.
            with suppress(OSError):
                self._write()

    def _write(self) -> None:
        held = self._clock() - self._began
        spent = {SECONDS: round(self.seconds, 3)}
        if self._gpus or self._before[GPU_SECONDS]:
            spent[GPU_SECONDS] = round(self._before[GPU_SECONDS] + self._gpus * held, 3)
        self._lock.write({**self._holder, **spent})


def seconds_in(holder: Mapping[str, Any], key: str) -> float:
    """What a lock file says under one of the keys, 0 when it does not."""
    value = holder.get(key)
    return float(value) if isinstance(value, int | float) and value > 0 else 0.0
