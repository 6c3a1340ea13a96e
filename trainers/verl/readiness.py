"""What a plan asks of the verl back-end: whether it can do a trial, and whether it can run here."""

from __future__ import annotations

from trainers.config import TrainingConfig
from trainers.verl import schema
from trainers.verl.translation import Refusal, Surroundings, trainer_line, translate
from trainers.verl.translation import refusals as refused

NOWHERE = Surroundings(model="MODEL", checkpoints="CHECKPOINTS")
"""Surroundings of a trial that is only planned."""


def refusals(config: TrainingConfig) -> list[Refusal]:
    """What verl cannot do of a trial; where verl is installed also what its configuration does not know."""
    found = refused(config)
    if found or schema.problems():
        return found
    try:
        schema.check(translate(config, NOWHERE))
    except schema.VerlConfigError as error:
        return [Refusal(("verl", "overrides", *key.split(".")), message) for key, message in error.problems]
    return []


def problems(config: TrainingConfig) -> list[str]:
    """Why verl cannot run on this machine, each with its remedy."""
    return schema.problems()


def trainer(config: TrainingConfig) -> str:
    """Which of verl's trainers runs a trial, and whether it would give the same numbers again."""
    return "" if config.verl is None else trainer_line(config.verl)
