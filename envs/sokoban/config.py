"""The schema of the Sokoban environment; its values are in `arena/conf/env/sokoban.yaml`."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

from envs.text_env import EnvConfig

MAX_SIZE = 14

Count = Annotated[int, Field(ge=1)]


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
    levels_path: a file or folder of levels in Boxoban's format instead of generated ones, of which
    train_levels and eval_levels are the most that are taken; walls, lengths and level_seed are unused then.
    """

    levels_path: str | None
    size: Annotated[int, Field(ge=2, le=MAX_SIZE)]
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
        if self.levels_path is not None:
            return self
        if 1 + 2 * self.boxes + self.walls > cells:
            raise ValueError(
                f"the player, {self.boxes} boxes, as many targets and {self.walls} walls need "
                f"{1 + 2 * self.boxes + self.walls} cells, a room of size {self.size} has {cells}"
            )
        if self.min_optimal > self.max_optimal:
            raise ValueError(f"min_optimal ({self.min_optimal}) exceeds max_optimal ({self.max_optimal})")
        if self.max_optimal > self.max_turns:
            raise ValueError(
                f"max_optimal ({self.max_optimal}) exceeds max_turns ({self.max_turns}): "
                "the longest levels could not be solved in time"
            )
        return self
