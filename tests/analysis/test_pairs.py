"""What is established is said with the size of the effect, in the direction of the sentence."""

from __future__ import annotations

import re
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.arms import Contrast
from analysis.pairs import PairEffect, pair_sentences
from analysis.resampling import Interval


def a_pair(
    setting: str, options: tuple[str, str], effect: tuple[float, float, float], together: tuple[str, ...] = ()
) -> PairEffect:
    interval = Interval(*effect, "interval", 5)
    contrast = Contrast(interval, 0.01, 10, 1)
    return PairEffect(setting, *options, {"final": contrast}, interval, None, 0.01, together=together)


@pytest.mark.parametrize(
    ("setting", "options", "effect", "sentence"),
    [
        (
            "is_clipping", ("cispo", "sequence"), (0.4, 0.3, 0.5),
            "`sequence` ends higher than `cispo` by 0.40 [0.30, 0.50], all else equal.",
        ),
        (
            "is_clipping", ("sequence", "cispo"), (-0.4, -0.5, -0.3),
            "`cispo` ends lower than `sequence` by 0.40 [0.30, 0.50], all else equal.",
        ),
        (
            "trainer.learning_rate", ("0.001", "0.1"), (-0.1, -0.22, 0.02),
            "`trainer.learning_rate=0.1` ends lower than `trainer.learning_rate=0.001` by 0.10 [-0.02, 0.22],"
            " all else equal.",
        ),
    ],
)  # fmt: skip
def test_a_pair_is_a_sentence(
    setting: str, options: tuple[str, str], effect: tuple[float, float, float], sentence: str
) -> None:
    pair = a_pair(setting, options, effect)
    assert pair.established
    assert pair_sentences([pair]) == [sentence]


@pytest.mark.parametrize(
    ("together", "words"),
    [
        (("trainer.groups",), "with `trainer.groups` changing along, all else equal."),
        (("a.b", "c.d"), "with `a.b` and `c.d` changing along, all else equal."),
        (("a.b", "c.d", "e.f"), "with `a.b` and 2 more settings changing along, all else equal."),
    ],
)
def test_what_is_swept_together_is_said(together: tuple[str, ...], words: str) -> None:
    (sentence,) = pair_sentences([a_pair("trainer.steps", ("30", "480"), (0.2, 0.1, 0.3), together)])
    assert sentence.endswith(words)


def test_what_leads_or_trails_several_has_one_sentence_for_all_of_them() -> None:
    # the factorial of docs/results: soft and cispo collapse, sequence is best
    pairs = [
        a_pair("is_clipping", ("token", "soft"), (-0.44, -0.50, -0.39)),
        a_pair("is_clipping", ("token", "cispo"), (-0.43, -0.49, -0.38)),
        a_pair("is_clipping", ("token", "sequence"), (0.08, 0.05, 0.11)),
        a_pair("is_clipping", ("soft", "sequence"), (0.52, 0.47, 0.57)),
        a_pair("is_clipping", ("cispo", "sequence"), (0.51, 0.46, 0.56)),
        a_pair("advantage", ("grpo", "gigpo"), (0.06, 0.05, 0.07)),
    ]
    assert pair_sentences(pairs) == [
        "`sequence` ends higher than `soft` by 0.52 [0.47, 0.57], `cispo` by 0.51 [0.46, 0.56] and `token`"
        " by 0.08 [0.05, 0.11], all else equal.",
        "`token` ends higher than `soft` by 0.44 [0.39, 0.50] and `cispo` by 0.43 [0.38, 0.49],"
        " all else equal.",
        "`gigpo` ends higher than `grpo` by 0.06 [0.05, 0.07], all else equal.",
    ]


@given(st.lists(st.integers(0, 20), min_size=2, max_size=7), st.data())
def test_every_pair_is_said_once_and_the_right_way_round(levels: list[int], data: st.DataObject) -> None:
    pairs = []
    for first, second in combinations(range(len(levels)), 2):
        lead = (levels[second] - levels[first]) / 20
        if lead and data.draw(st.booleans()):
            options = (f"o{first}", f"o{second}")
            pairs.append(a_pair("is_clipping", options, (lead, lead - 0.1, lead + 0.2)))
    said = []
    for sentence in pair_sentences(pairs):
        found = re.fullmatch(r"`(\w+)` ends (\w+) than (.*), all else equal\.", sentence)
        assert found
        name, word, others = found.groups()
        for other, *numbers in re.findall(r"`(\w+)` by (\S+) \[(\S+), (\S+)\]", others):
            higher, lower = (name, other) if word == "higher" else (other, name)
            said.append((higher, lower, *map(float, numbers)))
    expected = []
    for pair in pairs:
        effect = pair.contrasts["final"].effect
        if effect.estimate > 0:
            expected.append((pair.second, pair.first, effect.estimate, effect.low, effect.high))
        else:
            expected.append((pair.first, pair.second, -effect.estimate, -effect.high, -effect.low))
    assert sorted(said) == sorted(_rounded(expected))


def _rounded(rows: list[tuple[str, str, float, float, float]]) -> list[tuple[str | float, ...]]:
    return [(*row[:2], *(float(f"{value:.2f}") for value in row[2:])) for row in rows]
