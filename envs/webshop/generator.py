"""A catalogue made from a seed, in the schema of the official files.

Built on uniform floats only, the part of numpy's generators least likely to change between versions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from envs.webshop.config import CatalogueConfig
from envs.webshop.files import RawShop
from envs.webshop.wordbook import BRANDS, KINDS, OPINIONS, OPTIONS, PLACES, Kind

GENERATOR = "wordbook-1"
"""Names the algorithm and the word book; to be raised whenever the same seed would give other products."""

_DRAWS = 48
_LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"

T = TypeVar("T")


class _Dice:
    """The random numbers of one product, in [0, 1), used one after the other."""

    def __init__(self, draws: Sequence[float]) -> None:
        self._draws = iter(draws)

    def below(self, count: int) -> int:
        return int(next(self._draws) * count)

    def pick(self, choices: Sequence[T]) -> T:
        return choices[self.below(len(choices))]

    def sample(self, choices: Sequence[T], count: int) -> list[T]:
        """`count` different ones (all, if there are fewer)."""
        left = list(choices)
        return [left.pop(self.below(len(left))) for _ in range(min(count, len(left)))]


def generate(config: CatalogueConfig) -> RawShop:
    """The catalogue of a configuration; the first products stay the same when more are asked for."""
    random = np.random.default_rng([config.seed, 0])
    kinds = KINDS[: config.kinds]
    shop = RawShop([], {})
    used: set[str] = set()
    while len(shop.items) < config.products:
        dice = _Dice(random.random(_DRAWS).tolist())
        # ten letters and digits, as Amazon's
        asin = "B0" + "".join(dice.pick(_LETTERS) for _ in range(8))
        if asin in used:
            continue
        used.add(asin)
        _add(shop, asin, dice.pick(kinds), kinds, config, dice)
    return shop


def _add(
    shop: RawShop, asin: str, kind: Kind, kinds: Sequence[Kind], config: CatalogueConfig, dice: _Dice
) -> None:
    attributes = dice.sample(kind.attributes, config.attributes)
    shown = attributes[: len(attributes) - config.hidden_attributes]
    brand = [dice.pick(BRANDS[: config.brands])] if config.brands else []
    names = dice.sample(kind.options, config.options)
    options = {name: _in_order(OPTIONS[name], config.option_values, dice) for name in names}
    dollars = kind.low + dice.below(kind.high - kind.low)
    cents = dice.pick((0, 49, 99))
    others = dice.sample([other.name for other in kinds if other is not kind], 2)
    place = dice.pick(PLACES)
    looks = dice.pick(OPTIONS[kind.options[0]])
    stars, title, opinion = dice.pick(OPINIONS)
    wanted = dice.sample(attributes, config.goal_attributes)
    # other kinds and foreign option values in the description: what makes a search find the wrong things
    goes_with = f" that goes with your {' and '.join(others)}" if others else ""
    item: dict[str, Any] = {
        "asin": asin,
        "name": " ".join([*brand, *shown, kind.name]).title(),
        "query": kind.name,
        "category": kind.department.lower(),
        "product_category": f"{kind.department} › {kind.shelf} › {kind.name.title()}",
        "full_description": f"A {kind.name} for your {place}{goes_with}, also nice in {looks}.",
        "small_description": [
            f"{kind.name}: {', '.join(attributes)}",
            f"made for {place}",
        ],
        "pricing": f"${dollars}.{cents:02}",
        "customization_options": {
            name: [{"value": value, "image": None} for value in values] for name, values in options.items()
        },
        "images": [None],
    }
    shop.items.append(item)
    shop.attributes[asin] = {
        "attributes": attributes,
        "instruction": f"Find me {', '.join(wanted)} {kind.name}",
        "instruction_attributes": wanted,
    }
    shop.reviews.append(
        {
            "asin": asin,
            "average_rating": str(stars),
            "reviews": [{"title": title, "stars": stars, "review": opinion}],
        }
    )


def _in_order(values: Sequence[str], count: int, dice: _Dice) -> list[str]:
    chosen = set(dice.sample(range(len(values)), count))
    return [value for index, value in enumerate(values) if index in chosen]
