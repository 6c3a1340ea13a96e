"""Combinations that mean nothing, and why: each choice is fine, together they are not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from arena.backends import find_backend
from arena.identity import TrialConfig


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
    return [*_anchors(config, data, has_anchors=has_anchors), *_trajectories(config), *_backend(config)]


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
    if clipping.parameters.get("unit") != "trajectory" or shuffle == "trajectories":
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
    if config.rows != "turn":
        message = f"the native back-end trains on rows of one turn, not on `{config.rows}`; use `rows: turn`"
        found.append(Conflict(("rows",), message))
    if config.verl is not None:
        message = "the native back-end does not read the section `verl`; take it out, or `backend: verl`"
        found.append(Conflict(("verl",), message))
    return found
