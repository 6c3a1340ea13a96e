"""What changed when only one axis changed: matched pairs of trials."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import pandas as pd

from analysis.resampling import Interval, seed_interval


@dataclass(frozen=True)
class Pair:
    """Two trials that share everything but one setting. `context` names what the others were set to."""

    block: str
    context: str
    first: str
    second: str
    difference: float


@dataclass(frozen=True)
class Effect:
    """Second option minus first, over all matched pairs.

    difference is over blocks: pairs of a block (one seed in one environment with one clone) are averaged
    first, because they share their seed. `first_collapsed` of `len(pairs)` trials with the first option
    collapsed or diverged.
    """

    axis: str
    first: str
    second: str
    pairs: tuple[Pair, ...]
    difference: Interval
    first_collapsed: int
    second_collapsed: int

    @property
    def contexts(self) -> int:
        """In how many different surroundings the two options were compared."""
        return len({pair.context for pair in self.pairs})

    def by_block(self) -> dict[str, float]:
        """The mean difference of each block."""
        return _by_block(self.pairs)


def matched_effects(
    table: pd.DataFrame,
    axis: str,
    *,
    others: Sequence[str],
    metric: str = "final",
    order: Sequence[str] = (),
) -> list[Effect]:
    """Effects between every two options of an axis that were ever compared like for like.

    table: one row per trial that has a result, indexed by trial, with columns `axis`, every one of `others`
    (all further settings in which cells differ), `block`, `metric` and `collapsed` (bool). Trials without the
    metric are no part of any pair. order: the options in the order in which to compare them.
    """
    usable = table[table[metric].notna()]
    keys = [*others, "block"]
    values = {str(trial): float(value) for trial, value in usable[metric].items()}
    collapsed = {str(trial): bool(value) for trial, value in usable["collapsed"].items()}
    options = list(dict.fromkeys([*order, *usable[axis]])) if len(usable) else []
    partners: dict[tuple[str, ...], dict[str, str]] = {}
    for row in usable[[axis, *keys]].itertuples():
        trial, option, *rest = row
        partners.setdefault(tuple(map(str, rest)), {})[str(option)] = str(trial)
    effects = []
    for first, second in combinations(options, 2):
        pairs = []
        for key, trials in partners.items():
            if first in trials and second in trials:
                a, b = trials[first], trials[second]
                context = " / ".join(key[:-1]) or "-"
                pairs.append(Pair(key[-1], context, a, b, values[b] - values[a]))
        if pairs:
            effects.append(
                Effect(
                    axis=axis,
                    first=first,
                    second=second,
                    pairs=tuple(pairs),
                    difference=seed_interval(list(_by_block(pairs).values())),
                    first_collapsed=sum(collapsed[pair.first] for pair in pairs),
                    second_collapsed=sum(collapsed[pair.second] for pair in pairs),
                )
            )
    return effects


def _by_block(pairs: Sequence[Pair]) -> dict[str, float]:
    blocks: dict[str, list[float]] = {}
    for pair in pairs:
        blocks.setdefault(pair.block, []).append(pair.difference)
    return {block: sum(values) / len(values) for block, values in blocks.items()}
