"""What a set of cells can show: which effects of their settings can be told apart, and which are one."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Mapping, Sequence
from math import prod

import numpy as np

from arena.contrasts import Columns, Effect, Matrix, columns, width
from arena.plan import NOTHING_VARIES, Estimable

MOST_COLUMNS = 400
"""Models larger than this are not looked into: their interactions count as not shown."""

_NOISE = 1e-6


def estimable(cells: Sequence[Sequence[Mapping[str, Hashable]]], *, ignoring: str = "") -> Estimable:
    """What cells can show. A cell is given by mappings of factors to levels, which cells may share.

    Factors of one level, and the one to be ignored, are left out.
    """
    points, names, levels = _coded(cells, ignoring)
    if not names:
        return NOTHING_VARIES
    pairs = [(a, b) for a in range(len(names)) for b in range(a + 1, len(names))]
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


def _coded(
    cells: Sequence[Sequence[Mapping[str, Hashable]]], ignoring: str
) -> tuple[Matrix, list[str], list[int]]:
    """The different points (points, factors) int, the factors that vary, and how many levels each has."""
    parts = {id(part): part for cell in cells for part in cell}
    factors = [name for name in dict.fromkeys(itertools.chain(*parts.values())) if name != ignoring]
    codes: dict[str, dict[Hashable, int]] = {name: {} for name in factors}
    # 0: a cell does not have the factor, or another of its parts has it.
    coded = np.zeros((len(parts), len(factors)), dtype=int)
    for row, part in enumerate(parts.values()):
        for column, name in enumerate(factors):
            if name in part:
                coded[row, column] = codes[name].setdefault(part[name], len(codes[name]) + 1)
    row_of = {key: row for row, key in enumerate(parts)}
    whole = coded[np.array([[row_of[id(part)] for part in cell] for cell in cells], dtype=int)].sum(1)
    points = np.unique(whole.reshape(len(cells), len(factors)), axis=0)
    columns_of = [np.unique(column, return_inverse=True) for column in points.T]
    varying = [index for index, (levels, _) in enumerate(columns_of) if len(levels) > 1]
    found = np.array([columns_of[index][1] for index in varying], dtype=int)
    levels_of = found.reshape(len(varying), len(points)).T
    return levels_of, [factors[index] for index in varying], [len(columns_of[index][0]) for index in varying]


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
