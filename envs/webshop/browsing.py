"""A visit to the shop: where the customer is, what can be clicked there, and what a click does."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from envs.webshop.goals import Goal
from envs.webshop.products import Product
from envs.webshop.reward import Score
from envs.webshop.shop import Shop

SubPage = Literal["description", "features", "reviews"]
Page = Literal["search", "results", "item", "done"] | SubPage
Leads = Literal["search", "previous", "next", "product", "option", "buy"] | SubPage
SUB_PAGES: tuple[SubPage, ...] = ("description", "features", "reviews")

BACK, PREVIOUS, NEXT, BUY = "Back to Search", "< Prev", "Next >", "Buy Now"

_ACTION = re.compile(r"\s*(search|click)\s*\[(.*)\]\s*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Action:
    """`search[words]` or `click[name]`; the argument in lower case, white space collapsed, never empty."""

    verb: Literal["search", "click"]
    argument: str


def parse_action(text: str) -> Action | None:
    """The action that a text is, None when it is none. Time is linear in the length of the text."""
    match = _ACTION.fullmatch(text)
    if match is None:
        return None
    argument = " ".join(match[2].lower().split())
    return Action("search" if match[1] == "search" else "click", argument) if argument else None


@dataclass(frozen=True, slots=True)
class Link:
    """Something to click.

    text: as the page shows it; leads: where to; product: the one it opens (an index into the catalogue), and
    its place on the page, from 1, for `leads` product.
    """

    text: str
    leads: Leads
    product: int = -1
    place: int = 0


@dataclass(slots=True)
class Visit:
    """The state of a customer's visit.

    hits: what the last query found; number: the page of results, from 1; product: the index of the one looked
    at; chosen: values by option name; seen: the products looked at; score: of the purchase, once done.
    """

    goal: Goal
    page: Page = "search"
    query: str = ""
    hits: tuple[int, ...] = ()
    number: int = 1
    product: int = -1
    chosen: dict[str, str] = field(default_factory=dict)
    seen: set[int] = field(default_factory=set)
    score: Score | None = None

    def shown(self, page_size: int) -> tuple[int, ...]:
        """The products on the current page of results."""
        return self.hits[(self.number - 1) * page_size : self.number * page_size]

    def pages(self, page_size: int) -> int:
        """How many pages of results there are; an empty one when nothing was found."""
        return max(1, -(-len(self.hits) // page_size))


_TO_SEARCH = Link(BACK, "search")
_TO_PREVIOUS = Link(PREVIOUS, "previous")
_TO_NEXT = Link(NEXT, "next")
_TO_SUB_PAGES = tuple(Link(name.title(), name) for name in SUB_PAGES)
_TO_BUY = Link(BUY, "buy")


def links(shop: Shop, visit: Visit, page_size: int) -> list[Link]:
    """What can be clicked, in the order of the page."""
    if visit.page in ("search", "done"):
        return []
    if visit.page == "results":
        found = [_TO_SEARCH]
        if visit.number > 1:
            found.append(_TO_PREVIOUS)
        if visit.number < visit.pages(page_size):
            found.append(_TO_NEXT)
        for place, index in enumerate(visit.shown(page_size), start=1):
            found.append(Link(shop.products[index].asin, "product", index, place))
        return found
    if visit.page == "item":
        options = shop.products[visit.product].options.values()
        values = [Link(value, "option") for group in options for value in group]
        return [_TO_SEARCH, _TO_PREVIOUS, *values, *_TO_SUB_PAGES, _TO_BUY]
    return [_TO_SEARCH, _TO_PREVIOUS]


def search(shop: Shop, visit: Visit, query: str) -> None:
    """Enter a query; there is a search bar on the search page only."""
    if visit.page == "search":
        visit.query = query
        visit.hits = shop.search(query)
        visit.number = 1
        visit.page = "results"


def follow(shop: Shop, visit: Visit, link: Link) -> None:
    """Click one of `links`."""
    match link.leads:
        case "search":
            visit.page = "search"
        case "next":
            visit.number += 1
        case "previous":
            if visit.page == "results":
                visit.number -= 1
            else:
                visit.page = "results" if visit.page == "item" else "item"
        case "product":
            visit.page, visit.product = "item", link.product
            visit.chosen = {}
            visit.seen.add(link.product)
        case "option":
            choose(shop.products[visit.product], visit.chosen, link.text)
        case "buy":
            chosen = tuple(visit.chosen.values())
            visit.score = shop.score(shop.products[visit.product], chosen, visit.goal)
            visit.page = "done"
        case "description" | "features" | "reviews":
            visit.page = link.leads


def choose(product: Product, chosen: dict[str, str], value: str) -> None:
    """Choose a value of every option that offers it."""
    for name, values in product.options.items():
        if value in values:
            chosen[name] = value


def queries(goal: Goal, count: int) -> Sequence[str]:
    """Queries made of what the goal asks for, from the most to the least specific, at most `count`."""
    kind, attributes, options = goal.query, " ".join(goal.attributes), " ".join(goal.options)
    made = [f"{attributes} {kind} {options}", f"{attributes} {kind}", f"{kind} {options}"]
    made += [f"{attribute} {kind}" for attribute in goal.attributes]
    made += [f"{kind} {option}" for option in goal.options]
    tidy = (" ".join(query.lower().split()) for query in [*made, kind])
    return list(dict.fromkeys(tidy))[:count]
