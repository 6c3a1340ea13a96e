"""Arms compared like for like: runs of a block and a context that differ in one setting alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from analysis.measures import RunTable
from analysis.placement import Matched, match
from analysis.resampling import Interval, counts_interval, seed_interval
from analysis.significance import block_p_value
from analysis.survival import log_rank_scores, permutation_log_rank, restricted_means

Arms = Mapping[str, Sequence[str]]
"""Name of an arm -> the options of one setting that belong to it."""


@dataclass(frozen=True)
class Contrast:
    """A difference between arms: per block, with its interval and p-value (None below five blocks).

    runs: how many runs took part; contexts: in how many different surroundings; horizon: of times to
    collapse, the step up to which they are counted. Without any like-for-like runs it is `NOTHING_ALIKE`.
    """

    effect: Interval
    p: float | None
    runs: int
    contexts: int
    by_block: tuple[float, ...] = ()
    horizon: float = float("nan")

    @property
    def blocks(self) -> int:
        """Over how many blocks."""
        return self.effect.blocks


NOTHING_ALIKE = Contrast(seed_interval([]), None, 0, 0)


def options_named(options: Sequence[str], *names: str) -> list[str]:
    """The options with one of these names, whatever their parameters: `cispo(hi=4)` is named `cispo`."""
    return [option for option in options if option.partition("(")[0] in names]


def arm_means(runs: RunTable, setting: str, arms: Arms, metric: str) -> pd.DataFrame:
    """(block, context) by arm: means of a measure where every arm has all its runs; empty where none.

    In a context an arm has the options that occur there in any block.
    """
    found = _matched(runs, setting, arms, metric)
    if found is None or not len(found.means):
        return pd.DataFrame(columns=list(arms), dtype=float)
    return pd.DataFrame(found.means, index=found.index, columns=list(arms))


def difference(runs: RunTable, setting: str, arms: Arms, metric: str) -> Contrast:
    """Second arm minus first, in a measure: contexts of a block are averaged, blocks compared."""
    found = _matched(runs, setting, arms, metric)
    if found is None or not len(found.means):
        return NOTHING_ALIKE
    values = tuple(_gaps(found).values())
    contexts = len(np.unique(found.context))
    count = _count(runs, setting, arms, found)
    return Contrast(seed_interval(values), block_p_value(values), count, contexts, values)


def difference_of_differences(
    runs: RunTable, setting: str, arms: Arms, moderator: str, levels: Arms, metric: str
) -> Contrast:
    """The second arm's lead over the first, at the second level of a moderator minus at its first."""
    gains = {}
    count = 0
    for level, options in levels.items():
        part = restricted(runs, {moderator: options})
        found = _matched(part, setting, arms, metric)
        gains[level] = {} if found is None else _gaps(found)
        count += 0 if found is None else _count(part, setting, arms, found)
    low, high = (gains[level] for level in levels)
    values = tuple(high[block] - gain for block, gain in low.items() if block in high)
    if not values:
        return NOTHING_ALIKE
    return Contrast(seed_interval(values), block_p_value(values), count, 1, values)


def collapse_contrast(runs: RunTable, setting: str, arms: Arms) -> Contrast:
    """How much longer, in steps, the second arm lasts before it collapses than the first.

    The difference of restricted mean times to collapse, up to the last step to which all runs without a
    collapse were followed. The p-value is that of the log-rank test stratified by context, exact: the options
    of every block are permuted.
    """
    used = _collapse_runs(runs, setting, arms)
    if used.empty:
        return NOTHING_ALIKE
    first, second = list(arms)
    horizon = common_horizon(used)
    blocks = {name: number for number, name in enumerate(dict.fromkeys(used["block"]))}
    member = used["block"].map(blocks).to_numpy()
    early, late = (used[setting].isin(list(arms[arm])).to_numpy() for arm in (first, second))

    def lasted(chosen: np.ndarray, counts: np.ndarray) -> np.ndarray:
        part = used[chosen]
        return restricted_means(part["time"], part["event"], member[chosen], counts, horizon)

    effect = counts_interval(lambda counts: lasted(late, counts) - lasted(early, counts), len(blocks))
    # Scores may compare a run with all runs of its surroundings: that the test is exact rests on permuting
    # options within blocks alone.
    scores = pd.Series(log_rank_scores(used["time"], used["event"], used["context"]), index=used.index)
    by_option = scores.groupby([used["block"], used[setting].astype(str)]).sum().unstack()
    by_option = by_option.dropna()
    places = [place for place, option in enumerate(by_option.columns) if option in arms[first]]
    test = permutation_log_rank(list(by_option.to_numpy()), places)
    p = test.p if effect.kind == "interval" else None
    return Contrast(effect, p, len(used), used["context"].nunique(), horizon=horizon)


def collapse_risk(runs: RunTable, setting: str, options: Sequence[str]) -> tuple[int, int]:
    """How many of the runs with these options collapsed, of how many that have a result."""
    table = runs.results
    mine = table[table[setting].isin(list(options))] if setting in runs.settings else table.iloc[:0]
    return int(mine["collapsed"].sum()), len(mine)


def restricted(runs: RunTable, where: Mapping[str, Sequence[str]]) -> RunTable:
    """Only the runs whose settings have one of the options named."""
    table = runs.table
    for setting, options in where.items():
        table = table[table[setting].astype(str).isin(list(options))]
    return replace(runs, table=table)


def common_horizon(table: pd.DataFrame) -> float:
    """The step up to which every run with a result and without a collapse was followed."""
    healthy = table[~table["event"] & table["result"]]
    return float(healthy["time"].min() if len(healthy) else table["time"].max())


def _collapse_runs(runs: RunTable, setting: str, arms: Arms) -> pd.DataFrame:
    """The runs of both arms in contexts and blocks where all options of the context are there."""
    if setting not in runs.settings:
        return runs.table.iloc[:0]
    placement = runs.placement(setting)
    members = placement.members(*arms.values())
    taken = np.isin(placement.option, np.concatenate(members))
    seen = placement.seen(taken)
    whole = np.all([seen[:, options].any(1) for options in members], axis=0)
    there = np.zeros((len(placement.blocks) * len(placement.contexts), len(placement.options)), dtype=bool)
    there[placement.place[taken], placement.option[taken]] = True
    complete = there.sum(1)[placement.place] == seen.sum(1)[placement.context]
    rows = np.flatnonzero(taken & whole[placement.context] & complete)
    rows = rows[np.argsort(placement.context[rows], kind="stable")]
    used = runs.table.iloc[rows].copy()
    used["context"] = placement.contexts[placement.context[rows]]
    return used


def _matched(runs: RunTable, setting: str, arms: Arms, metric: str) -> Matched | None:
    """The arms side by side in a measure; None where cells do not differ in the setting."""
    if setting not in runs.settings:
        return None
    values = runs.table[metric].to_numpy(dtype=float)
    results = runs.table["result"].to_numpy(dtype=bool)
    return match(runs.placement(setting), values, results, list(arms.values()))


def _gaps(found: Matched) -> dict[str, float]:
    """Second arm minus first by block, contexts averaged; blocks in the order of their names."""
    sums = np.bincount(found.block, found.means[:, 1] - found.means[:, 0])
    counts = np.bincount(found.block)
    named = {str(found.placement.blocks[k]): float(sums[k] / counts[k]) for k in np.flatnonzero(counts)}
    return dict(sorted(named.items()))


def _count(runs: RunTable, setting: str, arms: Arms, found: Matched) -> int:
    """The runs of both arms that have a result, in the blocks and contexts compared."""
    placement = found.placement
    options = np.concatenate(placement.members(*arms.values()))
    compared = found.block * len(placement.contexts) + found.context
    results = runs.table["result"].to_numpy(dtype=bool)
    mine = results & np.isin(placement.option, options) & np.isin(placement.place, compared)
    return int(mine.sum())
