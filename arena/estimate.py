"""How long trials will take: from finished ones where there are any, else from the configuration."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from arena.clones import clone_folder, is_ready
from arena.identity import TrialConfig
from arena.ledger import study_folders, trial_folders
from arena.records import METRICS, OUTCOME, CorruptRecordError, read_lines
from arena.trial_sheet import read_sheet

MOST_READ = 12
"""Finished trials read per kind; more would not change the estimate, only the time planning takes."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds of one core: a session's start, a trial's start, a clone; and per episode, to roll it out, to
    learn from it for an epoch, to evaluate it.
    """

    session: float
    start: float
    clone: float
    rollout: float
    update: float
    evaluation: float


Kind = tuple[str, str, str, int]
"""What the cost of an episode depends on: environment, model, back-end, log2 of how many share a step."""


def kind_of(
    env: Mapping[str, Any], model: Mapping[str, Any], trainer: Mapping[str, Any], backend: str
) -> Kind:
    """The kind of a trial by sections of its configuration."""
    name = f"{model.get('path') or model['name']} {model.get('hidden')}x{model.get('layers')}"
    return env["name"], name, backend, round(math.log2(trainer["groups"] * trainer["group_size"]))


def trial_seconds(config: TrialConfig, cost: Cost) -> float:
    """How long a trial runs, alone on its core, clone not included."""
    trainer, evaluation = config.trainer, config.evaluation
    episodes = trainer.steps * trainer.groups * trainer.group_size
    evaluations = 4 + math.ceil(
        trainer.steps / evaluation.every
    )  # the clone is evaluated on four times as many
    return (
        cost.start
        + episodes * (cost.rollout + trainer.epochs * cost.update)
        + evaluations * evaluation.episodes * cost.evaluation
    )


def measured_costs(studies: Path, study: Path, guesses: Mapping[Kind, Cost]) -> dict[Kind, Cost]:
    """The costs of those kinds of which finished trials are found: in this study first, then the newest.

    What trials do not tell (the time a session and a clone take) is taken from the kind's guess.
    """
    wanted = dict.fromkeys(guesses, 0)
    totals = {kind: _Totals() for kind in wanted}
    for folder in _finished(studies, study):
        if not wanted or all(count >= MOST_READ for count in wanted.values()):
            break
        try:
            config = read_sheet(folder).config
            kind = kind_of(config["env"], config["model"], config["trainer"], config["backend"])
            if wanted.get(kind, MOST_READ) < MOST_READ:
                totals[kind].add(config, read_lines(folder / METRICS).rows)
                wanted[kind] += 1
        except (CorruptRecordError, OSError, KeyError, TypeError):
            continue  # an estimate does without the trials it cannot read
    return {kind: total.cost(guesses[kind]) for kind, total in totals.items() if total.rows}


def clones_to_make(studies: Path, clones: Iterable[str]) -> set[str]:
    """Those of the clones that are not there yet."""
    return {clone for clone in set(clones) if not is_ready(clone_folder(studies, clone))}


def _finished(studies: Path, study: Path) -> Iterable[Path]:
    """Folders of trials with an outcome, at most a few hundred looked at."""
    others = sorted(
        (folder for folder in study_folders(studies) if folder != study),
        key=lambda path: path.stat().st_mtime,
        reverse=True,
    )
    looked = 0
    for folder in [study, *others]:
        for trial in trial_folders(folder):
            if not (trial / OUTCOME).is_file():
                continue
            yield trial
            looked += 1
            if looked >= 20 * MOST_READ:
                return


@dataclass
class _Totals:
    """Seconds and episodes, summed over trials."""

    rows: int = 0
    rollout: float = 0.0
    update: float = 0.0
    evaluation: float = 0.0
    episodes: float = 0.0
    epochs: float = 0.0
    evaluated: float = 0.0

    def add(self, config: Mapping[str, Any], rows: Iterable[Mapping[str, Any]]) -> None:
        trainer = config["trainer"]
        episodes = trainer["groups"] * trainer["group_size"]
        for row in rows:
            self.evaluation += row.get("time/evaluation", 0.0)
            if row.get("kind") == "eval":
                self.evaluated += row.get("eval/episodes", 0.0)
            elif "time/rollout" in row and "time/update" in row:
                self.rows += 1
                self.rollout += row["time/rollout"]
                self.update += row["time/update"]
                self.episodes += episodes
                self.epochs += episodes * trainer["epochs"]

    def cost(self, guess: Cost) -> Cost:
        return replace(
            guess,
            rollout=self.rollout / self.episodes,
            update=self.update / self.epochs,
            evaluation=self.evaluation / self.evaluated if self.evaluated else guess.evaluation,
        )
