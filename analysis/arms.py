"""Arms compared like for like: runs of a block and a context that differ in one setting alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from analysis.measures import RunTable
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
    if setting not in runs.settings:
        return pd.DataFrame(columns=list(arms), dtype=float)
    table = runs.results
    table = table[table[metric].notna()]
    wide = _wide(table, runs, setting, metric)
    parts = []
    for _, part in wide.groupby(level="context", sort=False):
        present = part.columns[part.notna().any()]
        members = {arm: [option for option in options if option in present] for arm, options in arms.items()}
        if all(members.values()):
            whole = part.dropna(subset=[option for options in members.values() for option in options])
            parts.append(pd.DataFrame({arm: whole[options].mean(axis=1) for arm, options in members.items()}))
    parts = [part for part in parts if len(part)]
    return pd.concat(parts) if parts else pd.DataFrame(columns=list(arms), dtype=float)


def difference(runs: RunTable, setting: str, arms: Arms, metric: str) -> Contrast:
    """Second arm minus first, in a measure: contexts of a block are averaged, blocks compared."""
    means = arm_means(runs, setting, arms, metric)
    first, second = list(arms)
    return _contrast(means[second] - means[first], runs=_count(runs, setting, arms, means))


def difference_of_differences(
    runs: RunTable, setting: str, arms: Arms, moderator: str, levels: Arms, metric: str
) -> Contrast:
    """The second arm's lead over the first, at the second level of a moderator minus at its first."""
    gains = {}
    count = 0
    for level, options in levels.items():
        part = restricted(runs, {moderator: options})
        means = arm_means(part, setting, arms, metric)
        first, second = list(arms)
        gains[level] = (means[second] - means[first]).groupby(level=0).mean() if len(means) else pd.Series()
        count += _count(part, setting, arms, means)
    low, high = (gains[level] for level in levels)
    return _contrast((high - low).dropna().astype(float), runs=count)


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
    table = _with_context(runs.table, runs, setting)
    options = [option for members in arms.values() for option in members]
    table = table[table[setting].isin(options)]
    kept = []
    for _, part in table.groupby("context", sort=False):
        present = set(part[setting])
        if all(present & set(members) for members in arms.values()):
            found = part.groupby("block")[setting].nunique()
            kept.append(part[part["block"].isin(found.index[found == len(present)])])
    return pd.concat(kept) if kept else table.iloc[:0]


def _wide(table: pd.DataFrame, runs: RunTable, setting: str, metric: str) -> pd.DataFrame:
    placed = _with_context(table, runs, setting)
    placed[setting] = placed[setting].astype(str)
    return placed.pivot_table(index=["block", "context"], columns=setting, values=metric, sort=False)


def _with_context(table: pd.DataFrame, runs: RunTable, setting: str) -> pd.DataFrame:
    others = [name for name in runs.settings if name != setting]
    placed = table.copy()
    labels = [placed[name].astype(str) for name in others]
    placed["context"] = [" / ".join(parts) for parts in zip(*labels, strict=True)] if others else "-"
    return placed


def _contrast(differences: pd.Series, *, runs: int) -> Contrast:
    if differences.empty:
        return NOTHING_ALIKE
    contexts = differences.index.get_level_values(-1).nunique() if differences.index.nlevels > 1 else 1
    blocks = differences.groupby(level=0).mean()
    values = tuple(float(value) for value in blocks)
    return Contrast(seed_interval(values), block_p_value(values), runs, int(contexts), values)


def _count(runs: RunTable, setting: str, arms: Arms, means: pd.DataFrame) -> int:
    if means.empty:
        return 0
    placed = _with_context(runs.results, runs, setting)
    options = [option for members in arms.values() for option in members]
    placed = placed[placed[setting].isin(options)]
    keys = pd.MultiIndex.from_frame(placed[["block", "context"]])
    return int(keys.isin(means.index).sum())
