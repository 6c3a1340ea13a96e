"""A study read back from its folder: what was planned, what every trial recorded, what became of it.

Reading survives what a crash leaves behind: a line cut short, a file that is missing or not JSON. What could
not be read is named in `problems`, never guessed. Non-finite numbers ("NaN", "Infinity") come back as floats.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pandas as pd
import yaml

from analysis.collapse import CollapseRule, Verdict, judge
from analysis.design_limits import Estimable, read_estimable
from analysis.early_warning import number
from analysis.option_names import option_label
from analysis.searches import Search, read_searches

RESULTS = ("stable", "unstable", "undecided", "collapsed", "diverged")
"""Outcomes that are a result; `failed` and `interrupted` are none, and a trial may have no outcome yet."""


@dataclass(frozen=True)
class RecordedOutcome:
    """The content of `outcome.json`: trained to `step` of `steps`, started `attempts` times.

    retries: how many of these nobody asked for. micro_rows: rows in memory at once, where fewer than
    configured because memory ran out.
    """

    outcome: str
    learned: bool | None = None
    reason: str = ""
    onset: int | None = None
    step: int = 0
    steps: int = 0
    exit: int | None = None
    attempts: int = 1
    warnings: tuple[tuple[str, int], ...] = ()
    retries: int = 0
    micro_rows: int | None = None


@dataclass(frozen=True)
class Histograms:
    """One quantity over the steps of a trial.

    steps: (S,); edges: (B + 1,); counts: (S, B), the outer bins also hold what lies outside; exact: (S,)
    counts of values in a bin of their own.
    """

    steps: np.ndarray
    edges: np.ndarray
    counts: np.ndarray
    exact: np.ndarray


@dataclass(frozen=True)
class Trial:
    """One trial. `options` names the option of each axis; `config` is empty where `trial.yaml` is missing.

    tuned: the configuration keys whose values were searched for, for its method.

    rule: the thresholds it ran under (the defaults where its configuration does not say).

    status: its recorded outcome; else `unfinished` (records but no outcome: it still runs, or was killed),
    `unavailable` (this machine could not run it) or `missing` (never started).
    """

    id: str
    cell: str
    label: str
    methods: tuple[str, ...]
    env: str
    seed: int
    options: Mapping[str, str]
    status: str
    folder: Path
    config: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)
    outcome: RecordedOutcome | None = None
    rule: CollapseRule = field(default_factory=CollapseRule)
    problems: tuple[str, ...] = ()
    tuned: tuple[str, ...] = ()

    @property
    def choices(self) -> Mapping[str, Any]:
        """Its configuration without what was tuned: that is part of a method, and no choice beside it."""
        config: Mapping[str, Any] = self.config
        for key in self.tuned:
            config = _without(config, key.split("."))
        return config

    @property
    def has_result(self) -> bool:
        """Whether it counts: collapse is a result, failure and interruption are none."""
        return self.status in RESULTS

    @property
    def clone_seed(self) -> int | None:
        """The seed of the clone it started from, which may be its own; None where that is not on file."""
        cloning = self.config.get("cloning")
        found = cloning.get("clone_seed") if isinstance(cloning, Mapping) else None
        return self.seed if found == "seed" else found if isinstance(found, int) else None

    @property
    def block(self) -> str:
        """What it shares with its partners in other cells: environment, clone, seed."""
        return f"{self.env}, clone {self.clone_seed or 0}, seed {self.seed}"

    def rows(self) -> list[dict[str, Any]]:
        """Its metric rows as recorded, read anew at every call; the last row of a step and kind counts."""
        rows = {(row["step"], row.get("kind")): row for row in read_rows(self.folder / "metrics.jsonl")}
        return list(rows.values())

    @cached_property
    def _read(self) -> tuple[Verdict, pd.DataFrame, pd.DataFrame]:
        rows = self.rows()
        verdict = judge(rows, self.rule, finished=self.has_result, interrupted=self.status == "interrupted")
        return verdict, metric_frame(rows, "train"), metric_frame(rows, "eval")

    def read(self) -> None:
        """Read the records now rather than when they are first asked for."""
        _ = self._read

    @property
    def verdict(self) -> Verdict:
        """The verdict on its records under the thresholds it ran with."""
        return self._read[0]

    @property
    def train(self) -> pd.DataFrame:
        """Train metrics, one row per step (the index), floats."""
        return self._read[1]

    @property
    def evaluations(self) -> pd.DataFrame:
        """Evaluation metrics, one row per evaluated step (the index, 0 is the clone), floats."""
        return self._read[2]

    def histograms(self, name: str) -> Histograms | None:
        """The histogram of this name over the steps; None where nothing usable was recorded."""
        return read_histograms(self.folder / "histograms.jsonl", name)


@dataclass(frozen=True)
class Study:
    """A study: `trials` as its last plan names and orders them; `others` merely lie in its folder.

    seeds_until: how wide a cell's interval may be until it gets another seed; None where seeds are fixed.
    hypotheses: those its grid declared, as written. tuning: trials that tried candidates of `searches`, which
    are never compared. estimable: what its cells determine, None where the plan does not say.
    """

    folder: Path
    name: str
    question: str
    axes: Mapping[str, tuple[str, ...]]
    design: str
    trials: tuple[Trial, ...]
    others: tuple[Trial, ...]
    problems: tuple[str, ...] = ()
    seeds_until: float | None = None
    hypotheses: tuple[str, ...] = ()
    tuning: tuple[Trial, ...] = ()
    searches: tuple[Search, ...] = ()
    estimable: Estimable | None = None


@dataclass(frozen=True)
class Replayed:
    """A trial judged again. `cut_short`: it was stopped at a collapse these thresholds no longer see."""

    trial: Trial
    verdict: Verdict
    cut_short: bool


def load_study(folder: Path) -> Study:
    """Read a study's folder. Trials read their records when they are asked for them.

    Raises FileNotFoundError where there is no such folder. Without a readable `plan.json`, every trial in
    the folder counts.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: there is no study here")
    plan, problems = _read_mapping(folder / "plan.json")
    planned = [entry for entry in plan.get("trials", []) if isinstance(entry, dict) and "id" in entry]
    ids = {str(entry["id"]) for entry in planned}
    places = folder / "trials"
    there = places.iterdir() if places.is_dir() else ()
    # What is hidden is being removed.
    found = sorted(place.name for place in there if place.is_dir() and not place.name.startswith("."))
    tuning = plan.get("tuning")
    tuned = tuple(map(str, tuning.get("keys", ()))) if isinstance(tuning, dict) else ()
    loaded = [
        (_load_trial(places / str(entry["id"]), entry, tuned), entry.get("tuning")) for entry in planned
    ]
    trials = [trial for trial, search in loaded if not search]
    others = [_load_trial(places / name, {}) for name in found if name not in ids]
    if not planned and not tuned:
        trials, others = others, []
        problems = [*problems, "plan.json names no trials: every trial in the folder is counted"]
    declared = plan.get("hypotheses")
    axes = plan.get("axes") if isinstance(plan.get("axes"), dict) else {}
    seeds = plan.get("seeds")
    until = seeds.get("until") if isinstance(seeds, dict) else None
    return Study(
        folder=folder,
        name=str(plan.get("study", folder.name)),
        question=str(plan.get("question") or ""),
        axes={str(axis): tuple(map(str, labels)) for axis, labels in (axes or {}).items()},
        design=str(plan.get("design") or ""),
        trials=tuple(trials),
        others=tuple(others),
        problems=tuple(problems),
        hypotheses=tuple(map(str, declared)) if isinstance(declared, list) else (),
        tuning=tuple(trial for trial, search in loaded if search),
        estimable=read_estimable(plan.get("estimable")),
        searches=read_searches(folder / "tuning.json") if tuned else (),
        seeds_until=number(until.get("ci_width")) if isinstance(until, dict) else None,
    )


def replay(study: Study, **thresholds: Any) -> list[Replayed]:
    """The verdicts under other thresholds (`best_share=0.3`), for every trial that has a result."""
    replayed = []
    for trial in study.trials:
        if trial.has_result:
            rule = CollapseRule.of({**trial.rule.to_dict(), **thresholds})
            verdict = judge(trial.rows(), rule, finished=True)
            cut_short = trial.verdict.carried and verdict.onset is None
            replayed.append(Replayed(trial, verdict, cut_short))
    return replayed


def read_rows(path: Path, *, holding: bytes = b"") -> Iterator[dict[str, Any]]:
    """The JSON objects of a record file that carry a step; cut-off and corrupt lines are skipped.

    holding: only lines with these bytes are parsed.
    """
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return
    for line in lines:
        if holding not in line or not line.strip():
            continue
        row = _parsed(line)
        if isinstance(row, dict) and isinstance(row.get("step"), int):
            yield row


def _parsed(line: bytes) -> Any:
    """What a line of JSON holds; None where it is none."""
    try:
        return orjson.loads(line)  # three times as fast, and stricter
    except ValueError:
        pass
    try:
        return json.loads(line)
    except ValueError:
        return None


def metric_frame(rows: list[dict[str, Any]], kind: str) -> pd.DataFrame:
    """Metrics of one kind of row as floats, indexed by step; NaN where a row lacks a metric."""
    chosen = [row for row in rows if row.get("kind") == kind]
    index = _steps(tuple(row["step"] for row in chosen))
    names = dict.fromkeys(name for name in (chosen[0] if chosen else ()) if name not in ("step", "kind"))
    if len(names) > 1 and all(len(row) == len(chosen[0]) for row in chosen):
        # Almost always every row has every metric, and every value is a number: one array, ten times faster.
        try:
            values = np.array(list(map(itemgetter(*names), chosen)), dtype=float)
            return pd.DataFrame(values, index=index, columns=_columns(tuple(names)))
        except (KeyError, TypeError, ValueError):
            pass
    names = dict.fromkeys(name for row in chosen for name in row if name not in ("step", "kind"))
    columns = {name: _floats([row.get(name) for row in chosen]) for name in names}
    return pd.DataFrame(columns, index=index)


@lru_cache(maxsize=64)
def _steps(steps: tuple[int, ...]) -> pd.Index:
    """The index of a frame: trials of a study mostly have the same, and what it looks up is shared, too."""
    return pd.Index(steps, name="step", dtype=int)


@lru_cache(maxsize=64)
def _columns(names: tuple[str, ...]) -> pd.Index:
    """The columns of a frame, shared likewise; as objects, which are found five times as fast."""
    return pd.Index(names, dtype=object)


def _floats(values: list[Any]) -> np.ndarray:
    """Recorded values as floats, NaN for what is no number."""
    try:
        return np.array(values, dtype=float)
    except (TypeError, ValueError):
        return np.array([math.nan if (found := number(value)) is None else found for value in values])


def read_histograms(path: Path, name: str) -> Histograms | None:
    """One histogram of a record over its steps; bins that differ from the first ones' are left out."""
    found: dict[int, dict[str, Any]] = {}
    edges: list[float] | None = None
    for row in read_rows(path, holding=json.dumps(name).encode()):
        if row.get("name") != name or not isinstance(row.get("edges"), list):
            continue
        edges = edges or row["edges"]
        if row["edges"] == edges and len(row.get("counts", ())) == len(edges) - 1:
            found[row["step"]] = row
    if edges is None or not found:
        return None
    steps = sorted(found)
    return Histograms(
        steps=np.array(steps),
        edges=np.array(edges, dtype=float),
        counts=np.array([found[step]["counts"] for step in steps], dtype=float),
        exact=np.array([found[step].get("exact", 0) for step in steps], dtype=float),
    )


def _without(config: Mapping[str, Any], path: list[str]) -> Mapping[str, Any]:
    """A mapping without what lies at a path of it."""
    first, *rest = path
    if first not in config:
        return config
    if not rest:
        return {key: value for key, value in config.items() if key != first}
    inner = config[first]
    return {**config, first: _without(inner, rest)} if isinstance(inner, Mapping) else config


def _load_trial(folder: Path, planned: Mapping[str, Any], tuned: tuple[str, ...] = ()) -> Trial:
    document, problems = _read_mapping(folder / "trial.yaml") if folder.is_dir() else ({}, [])
    recorded, more = _read_mapping(folder / "outcome.json", missing_ok=True)
    outcome = _outcome(recorded)
    if recorded and outcome is None:
        more = [*more, "outcome.json holds no outcome"]
    facts = {**document, **planned}
    config = document.get("config")
    if not isinstance(config, Mapping):
        config = {}
    try:
        rule = CollapseRule.of(config.get("collapse") or {})
    except (ValueError, TypeError) as error:
        rule = CollapseRule()
        more = [*more, f"its collapse thresholds cannot be used, the defaults were: {error}"]
    if outcome is not None:
        status = outcome.outcome
    elif (folder / "metrics.jsonl").exists():
        status = "unfinished"
    else:
        status = "unavailable" if planned.get("state") == "unavailable" else "missing"
    cell, _, seed = folder.name.rpartition("-s")
    point = facts.get("point")
    options = {
        str(axis): option_label(option)
        for axis, option in (point if isinstance(point, Mapping) else {}).items()
    }
    return Trial(
        id=folder.name,
        cell=str(facts.get("cell", cell or folder.name)),
        label=str(facts.get("label") or " / ".join(options.values()) or folder.name),
        methods=tuple(map(str, facts.get("methods") or ())),
        env=str(facts.get("env", "")),
        seed=int(number(facts.get("seed", seed)) or 0),
        options=options,
        status=status,
        folder=folder,
        config=config,
        provenance=document.get("provenance") or {},
        outcome=outcome,
        rule=rule,
        problems=(*problems, *more),
        tuned=tuned,
    )


def _outcome(recorded: Mapping[str, Any]) -> RecordedOutcome | None:
    if recorded.get("outcome") not in (*RESULTS, "failed", "interrupted"):
        return None
    learned, onset = recorded.get("learned"), number(recorded.get("onset"))
    code, rows = number(recorded.get("exit")), number(recorded.get("micro_rows"))
    return RecordedOutcome(
        outcome=recorded["outcome"],
        learned=learned if isinstance(learned, bool) else None,
        reason=str(recorded.get("reason") or ""),
        onset=None if onset is None else int(onset),
        step=int(number(recorded.get("step")) or 0),
        steps=int(number(recorded.get("steps")) or 0),
        exit=None if code is None else int(code),
        attempts=int(number(recorded.get("attempts")) or 1),
        warnings=tuple(
            (str(warning["name"]), int(warning["step"]))
            for warning in recorded.get("warnings") or ()
            if isinstance(warning, Mapping) and "name" in warning and "step" in warning
        ),
        retries=int(number(recorded.get("retries")) or 0),
        micro_rows=None if rows is None else int(rows),
    )


def _read_mapping(path: Path, *, missing_ok: bool = False) -> tuple[dict[str, Any], list[str]]:
    """A JSON or YAML file that holds a mapping, or an empty one and what was wrong."""
    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".json":
            value = json.loads(text)
        else:
            value = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except FileNotFoundError:
        return {}, [] if missing_ok else [f"{path.name} is missing"]
    except (ValueError, yaml.YAMLError) as error:
        return {}, [f"{path.name} cannot be read: {str(error).splitlines()[0]}"]
    if not isinstance(value, dict):
        return {}, [f"{path.name} holds no mapping"]
    return value, []
