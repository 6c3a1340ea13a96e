"""Searches for hyper-parameters: the trials of their candidates, their scores, what is on file of them.

`tuning.json` in a study's folder says how far searches are. It is written from Optuna's storage and the
trials' own folders, so that plans, reports and status need no Optuna.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from analysis.collapse import judge
from arena.clones import clone_id
from arena.configuration import merge
from arena.identity import TrialConfig, canonical_json, cell_id, trial_id
from arena.labels import settings_text
from arena.plan import Candidate, PlannedTrial, Progress, Search
from arena.records import METRICS, CorruptRecordError, read_lines, read_outcome, write_json

TUNING = "tuning.json"
SEARCH_VERSION = 1
"""Part of every search's id. Raise it when the same search starts to mean something else."""

PENALTIES: Mapping[str, float] = {"unstable": 0.1, "collapsed": 0.5, "diverged": 1.0}
"""What an outcome takes from the score of a candidate's trial; the others take nothing."""

DIGITS = 4
"""Significant digits of a proposed number: no more can matter, and more cannot be read."""


def search_id(search: Search) -> str:
    """The id of a search, 8 hexadecimal digits. How many candidates it has is not in it: more can follow."""
    parts = {
        "cells": sorted(cell.cell for cell in search.cells),
        "keys": {key.name: {**asdict(key), "choices": list(key.choices)} for key in search.keys},
        "sampler": [search.sampler, search.parallel, search.until_stable],
        "seeds": list(search.seeds),
        "version": SEARCH_VERSION,
    }
    return hashlib.sha256(canonical_json(parts).encode()).hexdigest()[:8]


def with_values(trial: PlannedTrial, values: Mapping[str, Any]) -> PlannedTrial:
    """A trial with other values for some configuration keys. Raises ValidationError when they are wrong."""
    settings = [(tuple(name.split(".")), value) for name, value in values.items()]
    config = TrialConfig.model_validate(merge(trial.config.model_dump(mode="json"), settings))
    cell = cell_id(config, trial.data)
    return replace(
        trial,
        id=trial_id(cell, trial.seed),
        cell=cell,
        config=config,
        state="pending",
        clone=clone_id(config, trial.data),
    )


def at_seed(trial: PlannedTrial, seed: int) -> PlannedTrial:
    """Another seed of a trial's cell, not looked for on the disk yet."""
    config = trial.config.model_copy(update={"seed": seed})
    own = config.cloning.clone_seed == "seed"
    return replace(
        trial,
        id=trial_id(trial.cell, seed),
        seed=seed,
        config=config,
        state="pending",
        clone=clone_id(config, trial.data) if own else trial.clone,
    )


def candidate_trials(search: Search, values: Mapping[str, Any]) -> list[PlannedTrial]:
    """The trials that try a candidate: every cell of the search, with the seeds of tuning."""
    suffix = ", ".join(settings_text({tuple(name.split(".")): value for name, value in values.items()}))
    tuned = [with_values(cell, values) for cell in search.cells]
    return [
        replace(at_seed(cell, seed), search=search.id, label=f"{cell.label}, {suffix}")
        for seed in search.seeds
        for cell in tuned
    ]


def chosen_trials(search: Search, values: Mapping[str, Any], seeds: Sequence[int]) -> list[PlannedTrial]:
    """The trials whose results are compared: every cell of the search with the chosen values."""
    if shared := set(seeds) & set(search.seeds):
        raise AssertionError(f"seeds {sorted(shared)} were used for tuning; no claim may rest on them")
    return [at_seed(with_values(cell, values), seed) for seed in seeds for cell in search.cells]


def proposed(value: Any, low: float, high: float) -> Any:
    """A number as it is tried: few digits, and inside its range."""
    if not isinstance(value, float):
        return value
    return min(max(float(f"{value:.{DIGITS}g}"), low), high)


def judged(candidate: Candidate, study: Path, trials: Sequence[PlannedTrial]) -> Candidate:
    """A candidate whose trials have ended, with its score. study: the folder."""
    found = []
    for trial in trials:
        if trial.problems:
            continue
        folder = study / "trials" / trial.id
        outcome = None
        with suppress(CorruptRecordError):
            outcome = read_outcome(folder)
        final = final_success(folder, trial.config)
        if outcome is None or not outcome.is_result or final is None:
            return replace(candidate, state="failed")
        found.append((final, outcome))
    if not found:
        return replace(candidate, state="failed")
    success = sum(final for final, _ in found) / len(found)
    penalty = sum(PENALTIES.get(outcome.outcome, 0.0) for _, outcome in found) / len(found)
    return replace(
        candidate,
        state="done",
        score=round(success - penalty, 6),
        success=round(success, 6),
        outcomes=tuple(outcome.outcome for _, outcome in found),
        stable=all(outcome.outcome == "stable" and outcome.learned is True for _, outcome in found),
    )


def final_success(folder: Path, config: TrialConfig) -> float | None:
    """Final success as the report counts it, of a trial that has a result; None where none is on file."""
    rows = read_lines(folder / METRICS).rows
    final = judge(rows, config.collapse.model_dump(), finished=True).final
    return final if final is not None and math.isfinite(final) else None


def read_progress(study: Path) -> dict[str, Progress]:
    """How far the searches of a study are, by id, as far as that is on file and can be read."""
    try:
        content = json.loads((study / TUNING).read_bytes())
        return {str(one["id"]): _progress(one) for one in content["searches"]}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def write_progress(study: Path, searches: Sequence[Search], progress: Mapping[str, Progress]) -> None:
    """Write `tuning.json`. Raises OSError."""
    write_json(study / TUNING, {"searches": [_document(one, progress.get(one.id)) for one in searches]})


def _document(search: Search, progress: Progress | None) -> dict[str, Any]:
    found = progress or Progress(search.id)
    chosen = found.chosen
    return {
        "id": search.id,
        "label": search.label,
        "envs": list(dict.fromkeys(cell.env for cell in search.cells)),
        "cells": len(search.cells),
        "budget": search.candidates,
        "seeds": list(search.seeds),
        "sampler": search.sampler,
        "until_stable": search.until_stable,
        "keys": {key.name: key.text for key in search.keys},
        "log": [key.name for key in search.keys if key.log],
        "penalties": dict(PENALTIES),
        "finished": found.finished,
        "chosen": None if chosen is None else chosen.number,
        "importance": found.importance,
        "candidates": [asdict(candidate) for candidate in found.candidates],
    }


def _progress(one: Mapping[str, Any]) -> Progress:
    candidates = tuple(
        Candidate(**{**entry, "trials": tuple(entry["trials"]), "outcomes": tuple(entry["outcomes"])})
        for entry in one["candidates"]
    )
    return Progress(str(one["id"]), candidates, bool(one["finished"]), one["importance"])
