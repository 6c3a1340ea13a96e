"""Problems of reasoning-gym's generators, made offline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from importlib import metadata
from itertools import islice
from typing import Any

from envs.tir_math.config import ReasoningGymConfig
from envs.tir_math.problem import Problem, Problems, distinct

DISTRIBUTION = "reasoning-gym"
_SEED_SPACING = 10_000_000
"""An item depends on the sum of its dataset's seed and its number: seeds next to each other share items."""
_TRIES = 20


def data_id() -> str:
    """The version of the generators."""
    return f"{DISTRIBUTION}-{metadata.version(DISTRIBUTION)}"


def problems(config: ReasoningGymConfig, *, train: int, evaluation: int, seed: int) -> Problems:
    """Different problems for both splits, families in turn: the first items of each family are for eval.

    Raises ValueError for unknown families or parameters, and when there are not enough different problems.
    """
    taken: set[str] = set()
    streams: list[Iterator[Problem]] = [
        distinct(_items(config, family, seed, _TRIES * (train + evaluation)), taken)
        for family in config.families
    ]
    return Problems(eval=_take(streams, evaluation, "eval"), train=_take(streams, train, "train"))


def _take(streams: list[Iterator[Problem]], count: int, split: str) -> tuple[Problem, ...]:
    taken = []
    for number in range(count):
        problem = next(streams[number % len(streams)], None)
        if problem is None:
            raise ValueError(
                f"only {number} of {count} different {split} problems found: ask for fewer, add families or "
                "raise reasoning_gym.difficulty"
            )
        taken.append(problem)
    return tuple(taken)


def _items(config: ReasoningGymConfig, family: str, seed: int, most: int) -> Iterator[Problem]:
    dataset = _dataset(config, family, seed, most)
    for number in range(most):
        item = dataset[number]
        expression = item["metadata"].get("expression")
        yield Problem(
            text=item["question"].strip(),
            truth=str(item["answer"]).strip(),
            code=None if expression is None else f"print({expression})",
        )


def _dataset(config: ReasoningGymConfig, family: str, seed: int, size: int) -> Any:
    import reasoning_gym
    from reasoning_gym.factory import CURRICULA, DATASETS, create_curriculum

    if family not in DATASETS:
        close = get_close_matches(family, DATASETS, 1)
        hint = f", did you mean {close[0]}?" if close else ""
        raise ValueError(f"reasoning_gym.families: reasoning-gym has no {family!r}{hint}")
    parameters: Mapping[str, Any] = config.parameters.get(family, {})
    if config.difficulty is not None:
        if family not in CURRICULA:
            raise ValueError(
                f"reasoning_gym.difficulty: {family} has no curriculum; set it to null and use parameters"
            )
        curriculum = create_curriculum(family)
        curriculum.set_global_level(config.difficulty)
        parameters = {**vars(curriculum.generate_configuration()), **parameters}
    parameters = {**parameters, "size": size, "seed": seed * _SEED_SPACING}
    try:
        return reasoning_gym.create_dataset(family, **parameters)
    except (TypeError, AssertionError) as error:
        raise ValueError(f"reasoning_gym.parameters.{family}: {error}") from error


def first(config: ReasoningGymConfig, seed: int) -> list[Problem]:
    """One problem of each family, to see that all can be made; raises as `problems` does."""
    return [next(islice(_items(config, family, seed, 1), 1)) for family in config.families]
