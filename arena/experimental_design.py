"""Which points of the axes' space a grid runs. Pure: an axis is a name and its choices, of whatever type."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Literal, TypeVar

Choice = TypeVar("Choice")

Design = Literal["full", "one_factor", "points"]


def full(axes: Mapping[str, Sequence[Choice]]) -> list[dict[str, Choice]]:
    """Every combination; the last axis varies fastest."""
    return [dict(zip(axes, choices, strict=True)) for choices in itertools.product(*axes.values())]


def one_factor(axes: Mapping[str, Sequence[Choice]]) -> list[dict[str, Choice]]:
    """A baseline (the first choice of every axis) and every single change from it.

    Shows what each change does at the baseline; no interaction can be told from it.
    """
    baseline = {axis: choices[0] for axis, choices in axes.items()}
    changes = [baseline | {axis: choice} for axis, choices in axes.items() for choice in choices[1:]]
    return [baseline, *changes]


def points(design: Design, axes: Mapping[str, Sequence[Choice]]) -> list[dict[str, Choice]]:
    """The points of a design. `points` takes none from the axes: its points are written out in the grid."""
    match design:
        case "full":
            return full(axes)
        case "one_factor":
            return one_factor(axes)
        case "points":
            return []
