"""The model matrix of points: how a linear model of main effects and two-factor interactions sees them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

Matrix = np.ndarray
Effect = tuple[int, ...]
"""Which factors: () the mean, (0,) a main effect, (0, 2) a two-factor interaction."""


@dataclass(frozen=True)
class Columns:
    """A model matrix: a row per point, a column per contrast; `effects` says whose contrast a column is."""

    matrix: Matrix
    effects: tuple[Effect, ...]


def helmert(levels: int) -> Matrix:
    """(levels, levels - 1) contrasts that sum to 0, are orthogonal, and have a mean square of 1.

    Over all combinations of several factors their products are orthogonal too.
    """
    contrasts = np.zeros((levels, levels - 1))
    for column in range(levels - 1):
        contrasts[: column + 1, column] = -1.0
        contrasts[column + 1, column] = column + 1.0
    scaled: Matrix = contrasts * np.sqrt(levels / (contrasts**2).sum(0, keepdims=True))
    return scaled


def columns(points: Matrix, levels: Sequence[int], *, interactions: bool) -> Columns:
    """The columns of the mean, of every main effect and, if asked, of every two-factor interaction.

    points: (points, factors) int, the level of each factor; levels: how many levels each has. A factor of one
    level has no columns.
    """
    main = {factor: helmert(count)[points[:, factor]] for factor, count in enumerate(levels) if count > 1}
    parts: list[tuple[Effect, Matrix]] = [((), np.ones((len(points), 1)))]
    parts += [((factor,), part) for factor, part in main.items()]
    if interactions:
        parts += [((a, b), _products(main[a], main[b])) for a, b in combinations(main, 2)]
    effects = [effect for effect, part in parts for _ in range(part.shape[1])]
    return Columns(np.concatenate([part for _, part in parts], axis=1), tuple(effects))


def width(levels: Sequence[int], *, interactions: bool) -> int:
    """How many columns that are."""
    free = [count - 1 for count in levels]
    return 1 + sum(free) + (sum(a * b for a, b in combinations(free, 2)) if interactions else 0)


def _products(first: Matrix, second: Matrix) -> Matrix:
    products: Matrix = (first[:, :, None] * second[:, None, :]).reshape(len(first), -1)
    return products
