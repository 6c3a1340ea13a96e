"""What customers come for: the goals of a catalogue, and their two disjoint splits."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from math import prod

import numpy as np

from envs.text_env import Split
from envs.webshop.config import GoalSource
from envs.webshop.files import DataError, RawShop
from envs.webshop.products import Product, uniform
from envs.webshop.wording import short_instruction

PRICE_LIMITS = tuple(10.0 * tens for tens in range(1, 100))
NO_LIMIT = 1_000_000.0


@dataclass(frozen=True, slots=True)
class Goal:
    """One instruction and what fulfils it.

    asin, title, query, category: of the product it was written for; attributes, options: what is asked of a
    product; option_names: of what each of the options is a value ("" when the instruction does not tell);
    price_limit: dollars. The customer reads `instruction` only.
    """

    asin: str
    title: str
    query: str
    category: frozenset[str]
    instruction: str
    attributes: tuple[str, ...]
    options: tuple[str, ...]
    option_names: tuple[str, ...]
    price_limit: float


def goals_of(
    products: Sequence[Product], raw: RawShop, source: GoalSource, seed: int, per_product: int | None = None
) -> list[Goal]:
    """All goals, in the order of the products; of those whose short instructions are the same, the first.

    per_product: synthetic goals of a product at most, all combinations of its option values when None. Price
    limits are drawn as officially (the larger of two of the four tens above the price), but by the seed and
    the instruction, not from global randomness: a goal is the same whatever was drawn before.
    """
    human = source == "human"
    found = _human(products, raw, seed) if human else _synthetic(products, raw, seed, per_product)
    goals: dict[str, Goal] = {}
    for goal in found:
        goals.setdefault(short_instruction(goal.instruction), goal)
    return list(goals.values())


def split_goals(
    goals: Sequence[Goal], *, seed: int, train: int | None, evaluation: int
) -> dict[Split, tuple[Goal, ...]]:
    """Shuffle once and cut: the first `evaluation` goals, and the next `train` (all others when None).

    Another number of train goals leaves the eval goals as they are. Raises DataError without enough goals.
    """
    asked = evaluation + (1 if train is None else train)
    if asked > len(goals):
        raise DataError(
            f"{len(goals)} different goals, but {evaluation} eval_goals and "
            f"{'at least 1' if train is None else train} train_goals asked for: ask for fewer, "
            "or for more products"
        )
    order = np.random.default_rng([seed, 1]).random(len(goals)).argsort(kind="stable").tolist()
    end = None if train is None else evaluation + train
    return {
        "eval": tuple(goals[index] for index in order[:evaluation]),
        "train": tuple(goals[index] for index in order[evaluation:end]),
    }


def _synthetic(
    products: Iterable[Product], raw: RawShop, seed: int, per_product: int | None
) -> Iterator[Goal]:
    """One goal per product with an instruction and combination of its option values."""
    for item in products:
        ins = raw.attributes.get(item.asin, {})
        instruction, attributes = ins.get("instruction"), ins.get("instruction_attributes")
        if not instruction or not attributes:
            continue
        names = tuple(sorted(item.options))
        for values in _combinations([item.options[name] for name in names], per_product, seed, item.asin):
            chosen = ", and ".join(f"{name}: {value}" for name, value in zip(names, values, strict=True))
            text = f"{instruction} with {chosen}" if chosen else instruction
            yield _goal(item, text, attributes, values, names, seed)


def _combinations(
    options: Sequence[Sequence[str]], limit: int | None, *key: object
) -> Iterator[tuple[str, ...]]:
    """All combinations of a value each, or `limit` of them drawn by the key, in the same order."""
    count = prod(map(len, options))
    numbers: Iterable[int] = range(count)
    if limit is not None and limit < count:
        draws = uniform("combinations", *key)
        drawn: set[int] = set()
        while len(drawn) < limit:
            drawn.add(int(next(draws) * count))
        numbers = sorted(drawn)
    for number in numbers:
        values = []
        left = number
        for group in reversed(options):
            left, place = divmod(left, len(group))
            values.append(group[place])
        yield tuple(reversed(values))


def _human(products: Iterable[Product], raw: RawShop, seed: int) -> Iterator[Goal]:
    """The instructions that people wrote; those without an attribute are left out, as officially."""
    for item in products:
        for entry in raw.human.get(item.asin, ()):
            if attributes := entry.get("instruction_attributes"):
                names, values = _human_options(entry.get("instruction_options") or [])
                yield _goal(item, entry["instruction"].strip("."), attributes, values, names, seed)


def _human_options(options: Mapping[str, str] | Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if isinstance(options, Mapping):
        return tuple(options), tuple(options.values())
    return ("",) * len(options), tuple(options)


def _goal(
    item: Product,
    text: str,
    attributes: Sequence[str],
    options: Sequence[str],
    names: tuple[str, ...],
    seed: int,
) -> Goal:
    limits = PRICE_LIMITS[bisect_right(PRICE_LIMITS, item.price) :][:4]
    limit = NO_LIMIT
    if len(limits) >= 2:
        # the larger of two different ones
        draws = islice(uniform("limit", seed, item.asin, text), 2)
        first, second = (int(draw * (len(limits) - place)) for place, draw in enumerate(draws))
        limit = limits[max(first, second + (second >= first))]
        text = f"{text}, and price lower than {limit:.2f} dollars"
    return Goal(
        asin=item.asin,
        title=item.title,
        query=item.query,
        category=item.category,
        instruction=text,
        attributes=tuple(attributes),
        options=tuple(options),
        option_names=names,
        price_limit=limit,
    )
