"""The training back-ends by name. Imports none of them before it is asked to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Protocol

from trainers.config import TrainingConfig
from trainers.monitor import Monitor


class Train(Protocol):
    """What trains."""

    def __call__(self, config: TrainingConfig, *, clone: Path, checkpoints: Path, monitor: Monitor) -> None:
        """Train; resume from the newest valid checkpoint by itself, and stop when the monitor says so."""


class Refusal(Protocol):
    """What a back-end cannot do: the configuration key to blame, and why, with what to do instead."""

    @property
    def key(self) -> tuple[str, ...]:
        """The path of the key, `("verl", "engine")`."""

    @property
    def message(self) -> str:
        """A sentence."""


MakeClone = Callable[[TrainingConfig, Path, Callable[[int, int], None]], None]
"""Writes a clone into an existing empty folder; told how to report progress (done, total)."""


@dataclass(frozen=True, slots=True)
class Backend:
    """The modules of a back-end.

    training: has `train` (see Train) and `Diverged`, the exception it raises for non-finite numbers.
    cloning: has `make_clone` (see MakeClone). Back-ends with the same one share their clones.
    readiness: light to import; has `refusals(config)`, what it cannot do of a configuration, and
    `problems(config)`, why it cannot run on this machine. None: it does everything, everywhere. It may have
    `trainer(config)`, which says what it runs.
    """

    training: str
    cloning: str
    readiness: str | None = None

    def train(self) -> tuple[Train, type[Exception]]:
        """The training function and its `Diverged`. Imports the back-end."""
        module = import_module(self.training)
        return module.train, module.Diverged

    def make_clone(self) -> MakeClone:
        """The cloning function. Imports it."""
        made: MakeClone = import_module(self.cloning).make_clone
        return made

    def refusals(self, config: TrainingConfig) -> Sequence[Refusal]:
        """What it cannot do of a configuration."""
        if self.readiness is None:
            return []
        found: Sequence[Refusal] = import_module(self.readiness).refusals(config)
        return found

    def problems(self, config: TrainingConfig) -> Sequence[str]:
        """Why it cannot run on this machine, each with its remedy."""
        if self.readiness is None:
            return []
        found: Sequence[str] = import_module(self.readiness).problems(config)
        return found

    def trainer(self, config: TrainingConfig) -> str:
        """What trains, and whether it would give the same numbers again, in words; empty: nothing to say."""
        told = getattr(import_module(self.readiness), "trainer", None) if self.readiness else None
        return str(told(config)) if told is not None else ""


BACKENDS = {
    "native": Backend("trainers.native.training", "trainers.native.cloning"),
    "verl": Backend("trainers.verl.training", "trainers.native.cloning", "trainers.verl.readiness"),
}


def find_backend(name: str) -> Backend:
    """The back-end of that name; any other name is the import path of a module that offers all of it."""
    return BACKENDS.get(name) or Backend(name, name)
