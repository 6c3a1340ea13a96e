"""Everything a study's statistics say, computed once: what reports, tables and comparisons show."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.arms import common_horizon
from analysis.declared import judge_hypotheses
from analysis.factorial import FactorialFit, fit_factorial
from analysis.findings import judge_findings, stability_margins
from analysis.gates import Gates, judge_gates
from analysis.measures import RunTable, run_table
from analysis.pairs import PairEffect, pair_effects, pair_sentences
from analysis.precursors import RunPanel, Separation, WarningOrder, separations, warning_order
from analysis.resampling import SHARE, Interval, block_interval, interquartile_means, seed_interval
from analysis.significance import holm
from analysis.study import Study, Trial
from analysis.survival import cox, log_rank, restricted_mean
from analysis.verdicts import Claim


@dataclass(frozen=True)
class OptionSummary:
    """One option of one setting, in runs where all options of the setting ran, all else equal.

    alike: whether there are such runs; where there are none these are all runs with the option. level: final
    success, mean over blocks; middle: its interquartile mean; collapsed of results runs; lasted: restricted
    mean steps to collapse, None where it is not known; hazard: its hazard ratio to the setting's first option
    among all runs (1 for that one), None where there is no model.
    """

    setting: str
    option: str
    alike: bool
    level: Interval
    middle: Interval
    collapsed: int
    results: int
    lasted: float | None
    hazard: tuple[float, float, float] | None


@dataclass(frozen=True)
class Conclusions:
    """The statistics of a study.

    factorial: the effects on each measure; log_ranks: per setting the p-value that its options collapse
    alike, corrected for all settings; penalised: whether hazards needed a penalty, None without a model;
    horizon: the step up to which times to collapse are counted. changes: separations of statistics relative
    to each run's own start.
    """

    runs: RunTable
    trials: tuple[Trial, ...]
    findings: tuple[Claim, ...]
    declared: tuple[Claim, ...]
    factorial: Mapping[str, FactorialFit]
    pairs: tuple[PairEffect, ...]
    options: tuple[OptionSummary, ...]
    log_ranks: Mapping[str, float]
    penalised: bool | None
    horizon: float
    warnings: tuple[WarningOrder, ...]
    levels: tuple[Separation, ...]
    changes: tuple[Separation, ...]
    margins: pd.DataFrame
    gates: Gates | None = None

    @property
    def blocks(self) -> int:
        """How many blocks have a result."""
        return int(self.runs.results["block"].nunique())

    def established(self) -> list[str]:
        """What holds beyond chance, in sentences of markdown; empty where nothing does."""
        of_gates = self.gates.claims if self.gates else ()
        sentences = [
            f"{claim.text}: **{claim.verdict}**."
            for claim in (*self.declared, *self.findings, *of_gates)
            if claim.verdict in ("supported", "contradicted")
        ]
        return [*sentences, *pair_sentences([pair for pair in self.pairs if pair.established])]


def conclude(study: Study, progress: Callable[[str], None] | None = None) -> Conclusions:
    """Compute the statistics of a study. progress: told what is being computed."""
    tell = progress or (lambda _: None)
    tell("measuring the runs")
    runs = run_table(study)
    trials = tuple(trial for trial in study.trials if trial.id in runs.table.index)
    tell("testing the claims")
    panel = RunPanel(trials)
    findings = judge_findings(runs, panel) if len(runs.table) else []
    declared = judge_hypotheses(study.hypotheses, runs)
    tell("estimating effects")
    factorial = {
        metric: fit_factorial(runs.results, runs.settings, metric)
        for metric in ("final", "area", "healthy")
        if runs.settings
    }
    pairs = pair_effects(runs)
    tell("looking at times to collapse")
    hazards, penalised = _hazards(runs)
    horizon = common_horizon(runs.table) if len(runs.table) else 0.0
    options = tuple(
        _option(runs, setting, option, horizon, hazards.get((setting, option)))
        for setting in runs.settings
        for option in runs.order(setting)
    )
    tell("looking at what came first")
    return Conclusions(
        runs=runs,
        trials=trials,
        findings=tuple(findings),
        declared=tuple(declared),
        factorial=factorial,
        pairs=pairs,
        options=options,
        log_ranks=_log_ranks(runs),
        penalised=penalised,
        horizon=horizon,
        warnings=tuple(warning_order(trials)),
        levels=tuple(separations(panel)),
        changes=tuple(separations(panel, change=True)),
        margins=stability_margins(runs),
        gates=judge_gates(runs, trials) if len(runs.table) else None,
    )


def _option(
    runs: RunTable,
    setting: str,
    option: str,
    horizon: float,
    hazard: tuple[float, float, float] | None,
) -> OptionSummary:
    members, alike = runs.side_by_side(setting)
    table = members[members[setting].astype(str) == option]
    results = table[table["result"]]
    wide = results.pivot_table(index="block", columns="cell", values="final", sort=False)
    try:
        lasted = restricted_mean(table["time"], table["event"], horizon) if table["event"].any() else horizon
    except ValueError:
        lasted = None
    return OptionSummary(
        setting=setting,
        option=option,
        alike=alike,
        level=seed_interval(wide.mean(axis=1).dropna(), within=SHARE),
        middle=block_interval(wide.to_numpy(dtype=float), interquartile_means, within=SHARE)
        if len(wide)
        else seed_interval([]),
        collapsed=int(results["collapsed"].sum()),
        results=len(results),
        lasted=lasted,
        hazard=hazard,
    )


def _hazards(runs: RunTable) -> tuple[dict[tuple[str, str], tuple[float, float, float]], bool | None]:
    """Hazard ratios of all options against the first of their setting, in one model; none where it fails."""
    table = runs.table
    columns = [(setting, option) for setting in runs.settings for option in runs.order(setting)[1:]]
    if not columns or table["event"].sum() < 2 * len(columns):
        return {}, None
    x = np.stack([(table[s].astype(str) == o).to_numpy(dtype=float) for s, o in columns], axis=1)
    try:
        fit = cox(table["time"], table["event"], x, table["env"].to_numpy())
    except ValueError:
        return {}, None
    ratios = {key: tuple(map(float, row)) for key, row in zip(columns, fit.ratios(), strict=True)}
    found = {key: (row[0], row[1], row[2]) for key, row in ratios.items()}
    found |= {(setting, runs.order(setting)[0]): (1.0, 1.0, 1.0) for setting in runs.settings}
    return found, fit.penalised


def _log_ranks(runs: RunTable) -> dict[str, float]:
    """Per setting the p-value that its options collapse alike, stratified by block and surroundings."""
    table = runs.table
    if not len(table) or not table["event"].any() or table["block"].nunique() < 5:
        return {}
    p_values: list[float | None] = []
    for setting in runs.settings:
        others = [name for name in runs.settings if name != setting]
        strata = table[["block", *others]].astype(str).agg(" | ".join, axis=1)
        p_values.append(log_rank(table["time"], table["event"], table[setting].astype(str), strata).p)
    corrected = holm(p_values)
    return {s: p for s, p in zip(runs.settings, corrected, strict=True) if p is not None}
