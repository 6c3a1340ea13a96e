"""All numbers of a report as files: CSV for people, parquet for what is large."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.conclusions import Conclusions
from analysis.measures import MEASURES
from analysis.resampling import Interval
from analysis.results import Cell, curve_table, trial_table
from analysis.study import Study
from analysis.survival import kaplan_meier

MOST_CSV_NUMBERS = 2_000_000
"""Curves with more numbers than this are written as parquet alone."""
TRIALS_AT_ONCE = 100


def write_tables(
    study: Study,
    cells: Sequence[Cell],
    found: Conclusions,
    folder: Path,
    progress: Callable[[str], None] = lambda _: None,
) -> None:
    """Write trials, curves and, under `tables/`, everything that was computed, into a report's folder."""
    progress("writing the tables")
    trials = trial_table(study, cells)
    trials.to_csv(folder / "trials.csv", index=False)
    trials.to_parquet(folder / "trials.parquet", index=False)
    places = folder / "tables"
    places.mkdir(exist_ok=True)
    for name, table in statistics(found).items():
        if len(table):
            table.to_csv(places / f"{name}.csv", index=False)
        else:
            (places / f"{name}.csv").unlink(missing_ok=True)
    _write_curves(study, cells, folder, progress)


def statistics(found: Conclusions) -> dict[str, pd.DataFrame]:
    """The tables of a report by name, from the runs to the separations."""
    return {
        "runs": found.runs.table.drop(columns="methods", errors="ignore").reset_index(),
        "claims": pd.DataFrame(_claims(found)),
        "pairs": pd.DataFrame(_pairs(found)),
        "factorial": pd.DataFrame(_factorial(found)),
        "options": pd.DataFrame(_options(found)),
        "survival": _survival(found),
        "warnings": pd.DataFrame(_warnings(found)),
        "separations": pd.DataFrame(_separations(found)),
        "margins": found.margins,
    }


def curves_as_csv(study: Study) -> bool:
    """Whether a study is small enough for its curves to be written as CSV too."""
    frames = (frame for trial in study.trials for frame in (trial.train, trial.evaluations))
    return sum(frame.size for frame in frames) <= MOST_CSV_NUMBERS


def links(study: Study, found: Conclusions, *, curves: bool = True) -> str:
    """A sentence of markdown that leads to every file of numbers, with or without those of all steps."""
    named = [f"[{name}](tables/{name}.csv)" for name, table in statistics(found).items() if len(table)]
    text = "[trials.csv](trials.csv): a row per trial."
    if curves:
        files = ["curves.csv", "curves.parquet"] if curves_as_csv(study) else ["curves.parquet"]
        linked = " and ".join(f"[{name}]({name})" for name in files)
        text += f" {linked}: every recorded number, a row per trial and step."
    return text + (f" The statistics of this report in full: {', '.join(named)}." if named else "")


def _write_curves(study: Study, cells: Sequence[Cell], folder: Path, progress: Callable[[str], None]) -> None:
    """Curves in groups of trials, so that they are never in memory twice."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = {cell.id: cell.label for cell in cells}
    columns = sorted(
        {str(name) for trial in study.trials for frame in (trial.train, trial.evaluations) for name in frame}
    )
    facts = [("trial", pa.string()), ("label", pa.string()), ("env", pa.string()), ("seed", pa.int64()),
             ("kind", pa.string()), ("step", pa.int64())]  # fmt: skip
    schema = pa.schema([*facts, *((name, pa.float64()) for name in columns)])
    with pq.ParquetWriter(folder / "curves.parquet", schema) as writer:
        for start in range(0, len(study.trials), TRIALS_AT_ONCE):
            progress(f"writing curves {start} of {len(study.trials)}")
            group = study.trials[start : start + TRIALS_AT_ONCE]
            part = curve_table(group, names).reindex(columns=schema.names)
            writer.write_table(pa.Table.from_pandas(part, schema=schema, preserve_index=False))
    whole = folder / "curves.csv"
    if curves_as_csv(study):
        curve_table(study.trials, names).to_csv(whole, index=False)
    else:
        whole.unlink(missing_ok=True)


def _interval(prefix: str, interval: Interval) -> dict[str, Any]:
    return {f"{prefix}{name}": value for name, value in vars(interval).items()}


def _claims(found: Conclusions) -> Iterator[dict[str, Any]]:
    for family, claims in (("declared", found.declared), ("findings", found.findings)):
        for claim in claims:
            yield {
                "family": family,
                "name": claim.name,
                "claim": claim.text,
                "verdict": claim.verdict,
                "measure": claim.measure,
                **(_interval("", claim.effect) if claim.effect else {}),
                "smallest": claim.smallest,
                "p": claim.p,
                "p_holm": claim.p_holm,
                "runs": claim.runs,
                "reason": claim.reason,
                "beside": "; ".join(claim.beside),
            }


def _pairs(found: Conclusions) -> Iterator[dict[str, Any]]:
    for pair in found.pairs:
        contrasts = dict(pair.contrasts)
        if pair.lasted is not None:
            contrasts["steps until collapse"] = pair.lasted
        for measure, contrast in contrasts.items():
            yield {
                "setting": pair.setting,
                "first": pair.first,
                "second": pair.second,
                "measure": measure,
                **_interval("", contrast.effect),
                "p": contrast.p,
                "p_holm": pair.p_holm if measure == "final" else None,
                "runs": contrast.runs,
                "contexts": contrast.contexts,
                **(_interval("improvement_", pair.improvement) if measure == "final" else {}),
            }


def _factorial(found: Conclusions) -> Iterator[dict[str, Any]]:
    for metric, fit in found.factorial.items():
        for effect in fit.effects:
            for level, deviation in zip(effect.levels, effect.deviations, strict=True):
                yield {
                    "measure": MEASURES[metric],
                    "effect": effect.name,
                    "level": " / ".join(level),
                    **_interval("deviation_", deviation),
                    "size": effect.size,
                    "share": effect.share,
                    "f": effect.f,
                    "degrees": " ".join(map(str, effect.degrees)),
                    "p": effect.p,
                    "p_holm": effect.p_holm,
                    "alone": effect.alone,
                }


def _options(found: Conclusions) -> Iterator[dict[str, Any]]:
    for option in found.options:
        hazard = option.hazard or (None, None, None)
        yield {
            "setting": option.setting,
            "option": option.option,
            **_interval("final_", option.level),
            **_interval("interquartile_", option.middle),
            "collapsed": option.collapsed,
            "results": option.results,
            "steps_until_collapse": option.lasted,
            "horizon": found.horizon,
            **dict(zip(("hazard_ratio", "hazard_low", "hazard_high"), hazard, strict=True)),
            "log_rank_p_holm": found.log_ranks.get(option.setting),
        }


def _survival(found: Conclusions) -> pd.DataFrame:
    parts = []
    for setting in found.runs.settings:
        members, _ = found.runs.side_by_side(setting)
        for option in found.runs.order(setting):
            mine = members[members[setting].astype(str) == option]
            curve = kaplan_meier(mine["time"], mine["event"])
            columns = ("times", "survival", "low", "high", "at_risk", "collapsed")
            part = pd.DataFrame({name: getattr(curve, name) for name in columns})
            parts.append(part.assign(setting=setting, option=option))
    table = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
    return table.rename(columns={"times": "step"})


def _warnings(found: Conclusions) -> Iterator[dict[str, Any]]:
    for order in found.warnings:
        leads = " ".join(map(str, order.leads))
        yield {**vars(order), "leads": leads, "median_lead": order.lead}


def _separations(found: Conclusions) -> Iterator[dict[str, Any]]:
    for one in (*found.levels, *found.changes):
        yield {
            "statistic": one.diagnostic.name,
            "steps_before": one.before,
            "change": one.change,
            **_interval("area_", one.area),
            "cases": one.cases,
            "at_risk": one.at_risk,
        }
