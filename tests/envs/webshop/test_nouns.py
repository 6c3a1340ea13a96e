"""Which words count as nouns, with and without a spaCy model."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from envs.webshop import nouns
from envs.webshop.nouns import NounsError, noun_finder, resolve, title_words
from envs.webshop.wordbook import ATTRIBUTES, BRANDS, KINDS, OPTIONS


@pytest.mark.parametrize(
    ("title", "expected"),
    [
        ("Soft Cotton Shirt for Men", ("cotton", "shirt", "men")),
        ("Waterproof Bluetooth Speaker, 2 Pack", ("bluetooth", "speaker", "pack")),
        ("the best non-stick pan with a glass lid", ("non-stick", "pan", "glass", "lid")),
        ("Lamp and lamp shade", ("lamp", "lamp", "shade")),
        ("100% Organic, Gluten Free", ()),
        ("", ()),
    ],
)
def test_without_a_model_nouns_are_what_is_no_other_word(title, expected):
    assert title_words(title) == expected


def test_the_rule_of_thumb_finds_the_nouns_of_the_word_book():
    for kind in KINDS:
        assert set(title_words(kind.name)) >= {kind.name.split()[-1]}
    for brand in BRANDS:
        assert title_words(brand) == (brand.lower(),)
    others = [word for word in (*ATTRIBUTES, *OPTIONS["color"], *OPTIONS["size"]) if " " not in word]
    assert title_words(" ".join(others)) == ()


@pytest.fixture
def installed(monkeypatch):
    """Pretends that these distributions are installed, and no other."""

    def install(**versions):
        def version(name):
            if name not in versions:
                raise nouns.PackageNotFoundError(name)
            return versions[name]

        monkeypatch.setattr(nouns, "version", version)
        nouns._installed.cache_clear()

    yield install
    nouns._installed.cache_clear()


def test_auto_takes_the_largest_model_that_is_there(installed):
    installed(spacy="3.8.0", en_core_web_sm="3.8.1", en_core_web_md="3.8.2")
    assert resolve("auto") == "en_core_web_md 3.8.2"
    assert resolve("en_core_web_sm") == "en_core_web_sm 3.8.1"
    assert resolve("words") == "words"


def test_without_spacy_or_a_model_auto_is_the_rule_of_thumb(installed):
    installed(en_core_web_sm="3.8.1")
    assert resolve("auto") == "words"
    installed(spacy="3.8.0")
    assert resolve("auto") == "words"


def test_a_model_that_is_asked_for_must_be_there(installed):
    installed(spacy="3.8.0")
    with pytest.raises(NounsError, match="python -m spacy download en_core_web_lg"):
        resolve("en_core_web_lg")


def test_a_model_decides_by_its_tags(monkeypatch):
    def tag(title):
        tags = {"Red": "ADJ", "Acme": "PROPN", "lamps": "NOUN", "glow": "VERB"}
        return [SimpleNamespace(text=word, pos_=tags[word]) for word in title.split()]

    loaded = []
    spacy = SimpleNamespace(load=lambda name, **_: loaded.append(name) or tag)
    monkeypatch.setitem(sys.modules, "spacy", spacy)
    noun_finder.cache_clear()
    find = noun_finder("en_test 1.0")
    assert find("Red Acme lamps glow") == ("acme", "lamps")
    assert loaded == ["en_test"]
    noun_finder.cache_clear()
