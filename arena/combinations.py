"""Combinations that mean nothing, and why: each choice is fine, together they are not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from arena.identity import TrialConfig


@dataclass(frozen=True, slots=True)
class Conflict:
    """Why a configuration is refused. `axis` is the choice to blame; the message says what to do."""

    axis: str
    message: str


def conflicts(config: TrialConfig, data: Mapping[str, Sequence[str]], *, has_anchors: bool) -> list[Conflict]:
    """Everything that is wrong between the parts of a configuration that are each right.

    data: per axis what its option's function is given (`Option.data`); has_anchors: whether the environment's
    states recur under an anchor (`Environment.has_anchors`).
    """
    found = []
    env, advantage = config.env["name"], config.advantage.option
    if "anchors" in data["advantage"] and not has_anchors:
        found.append(
            Conflict(
                "advantage",
                f"{advantage} compares states that recur, and those of {env} do not (it has no anchors); "
                f"leave them apart: `exclude: [{{env: {env}, advantage: {advantage}}}]`",
            )
        )
    clipping = config.is_clipping
    if clipping.parameters.get("unit") == "trajectory" and config.trainer.shuffle != "trajectories":
        found.append(
            Conflict(
                "is_clipping",
                f"{clipping.option} with `unit: trajectory` needs whole trajectories in a mini-batch, and "
                f"`trainer.shuffle` is {config.trainer.shuffle}; set `trainer.shuffle: trajectories`",
            )
        )
    return found
