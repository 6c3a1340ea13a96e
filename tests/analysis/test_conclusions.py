"""What is established is said with the size of the effect, in the direction of the sentence."""

from __future__ import annotations

import pytest

from analysis.arms import Contrast
from analysis.conclusions import PairEffect
from analysis.resampling import Interval


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
    interval = Interval(*effect, "interval", 5)
    contrast = Contrast(interval, 0.01, 10, 1)
    pair = PairEffect(setting, *options, {"final": contrast}, interval, None, 0.01)
    assert pair.established
    assert pair.sentence() == sentence


@pytest.mark.parametrize(
    ("together", "words"),
    [
        (("trainer.groups",), "with `trainer.groups` changing along, all else equal."),
        (("a.b", "c.d"), "with `a.b` and `c.d` changing along, all else equal."),
        (("a.b", "c.d", "e.f"), "with `a.b` and 2 more settings changing along, all else equal."),
    ],
)
def test_what_is_swept_together_is_said(together: tuple[str, ...], words: str) -> None:
    interval = Interval(0.2, 0.1, 0.3, "interval", 5)
    contrast = Contrast(interval, 0.01, 10, 1)
    pair = PairEffect(
        "trainer.steps", "30", "480", {"final": contrast}, interval, None, 0.01, together=together
    )
    assert pair.sentence().endswith(words)
