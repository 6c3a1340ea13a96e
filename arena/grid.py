"""The schema of the grid file. What the names in it mean is found when one is read (`arena.grid_file`)."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from arena.identity import FIRST_TUNING_SEED
from arena.limits import USUAL, OnOutOfMemory
from arena.mistakes import brief
from trainers.config import Count, NonNegative, Positive

RESERVED_NAMES = ("mlflow.db", "mlflow-artifacts")
"""What lies beside the studies in their folder."""


class Strict(BaseModel):
    """Frozen, unknown keys refused, nothing converted: the string "3" is no number."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True)


class Choice(Strict):
    """A name, or a name with parameters: `cispo` or `{cispo: {hi: 4}}`."""

    name: str
    parameters: dict[str, Any] = {}

    @model_validator(mode="before")
    @classmethod
    def _written(cls, value: Any) -> Any:
        if isinstance(value, str):
            return {"name": value}
        if isinstance(value, dict) and len(value) == 1:
            ((name, parameters),) = value.items()
            if isinstance(parameters, dict):
                return {"name": name, "parameters": parameters}
        raise PydanticCustomError(
            "choice",
            "expected a name or {name: {parameter: value}}, got {given}",
            {"given": brief(value)},
        )


DesignName = Literal["full", "one_factor", "pairwise", "fraction", "d_optimal", "points"]


class Design(Strict):
    """How points are chosen: a name, `{fraction: 0.25}`, or `{d_optimal: {runs: 12, interactions: true}}`."""

    name: DesignName
    share: Annotated[float, Field(gt=0, le=1)] | None = None
    """Of `fraction`: which part of the combinations."""
    runs: Count | None = None
    """Of `d_optimal`: how many points."""
    interactions: bool | None = None
    """Of `d_optimal`: whether two-factor interactions are to be told apart too."""

    @model_validator(mode="before")
    @classmethod
    def _written(cls, value: Any) -> Any:
        written: Any = {value: None} if isinstance(value, str) else value
        pair: Any = next(iter(written.items())) if isinstance(written, dict) and len(written) == 1 else None
        match pair:
            case "fraction", None:
                return {"name": "fraction", "share": 0.5}
            case "fraction", bool() | str() | list() | dict():
                pass
            case "fraction", share:
                return {"name": "fraction", "share": float(share)}
            case "d_optimal", int() as runs if not isinstance(runs, bool):
                return {"name": "d_optimal", "runs": runs}
            case "d_optimal", {"runs": _, **more} as given if set(more) <= {"interactions"}:
                return {"name": "d_optimal", **given}
            case str(name), None if name != "d_optimal":
                return {"name": name}
        raise PydanticCustomError(
            "design",
            "expected full, one_factor, pairwise, points, {fraction} or {d_optimal}, got {given}",
            {"fraction": "{fraction: SHARE}", "d_optimal": "{d_optimal: RUNS}", "given": brief(value)},
        )

    @property
    def label(self) -> str:
        """`pairwise`, `fraction(share=0.25)`, `d_optimal(runs=12, interactions=true)`."""
        given = {key: value for key, value in self.model_dump(exclude={"name"}).items() if value}
        shown = ", ".join(f"{key}={str(value).lower()}" for key, value in given.items())
        return f"{self.name}({shown})" if shown else self.name


class Sweep(Strict):
    """Values to cross with everything: a list, `{name: {key: value}}` for keys that move together, or either
    as `{values: ..., when: {key: value}}`.
    """

    values: Any
    when: dict[str, Any] = {}

    @model_validator(mode="before")
    @classmethod
    def _written(cls, value: Any) -> Any:
        is_long = isinstance(value, dict) and "values" in value and set(value) <= {"values", "when"}
        written = dict(value) if is_long else {"values": value}
        match written["values"]:
            case list() | dict() as values if not values:
                raise PydanticCustomError("sweep", "empty; list at least one")
            case list():
                pass
            case dict() as together if all(isinstance(keys, dict) and keys for keys in together.values()):
                pass
            case other:
                raise PydanticCustomError(
                    "sweep",
                    "expected a list of values, or {form} for keys that move together, got {given}",
                    {"form": "{name: {key: value}}", "given": brief(other)},
                )
        if written.get("when", True) in ({}, None):
            raise PydanticCustomError("sweep", "`when` is empty; say when to take these values, or remove it")
        return written


class ResourcesSection(Strict):
    """What one trial is given."""

    cpus: Positive | None = None
    gpus: NonNegative | None = None


class LimitsSection(Strict):
    """Beyond what a trial is ended, which is a failure."""

    hours: Positive | None = None
    """Of the clock, in all attempts; null is never."""
    hang_minutes: Positive | None = (USUAL.limits.hang or 0) / 60
    """Without a new record; null is never."""


class BudgetSection(Strict):
    """What the study may cost: it is refused to start beyond it, and stopped when it gets there."""

    trials: Count | None = None
    hours: Positive | None = None
    gpu_hours: Positive | None = None


class EstimateSection(Strict):
    """What GPUs do and what episodes of a language model are like, for the plan; never measured by it."""

    gpu_memory_gb: Positive | None = None
    """Of each GPU."""
    gpu_tflops: Positive | None = None
    """A GPU's peak at 16 bits, in 1e12 operations a second."""
    utilisation: Annotated[float, Field(gt=0, le=1)] | None = None
    """The share of the peak that training reaches."""
    generated_per_second: Positive | None = None
    """Tokens that one GPU writes in a second, all sequences together."""
    turns: Annotated[float, Field(gt=0, le=1)] | None = None
    """The share of env.max_turns that an episode takes."""
    prompt_tokens: Positive | None = None
    """Of a turn."""
    response_tokens: Positive | None = None
    """Of a turn."""


class SeedsUntil(Strict):
    """When a cell has enough seeds."""

    ci_width: Annotated[float, Field(gt=0, lt=1)]
    """The 95% interval of its mean final success is at most so wide."""


class AdaptiveSeeds(Strict):
    """Seeds added where results are in doubt: `{min: 3, max: 10, until: {ci_width: 0.1}}`."""

    min: Annotated[int, Field(ge=2)]
    """Seeds of every cell; an interval takes two."""
    max: Count
    """Seeds of a cell at most."""
    until: SeedsUntil

    @model_validator(mode="after")
    def _max_is_more(self) -> AdaptiveSeeds:
        if self.max <= self.min:
            raise PydanticCustomError(
                "seeds",
                "max ({max}) leaves nothing to add to min ({min}); raise it, or give a count",
                {"max": self.max, "min": self.min},
            )
        return self


class TunedParameter(Strict):
    """`[1e-4, 3e-4]`, `{low: 1e-5, high: 1e-2, log: true}`, either with `when: {key: value}`."""

    choices: list[Any] | None = None
    """Values to choose from."""
    low: int | float | None = None
    high: int | float | None = None
    """The ends of a range, of whole numbers when both are whole."""
    log: bool = False
    """Whether the range is searched on a logarithmic scale."""
    when: dict[str, Any] = {}
    """For whom it is searched; the others keep their value."""

    @model_validator(mode="before")
    @classmethod
    def _written(cls, value: Any) -> Any:
        if isinstance(value, list):
            return {"choices": value}
        if isinstance(value, dict):
            return value
        raise PydanticCustomError(
            "tuned",
            "expected a list of values or {form}, got {given}",
            {"form": "{low: 1e-5, high: 1e-2, log: true}", "given": brief(value)},
        )

    @model_validator(mode="after")
    def _one_of(self) -> TunedParameter:
        if self.choices is not None:
            if self.low is not None or self.high is not None or self.log:
                raise PydanticCustomError("tuned", "give choices, or low and high; not both")
            if len(self.choices) < 2:
                raise PydanticCustomError("tuned", "list at least two values to choose from")
            if twice := [value for i, value in enumerate(self.choices) if value in self.choices[:i]]:
                raise PydanticCustomError("tuned", "{value} is listed twice", {"value": brief(twice[0])})
            if any(not isinstance(value, str | int | float | bool | None) for value in self.choices):
                raise PydanticCustomError("tuned", "values to choose from are numbers, words, true or false")
        elif self.low is None or self.high is None:
            raise PydanticCustomError("tuned", "give a list of values, or both low and high")
        elif not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise PydanticCustomError(
                "tuned", "low ({low}) is not below high ({high})", {"low": self.low, "high": self.high}
            )
        elif self.log and self.low <= 0:
            raise PydanticCustomError("tuned", "a logarithmic range starts above 0; raise low, or drop log")
        return self

    @property
    def ends(self) -> list[Any]:
        """Values that are right when all are: every choice, or both ends of the range."""
        return list(self.choices) if self.choices is not None else [self.low, self.high]


class TuningSection(Strict):
    """A search for the best values of some keys, before the grid's seeds are run with them."""

    params: Annotated[dict[str, TunedParameter], Field(min_length=1)]
    """Configuration keys to search over: {trainer.learning_rate: {low: 1e-5, high: 1e-2, log: true}}."""
    trials: Count = 8
    """Candidates per search, the same for all."""
    per: Literal["method", "cell"] = "method"
    """Who gets values of its own: each point, the same in all its cells, or each cell."""
    sampler: Literal["tpe", "random", "qmc", "gp"] = "tpe"
    """How Optuna proposes candidates: tree-structured Parzen estimators, at random, quasi-random, Gaussian
    processes.
    """
    seeds: Count = 1
    """With how many seeds each candidate is tried; none of them is among the grid's."""
    parallel: Count = 2
    """Candidates of a search tried side by side."""
    until: Literal["stable"] | None = None
    """Whether a search ends at its first candidate that is stable and has learned."""
    storage: str | None = None
    """An Optuna storage URL; a file in the study's folder when absent."""


LISTED, ADAPTIVE = "listed seeds", "adaptive seeds"


def _some(kind: Any) -> Any:
    return Annotated[list[kind], Field(min_length=1)]


class Grid(Strict):
    """A grid of trials. Every key but `name` may be left out."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=80)]
    """The study's name, and its folder's."""
    question: str = ""
    """What the grid asks, for its report."""
    axes: dict[str, _some(Choice)] = {}  # type: ignore[valid-type]
    """Per axis the options to cross. An axis left out takes its default option."""
    methods: list[Choice] = []
    """Named points, with configuration keys where they differ: {CISPO: {is_clipping.hi: 4}}."""
    envs: _some(Choice) | None = None  # type: ignore[valid-type]
    """The environments, crossed with everything; Sokoban when left out. With keys of their configuration, or
    one of another package by its import path: {lake: {environment: package.module.NAME, max_turns: 20}}.
    """
    seeds: Annotated[
        Annotated[Count | list[Annotated[int, Field(ge=0)]], Tag(LISTED)]
        | Annotated[AdaptiveSeeds, Tag(ADAPTIVE)],
        Discriminator(lambda value: ADAPTIVE if isinstance(value, dict | AdaptiveSeeds) else LISTED),
    ] = 1
    """How many seeds (0, 1, ...), a list of them, or {min: 3, max: 10, until: {ci_width: 0.1}}."""
    design: Design = Design.model_validate("full")
    """Which combinations of the axes: full (all), one_factor (the first of each and every single change),
    pairwise (every pair of options), {fraction: SHARE} (options equally often), {d_optimal: RUNS} (those that
    show most), points (only `points`).
    """
    points: list[dict[str, Choice]] = []
    """More points, written out: {axis: option}; an axis left out takes its default option."""
    exclude: list[Annotated[dict[str, Any], Field(min_length=1)]] = []
    """Rules over axes, env and any configuration key; what matches all keys of a rule is left out."""
    require: list[Annotated[dict[str, Any], Field(min_length=1)]] = []
    """Rules that everything must meet, or everything that matches their `when`."""
    sweep: dict[str, Sweep] = {}
    """Configuration keys with values to cross with everything."""
    tuning: TuningSection | None = None
    """Configuration keys to search for the best values of, before the seeds are run with them."""
    profile: str = "auto"
    """Where it runs: laptop, gpu or cluster; auto is gpu where there is one, else laptop."""
    overrides: dict[str, Any] = {}
    """Configuration keys set for every trial: {trainer.steps: 60}."""
    resources: ResourcesSection = ResourcesSection()
    """What one trial is given; what is absent is as the profile says."""
    priority: list[Annotated[dict[str, Any], Field(min_length=1)]] = []
    """Rules over axes, env and any configuration key: what matches the first is started first, and so on."""
    limits: LimitsSection = LimitsSection()
    """Beyond what one trial is ended."""
    retries: Annotated[int, Field(ge=0)] = USUAL.retries
    """How often a run starts a trial again when the machine failed, not the trial."""
    on_out_of_memory: OnOutOfMemory = "fail"
    """Whether a trial that ran out of memory goes on with half as many rows in memory at once."""
    budget: BudgetSection = BudgetSection()
    """The most it may cost."""
    estimate: EstimateSection = EstimateSection()
    """What is known of GPUs and episodes, for the plan's times and memory of language models."""
    collapse: dict[str, Any] = {}
    """When training counts as collapsed, and whether that stops the trial: {stop: true}."""
    hypotheses: list[str] = []
    """What the grid expects, tested in its report: "cispo collapses before sequence", "gigpo beats grpo"."""

    @field_validator("seeds", mode="before")
    @classmethod
    def _seeds(cls, value: Any) -> Any:
        if isinstance(value, dict | AdaptiveSeeds):
            return value
        listed = value if isinstance(value, list) else [value]
        if not listed or any(isinstance(seed, bool) or not isinstance(seed, int) for seed in listed):
            raise PydanticCustomError(
                "seeds",
                "expected a count (3), a list ([0, 1, 2]) or {form}, got {given}",
                {"form": "{min: 3, max: 10, until: {ci_width: 0.1}}", "given": brief(value)},
            )
        if value == 0 or min(listed) < 0:
            raise PydanticCustomError("seeds", "a count is at least 1 and a seed at least 0")
        if twice := [seed for seed in listed if listed.count(seed) > 1]:
            raise PydanticCustomError("seeds", "seed {seed} is listed twice", {"seed": twice[0]})
        if max(listed) >= FIRST_TUNING_SEED:
            raise PydanticCustomError(
                "seeds",
                "seeds from {first} on are those of tuning; take lower ones",
                {"first": FIRST_TUNING_SEED},
            )
        return value

    @field_validator("name")
    @classmethod
    def _name(cls, value: str) -> str:
        if value in RESERVED_NAMES:
            raise PydanticCustomError(
                "name", "runs of all studies are kept in {name}; choose another", {"name": value}
            )
        return value

    @property
    def seed_list(self) -> list[int]:
        """The seeds that every cell has, written out."""
        count = self.seeds.min if isinstance(self.seeds, AdaptiveSeeds) else self.seeds
        return list(range(count)) if isinstance(count, int) else list(count)
