"""The schema of tool-integrated maths; its values are in `arena/conf/env/tir_math.yaml`."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from envs.text_env import EnvConfig
from envs.tir_math.sandbox.limits import Limits

Count = Annotated[int, Field(ge=1)]
Natural = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ArithmeticConfig(_Section):
    """Integer arithmetic in words, made here."""

    min_numbers: Annotated[int, Field(ge=2)]
    max_numbers: Annotated[int, Field(ge=2)]
    max_digits: Annotated[int, Field(ge=1, le=9)]
    brackets: Share
    """Of the problems with three or more numbers: how many put their first two in brackets."""
    reversed: Share
    """Of the subtractions of two numbers: how many are asked as `take 5 from 7`."""

    @model_validator(mode="after")
    def _ordered(self) -> ArithmeticConfig:
        if self.min_numbers > self.max_numbers:
            raise ValueError(f"min_numbers ({self.min_numbers}) exceeds max_numbers ({self.max_numbers})")
        return self


class ReasoningGymConfig(_Section):
    """Problems of reasoning-gym's generators, in equal shares."""

    families: tuple[str, ...]
    difficulty: Natural | None
    """Level of the families' curricula; None takes their default parameters."""
    parameters: dict[str, dict[str, Any]]
    """Family -> its parameters, over those of the difficulty."""

    def __hash__(self) -> int:
        return hash(json.dumps(self.model_dump(mode="json"), sort_keys=True))


class FilesConfig(_Section):
    """Problems in Parquet, JSON Lines or CSV files."""

    train: str | None
    eval: str | None
    """None holds `eval_share` of the train file out."""
    eval_share: Share
    prompt_column: str | None
    answer_column: str | None
    """Names of columns, with dots into nested ones; None takes the first of the usual names."""


class Rewards(_Section):
    """What a turn earns; the sum over an episode is its return."""

    correct: float
    wrong: float
    code: float
    """Code that ran to its end."""
    failed_code: float
    """Code that raised, or was stopped at a limit."""
    void: float
    """A turn with neither code nor an answer."""


class TirMathConfig(EnvConfig):
    """Problems to be solved with Python, over a few turns."""

    max_turns: Annotated[int, Field(ge=2)]
    spelling: Literal["words", "text"]
    """`words`: one word per digit and sign, for tiny policies; `text`: as people write."""
    shows: Literal["last", "all", "new"]
    """Of the code written so far, and its output, what an observation shows beside the problem. `new`: that
    output alone, without problem and code, for policies that read their whole transcript."""
    output_limit: Annotated[int, Field(ge=4)]
    """Characters (in words: words) of an output that are shown; the middle is cut."""
    session: bool
    """Whether code finds the variables of earlier turns."""

    problems: Literal["arithmetic", "reasoning_gym", "files"]
    train_problems: Count
    eval_problems: Count
    """Most of each; files give no more than they hold."""
    problem_seed: Natural
    arithmetic: ArithmeticConfig
    reasoning_gym: ReasoningGymConfig
    files: FilesConfig

    plain_numbers: bool
    """Where the truth is a number, refuse formulas for it (`37*85`): they need no computing."""
    packages: tuple[str, ...]
    """Distributions that code can import, beside the standard library."""
    warm_up: str
    """Code that a sandbox worker runs once, so that snippets find what it imports."""
    limits: Limits
    rewards: Rewards

    @model_validator(mode="after")
    def _words_are_for_arithmetic(self) -> TirMathConfig:
        if self.spelling == "words" and self.problems != "arithmetic":
            raise ValueError(
                "spelling: words knows the words of arithmetic only, not those of problems: "
                f"{self.problems}; use spelling: text"
            )
        if self.problems == "files" and self.files.train is None:
            raise ValueError("problems: files needs files.train, the path of a file")
        return self
