"""One shop per process: catalogue, search index and goals of a configuration, shared by all its episodes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

from envs.text_env import Split
from envs.webshop.config import CatalogueConfig, GoalSource, WebShopConfig
from envs.webshop.files import read_files
from envs.webshop.generator import generate
from envs.webshop.goals import Goal, goals_of, split_goals
from envs.webshop.nouns import Nouns, noun_finder, resolve
from envs.webshop.products import Product, read_products
from envs.webshop.reward import Score, score
from envs.webshop.search import SearchIndex

_REMEMBERED_SEARCHES = 50_000


@dataclass(frozen=True)
class Stock:
    """The products of a shop and everything that is asked of them."""

    products: tuple[Product, ...]
    goals: tuple[Goal, ...]

    @cached_property
    def index(self) -> SearchIndex:
        """The search index, built when it is first needed."""
        return SearchIndex(product.text for product in self.products)


class Shop:
    """What all episodes of a configuration share.

    products: the catalogue; goals: by split; nouns_by: what finds the nouns of titles (`envs.webshop.nouns`).
    """

    def __init__(self, stock: Stock, goals: dict[Split, tuple[Goal, ...]], *, hits: int, nouns: str) -> None:
        self.products = stock.products
        self.goals = goals
        self.nouns_by = nouns
        self._nouns: Nouns = noun_finder(nouns)
        self._index = stock.index
        self._hits = hits
        self.search = lru_cache(maxsize=_REMEMBERED_SEARCHES)(self.search_now)

    def search_now(self, query: str) -> tuple[int, ...]:
        """The products that a query finds, best first; `search` is the same and remembers."""
        return self._index.search(query, self._hits)

    def score(self, product: Product, chosen: tuple[str, ...], goal: Goal) -> Score:
        """The score of a purchase."""
        return score(product, chosen, goal, self._nouns)

    def goal(self, seed: int, split: Split) -> Goal:
        """The goal of an episode's seed. Raises ValueError for an unknown split."""
        if split not in self.goals:
            raise ValueError(f"unknown split {split!r}: expected 'train' or 'eval'")
        goals = self.goals[split]
        return goals[seed % len(goals)]


def open_shop(config: WebShopConfig) -> Shop:
    """The shop of a configuration, opened at the first call.

    Configurations that differ only in what is shown, admitted or paid share one. Raises DataError or
    NounsError where it cannot be opened.
    """
    return _open(
        config.data_path,
        config.max_products,
        config.catalogue,
        config.goals,
        config.goals_per_product,
        config.goal_seed,
        config.train_goals,
        config.eval_goals,
        config.hits,
        resolve(config.nouns),
    )


def split_stock(config: WebShopConfig) -> tuple[Stock, dict[Split, tuple[Goal, ...]]]:
    """Products and goals by split, without a search index. Raises DataError."""
    stock = _stock(
        config.data_path,
        config.max_products,
        config.catalogue,
        config.goals,
        config.goals_per_product,
        config.goal_seed,
    )
    goals = split_goals(
        stock.goals, seed=config.goal_seed, train=config.train_goals, evaluation=config.eval_goals
    )
    return stock, goals


@lru_cache(maxsize=4)
def _open(
    data_path: str | None,
    max_products: int | None,
    catalogue: CatalogueConfig,
    source: GoalSource,
    per_product: int | None,
    seed: int,
    train: int | None,
    evaluation: int,
    hits: int,
    nouns: str,
) -> Shop:
    stock = _stock(data_path, max_products, catalogue, source, per_product, seed)
    goals = split_goals(stock.goals, seed=seed, train=train, evaluation=evaluation)
    return Shop(stock, goals, hits=hits, nouns=nouns)


@lru_cache(maxsize=2)
def _stock(
    data_path: str | None,
    max_products: int | None,
    catalogue: CatalogueConfig,
    source: GoalSource,
    per_product: int | None,
    seed: int,
) -> Stock:
    if data_path is None:
        raw, limit = generate(catalogue), None
    else:
        raw, limit = read_files(Path(data_path), human=source == "human"), max_products
    products = read_products(raw, limit)
    return Stock(products, tuple(goals_of(products, raw, source, seed, per_product)))
