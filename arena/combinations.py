"""Combinations that mean nothing, and why: each choice is fine, together they are not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from arena.backends import find_backend
from arena.identity import TrialConfig
from envs.prompts import TemplateError, render_next
from envs.text_env import Observation
from trainers.policy_gradient.parameters import PER_TURN


@dataclass(frozen=True, slots=True)
class Conflict:
    """Why a configuration is refused. `key` is the choice to blame; the message says what to do."""

    key: tuple[str, ...]
    message: str


def conflicts(config: TrialConfig, data: Mapping[str, Sequence[str]], *, has_anchors: bool) -> list[Conflict]:
    """Everything that is wrong between the parts of a configuration that are each right.

    data: per axis what its option's function is given (`Option.data`); has_anchors: whether the environment's
    states recur under an anchor (`Environment.has_anchors`).
    """
    return [
        *_anchors(config, data, has_anchors=has_anchors),
        *_trajectories(config),
        *_transcripts(config, data),
        *_backend(config),
    ]


def _anchors(config: TrialConfig, data: Mapping[str, Sequence[str]], *, has_anchors: bool) -> list[Conflict]:
    if has_anchors or "anchors" not in data["advantage"]:
        return []
    env, advantage = config.env["name"], config.advantage.option
    message = (
        f"{advantage} compares states that recur, and those of {env} do not (it has no anchors); "
        f"leave them apart: `exclude: [{{env: {env}, advantage: {advantage}}}]`"
    )
    return [Conflict(("advantage",), message)]


def _trajectories(config: TrialConfig) -> list[Conflict]:
    clipping, shuffle = config.is_clipping, config.trainer.shuffle
    if clipping.parameters.get("unit") != "trajectory":
        return []
    if shuffle == "trajectories" or config.rows == "transcript":
        return []
    message = (
        f"{clipping.option} with `unit: trajectory` needs whole trajectories in a mini-batch, and "
        f"`trainer.shuffle` is {shuffle}; set `trainer.shuffle: trajectories`"
    )
    return [Conflict(("is_clipping", "unit"), message)]


def _backend(config: TrialConfig) -> list[Conflict]:
    """What the back-end would pass over in silence, or cannot do."""
    if config.backend != "native":
        refused = find_backend(config.backend).refusals(config)
        return [Conflict(refusal.key, refusal.message) for refusal in refused]
    found = []
    if config.verl is not None:
        message = "the native back-end does not read the section `verl`; take it out, or `backend: verl`"
        found.append(Conflict(("verl",), message))
    return found


def _transcripts(config: TrialConfig, data: Mapping[str, Sequence[str]]) -> list[Conflict]:
    """What a row that is a whole trajectory cannot have."""
    if config.rows == "turn":
        return []
    found = []
    advantage, cloning = config.advantage, config.cloning
    if advantage.function in PER_TURN or "anchors" in data["advantage"]:
        message = (
            f"{advantage.option} gives every turn an advantage of its own, and with `rows: transcript` a "
            "row, which has one advantage, is a whole trajectory; use `rows: turn`, or another advantage"
        )
        found.append(Conflict(("advantage",), message))
    if cloning.explore and cloning.stages and not (cloning.source == "own" and config.model.path):
        message = (
            "a transcript shows what was written as what was done, so an expert to be cloned with "
            f"`rows: transcript` does what it writes: set `cloning.explore: 0`, not {cloning.explore:g} "
            "(`error` of the stages still leads it off its path)"
        )
        found.append(Conflict(("rows",), message))
    try:
        render_next(config.prompt.style, Observation("", None, None))
    except TemplateError as error:
        found.append(Conflict(("prompt", "style"), str(error)))
    return found
