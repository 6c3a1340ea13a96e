"""The schema of the Sokoban environment; its values are in `arena/conf/env/sokoban.yaml`."""

from __future__ import annotations

from math import comb
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

from envs.text_env import EnvConfig

Count = Annotated[int, Field(ge=1)]

MAX_STATES = 200_000
"""Most states (player x box positions) a board may have: the expert searches all of them."""


class Rewards(BaseModel):
    """What a turn earns; the sum over an episode is its return."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    step: float
    """Every turn, also one that changes nothing."""
    box_on: float
    """Pushing a box onto a target."""
    box_off: float
    """Pushing a box off a target."""
    solved: float
    """The push that leaves every box on a target, on top of `box_on`."""


class SokobanConfig(EnvConfig):
    """Sokoban on a walled square room.

    `size` counts the cells of the interior along one side: the usual 6x6 room with its border is `size: 4`.
    """

    size: Annotated[int, Field(ge=2, le=8)]
    boxes: Count
    walls: Annotated[int, Field(ge=0)]
    border: bool
    max_turns: Count
    min_optimal: Count
    max_optimal: Count
    train_levels: Count
    eval_levels: Count
    level_seed: Annotated[int, Field(ge=0)]
    thought_words: Count
    rewards: Rewards

    @model_validator(mode="after")
    def _playable(self) -> SokobanConfig:
        cells = self.size**2
        if 1 + 2 * self.boxes + self.walls > cells:
            raise ValueError(
                f"the player, {self.boxes} boxes, as many targets and {self.walls} walls need "
                f"{1 + 2 * self.boxes + self.walls} cells, a room of size {self.size} has {cells}"
            )
        states = cells * comb(cells, self.boxes)
        if states > MAX_STATES:
            raise ValueError(
                f"{self.boxes} boxes in a room of size {self.size} have {states:,} states, the expert "
                f"searches at most {MAX_STATES:,}: use fewer boxes or a smaller room"
            )
        if self.min_optimal > self.max_optimal:
            raise ValueError(f"min_optimal ({self.min_optimal}) exceeds max_optimal ({self.max_optimal})")
        if self.max_optimal > self.max_turns:
            raise ValueError(
                f"max_optimal ({self.max_optimal}) exceeds max_turns ({self.max_turns}): "
                "the longest levels could not be solved in time"
            )
        return self
