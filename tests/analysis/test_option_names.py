"""What options are called."""

from __future__ import annotations

from typing import Any

import pytest

from analysis.hypotheses import Vocabulary, parse
from analysis.option_names import option_label

GATE = {"level": "token", "eps": 0.1, "share": None}
LABELS: list[tuple[Any, str]] = [
    ("cispo", "cispo"),
    ({"cispo": {}}, "cispo"),
    ({"cispo": {"hi": 4.0}}, "cispo(hi=4)"),
    ({"token": {"sequence_mask": {"delta": 0.003}}}, "token(sequence_mask.delta=0.003)"),
    # what is off is told of an option, not of its parts
    ({"gated": {"low": GATE, "high": None}}, "gated(low.level=token, low.eps=0.1, high=off)"),
    ({"gigpo": {"fuzzy": 1e-5, "rescale": "match_grpo"}}, "gigpo(fuzzy=1e-5, rescale=match_grpo)"),
]


@pytest.mark.parametrize(("option", "label"), LABELS)
def test_labels_show_the_parameters_that_were_set(option: Any, label: str) -> None:
    assert option_label(option) == label


@pytest.mark.parametrize(("option", "label"), LABELS)
def test_hypotheses_find_options_by_their_labels(option: Any, label: str) -> None:
    vocabulary = Vocabulary({"axis": [label, "other"]})
    assert parse(f"{label} beats other", vocabulary).first.options == (label,)
