"""A customer who knows every product: finds one that fulfils the goal by the shortest way, and buys it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from envs.webshop.browsing import Leads, Link, Visit, choose, links, parse_action, queries
from envs.webshop.config import WebShopConfig
from envs.webshop.goals import Goal
from envs.webshop.pages import click_name, write_action
from envs.webshop.products import Product
from envs.webshop.reward import same_option
from envs.webshop.shop import Shop
from envs.webshop.wording import plain, price_word, short_instruction

if TYPE_CHECKING:
    from envs.webshop.environment import WebShopEnv

LOOK_FOR, FITS, MAYBE = "look for", "fits", "maybe"
NONE_FITS, LOOK_BACK, SEARCH_AGAIN = "none fits look further", "look back", "search again"
NEED, TAKE, ALL_CHOSEN, BUY_IT = "need", "take", "all chosen buy it", "buy it"
READ_MORE, GO_BACK, WRONG_ONE = "read more", "go back", "wrong one go back"
THOUGHTS = (
    *(LOOK_FOR, FITS, MAYBE, NONE_FITS, LOOK_BACK, SEARCH_AGAIN),
    *(NEED, TAKE, ALL_CHOSEN, BUY_IT, READ_MORE, GO_BACK, WRONG_ONE),
)
"""What thoughts are made of, beside words of instructions, pages and queries."""

_REMEMBERED = 500_000


class WebShopExpert:
    """Plays a `WebShopEnv`; it sees the whole catalogue and what is really asked for, not the page only.

    Of the queries it knows (those to choose from, or where search is free `queries` and the title of the
    product that the goal was written for) it takes the one that leads to a fitting product in the fewest
    turns, the most specific of equals. The turns that are left do not count: an observation does not show
    them either.
    """

    def __init__(self, config: WebShopConfig) -> None:
        self._config = config
        self._plans: dict[tuple[Goal, int], tuple[str, ...] | None] = {}
        self._best: dict[Goal, str | None] = {}

    def action(self, env: WebShopEnv) -> str | None:
        """See `Expert.action`; None where no query that it knows leads to a fitting product."""
        visit, shop, mode = env.visit, env.shop, self._config.observation
        query = self._query(shop, visit.goal)
        if query is None:
            return None
        if visit.page == "search":
            return write_action("search", plain(query) if mode == "compact" else query, mode)
        link = self._link(shop, visit)
        return write_action("click", click_name(link, mode), mode)

    def thought(self, env: WebShopEnv, action: str) -> str:
        """See `Expert.thought`: what the action is for, in a few words of the page."""
        parsed = parse_action(action)
        if parsed is not None and parsed.verb == "search":
            return f"{LOOK_FOR} {plain(parsed.argument)}"
        link = env.clickable().get(parsed.argument) if parsed else None
        return GO_BACK if link is None else self._reason(env.shop, env.visit, link)

    def _link(self, shop: Shop, visit: Visit) -> Link:
        """The best click on a page with links, given that some query leads to success."""
        by_target: dict[tuple[Leads, int | str], Link] = {
            (link.leads, link.product if link.leads == "product" else link.text): link
            for link in reversed(links(shop, visit, self._config.page_size))
        }
        go = {leads: link for (leads, _), link in by_target.items()}
        if visit.page == "results":
            return self._from_results(shop, visit, go, by_target)
        plan = self._plan(shop, visit.goal, visit.product)
        if plan is None:
            fitting = any(self._fits(shop, visit.goal, index) for index in visit.hits)
            return go["previous" if fitting else "search"]
        if visit.page != "item":
            return go["previous"]
        missing = [value for value in plan if value not in visit.chosen.values()]
        return by_target["option", missing[0]] if missing else go["buy"]

    def _from_results(
        self,
        shop: Shop,
        visit: Visit,
        go: Mapping[Leads, Link],
        by_target: Mapping[tuple[Leads, int | str], Link],
    ) -> Link:
        size = self._config.page_size
        pages = [
            (abs(place // size + 1 - visit.number), place // size + 1, index)
            for place, index in enumerate(visit.hits)
            if self._fits(shop, visit.goal, index)
        ]
        if not pages:
            return go["search"]
        distance, page, index = min(pages, key=lambda found: found[0])
        if not distance:
            return by_target["product", index]
        return go["next" if page > visit.number else "previous"]

    def _query(self, shop: Shop, goal: Goal) -> str | None:
        """The best query for a goal; None when none leads to a fitting product."""
        if goal not in self._best:
            known = list(queries(goal, self._config.queries))
            if self._config.search == "free":
                known.append(" ".join(goal.title.lower().split()))
            best, fewest = None, self._config.hits
            for query in known:
                page = self._first_page(shop, goal, query)
                if page is not None and page < fewest:
                    best, fewest = query, page
                if not fewest:
                    break
            if len(self._best) >= _REMEMBERED:
                self._best.clear()
            self._best[goal] = best
        return self._best[goal]

    def _first_page(self, shop: Shop, goal: Goal, query: str) -> int | None:
        """The first page of results with a fitting product, from 0; None when there is none."""
        for place, index in enumerate(shop.search(plain(query) if self._is_plain else query)):
            if self._fits(shop, goal, index):
                return place // self._config.page_size
        return None

    @property
    def _is_plain(self) -> bool:
        return self._config.observation == "compact"

    def _fits(self, shop: Shop, goal: Goal, index: int) -> bool:
        return self._plan(shop, goal, index) is not None

    def _plan(self, shop: Shop, goal: Goal, index: int) -> tuple[str, ...] | None:
        """The option values to choose for a score of 1; None when the product cannot reach it."""
        key = (goal, index)
        if key not in self._plans:
            if len(self._plans) >= _REMEMBERED:
                self._plans.clear()
            product = shop.products[index]
            plan = None if product.price > goal.price_limit else _values(product, goal)
            if plan is not None:
                chosen: dict[str, str] = {}
                for value in plan:
                    choose(product, chosen, value)
                if not shop.score(product, tuple(chosen.values()), goal).success:
                    plan = None
            self._plans[key] = plan
        return self._plans[key]

    def _reason(self, shop: Shop, visit: Visit, link: Link) -> str:
        plan = self._plan(shop, visit.goal, visit.product) if visit.product >= 0 else None
        missing = [plain(value) for value in plan or () if value not in visit.chosen.values()]
        match link.leads:
            case "product":
                product = shop.products[link.product]
                asked = short_instruction(visit.goal.instruction).split()
                shared = [word for word in plain(product.title).split() if word in asked]
                verdict = FITS if self._fits(shop, visit.goal, link.product) else MAYBE
                label = click_name(link, self._config.observation)
                return " ".join([label, *shared, price_word(product.price), verdict])
            case "next":
                return NONE_FITS
            case "previous":
                if visit.page == "results":
                    return LOOK_BACK
                return GO_BACK if plan is not None or visit.page != "item" else WRONG_ONE
            case "search":
                return SEARCH_AGAIN
            case "option":
                return (
                    f"{NEED} {' '.join(missing)}"
                    if plain(link.text) in missing[:1]
                    else f"{TAKE} {plain(link.text)}"
                )
            case "buy":
                return ALL_CHOSEN if plan is not None and not missing else BUY_IT
            case _:
                return READ_MORE


def _values(product: Product, goal: Goal) -> tuple[str, ...] | None:
    """A value of another option for every one the goal asks for, exact ones first; None if one is missing."""
    found: list[str] = []
    used: set[str] = set()
    for name, wanted in zip(goal.option_names, goal.options, strict=True):
        candidates = [
            (value != wanted, offered != name, offered, value)
            for offered, values in product.options.items()
            if offered not in used
            for value in values
            if same_option(value, wanted)
        ]
        if not candidates:
            return None
        _, _, offered, value = min(candidates, key=lambda candidate: candidate[:2])
        used.add(offered)
        found.append(value)
    return tuple(found)
