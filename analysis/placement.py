"""Where runs stand when the options of one setting are compared: in which block, in which surroundings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Codes = NDArray[np.intp]


@dataclass(frozen=True)
class Placement:
    """The runs of a table, for comparisons in one setting.

    block, context, option: (runs,) numbers, into the names `blocks`, `contexts` (what all other settings are
    set to, `-` where there are none) and `options`.
    """

    block: Codes
    context: Codes
    option: Codes
    blocks: NDArray[np.object_]
    contexts: NDArray[np.object_]
    options: tuple[str, ...]

    @property
    def place(self) -> Codes:
        """(runs,) a number per block and context."""
        place: Codes = self.block * len(self.contexts) + self.context
        return place

    def members(self, *groups: Sequence[str]) -> list[Codes]:
        """Options by number, of those that any run has."""
        return [
            np.array([self.options.index(name) for name in group if name in self.options], dtype=np.intp)
            for group in groups
        ]

    def seen(self, chosen: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """(contexts, options): whether an option occurs in a context, in any block, among the runs chosen."""
        seen = np.zeros((len(self.contexts), len(self.options)), dtype=bool)
        seen[self.context[chosen], self.option[chosen]] = True
        return seen


def place_runs(table: pd.DataFrame, setting: str, others: Sequence[str]) -> Placement:
    """Place the runs of a table (a row each, with columns `block`, `setting` and `others`)."""
    block, blocks = pd.factorize(table["block"].astype(object))
    option, options = pd.factorize(table[setting].astype(str).astype(object))
    if others:
        labels = zip(*(table[name].astype(str) for name in others), strict=True)
        joined = np.array([" / ".join(parts) for parts in labels], dtype=object)
    else:
        joined = np.full(len(table), "-", dtype=object)
    context, contexts = pd.factorize(joined)
    return Placement(
        block, context, option, np.asarray(blocks), np.asarray(contexts), tuple(map(str, options))
    )


@dataclass(frozen=True)
class Matched:
    """Means of a measure where every arm has all its runs.

    block, context: (places,) numbers, places of a context together; means: (places, arms).
    """

    placement: Placement
    block: Codes
    context: Codes
    means: Floats

    @property
    def index(self) -> pd.MultiIndex:
        """Names of block and context."""
        names = [self.placement.blocks[self.block], self.placement.contexts[self.context]]
        return pd.MultiIndex.from_arrays(names, names=["block", "context"])


def match(
    placement: Placement, values: Floats, counted: NDArray[np.bool_], arms: Sequence[Sequence[str]]
) -> Matched:
    """Bring arms of options side by side.

    values: (runs,) the measure, NaN where a run has none; counted: (runs,) which runs may take part. In a
    context an arm has the options that occur there in any block; a context where an arm has none is left out,
    and so are blocks that lack one of these runs. Runs of one block, context and option are averaged.
    """
    use = counted & ~np.isnan(values)
    members = placement.members(*arms)
    seen = placement.seen(use)
    code, places = pd.factorize(placement.place[use])
    size = (len(places), len(placement.options))
    cell = code * size[1] + placement.option[use]
    counts = np.bincount(cell, minlength=size[0] * size[1]).reshape(size)
    sums = np.bincount(cell, values[use], minlength=size[0] * size[1]).reshape(size)
    wide = sums / np.maximum(counts, 1)
    block, context = np.divmod(np.asarray(places, dtype=np.intp), max(1, len(placement.contexts)))
    expected = seen[context]
    whole = np.ones(len(places), dtype=bool)
    means = np.full((len(places), len(arms)), np.nan)
    for arm, options in enumerate(members):
        there = expected[:, options]
        whole &= there.any(1) & ((counts[:, options] > 0) | ~there).all(1)
        means[:, arm] = np.where(there, wide[:, options], 0.0).sum(1) / np.maximum(there.sum(1), 1)
    order = np.flatnonzero(whole)
    order = order[np.argsort(pd.factorize(context)[0][order], kind="stable")]
    return Matched(placement, block[order], context[order], means[order])
