"""Shortest solutions of single boards too large to search all their states: A* over pushes.

Cells of a board with its border are bits of an integer, so that where the player can walk is found by a few
shifts a step.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from envs.sokoban.board import BOX, TARGET, WALL, Cells

MAX_EXPANDED = 60_000
"""Positions looked at before a search gives up: some seconds."""

_BOUNDS = 500_000
_FAR = 1 << 30


class Maze:
    """The walls and targets of a board: what searches from any of its states have in common.

    width: cells of a row with its border; walls, targets: bits of the cells, row by row, the border a wall.
    Actions are indices into `board.ACTIONS`: up, down, left, right.
    """

    def __init__(self, width: int, walls: int, targets: int) -> None:
        self.shifts = (-width, width, -1, 1)
        self.walls, self.targets = walls, targets
        cells = width * width
        self.free = ((1 << cells) - 1) & ~walls
        self.pushes_to = [self._pushes_to(target, cells) for target in _bits(targets)]
        self._bounds: dict[int, int | None] = {}

    def _pushes_to(self, target: int, cells: int) -> dict[int, int]:
        """Pushes from each cell to a target, were the box alone; without cells it never gets there from."""
        distance = {target: 0}
        layer = [target]
        while layer:
            after = []
            for cell in layer:
                for shift in self.shifts:
                    before, player = cell - shift, cell - 2 * shift
                    if player < 0 or player >= cells or before in distance:
                        continue
                    if self.free >> before & 1 and self.free >> player & 1:
                        distance[before] = distance[cell] + 1
                        after.append(before)
            layer = after
        return distance

    def at_least(self, boxes: int) -> int | None:
        """Pushes that are needed at least, every box having a target of its own; None: they cannot have."""
        if boxes not in self._bounds:
            if len(self._bounds) > _BOUNDS:
                self._bounds.clear()
            self._bounds[boxes] = self._match(boxes)
        return self._bounds[boxes]

    def _match(self, boxes: int) -> int | None:
        """The cheapest way to give each box a target of its own, over the sets of targets given away."""
        cheapest = {0: 0}
        for cell in _bits(boxes):
            further: dict[int, int] = {}
            for given, pushes in cheapest.items():
                for number, distance in enumerate(self.pushes_to):
                    if cell in distance and not given >> number & 1:
                        after, total = given | 1 << number, pushes + distance[cell]
                        if total < further.get(after, _FAR):
                            further[after] = total
            cheapest = further
        return min(cheapest.values(), default=None)

    def solve(
        self, boxes: int, player: int, *, longest: int | None = None, greed: int = 1
    ) -> list[int] | None:
        """Actions that leave every box on a target, as few as possible; None when none were found.

        longest: only so long solutions. greed: above 1, sooner and not always the shortest.
        """
        bound = self.at_least(boxes)
        if bound is None:
            return None
        start = boxes, player
        cost: dict[tuple[int, int], int] = {start: 0}
        came: dict[tuple[int, int], tuple[tuple[int, int], int]] = {}
        queue = [(greed * bound, 0, start)]
        expanded = 0
        while queue and expanded < MAX_EXPANDED:
            _, so_far, state = heapq.heappop(queue)
            if so_far > cost[state]:
                continue
            if state[0] == self.targets:
                return self._actions(state, came)
            expanded += 1
            for walked, cell, action in self._pushes(*state):
                after = self.after(state[0], cell, action), cell
                new = so_far + walked + 1
                if new >= cost.get(after, _FAR):
                    continue
                bound = self.at_least(after[0])
                if bound is None or self._stuck(after[0], cell + self.shifts[action]):
                    continue
                if longest is not None and new + bound > longest:
                    continue
                cost[after], came[after] = new, (state, action)
                heapq.heappush(queue, (new + greed * bound, new, after))
        return None

    def after(self, boxes: int, cell: int, action: int) -> int:
        """The boxes once the one at a cell is pushed."""
        return boxes ^ (1 << cell) ^ (1 << cell + self.shifts[action])

    def _pushes(self, boxes: int, player: int) -> Iterator[tuple[int, int, int]]:
        """Every push that the player can walk to: steps before it, the box's cell, the action."""
        free = self.free & ~boxes
        seen = layer = 1 << player
        steps = 0
        while layer:
            for action, shift in enumerate(self.shifts):
                pushed = _shift(layer, shift) & boxes & _shift(free, -shift)
                for cell in _bits(pushed):
                    yield steps, cell, action
            around = 0
            for shift in self.shifts:
                around |= _shift(layer, shift)
            layer = around & free & ~seen
            seen |= layer
            steps += 1

    def _stuck(self, boxes: int, cell: int) -> bool:
        """Whether the box at a cell is in a square of boxes and walls, one of the boxes off its target."""
        blocked = boxes | self.walls
        up, down, left, right = self.shifts
        for vertical in (up, down):
            for horizontal in (left, right):
                square = 1 << cell | 1 << cell + vertical | 1 << cell + horizontal
                square |= 1 << cell + vertical + horizontal
                if square & ~blocked == 0 and square & boxes & ~self.targets:
                    return True
        return False

    def _actions(
        self, state: tuple[int, int], came: dict[tuple[int, int], tuple[tuple[int, int], int]]
    ) -> list[int]:
        """The moves behind a chain of pushes, walks between them filled in."""
        parts: list[list[int]] = []
        while state in came:
            before, action = came[state]
            stand = state[1] - self.shifts[action]
            parts.append([*self._walk(before[0], before[1], stand), action])
            state = before
        return [action for part in reversed(parts) for action in part]

    def _walk(self, boxes: int, start: int, end: int) -> list[int]:
        """A shortest way of the player between cells; it is known that there is one."""
        free = self.free & ~boxes
        layers = [1 << start]
        seen = layers[0]
        while not seen >> end & 1:
            around = 0
            for shift in self.shifts:
                around |= _shift(layers[-1], shift)
            layers.append(around & free & ~seen)
            seen |= layers[-1]
        way = []
        for layer in reversed(layers[:-1]):
            action = next(a for a, shift in enumerate(self.shifts) if layer >> (end - shift) & 1)
            way.append(action)
            end -= self.shifts[action]
        return way[::-1]


@lru_cache(maxsize=4096)
def maze(width: int, walls: int, targets: int) -> Maze:
    """The (cached) maze of a board."""
    return Maze(width, walls, targets)


def maze_of(cells: Cells, size: int) -> Maze:
    """The maze of a board, (size * size + 1) cells as in `Boards`."""
    walls = _border(size) | bits_of(cells, WALL, size)
    return maze(size + 2, walls, bits_of(cells, TARGET, size))


@lru_cache(maxsize=16)
def _border(size: int) -> int:
    inside = sum(1 << with_border(cell, size) for cell in range(size * size))
    return ((1 << (size + 2) ** 2) - 1) & ~inside


def bits_of(cells: Cells, kind: int, size: int) -> int:
    """The interior cells that have a bit of `Boards.cells`, as bits on the board with its border."""
    found = np.flatnonzero(cells[:-1] & kind).tolist()
    return sum(1 << with_border(cell, size) for cell in found)


def with_border(cell: int, size: int) -> int:
    """A cell of the interior, on the board with its border."""
    row, column = divmod(cell, size)
    return (row + 1) * (size + 2) + column + 1


def solve(cells: Cells, player: int, size: int, *, longest: int | None = None) -> list[int] | None:
    """A shortest solution of a board as in `Boards`, of at most `longest` moves; None when none was found."""
    return maze_of(cells, size).solve(bits_of(cells, BOX, size), with_border(player, size), longest=longest)


def _shift(bits: int, by: int) -> int:
    return bits << by if by > 0 else bits >> -by


def _bits(mask: int) -> Iterator[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low
