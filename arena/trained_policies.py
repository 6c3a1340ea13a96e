"""Finding what was trained: a trial's newest checkpoint, one of its checkpoints, or a clone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arena.clones import SUMMARY, clone_folder
from arena.ledger import NoSuchTrialError, find_trial
from arena.records import TRIAL
from arena.trial import CHECKPOINTS
from arena.trial_sheet import read_sheet
from trainers.config import ModelConfig

if TYPE_CHECKING:
    from arena.environments import Chosen
    from trainers.playing import TrainedPolicy


class NoPolicyError(ValueError):
    """There is no policy of that name, or none that can be played; the message says what to do."""


@dataclass(frozen=True)
class Trained:
    """Saved weights and what they were trained under.

    sections: `env`, `prompt`, `model` and what else a policy depends on, as plain data; clone: what the
    trial started from, None when the weights are a clone's own.
    """

    label: str
    weights: Path
    sections: Mapping[str, Any]
    clone: Path | None

    @property
    def env(self) -> str:
        """The environment that it was trained in."""
        return str(self.sections["env"]["name"])

    def sections_for(self, env: str) -> dict[str, Any]:
        """What it plays an environment under: as it was trained, where it is the same one.

        Raises NoPolicyError when it knows the words of another environment only.
        """
        known = {name: self.sections[name] for name in ("prompt", "evaluation") if name in self.sections}
        if env == self.env:
            return {**known, "env": self.sections["env"]}
        if self.sections["model"].get("path") is None:
            raise NoPolicyError(f"{self.label} was trained in {self.env} and knows no words of {env}")
        return known

    def load(self, chosen: Chosen, *, seed: int) -> TrainedPolicy:
        """The policy, ready to play. Imports torch."""
        import torch

        from trainers.native.policies import load_saved
        from trainers.playing import TrainedPolicy
        from trainers.randomness import torch_generator
        from trainers.rollout import Prompter

        torch.set_num_threads(1)
        model = ModelConfig.model_validate(self.sections["model"])
        policy = load_saved(self.weights, model, chosen.prompt, clone=self.clone)
        prompter = Prompter(policy, chosen.prompt, chosen.environment.task(chosen.config))
        return TrainedPolicy(prompter, chosen.evaluation, torch_generator(seed, "play"))


def find_trained(name: str, studies: Path) -> Trained:
    """What a name means: a folder of a trial, checkpoint or clone, or a trial's id as other commands take it.

    Raises NoPolicyError when it means none of them, or a trial without a checkpoint.
    """
    path = Path(name)
    if (path / SUMMARY).is_file():
        sections = json.loads((path / SUMMARY).read_text())["sections"]
        return Trained(f"clone {path.name}", path, sections, None)
    if (path.parent.parent / TRIAL).is_file() and path.is_dir():
        return _checkpoint(path.resolve().parents[1], path)
    if not (path / TRIAL).is_file():
        try:
            path = find_trial(studies, name)
        except NoSuchTrialError as error:
            raise NoPolicyError(
                f"policy {name!r}: expected human, expert, random, a trial, or the folder of a trial, "
                f"checkpoint or clone ({error})"
            ) from None
    return _checkpoint(path, None)


def _checkpoint(trial: Path, folder: Path | None) -> Trained:
    """A checkpoint of a trial; None: its newest."""
    trial = trial.resolve()
    sheet = read_sheet(trial)
    if sheet.config.get("backend", "native") != "native":
        raise NoPolicyError(f"trial {sheet.trial}: only checkpoints of the native back-end can be played")
    if folder is None:
        from trainers.native.checkpoint import newest_checkpoint

        newest = newest_checkpoint(trial / CHECKPOINTS)
        if newest is None:
            raise NoPolicyError(
                f"trial {sheet.trial} has no checkpoint yet; `arena trial {sheet.trial}` runs it"
            )
        folder = newest.folder
    clone = clone_folder(trial.parents[2], sheet.clone)
    return Trained(f"{sheet.trial} {folder.name}", folder, sheet.config, clone)
