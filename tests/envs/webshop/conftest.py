"""What the tests of WebShop share: its configurations, changed, and products and goals written by hand."""

from __future__ import annotations

import pytest

from envs.registry import load_environment
from envs.webshop.goals import Goal
from envs.webshop.products import Product


def changed(values, changes):
    merged = dict(values)
    for key, value in changes.items():
        merged[key] = changed(values[key], value) if isinstance(values.get(key), dict) else value
    return merged


@pytest.fixture(scope="session")
def load(configuration):
    """The environment and the configuration of a YAML file, with changes (nested dicts are merged)."""
    return lambda name="webshop", **changes: load_environment(changed(configuration(name), changes))


@pytest.fixture(scope="session")
def product():
    """A product; everything has a default."""

    def make(**fields):
        defaults = {
            "asin": "B000000001",
            "title": "Soft Cotton Shirt",
            "query": "shirt",
            "category": frozenset({"Clothing", "Tops", "Shirts"}),
            "description": "",
            "bullets": (),
            "attributes": (),
            "price": 25.0,
            "price_tag": "$25.0",
            "options": {},
            "reviews": (),
            "rating": "N.A.",
        }
        return Product(**{**defaults, **fields})

    return make


@pytest.fixture(scope="session")
def goal():
    """A goal; everything has a default."""

    def make(**fields):
        defaults = {
            "asin": "B000000001",
            "title": "Soft Cotton Shirt",
            "query": "shirt",
            "category": frozenset({"Clothing", "Tops", "Shirts"}),
            "instruction": "Find me a shirt",
            "attributes": ("soft",),
            "options": (),
            "price_limit": 40.0,
        }
        given = {**defaults, **fields}
        return Goal(**{"option_names": ("",) * len(given["options"]), **given})

    return make
