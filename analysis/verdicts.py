"""From an effect with its uncertainty to a verdict, the same way for every claim."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from analysis.arms import Contrast
from analysis.resampling import LEAST_BLOCKS, Interval
from analysis.significance import holm

Verdict = Literal["supported", "contradicted", "no effect", "undecided", "not testable"]

SMALLEST_SUCCESS, SMALLEST_RISK, SMALLEST_AREA = 0.05, 0.15, 0.10
"""The smallest effects of interest: in success, in the risk of collapse, in the area under a ROC curve."""
LEVEL = 0.05
NO_PARTNERS = "no finished runs differ in this alone"
"""Why a comparison of options can say nothing."""


@dataclass(frozen=True)
class Claim:
    """A claim and what the runs say of it.

    text: the claim; measure: what was compared, its one primary metric; effect: in the direction in which the
    claim is true, positive (a claim that nothing differs has no direction); smallest: the smallest effect of
    interest, in its unit; p, p_holm: two-sided, alone and corrected for all claims of its family that were
    tested; runs: how many took part; beside: what else bears on it, in sentences of markdown.
    """

    name: str
    text: str
    measure: str
    smallest: float
    effect: Interval | None = None
    p: float | None = None
    p_holm: float | None = None
    runs: int = 0
    verdict: Verdict = "undecided"
    reason: str = ""
    beside: tuple[str, ...] = ()
    claims_nothing: bool = False

    @property
    def blocks(self) -> int:
        """Over how many blocks."""
        return self.effect.blocks if self.effect else 0


def claimed(
    name: str,
    text: str,
    measure: str,
    contrast: Contrast,
    smallest: float,
    beside: Sequence[str] = (),
    *,
    claims_nothing: bool = False,
) -> Claim:
    """A claim, not yet judged, that a contrast bears on."""
    return Claim(
        name=name,
        text=text,
        measure=measure,
        smallest=smallest,
        effect=contrast.effect,
        p=contrast.p,
        runs=contrast.runs,
        beside=tuple(beside),
        claims_nothing=claims_nothing,
    )


def not_testable(name: str, text: str, measure: str, reason: str, beside: Sequence[str] = ()) -> Claim:
    """A claim of which the design or the data can show nothing, and why."""
    return Claim(
        name, text, measure, float("nan"), verdict="not testable", reason=reason, beside=tuple(beside)
    )


def judged(claims: Sequence[Claim]) -> list[Claim]:
    """The claims of one family with corrected p-values and verdicts (docs/statistics.md)."""
    corrected = holm([claim.p if claim.verdict != "not testable" else None for claim in claims])
    return [
        claim if claim.verdict == "not testable" else _judge(replace(claim, p_holm=p))
        for claim, p in zip(claims, corrected, strict=True)
    ]


def _judge(claim: Claim) -> Claim:
    effect, smallest = claim.effect, claim.smallest
    if effect is None or not effect.blocks or effect.estimate != effect.estimate:
        return replace(claim, verdict="not testable", reason=NO_PARTNERS)
    if effect.blocks < LEAST_BLOCKS or claim.p_holm is None:
        blocks = f"{effect.blocks} block{'s' if effect.blocks != 1 else ''}"
        return replace(
            claim, verdict="undecided", reason=f"{blocks}, fewer than the {LEAST_BLOCKS} that a test takes"
        )
    small = -smallest < effect.low and effect.high < smallest
    clear = claim.p_holm < LEVEL and abs(effect.estimate) >= smallest
    if small:
        reason = f"the interval lies within {smallest:.2g} of none"
        return replace(claim, verdict="supported" if claim.claims_nothing else "no effect", reason=reason)
    if clear:
        agrees = effect.estimate > 0 and not claim.claims_nothing
        return replace(
            claim,
            verdict="supported" if agrees else "contradicted",
            reason=f"corrected p {_p(claim.p_holm)}, and at least the smallest effect of interest",
        )
    if claim.p_holm < LEVEL:
        reason = f"there is an effect (corrected p {_p(claim.p_holm)}), but it may be too small to matter"
    elif effect.low > 0 or effect.high < 0:
        reason = f"the interval leaves out none, but corrected p is {_p(claim.p_holm)}: it takes more blocks"
    else:
        reason = f"corrected p {_p(claim.p_holm)}, and the interval reaches beyond {smallest:.2g}"
    return replace(claim, verdict="undecided", reason=reason)


def _p(value: float) -> str:
    return f"{value:.3f}" if value >= 0.001 else "below 0.001"
