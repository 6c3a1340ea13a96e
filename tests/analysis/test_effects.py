"""Matched pairs against a table worked out by hand."""

from __future__ import annotations

import pandas as pd
import pytest

from analysis.effects import matched_effects


def table(rows: list[tuple[str, str, str, int, float, bool]]) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=["clip", "advantage", "env", "block", "final", "collapsed"])
    frame.index = pd.Index([f"t{k}" for k in range(len(frame))], name="trial")
    return frame


ROWS = [
    ("token", "grpo", "sokoban", 0, 0.50, False),
    ("token", "grpo", "sokoban", 1, 0.60, False),
    ("cispo", "grpo", "sokoban", 0, 0.20, True),
    ("cispo", "grpo", "sokoban", 1, 0.10, True),
    ("token", "gigpo", "sokoban", 0, 0.70, False),
    ("cispo", "gigpo", "sokoban", 0, 0.60, True),
    ("cispo", "grpo", "sokoban", 2, 0.99, True),  # no partner with this seed
    ("sequence", "rloo", "sokoban", 0, 0.80, False),  # no partner at all
]


def test_only_trials_that_differ_in_nothing_else_are_compared() -> None:
    (effect,) = matched_effects(table(ROWS), "clip", others=["advantage", "env"])
    assert (effect.first, effect.second) == ("token", "cispo")
    found = {(pair.context, pair.block): pair.difference for pair in effect.pairs}
    assert found == {
        ("grpo / sokoban", "0"): pytest.approx(-0.3),
        ("grpo / sokoban", "1"): pytest.approx(-0.5),
        ("gigpo / sokoban", "0"): pytest.approx(-0.1),
    }
    # Block 0 averages -0.3 and -0.1, block 1 is -0.5: blocks weigh alike, pairs do not.
    assert effect.by_block() == {"0": pytest.approx(-0.2), "1": pytest.approx(-0.5)}
    assert effect.difference.estimate == pytest.approx(-0.35)
    assert (effect.difference.kind, effect.difference.low) == ("range", pytest.approx(-0.5))
    assert (effect.first_collapsed, effect.second_collapsed) == (0, 3)
    assert effect.contexts == 2


def test_options_are_compared_in_the_order_of_the_plan() -> None:
    (effect,) = matched_effects(
        table(ROWS), "clip", others=["advantage", "env"], order=["sequence", "cispo", "token"]
    )
    assert (effect.first, effect.second) == ("cispo", "token")
    assert effect.difference.estimate == pytest.approx(0.35)


def test_trials_without_the_metric_are_in_no_pair() -> None:
    frame = table(ROWS)
    frame.loc["t2", "final"] = float("nan")
    (effect,) = matched_effects(frame, "clip", others=["advantage", "env"])
    assert len(effect.pairs) == 2


def test_an_axis_that_never_changed_alone_has_no_effects() -> None:
    assert matched_effects(table(ROWS[:1]), "clip", others=["advantage", "env"]) == []
    assert matched_effects(table(ROWS).iloc[:0], "clip", others=["advantage", "env"]) == []
