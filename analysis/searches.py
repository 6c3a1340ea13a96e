"""What `tuning.json` says of a study's searches: candidates, scores, what was chosen and what mattered."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.early_warning import number


@dataclass(frozen=True)
class Candidate:
    """Values that were tried. score: None where one of its trials failed or runs; success: unpenalised."""

    number: int
    values: Mapping[str, Any]
    state: str
    score: float | None
    success: float | None
    outcomes: tuple[str, ...]
    stable: bool


@dataclass(frozen=True)
class Search:
    """One search. budget: candidates it may try; keys: what is searched over, in words; logarithmic: keys
    that are searched on that scale; chosen: a candidate's number; importance: by key, where it was computed.
    """

    label: str
    envs: tuple[str, ...]
    budget: int
    seeds: tuple[int, ...]
    sampler: str
    until_stable: bool
    keys: Mapping[str, str]
    logarithmic: frozenset[str]
    penalties: Mapping[str, float]
    candidates: tuple[Candidate, ...]
    finished: bool
    chosen: int | None
    importance: Mapping[str, float]

    @property
    def best(self) -> Candidate | None:
        """The chosen candidate."""
        return next((one for one in self.candidates if one.number == self.chosen), None)


def numbers_in(values: Iterable[Any]) -> list[float]:
    """Those values that are numbers."""
    return [float(one) for one in values if isinstance(one, int | float) and not isinstance(one, bool)]


def read_searches(path: Path) -> tuple[Search, ...]:
    """The searches on file; none where they are not, or cannot be read."""
    try:
        return tuple(_search(one) for one in json.loads(path.read_bytes())["searches"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return ()


def _search(one: Mapping[str, Any]) -> Search:
    return Search(
        label=str(one["label"]),
        envs=tuple(map(str, one["envs"])),
        budget=int(one["budget"]),
        seeds=tuple(map(int, one["seeds"])),
        sampler=str(one["sampler"]),
        until_stable=bool(one["until_stable"]),
        keys={str(key): str(text) for key, text in one["keys"].items()},
        logarithmic=frozenset(map(str, one["log"])),
        penalties={str(outcome): float(value) for outcome, value in one["penalties"].items()},
        candidates=tuple(_candidate(entry) for entry in one["candidates"]),
        finished=bool(one["finished"]),
        chosen=None if one["chosen"] is None else int(one["chosen"]),
        importance={str(key): float(value) for key, value in (one["importance"] or {}).items()},
    )


def _candidate(entry: Mapping[str, Any]) -> Candidate:
    return Candidate(
        number=int(entry["number"]),
        values=dict(entry["values"]),
        state=str(entry["state"]),
        score=number(entry["score"]),
        success=number(entry["success"]),
        outcomes=tuple(map(str, entry["outcomes"])),
        stable=bool(entry["stable"]),
    )
