"""Two studies side by side: what both ran, what differs between them, and what came out otherwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from analysis.evidence import p_text
from analysis.factors import settings
from analysis.markdown import code, escape, interval, listing, table
from analysis.resampling import seed_interval
from analysis.results import BAD_ENDS
from analysis.significance import block_p_value, holm
from analysis.study import Study, Trial

MOST_ROWS = 60
IGNORED = ("seed", "collapse")


def compare(first: Study, second: Study) -> str:
    """A page of markdown. Cells are matched by point and environment, trials by block.

    The studies may differ in the version of the code or in settings that all their trials share: what differs
    is named first, and every change is conditional on it.
    """
    parts = [f"# {escape(first.name)} against {escape(second.name)}", *_what_differs(first, second)]
    rows, left = _changes(first, second)
    if rows:
        parts.append("## Final success of what both ran")
        parts.append(
            table(
                ("method", "environment", "first", "second", "change", "blocks", "collapsed", "p, corrected"),
                rows[:MOST_ROWS],
                right=(5,),
            )
        )
        if len(rows) > MOST_ROWS:
            parts.append(f"{len(rows) - MOST_ROWS} more are left out.")
        parts.append(
            "Change: second minus first over blocks (environment, clone, seed) that both have, with a 95%"
            " interval, with fewer than five blocks the range. p: corrected for all rows. Collapsed: first"
            " against second."
        )
    else:
        parts.append("The studies have no method in common that has results in both.")
    for study, labels in ((first, left[0]), (second, left[1])):
        if labels:
            parts.append(f"Only in {escape(study.name)}: {listing([escape(label) for label in labels], 20)}.")
    return "\n\n".join(parts) + "\n"


def _changes(first: Study, second: Study) -> tuple[list[list[str]], tuple[list[str], list[str]]]:
    one, other = _cells(first), _cells(second)
    found = []
    for key in one:
        if key in other:
            finals = [_finals(trials) for trials in (one[key], other[key])]
            both = sorted(finals[0].keys() & finals[1].keys())
            if both:
                found.append((key, finals, [finals[1][name] - finals[0][name] for name in both]))
    corrected = holm([block_p_value(gaps) for _, _, gaps in found])
    rows = []
    for (key, finals, gaps), p in zip(found, corrected, strict=True):
        bad = [
            f"{sum(t.status in BAD_ENDS for t in trials)} of {sum(t.has_result for t in trials)}"
            for trials in (one[key], other[key])
        ]
        label, env = one[key][0].label, one[key][0].env
        means = [interval(seed_interval(list(values.values())), sign=False) for values in finals]
        change = f"**{interval(seed_interval(gaps))}**"
        told = " against ".join(bad)
        rows.append([escape(label), escape(env), *means, change, str(len(gaps)), told, p_text(p)])
    only = (
        list(dict.fromkeys(one[key][0].label for key in one if key not in other)),
        list(dict.fromkeys(other[key][0].label for key in other if key not in one)),
    )
    return rows, only


def _cells(study: Study) -> dict[tuple[Any, ...], list[Trial]]:
    """Trials by what they are apart from settings that the whole study shares."""
    varying = _varying(study)
    cells: dict[tuple[Any, ...], list[Trial]] = {}
    for trial in study.trials:
        flat = settings(trial.config)
        swept = tuple((name, flat.get(name)) for name in varying if name.split(".")[0] not in trial.options)
        cells.setdefault((trial.env, tuple(sorted(trial.options.items())), swept), []).append(trial)
    return cells


def _varying(study: Study) -> list[str]:
    seen: dict[str, set[str]] = {}
    for trial in study.trials:
        for name, value in settings(trial.config).items():
            seen.setdefault(name, set()).add(value)
    apart = ("env", *IGNORED)
    return [name for name, values in seen.items() if len(values) > 1 and name.split(".")[0] not in apart]


def _finals(trials: Sequence[Trial]) -> dict[str, float]:
    return {
        trial.block: trial.verdict.final
        for trial in trials
        if trial.has_result and trial.verdict.final is not None
    }


def _what_differs(first: Study, second: Study) -> list[str]:
    rows = []
    for name, values in _shared(first, second).items():
        rows.append([code(name), *(escape(value) for value in values)])
    for name, of in (("code", _commits), ("versions", _versions)):
        values = (of(first), of(second))
        if values[0] != values[1]:
            rows.append([name, *map(escape, values)])
    counts = [
        f"{sum(t.has_result for t in study.trials)} of {len(study.trials)}" for study in (first, second)
    ]
    rows.append(["trials with a result", *counts])
    return ["## What differs", table(("", escape(first.name), escape(second.name)), rows[:MOST_ROWS])]


def _shared(first: Study, second: Study) -> Mapping[str, tuple[str, str]]:
    """Settings that each study has one value of, where the two values differ."""
    values = []
    for study in (first, second):
        frame = pd.DataFrame([settings(trial.config) for trial in study.trials if trial.config])
        values.append({str(n): str(frame[n].iloc[0]) for n in frame if frame[n].nunique(dropna=False) == 1})
    one, other = values
    return {
        name: (one[name], other[name])
        for name in one
        if name in other and one[name] != other[name] and name.split(".")[0] not in IGNORED
    }


def _commits(study: Study) -> str:
    commits = [trial.provenance.get("commit") for trial in study.trials if trial.provenance]
    return ", ".join(dict.fromkeys(str(commit or "unknown")[:12] for commit in commits)) or "unknown"


def _versions(study: Study) -> str:
    found: dict[str, None] = {}
    for trial in study.trials:
        versions = trial.provenance.get("versions")
        if isinstance(versions, Mapping):
            found |= dict.fromkeys(f"{name} {version}" for name, version in versions.items())
    return ", ".join(found) or "unknown"
