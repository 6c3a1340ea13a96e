"""Which words of a title are nouns: by spaCy when a model is there, else by a rule of thumb.

The reward compares the nouns of two titles. Officially spaCy's `en_core_web_lg` finds them. Without a model
(`words`), nouns are the words of a title that begin with a letter and are neither function words nor known
adjectives (a list, and some endings). That finds exactly the nouns of the generated catalogue, and takes some
other words for nouns in official titles, so that more products count as being of the same type.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

Nouns = Callable[[str], tuple[str, ...]]
"""From a title to its nouns, lower case, in order, with repeats."""

AUTO, WORDS = "auto", "words"
MODELS = ("en_core_web_lg", "en_core_web_md", "en_core_web_sm")
"""The models that `auto` looks for, the first that is installed."""

_WORD = re.compile(r"[a-z][a-z0-9'-]*")
_FUNCTION_TEXT = (
    "a about all an and any are as at be but by each for from has have if in into is it its me my no "
    "not of off on or our out over per so such than that the their then there these they this to "
    "under up via was will with without you your"
)
_FUNCTION_WORDS = frozenset(_FUNCTION_TEXT.split())
_ADJECTIVE_TEXT = (
    "best better big black blue brown casual classic cold compact cool cozy crunchy cute dark dry "
    "durable easy elegant extra fast fine flat foldable free fresh full gentle gluten gold gray great "
    "green grey hard heavy high hot huge iced ideal insulated kosher large leakproof light "
    "lightweight long low medium mini modern natural new nice old organic outdoor pink plain portable "
    "premium professional purple quick rechargeable red refillable round rustic safe sheer short "
    "silky silver simple sized slim small smart soft solid stretchy strong sturdy super sweet tall "
    "thick thin tiny tough travel-sized ultra unisex unscented vegan vintage warm washable waterproof "
    "white wide wireless wooden xl yellow young"
)
_ADJECTIVES = frozenset(_ADJECTIVE_TEXT.split())
_ENDINGS = re.compile(
    r".+(able|ible|ful|less|ous|ish|proof|resistant|friendly|free|sized|ated|izing|ising|ly)"
)
_EXCEPTION_TEXT = "belly bible cable dish family finish fish fly jelly polish radish table vegetable"
_EXCEPTIONS = frozenset(_EXCEPTION_TEXT.split())


class NounsError(ValueError):
    """The finder asked for cannot be had; the message says what to do."""


def resolve(setting: str) -> str:
    """What a setting comes down to here: `words`, or a spaCy model and its version (`name 3.8.0`).

    Raises NounsError when a model is asked for that is not installed. Imports no spaCy.
    """
    if setting == WORDS:
        return WORDS
    for model in MODELS if setting == AUTO else (setting,):
        if found := _installed(model):
            return f"{model} {found}"
    if setting == AUTO:
        return WORDS
    raise NounsError(
        f"nouns: the spaCy model {setting!r} is not installed: pip install spacy, then "
        f"python -m spacy download {setting}; or set nouns to {WORDS}"
    )


@lru_cache(maxsize=16)
def _installed(model: str) -> str | None:
    """The version of a spaCy model; None when it, or spaCy, is not installed."""
    try:
        version("spacy")
        return version(model)
    except PackageNotFoundError:
        return None


def title_words(title: str) -> tuple[str, ...]:
    """The nouns of a title by the rule of thumb."""
    return tuple(
        word
        for word in _WORD.findall(title.lower())
        if word in _EXCEPTIONS
        or not (word in _FUNCTION_WORDS or word in _ADJECTIVES or _ENDINGS.fullmatch(word))
    )


@lru_cache(maxsize=8)
def noun_finder(resolved: str) -> Nouns:
    """What finds nouns, by what `resolve` said; it remembers the titles it has seen."""
    if resolved == WORDS:
        return lru_cache(maxsize=200_000)(title_words)
    spacy: Any = import_module("spacy")
    language = spacy.load(resolved.split()[0], disable=["parser", "ner", "lemmatizer"])

    def tagged(title: str) -> tuple[str, ...]:
        return tuple(token.text.lower() for token in language(title) if token.pos_ in ("NOUN", "PROPN"))

    return lru_cache(maxsize=200_000)(tagged)
