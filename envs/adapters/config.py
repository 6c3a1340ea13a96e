"""The schemas of adapted environments: they have defaults, as most of them stand in a grid, not in a file."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import Field

from envs.text_env import EnvConfig

Count = Annotated[int, Field(ge=1)]
Name = Annotated[str, Field(min_length=1)]


class AdapterConfig(EnvConfig):
    """What every adapted environment can be told."""

    max_turns: Count
    """Turns of an episode, also those in which nothing is done."""
    task: str | None = None
    """The instruction that heads every prompt; None: a general one."""
    parameters: dict[str, Any] = Field(default_factory=dict)
    """Keyword arguments of what makes the environment."""
    train_seeds: Count = 10_000
    eval_seeds: Count = 512
    """The library's seeds: train takes the first, eval the following ones."""
    splits: Literal["observations", "seeds"] = "observations"
    """`observations`: a train episode never starts with what an eval episode starts with; `seeds`: only the
    seeds differ, for environments whose first observation hides what differs, or that have few."""
    anchors: bool = False
    """Whether an observation is all of the state, so that equal ones can be compared (step-level
    advantages)."""
    shows: Literal["last", "all"] = "last"
    """Whether an observation is the library's last text, or the episode so far."""
    success_reward: float = 1.0
    """An episode that ends with at least this reward in its last turn succeeds, where the library does not
    say so itself (`success` or `is_success` in its info)."""
    void_reward: float = 0.0
    """A turn without an action, or with none of the admissible ones; the library does not see it."""
    vocabulary: tuple[str, ...] | None = None
    """Every word of observations, actions and thoughts (tiny policies); None: those that occur in random and
    expert play."""
    expert: Name | None = None
    """Import path of an `envs.text_env.Expert`; None: demonstrations are random admissible actions."""
    workers: Annotated[int, Field(ge=0)] = 0
    """Processes that play; 0: the trainer's own. Results are the same."""
    step_seconds: Annotated[float, Field(gt=0)] = 60.0
    """A turn in a worker that takes longer is cut off."""

    def __hash__(self) -> int:
        return hash(json.dumps(self.model_dump(mode="json"), sort_keys=True))


class MadeConfig(AdapterConfig):
    """An environment that is made here, by its library's registry or by a function."""

    id: Name | None = None
    """Its name in the library's registry."""
    factory: Name | None = None
    """Import path of a function that makes it; None: the library's `make`, which is given the id."""


class GymnasiumConfig(MadeConfig):
    """Actions and observations may be text; others are put into words."""

    text: Name = "observation"
    """`observation`: numbers, arrays and mappings as words; `render`: what `render()` says, made with
    `render_mode: ansi`; or the import path of a function of the observation and the environment."""
    actions: tuple[Name, ...] | None = None
    """Names of the actions of a `Discrete` space, in order; None: their numbers."""


class GemConfig(MadeConfig):
    """Any object with gem's `reset(seed)` and `step(action)`."""

    shows: Literal["last", "all"] = "all"


class TextArenaConfig(MadeConfig):
    """Games against oneself, or against an opponent that is given."""

    opponent: Name | None = None
    """Import path of a function from an observation to an action; with it, the game is for two, and the
    policy moves as player 0."""


class SkyRLConfig(MadeConfig):
    """Episodes are rows of a data set, as SkyRL's: `prompt` (messages) and what the environment is given."""

    train_path: Name
    eval_path: Name
    """Parquet, JSON Lines, JSON or CSV. Train rows with a prompt of an eval row are left out."""
    shows: Literal["last", "all"] = "all"
    splits: Literal["observations"] = "observations"


class OpenEnvConfig(AdapterConfig):
    """An environment that a server offers."""

    url: Name
    """Where it is, `http://127.0.0.1:8000`; no part of a trial's identity."""
    action: Name | None = None
    """The field of an action that takes the text; None: the only text there is."""
    observation: Name | None = None
    """The field of an observation that holds the text; None: `text`, or the only text there is."""
    reset: dict[str, Any] = Field(default_factory=dict)
    """What else a reset is given, beside `seed` and `split`."""
    splits: Literal["observations", "seeds"] = "seeds"
    timeout_seconds: Annotated[float, Field(gt=0)] = 60.0
