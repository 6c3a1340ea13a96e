"""Short wording for the compact mode: plain words, white space between them."""

from __future__ import annotations

import re
from functools import lru_cache
from math import ceil

_WORD = re.compile(r"[^\W_]+")
_LIMIT = re.compile(r"price lower than (\d+)\.\d\d dollars")
_CONTRACTION = re.compile(r"['’](m|s|d|re|ll|ve)\b", re.IGNORECASE)
_FILLER_TEXT = (
    "a an and are as at be buy find for get i in is it like looking me need of please show some that "
    "the to want which will with would you"
)
_FILLERS = frozenset(_FILLER_TEXT.split())

UNDER = "under"
"""The word before a price limit."""


def words(text: str) -> list[str]:
    """Letters and digits of a text, lower case, without anything else."""
    return _WORD.findall(text.lower())


@lru_cache(maxsize=200_000)
def plain(text: str) -> str:
    """A text as plain words."""
    return " ".join(words(text))


@lru_cache(maxsize=200_000)
def short_instruction(text: str) -> str:
    """An instruction without fillers; "price lower than 40.00 dollars" becomes "under 40"."""
    text = _CONTRACTION.sub("", _LIMIT.sub(rf"{UNDER} \1", text))
    return " ".join(word for word in words(text) if word not in _FILLERS)


def price_word(price: float) -> str:
    """A price rounded up to ten dollars: limits are multiples of ten, so that comparing stays exact."""
    return str(10 * max(1, ceil(price / 10)))
