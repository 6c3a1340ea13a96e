"""The section of a report on tuning: what was searched, with what budget, what was chosen, what mattered."""

from __future__ import annotations

import json
from collections.abc import Sequence

from analysis.markdown import code, escape, listing, table
from analysis.searches import Candidate, Search, numbers_in
from analysis.study import Study

FIGURE = "tuning.png"


def tuning_section(study: Study, note: str | None) -> list[str]:
    """Blocks of markdown, none where nothing was tuned. note: on the figure; None where there is none."""
    searches = study.searches
    if not searches:
        return []
    blocks = [_budget(searches), _chosen(searches)]
    if note is not None:
        blocks += [
            f"![Candidates of tuning](figures/{FIGURE})",
            "*How to read it.* A search that still rises at its last candidate had too few. A best value at"
            f" the end of those tried calls for a wider range. {note}".strip(),
        ]
    if important := _importance(searches):
        blocks += important
    unsettled = [trial for trial in study.tuning if not trial.has_result]
    if unsettled:
        named = [f"{escape(trial.label)} ({trial.status}, {code(trial.id)})" for trial in unsettled]
        blocks.append(f"Trials of tuning without a result: {listing(named, 20)}.")
    return blocks


def _budget(searches: Sequence[Search]) -> str:
    first = searches[0]
    used = [len(search.candidates) for search in searches]
    keys = dict.fromkeys(key for search in searches for key in search.keys)
    text = (
        f"Before the trials above were run, values of {listing([code(key) for key in keys])} were searched"
        f" for: {len(searches)} searches of at most {first.budget} candidates each"
        f" ({escape(first.sampler)}), on seeds that no trial above has. Score: final success, less"
        f" {listing([f'{value:g} where {outcome}' for outcome, value in first.penalties.items()])}."
    )
    if first.until_stable:
        text += (
            " A search ended at its first candidate that was stable and had learned:"
            f" they took {min(used)} to {max(used)} candidates, so their budgets are not equal."
        )
    elif min(used) < first.budget:
        text += (
            " **Not all searches have tried as many candidates: methods are not compared on equal terms.**"
        )
    else:
        text += " All of them had the same budget."
    return text


def _chosen(searches: Sequence[Search]) -> str:
    rows = [
        [
            f"**{escape(search.label)}**",
            f"{len(search.candidates)} of {search.budget}",
            _values(search.best) if search.best else "-",
            "-" if search.best is None or search.best.success is None else f"{search.best.success:.2f}",
            "-" if search.best is None or search.best.score is None else f"{search.best.score:.2f}",
            _verdict(search),
            _at_an_end(search) or "-",
        ]
        for search in searches
    ]
    header = ("search", "candidates", "chosen", "success", "score", "outcome", "at the end of those tried")
    return table(header, rows, right=(3, 4))


def _values(candidate: Candidate) -> str:
    return ", ".join(f"{code(key)} {code(json.dumps(value))}" for key, value in candidate.values.items())


def _verdict(search: Search) -> str:
    if search.best is None:
        return "no candidate has a result" if search.finished else "not finished"
    return ", ".join(dict.fromkeys(search.best.outcomes)) + (
        "" if search.best.stable else " (not stable and learned)"
    )


def _at_an_end(search: Search) -> str:
    """The keys whose chosen value is the lowest or highest of all that were tried."""
    if search.best is None or len(search.candidates) < 3:
        return ""
    ends = []
    for key, value in search.best.values.items():
        tried = [one.values.get(key) for one in search.candidates if one.score is not None]
        numbers = numbers_in(tried)
        if len(numbers) == len(tried) and len(set(numbers)) > 2 and value in (min(numbers), max(numbers)):
            ends.append(code(key))
    return listing(ends)


def _importance(searches: Sequence[Search]) -> list[str]:
    keys = list(dict.fromkeys(key for search in searches for key in search.importance))
    if len(keys) < 2:
        return []
    rows = [
        [
            escape(search.label),
            *(f"{search.importance[key]:.2f}" if key in search.importance else "-" for key in keys),
        ]
        for search in searches
        if search.importance
    ]
    return [
        table(("importance", *map(code, keys)), rows, right=tuple(range(1, len(keys) + 1))),
        "Share of the variance of scores that a key explains (fANOVA). With few candidates this is a hint.",
    ]
