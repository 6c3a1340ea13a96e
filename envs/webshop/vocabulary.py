"""Every word that a configuration's prompts and responses can be made of, apart from free queries."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from envs.webshop.browsing import SUB_PAGES, Link, Visit, links, queries
from envs.webshop.config import WebShopConfig
from envs.webshop.expert import THOUGHTS
from envs.webshop.pages import click_name, observe, write_action
from envs.webshop.shop import Shop, open_shop
from envs.webshop.wording import plain, price_word


def vocabulary(config: WebShopConfig) -> tuple[str, ...]:
    """The words, each once, in a fixed order: found by writing all pages of all products and all goals."""
    words: dict[str, None] = {}
    for text in _texts(open_shop(config), config):
        words.update(dict.fromkeys(text.split()))
    return tuple(words)


def _texts(shop: Shop, config: WebShopConfig) -> Iterator[str]:
    mode = config.observation
    yield from THOUGHTS
    for goals in shop.goals.values():
        for goal in goals:
            yield _page(shop, Visit(goal), config)
            for query in queries(goal, config.queries):
                yield write_action("search", query, mode)
                yield _page(shop, Visit(goal, query=query), config)
                yield plain(query)
                if mode == "compact":
                    yield write_action("search", plain(query), mode)
    nobody = replace(next(goal for goals in shop.goals.values() for goal in goals), instruction="")
    most = -(-config.hits // config.page_size)
    for found in range(config.hits + 1):
        hits = tuple(range(min(found, len(shop.products))))
        for number in range(1, most + 1):
            results = Visit(nobody, "results", hits=hits, number=number)
            yield _page(shop, results, config)
            yield from (_click(link, config) for link in links(shop, results, config.page_size))
    for index, product in enumerate(shop.products):
        results = Visit(nobody, "results", hits=(index,), seen={index})
        yield _page(shop, results, config)
        chosen = {name: values[-1] for name, values in product.options.items()}
        item = Visit(nobody, "item", hits=(index,), product=index, chosen=chosen)
        yield _page(shop, item, config)
        for page in SUB_PAGES:
            yield _page(shop, replace(item, page=page), config)
        for value in (value for values in product.options.values() for value in values):
            yield _page(shop, replace(item, chosen={"": value}), config)
            yield plain(value)
        yield f"{plain(product.title)} {price_word(product.price)}"
        for visit in (results, item):
            for link in links(shop, visit, config.page_size):
                yield _click(link, config)
                yield click_name(link, config.observation)


def _click(link: Link, config: WebShopConfig) -> str:
    return write_action("click", click_name(link, config.observation), config.observation)


def _page(shop: Shop, visit: Visit, config: WebShopConfig) -> str:
    return observe(shop, visit, config.observation, page_size=config.page_size, page_words=config.page_words)
