"""Exact distances to the solution, for every state of many levels at once."""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations
from math import comb

import numpy as np
from numpy.typing import NDArray

from envs.sokoban.board import BOX, STAY, TARGET, WALL, Cells, Ints, neighbours

Distances = NDArray[np.int16]

MAX_STATES = 200_000
"""Most states (player x box positions) of a room in which all of them are searched."""

UNSOLVABLE = np.int16(32_000)
"""The distance of a state from which no sequence of moves reaches the solution."""


def is_small(size: int, boxes: int) -> bool:
    """Whether all states of a room are searched; single ones are solved otherwise (`solver.Maze`)."""
    cells = size**2
    return size <= 8 and cells * comb(cells, boxes) <= MAX_STATES


class StateSpace:
    """The states of a room: a player's cell times a set of box cells, and what the moves do to them.

    Walls differ from level to level and are left out: a move of this table happens in a level iff neither the
    cell the player enters nor the cell the box enters is a wall there.

    count            number of states; a state is `player * len(box sets) + box set`
    successor (4, S) the state a move leads to (the same one if the border or a second box stops it)
    entered   (4, S) the cell the player enters
    behind    (4, S) the cell the pushed box enters; the entered cell when nothing is pushed
    pushes    (4, S) whether the move pushes a box
    """

    def __init__(self, size: int, boxes: int) -> None:
        self.size = size
        cells = size * size
        sets = np.array(list(combinations(range(cells), boxes)))
        occupied = np.zeros((len(sets), cells + 1), bool)
        np.put_along_axis(occupied, sets, values=True, axis=1)
        self.occupied = occupied[:, :-1]
        self._powers = np.uint64(1) << np.arange(cells, dtype=np.uint64)
        codes = self.occupied @ self._powers
        self._order = np.argsort(codes)
        self._codes = codes[self._order]
        self.count = cells * len(sets)

        table = neighbours(size)
        player, box_set = np.divmod(np.arange(self.count), len(sets))
        stays = np.arange(self.count)
        self.successor = np.empty((STAY, self.count), np.int64)
        self.entered = table[:STAY, player]
        self.behind = self.entered.copy()
        self.pushes = np.zeros((STAY, self.count), bool)
        # an index by box set and cell of the set that results from moving that box
        for action in range(STAY):
            entered = self.entered[action]
            behind = table[action, entered]
            meets = occupied[box_set, entered]
            pushes = meets & (behind < cells) & ~occupied[box_set, behind]
            moved = occupied[box_set[pushes]]
            every = np.arange(len(moved))
            moved[every, entered[pushes]] = False
            moved[every, behind[pushes]] = True
            reached_set = box_set.copy()
            reached_set[pushes] = self._rank(moved[:, :-1])
            happens = (entered < cells) & (~meets | pushes)
            self.successor[action] = np.where(happens, entered * len(sets) + reached_set, stays)
            self.behind[action, pushes] = behind[pushes]
            self.pushes[action] = pushes

    def _rank(self, occupied: NDArray[np.bool_]) -> Ints:
        return self._order[np.searchsorted(self._codes, occupied @ self._powers)]

    def index(self, cells: Cells, player: Ints) -> Ints:
        """(N,) the states of boards given by cells (N, size * size + 1) and player (N,)."""
        return player * len(self.occupied) + self._rank((cells[:, :-1] & BOX) != 0)

    def distances(self, cells: Cells, limit: int = int(UNSOLVABLE) - 1) -> Distances:
        """(S, N) moves from every state to the nearest solved one in N levels; only walls and targets count.

        Breadth-first from the solved states, all levels in step; UNSOLVABLE beyond `limit` moves.
        """
        walls = np.ascontiguousarray(((cells & WALL) != 0).T)
        targets = (cells[:, :-1] & TARGET) != 0
        boxes = int(self.occupied[0].sum())
        solved = (self.occupied.astype(np.float32) @ targets.T.astype(np.float32)) == boxes
        reached = np.tile(solved, (self.size**2, 1))
        possible = [~(walls[self.entered[action]] | walls[self.behind[action]]) for action in range(STAY)]
        distances = np.where(reached, np.int16(0), UNSOLVABLE)
        for distance in range(1, limit + 1):
            grown = np.zeros_like(reached)
            for action in range(STAY):
                grown |= reached[self.successor[action]] & possible[action]
            grown &= ~reached
            if not grown.any():
                break
            distances[grown] = distance
            reached |= grown
        return distances


@lru_cache(maxsize=4)
def state_space(size: int, boxes: int) -> StateSpace:
    """The (cached) state space of a room."""
    return StateSpace(size, boxes)
