"""Products as the shop uses them, from items in the official schema."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from envs.webshop.files import DataError, RawShop

NO_PRICE = 100.0
NO_ATTRIBUTE = "DUMMY_ATTR"
NO_RATING = "N.A."


@dataclass(frozen=True, slots=True)
class Review:
    """What a customer said."""

    title: str
    stars: str
    body: str


@dataclass(frozen=True, slots=True)
class Product:
    """One product.

    title, description, bullets ("features"), reviews and rating are what its pages show; query: what it was
    found by; category: the parts of its place in the shop's tree; price: dollars; price_tag: what the shop
    shows, a range for some; options: values to choose from, by name.
    """

    asin: str
    title: str
    query: str
    category: frozenset[str]
    description: str
    bullets: tuple[str, ...]
    attributes: tuple[str, ...]
    price: float
    price_tag: str
    options: Mapping[str, tuple[str, ...]]
    reviews: tuple[Review, ...]
    rating: str

    @property
    def text(self) -> str:
        """What the search engine reads."""
        options = ", and ".join(f"{name}: {', '.join(values)}" for name, values in self.options.items())
        return " ".join([self.title, self.description, *self.bullets, options])


def read_products(raw: RawShop, limit: int | None = None) -> tuple[Product, ...]:
    """The products in the order of the files; repeated and malformed asins are left out, as officially.

    limit: only the first so many items. Raises DataError for an item that lacks a field.
    """
    reviews = {entry["asin"]: entry for entry in raw.reviews}
    products: dict[str, Product] = {}
    for number, item in enumerate(raw.items[:limit]):
        asin = str(item.get("asin", "nan"))
        if asin == "nan" or len(asin) > 10 or asin in products:
            continue
        try:
            products[asin] = _product(asin, item, raw.attributes.get(asin, {}), reviews.get(asin, {}))
        except (KeyError, TypeError, InvalidOperation) as error:
            raise DataError(f"item {number} ({asin}) has another schema: {error!r}") from error
    return tuple(products.values())


def uniform(*key: object) -> Iterator[float]:
    """Numbers in [0, 1) that depend on the key only: the same in every process and on every machine."""
    block = 0
    while True:
        digest = hashlib.sha256(repr((*key, block)).encode()).digest()
        for place in range(0, len(digest), 8):
            # 53 bits fill a float exactly, so that 1.0 cannot come out
            yield (int.from_bytes(digest[place : place + 8]) >> 11) / 2**53
        block += 1


def _product(
    asin: str, item: Mapping[str, Any], ins: Mapping[str, Any], reviews: Mapping[str, Any]
) -> Product:
    price, price_tag = _price(asin, item.get("pricing"))
    bullets = item["small_description"] or []
    return Product(
        asin=asin,
        title=item["name"],
        query=item["query"].lower().strip(),
        category=frozenset(part.strip() for part in item["product_category"].split("›")),
        description=item["full_description"] or "",
        bullets=tuple(bullets) if isinstance(bullets, list) else (bullets,),
        attributes=tuple(ins.get("attributes") or (NO_ATTRIBUTE,)),
        price=price,
        price_tag=price_tag,
        options=_options(item.get("customization_options") or {}),
        reviews=tuple(map(_review, reviews.get("reviews", ()))),
        rating=str(reviews.get("average_rating", NO_RATING)),
    )


def _price(asin: str, pricing: str | None) -> tuple[float, str]:
    """Price and price tag. Of a range, the price is drawn by the asin (officially from global randomness)."""
    amounts = [float(Decimal(re.sub(r"[^\d.]", "", part))) for part in (pricing or "").split("$")[1:]]
    if not amounts:
        return NO_PRICE, f"${NO_PRICE}"
    if len(amounts) == 1:
        return amounts[0], f"${amounts[0]}"
    low, high = amounts[:2]
    return low + next(uniform("price", asin)) * (high - low), f"${low} to ${high}"


def _options(customization: Mapping[str, Sequence[Mapping[str, Any]] | None]) -> dict[str, tuple[str, ...]]:
    return {
        name.lower(): tuple(
            dict.fromkeys(content["value"].strip().replace("/", " | ").lower() for content in contents)
        )
        for name, contents in customization.items()
        if contents
    }


def _review(review: Mapping[str, Any]) -> Review:
    stars = review.get("score", review.get("stars", ""))
    return Review(review.get("title") or "", str(stars), review.get("body") or review.get("review") or "")
