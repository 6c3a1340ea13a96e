"""The schema of the ALFWorld environment; its values are in `arena/conf/env/alfworld.yaml`."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from envs.text_env import EnvConfig

TaskType = Literal[
    "pick_and_place_simple",
    "look_at_obj_in_light",
    "pick_clean_then_place_in_recep",
    "pick_heat_then_place_in_recep",
    "pick_cool_then_place_in_recep",
    "pick_two_obj_and_place",
]
TASK_TYPES: tuple[TaskType, ...] = get_args(TaskType)

Count = Annotated[int, Field(ge=1)]

MOST_RECEPTACLES = 60
MOST_OBJECTS = 60
"""Of a game; the largest floor plan has 55 receptacles, official games have up to about 40 objects."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Rewards(_Section):
    """What a turn earns; the sum over an episode is its return."""

    step: float
    """Every turn."""
    won: float
    """The turn that reaches the goal, on top of `step`."""


class GeneratorConfig(_Section):
    """The games that are made here when no official ones are given.

    receptacles: at most so many in a room; null: as many as the floor plan has. Rooms keep what tasks need.
    furnishings: in how many ways the receptacles of such a room are chosen from its floor plan.
    objects: fewest and most things that can be carried, lamps not counted.
    closed: whether drawers, cabinets and the like start closed; otherwise nothing can be closed.
    shortest, longest: bounds of the cheapest way to win, in turns.
    """

    train_games: Count
    eval_games: Count
    seed: Annotated[int, Field(ge=0)]
    receptacles: Annotated[int, Field(ge=4, le=MOST_RECEPTACLES)] | None
    furnishings: Count
    objects: tuple[Count, Annotated[int, Field(ge=1, le=MOST_OBJECTS)]]
    closed: bool
    shortest: Count
    longest: Count

    @model_validator(mode="after")
    def _ordered(self) -> GeneratorConfig:
        if self.objects[0] > self.objects[1]:
            raise ValueError(f"objects: the fewest ({self.objects[0]}) exceed the most ({self.objects[1]})")
        if self.objects[0] < 2:
            raise ValueError("objects: at least 2, the task of two objects needs them")
        if self.shortest > self.longest:
            raise ValueError(f"shortest ({self.shortest}) exceeds longest ({self.longest})")
        return self


class AlfworldConfig(EnvConfig):
    """ALFWorld.

    data: official games (of the folder in ALFWORLD_DATA), generated ones, or auto: official if
    ALFWORLD_DATA is set. eval_split: the rooms of training with other things and places (seen), or other
    rooms (unseen). observation: full is what the engine says; compact a line of words: the goal and all
    that was seen so far. expert: walkthrough knows where everything is; handcoded searches as alfworld's
    own expert does. thought_words: the expert writes at most so many words of its intention. workers:
    processes that play; 0: this one. Results do not depend on it. step_seconds: a turn in a worker that
    takes longer is cut off and the episode lost.
    """

    data: Literal["auto", "official", "generated"]
    task_types: tuple[TaskType, ...]
    eval_split: Literal["seen", "unseen"]
    max_turns: Count
    observation: Literal["full", "compact"]
    expert: Literal["walkthrough", "handcoded"]
    thought_words: Count
    workers: Annotated[int, Field(ge=0)]
    step_seconds: Annotated[float, Field(gt=0)]
    rewards: Rewards
    generated: GeneratorConfig

    @field_validator("task_types")
    @classmethod
    def _different(cls, task_types: tuple[TaskType, ...]) -> tuple[TaskType, ...]:
        if not task_types or len(set(task_types)) != len(task_types):
            raise ValueError("expected one or more different task types")
        return task_types

    @model_validator(mode="after")
    def _winnable(self) -> AlfworldConfig:
        if self.generated.longest > self.max_turns:
            raise ValueError(
                f"generated.longest ({self.generated.longest}) exceeds max_turns ({self.max_turns}): "
                "the longest games could not be won in time"
            )
        return self
