"""The score of a purchase (Yao et al. 2022, WebShop, section 3), as the released code computes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from typing import Any

from envs.webshop.goals import Goal
from envs.webshop.nouns import Nouns
from envs.webshop.products import Product

PACKAGES = {"rapidfuzz": "rapidfuzz"}
"""What comparing strings needs: modules, and the distributions that they come in."""

SIMILAR = 85
"""Strings whose rounded similarity, 0 to 100, exceeds this count as the same."""

NO_NOUNS_OVERLAP = 0.2
"""The overlap with a title without nouns."""

_COLOR_TEXT = (
    "alabaster apricot aqua ash asphalt azure banana beige black blue blush bordeaux bronze brown "
    "burgundy camel camo caramel champagne charcoal cheetah chestnut chocolate christmas coffee "
    "cognac copper coral cranberry cream crystal dark denim eggplant elephant espresso fuchsia gold "
    "granite grape graphite grass gray green grey heather indigo ivory ivy khaki lavender lemon "
    "leopard light lilac lime magenta maroon mauve merlot midnight mint mocha multicolor mushroom "
    "mustard natural navy nude olive orange peach pewter pink plum purple rainbow red rose royal rust "
    "sand sapphire seashell silver skull slate steel stone stonewash sunflower tan taupe teal tiger "
    "turquoise violet walnut wheat white wine yellow"
)
COLORS = tuple(_COLOR_TEXT.split())
"""Colors that stand for every option value that holds them; the first in this order wins."""


@dataclass(frozen=True, slots=True)
class Score:
    """The score of a purchase, 0 to 1, and its parts.

    type: the factor for what was bought, 0, 0.1, 0.5 or 1; attributes, options: how many of the goal's were
    met; price: whether it is within the goal's limit.
    """

    total: float
    type: float
    attributes: int
    options: int
    price: bool

    @property
    def success(self) -> bool:
        """Whether everything asked for was bought."""
        return self.total == 1.0


def score(product: Product, chosen: Sequence[str], goal: Goal, nouns: Nouns) -> Score:
    """Score the purchase of a product with some option values.

    total = type * (attributes met + options met + [price <= limit]) / (attributes + options + 1)
    """
    kind = type_factor(
        same_query=product.query == goal.query,
        same_category=len(product.category & goal.category) >= 2,
        overlap=overlap(nouns(product.title), nouns(goal.title)),
    )
    attributes = attributes_met(product, goal.attributes)
    options = options_met(chosen, goal.options)
    price = product.price <= goal.price_limit
    asked = len(goal.attributes) + len(goal.options) + 1
    return Score(kind * (attributes + options + price) / asked, kind, attributes, options, price)


def type_factor(*, same_query: bool, same_category: bool, overlap: float) -> float:
    """Whether the right type of product was bought: 1, 0.5, 0.1 or 0.

    same_category: at least two parts of the categories are the same; overlap: of the titles' nouns.
    """
    if overlap == 0.0:
        return 0.0
    if overlap < 0.1:
        return 0.1
    return 1.0 if same_query or same_category or overlap > 0.2 else 0.5


def overlap(bought: Sequence[str], wanted: Sequence[str]) -> float:
    """Different nouns that both titles have, divided by the nouns (with repeats) of the wanted one's."""
    return len(set(bought) & set(wanted)) / len(wanted) if wanted else NO_NOUNS_OVERLAP


def attributes_met(product: Product, wanted: Sequence[str]) -> int:
    """How many are similar to an attribute of the product, or stand in its title, features or description."""
    return sum(_has(product, attribute) for attribute in wanted)


def _has(product: Product, attribute: str) -> bool:
    return (
        any(similar(own, attribute) for own in product.attributes)
        or attribute in product.title.lower()
        or attribute in " ".join(product.bullets).lower()
        or attribute in product.description.lower()
    )


def options_met(chosen: Sequence[str], wanted: Sequence[str]) -> int:
    """How many wanted option values are similar to a chosen one, once their colors are made alike."""
    return sum(any(same_option(value, goal) for value in chosen) for goal in wanted)


def same_option(value: str, wanted: str) -> bool:
    """Whether an option value will do for another."""
    return similar(plain_color(value), plain_color(wanted))


@lru_cache(maxsize=100_000)
def plain_color(value: str) -> str:
    """The first of COLORS that an option value holds, anywhere in it; the value itself when it holds none."""
    return next((color for color in COLORS if color in value), value)


@lru_cache(maxsize=500_000)
def similar(one: str, other: str) -> bool:
    """Whether two strings share their words, nearly: the token set ratio of thefuzz, rounded, is above 85.

    thefuzz compares in ASCII, lower case, without punctuation; so does this.
    """
    # imported here: planning a study must not need it
    fuzz: Any = import_module("rapidfuzz.fuzz")
    clean: Any = import_module("rapidfuzz.utils").default_process
    first, second = (clean(text.encode("ascii", "ignore").decode()) for text in (one, other))
    return bool(round(fuzz.token_set_ratio(first, second)) > SIMILAR)
