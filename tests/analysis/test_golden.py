"""Real records keep their verdicts; the expected numbers were read off the curves, not off the code.

CISPO falls from .222 to a trailing mean of (.051 + .035 + .059) / 3 = .048 at step 6. GRPO ends at
(.297 + .336 + .445) / 3 = .359; its last five evaluations leave their line by up to .06, those of GSPO and
SAMPO by less.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis.collapse import judge
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
