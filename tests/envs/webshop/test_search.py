"""Search against the formula written out, and its order."""

from __future__ import annotations

import math
import random

import pytest

from envs.webshop.search import SearchIndex

WORDS = ("red", "blue", "lamp", "shirt", "mug", "soft", "warm", "desk")
"""Words that are their own stems."""


def slow_scores(documents, query, k1=0.9, b=0.4):
    """BM25 of every document, term by term."""
    texts = [document.split() for document in documents]
    mean = sum(map(len, texts)) / len(texts)
    scores = []
    for text in texts:
        total = 0.0
        for word in query.split():
            holding = sum(word in other for other in texts)
            if not holding:
                continue
            idf = math.log(1 + (len(texts) - holding + 0.5) / (holding + 0.5))
            frequency = text.count(word)
            total += idf * frequency / (frequency + k1 * (1 - b + b * len(text) / mean))
        scores.append(total)
    return scores


def test_ranks_by_bm25():
    source = random.Random(0)
    documents = [" ".join(source.choices(WORDS, k=source.randint(1, 12))) for _ in range(60)]
    index = SearchIndex(documents)
    for _ in range(50):
        query = " ".join(source.choices(WORDS, k=source.randint(1, 4)))
        scores = slow_scores(documents, query)
        found = index.search(query, 60)
        assert set(found) == {number for number, score in enumerate(scores) if score > 0}
        ranked = [scores[number] for number in found]
        assert ranked == pytest.approx(sorted(ranked, reverse=True), abs=1e-5)


def test_equal_documents_come_in_their_order_however_many_are_asked_for():
    documents = ["red lamp", "blue lamp", "red lamp", "red red lamp", *["red lamp"] * 40]
    index = SearchIndex(documents)
    every = index.search("red lamp", 100)
    assert every[0] == 3
    assert list(every[1:-1]) == [0, 2, *range(4, 44)]
    assert every[-1] == 1
    for count in range(1, 46):
        assert index.search("red lamp", count) == every[:count]


def test_stems_and_case_do_not_matter_and_stop_words_are_nothing():
    index = SearchIndex(["Running SHOES, for the rain", "a lamp"])
    assert index.search("shoe that run", 9) == (0,)
    assert index.search("LAMPS!", 9) == (1,)
    assert index.search("the a for", 9) == ()


@pytest.mark.parametrize("query", ["", "zebra", "!?", "of the", "_"])
def test_nothing_is_found_for_unknown_words(query):
    assert SearchIndex(["a red lamp", "a blue lamp"]).search(query, 5) == ()


def test_single_letters_and_numbers_are_words():
    index = SearchIndex(["size s", "size 12", "size xl"])
    assert index.search("s", 5) == (0,)
    assert index.search("12", 5) == (1,)


def test_unknown_words_do_not_change_the_order():
    index = SearchIndex(["red lamp", "red shirt", "blue lamp"])
    assert index.search("red lamp zebra", 5) == index.search("red lamp", 5)


def test_an_empty_catalogue_has_nothing():
    assert SearchIndex([]).search("lamp", 5) == ()
    assert SearchIndex(["", "the"]).search("lamp", 5) == ()
