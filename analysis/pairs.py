"""Every two options of a setting, compared in runs that are alike in everything else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from analysis.arms import Contrast, arm_means, collapse_contrast, difference
from analysis.improvement import probability_of_improvement
from analysis.markdown import listing
from analysis.measures import UNITS, RunTable
from analysis.resampling import Interval
from analysis.significance import holm
from analysis.verdicts import SMALLEST_SUCCESS

MOST_OPTIONS = 12
"""Settings with more options than this are not compared pair by pair."""

BESIDE = ("area", "healthy", *(f"{name}_{unit}" for name in ("final", "area") for unit in UNITS))
"""What pairs are compared by beside final success."""


@dataclass(frozen=True)
class PairEffect:
    """What a setting's second option did against its first, in runs that are alike in everything else.

    contrasts: by measure (`final`, `area`, `healthy`, `final_episode`, ...); improvement: the probability
    that a run with the second option ends higher; lasted: how many steps longer it lasts before it collapses,
    None where nothing collapsed; p_holm: of final success, corrected for all pairs of the study; together:
    settings that change along with this one.
    """

    setting: str
    first: str
    second: str
    contrasts: Mapping[str, Contrast]
    improvement: Interval
    lasted: Contrast | None
    p_holm: float | None = None
    together: tuple[str, ...] = ()

    @property
    def established(self) -> bool:
        """Whether final success differs beyond chance, by at least the smallest effect of interest."""
        effect = self.contrasts["final"].effect
        return self.p_holm is not None and self.p_holm < 0.05 and abs(effect.estimate) >= SMALLEST_SUCCESS

    def led(self, option: str) -> Interval:
        """How much higher one of the two ends than the other."""
        effect = self.contrasts["final"].effect
        if option == self.second:
            return effect
        return replace(effect, estimate=-effect.estimate, low=-effect.high, high=-effect.low)


def pair_effects(runs: RunTable, *, beside: Sequence[str] = BESIDE) -> tuple[PairEffect, ...]:
    """Every two options of a setting that were ever compared like for like, in the order of the plan."""
    found = []
    for setting in runs.settings:
        options = runs.order(setting)
        if len(options) > MOST_OPTIONS:
            continue
        for first, second in combinations(options, 2):
            arms = {"first": (first,), "second": (second,)}
            final = difference(runs, setting, arms, "final")
            if not final.blocks:
                continue
            contrasts = {"final": final}
            for measure in beside:
                contrast = difference(runs, setting, arms, measure)
                if contrast.blocks:
                    contrasts[measure] = contrast
            wide = arm_means(runs, setting, arms, "final").unstack("context")
            improvement = probability_of_improvement(wide["first"], wide["second"])
            members = runs.table[runs.table[setting].astype(str).isin([first, second])]
            lasted = collapse_contrast(runs, setting, arms) if members["event"].any() else None
            along = runs.together.get(setting, ())
            found.append(PairEffect(setting, first, second, contrasts, improvement, lasted, together=along))
    corrected = holm([pair.contrasts["final"].p for pair in found])
    return tuple(replace(pair, p_holm=p) for pair, p in zip(found, corrected, strict=True))


def pair_sentences(pairs: Iterable[PairEffect]) -> list[str]:
    """Which options end higher than which and by how much, as markdown.

    An option that leads, or trails, several others has one sentence for all of them, the largest lead first.
    """
    settings: dict[str, list[PairEffect]] = {}
    for pair in pairs:
        settings.setdefault(pair.setting, []).append(pair)
    return [sentence for members in settings.values() for sentence in _sentences(members)]


def _sentences(left: Sequence[PairEffect]) -> list[str]:
    """Sentences on the pairs of one setting, those that say most first."""
    said = []
    while left:
        # The second option first: it is what a sentence on a single pair is about.
        places = Counter(
            (option, pair.led(option).estimate > 0) for pair in left for option in (pair.second, pair.first)
        )
        ((option, leads), _), *_ = places.most_common(1)
        told = [
            pair
            for pair in left
            if option in (pair.first, pair.second) and (pair.led(option).estimate > 0) == leads
        ]
        said.append(_sentence(option, leads, told))
        left = [pair for pair in left if pair not in told]
    return said


def _sentence(option: str, leads: bool, pairs: Sequence[PairEffect]) -> str:
    """What an option leads, or trails, in one sentence."""
    others = []
    for pair in sorted(pairs, key=lambda pair: -abs(pair.led(option).estimate)):
        other = pair.first if option == pair.second else pair.second
        lead = pair.led(option if leads else other)
        name = _name(pair.setting, other)
        others.append(f"{name} by {lead.estimate:.2f} [{lead.low:.2f}, {lead.high:.2f}]")
    setting, together = pairs[0].setting, pairs[0].together
    along = " and ".join(f"`{name}`" for name in together[:2])
    if len(together) > 2:
        along = f"`{together[0]}` and {len(together) - 1} more settings"
    equal = f"with {along} changing along, all else equal" if along else "all else equal"
    word = "higher" if leads else "lower"
    return f"{_name(setting, option)} ends {word} than {listing(others, MOST_OPTIONS)}, {equal}."


def _name(setting: str, option: str) -> str:
    """The name of an option speaks for itself, the value of a dotted key does not."""
    return f"`{setting}={option}`" if "." in setting else f"`{option}`"
