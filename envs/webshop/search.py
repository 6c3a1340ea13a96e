"""Full-text search by BM25, as Lucene does it, with a stable order."""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib import import_module
from typing import Any

import numpy as np

K1, B = 0.9, 0.4
"""The parameters of the official index (pyserini's defaults)."""

PACKAGES = {"bm25s": "bm25s", "Stemmer": "PyStemmer"}
"""What search needs: modules, and the distributions that they come in."""

_WORD = re.compile(r"[^\W_]+")
_STOP_TEXT = (
    "a an and are as at be but by for if in into is it no not of on or such that the their then there "
    "these they this to was will with"
)
STOP_WORDS = frozenset(_STOP_TEXT.split())
"""Lucene's English stop words."""


class SearchIndex:
    """Ranks documents by BM25 (Robertson & Zaragoza 2009, in Lucene's variant) over Porter stems.

    For a document d of |d| words, sum over the query's words t of
    ln(1 + (N - n_t + 0.5) / (n_t + 0.5)) * f_td / (f_td + k1 (1 - b + b |d| / mean |d|)),
    with n_t of N documents holding t, f_td times.
    """

    def __init__(self, documents: Iterable[str]) -> None:
        # imported here: planning a study must not need them
        bm25s: Any = import_module("bm25s")
        self._stemmer: Any = import_module("Stemmer").Stemmer("porter")
        self._stems: dict[str, str] = {}
        self._engine = bm25s.BM25(method="lucene", k1=K1, b=B)
        corpus = [self.words(document) for document in documents]
        self._known = frozenset(word for words in corpus for word in words)
        if self._known:
            self._engine.index(corpus, show_progress=False)

    def words(self, text: str) -> list[str]:
        """The stems of a text's words, without stop words."""
        stems = self._stems
        found = []
        for word in _WORD.findall(text.lower()):
            if word in STOP_WORDS:
                continue
            stem = stems.get(word)
            if stem is None:
                stem = self._stemmer.stemWord(word)
                # not more than the catalogue's words and some: queries are written by policies
                if len(stems) < 1_000_000:
                    stems[word] = stem
            found.append(stem)
        return found

    def search(self, query: str, count: int) -> tuple[int, ...]:
        """The best `count` documents that hold a word of the query, by their number.

        Equal ones come in the order of the documents.
        """
        words = [word for word in self.words(query) if word in self._known]
        if not words:
            return ()
        scores = self._engine.get_scores(words)
        matching = np.flatnonzero(scores > 0)
        if len(matching) > count:
            least = np.partition(scores[matching], len(matching) - count)[len(matching) - count]
            matching = matching[scores[matching] >= least]
        best = matching[np.argsort(-scores[matching], kind="stable")]
        return tuple(best[:count].tolist())
