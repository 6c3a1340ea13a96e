"""The training back-ends by name. Imports none of them before it is asked to."""

from __future__ import annotations

from collections.abc import Callable
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


MakeClone = Callable[[TrainingConfig, Path, Callable[[int, int], None]], None]
"""Writes a clone into an existing empty folder; told how to report progress (done, total)."""


@dataclass(frozen=True, slots=True)
class Backend:
    """The modules of a back-end.

    training: has `train` (see Train) and `Diverged`, the exception it raises for non-finite numbers.
    cloning: has `make_clone` (see MakeClone). Back-ends with the same one share their clones.
    """

    training: str
    cloning: str

    def train(self) -> tuple[Train, type[Exception]]:
        """The training function and its `Diverged`. Imports the back-end."""
        module = import_module(self.training)
        return module.train, module.Diverged

    def make_clone(self) -> MakeClone:
        """The cloning function. Imports it."""
        made: MakeClone = import_module(self.cloning).make_clone
        return made


BACKENDS = {"native": Backend("trainers.native.training", "trainers.native.cloning")}


def find_backend(name: str) -> Backend:
    """The back-end of that name; any other name is the import path of a module that offers all of it."""
    return BACKENDS.get(name) or Backend(name, name)
