"""Real records keep their verdicts; the expected numbers were read off the curves, not off the code.

CISPO falls from .222 to a trailing mean of (.051 + .035 + .059) / 3 = .048 at step 6. GRPO ends at
(.297 + .336 + .445) / 3 = .359; its last five evaluations leave their line by up to .06, those of GSPO and
SAMPO by less.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from analysis.collapse import CollapseRule, CollapseWatch, judge
from analysis.study import read_rows

RECORDS = Path(__file__).parents[1] / "golden" / "analysis"


@pytest.mark.parametrize(
    ("record", "outcome", "learned", "final", "onset"),
    [
        ("sampo", "stable", True, 0.634, None),
        ("gspo", "stable", True, 0.526, None),
        ("grpo", "unstable", True, 0.359, None),
        ("cispo", "collapsed", False, 0.020, 6),
    ],
)
def test_real_records_keep_their_verdicts(
    record: str, outcome: str, learned: bool, final: float, onset: int | None
) -> None:
    verdict = judge(read_rows(RECORDS / f"{record}.jsonl"), {}, finished=True)
    assert (verdict.outcome, verdict.learned, verdict.onset) == (outcome, learned, onset)
    assert verdict.start == pytest.approx(0.2217, abs=1e-4)
    assert verdict.final == pytest.approx(final, abs=1e-3)
    if record == "cispo":
        assert verdict.cause == "below_start"
        assert verdict.onset_interval == (4, 6)


def test_labelled_curves_of_real_trials_are_told_apart() -> None:
    """Labels were given by looking at the curves: only those that collapse are called so, soon after."""
    curves = json.loads((RECORDS / "curves.json").read_text())
    assert {curve["course"] for curve in curves} == {
        "collapses",
        "rises",
        "noisy",
        "falls and recovers in part",
        "never learns",
    }
    for curve in curves:
        watch, found = CollapseWatch(CollapseRule()), None
        for number, success in enumerate(curve["success"]):
            episodes = 1024 if number == 0 else 256
            row = {"step": number, "kind": "eval", "eval/success": success, "eval/episodes": episodes}
            if watch.update(row) and found is None:
                found = number
        assert found == (5 if curve["course"] == "collapses" else None), curve
