"""What a set of cells can show: which effects of their settings can be told apart, and which are one."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from math import prod

import numpy as np

from arena.contrasts import Columns, Effect, Matrix, columns, width
from arena.plan import NOTHING_VARIES, Estimable

MOST_COLUMNS = 400
"""Models larger than this are not looked into: their interactions count as not shown."""

_NOISE = 1e-6


def estimable(cells: Sequence[Mapping[str, Hashable]]) -> Estimable:
    """What cells, given by the level of every factor, can show. Factors of one level are left out."""
    points, names, levels = _coded(cells)
    pairs = [(a, b) for a in range(len(names)) for b in range(a + 1, len(names))]
    if not names:
        return NOTHING_VARIES
    if len(points) == prod(levels):
        interactions = tuple(_name((a, b), names) for a, b in pairs)
        return Estimable(tuple(names), tuple(names), interactions, (), 1.0)
    simple = columns(points, levels, interactions=False)
    lost = _unseen(simple)
    main = tuple(name for factor, name in enumerate(names) if (factor,) not in lost)
    efficiency = _d_efficiency(simple.matrix)
    if width(levels, interactions=True) > MOST_COLUMNS:
        return Estimable(tuple(names), main, (), (), efficiency, complete=False)
    unseen = _unseen(columns(points, levels, interactions=True))
    seen = tuple(_name(pair, names) for pair in pairs if pair not in unseen)
    groups: dict[int, list[str]] = {}
    for effect, group in unseen.items():
        if effect:
            groups.setdefault(group, []).append(_name(effect, names))
    return Estimable(tuple(names), main, seen, tuple(map(tuple, groups.values())), efficiency)


def _coded(cells: Sequence[Mapping[str, Hashable]]) -> tuple[Matrix, list[str], list[int]]:
    """The different points (points, factors) int, the factors that vary, and how many levels each has."""
    factors = list(dict.fromkeys(name for cell in cells for name in cell))
    codes: dict[str, dict[Hashable, int]] = {name: {} for name in factors}
    rows = {
        tuple(codes[name].setdefault(cell.get(name), len(codes[name])) for name in factors) for cell in cells
    }
    names = [name for name in factors if len(codes[name]) > 1]
    kept = [index for index, name in enumerate(factors) if name in names]
    points = np.array(sorted(rows), dtype=int).reshape(len(rows), len(factors))[:, kept]
    return points, names, [len(codes[name]) for name in names]


def _unseen(model: Columns) -> dict[Effect, int]:
    """The effects that the rows do not determine, each with the number of its group.

    An effect is determined when no combination of coefficients that changes nothing (the null space of X)
    touches it. Two effects are in one group when the null space ties them together, over others too: the
    projection onto it falls into one block per group.
    """
    information = model.matrix.T @ model.matrix / len(model.matrix)
    values, vectors = np.linalg.eigh(information)
    null = vectors[:, values < _NOISE]
    effects = list(dict.fromkeys(model.effects))
    index = np.array([effects.index(effect) for effect in model.effects])
    member = np.eye(len(effects))[index]
    tied = member.T @ (null @ null.T) ** 2 @ member > _NOISE
    group_of: dict[int, int] = {}

    def gather(effect: int, group: int) -> None:
        if effect not in group_of:
            group_of[effect] = group
            for other in np.flatnonzero(tied[effect]):
                gather(int(other), group)

    for effect in np.flatnonzero(tied.diagonal()):
        gather(int(effect), int(effect))
    return {effects[effect]: group for effect, group in sorted(group_of.items())}


def _d_efficiency(matrix: Matrix) -> float:
    """|X'X / n|^(1/p): contrasts have a mean square of 1, so all combinations together have 1."""
    sign, logarithm = np.linalg.slogdet(matrix.T @ matrix / len(matrix))
    value = float(np.exp(logarithm / matrix.shape[1])) if sign > 0 else 0.0
    return value if value > _NOISE else 0.0


def _name(effect: Effect, names: Sequence[str]) -> str:
    return ":".join(names[factor] for factor in effect)
