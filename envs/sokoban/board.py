"""Many Sokoban boards as numpy arrays: the rules and the text of a board.

The cells of the interior are numbered row by row; cell `size * size` stands for everything outside and is
always a wall, so that the border needs no case of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Cells = NDArray[np.uint8]
Ints = NDArray[np.int64]

WALL, BOX, TARGET = 1, 2, 4
"""The bits of a cell."""

ACTIONS = ("up", "down", "left", "right")
STAY = 4
"""The action index of everything that is no action: it changes nothing."""
ACTION_INDEX = {word: index for index, word in enumerate(ACTIONS)}

FLOOR_SYMBOL, WALL_SYMBOL, BOX_SYMBOL, TARGET_SYMBOL = "_", "#", "X", "O"
BOX_ON_TARGET_SYMBOL, PLAYER_SYMBOL, PLAYER_ON_TARGET_SYMBOL = "√", "P", "S"
ROW_END = "/"
SYMBOLS = (
    WALL_SYMBOL,
    FLOOR_SYMBOL,
    TARGET_SYMBOL,
    BOX_SYMBOL,
    BOX_ON_TARGET_SYMBOL,
    PLAYER_SYMBOL,
    PLAYER_ON_TARGET_SYMBOL,
)


@dataclass(slots=True)
class Boards:
    """N boards of one size.

    cells      (N, size * size + 1) uint8  bits WALL, BOX, TARGET; the last cell is outside
    player     (N,) int64                  the player's cell
    on_target  (N,) int64                  boxes standing on a target
    """

    cells: Cells
    player: Ints
    on_target: Ints

    def __len__(self) -> int:
        return len(self.player)

    def take(self, index: Ints | Sequence[int]) -> Boards:
        """Copies of the named boards, in that order (repeats allowed)."""
        return Boards(self.cells[index], self.player[index], self.on_target[index])


def boards_from(cells: Cells, player: Ints) -> Boards:
    """Boards with their boxes on targets counted."""
    return Boards(cells, player, ((cells & (BOX | TARGET)) == (BOX | TARGET)).sum(1))


@lru_cache(maxsize=16)
def neighbours(size: int) -> Ints:
    """(5, size * size + 1): the cell that each action enters from each cell; STAY enters the same cell."""
    outside = size * size
    padded = np.full((size + 2, size + 2), outside)
    padded[1:-1, 1:-1] = np.arange(outside).reshape(size, size)
    table = np.full((5, outside + 1), outside)
    shifts = {"up": (0, 1), "down": (2, 1), "left": (1, 0), "right": (1, 2)}
    for word, index in ACTION_INDEX.items():
        row, column = shifts[word]
        table[index, :-1] = padded[row : row + size, column : column + size].ravel()
    table[STAY] = np.arange(outside + 1)
    table.flags.writeable = False
    return table


def move(boards: Boards, rows: Ints, actions: Ints, size: int) -> Ints:
    """Act in place on some boards.

    rows (K,): different boards; actions (K,): indices into ACTIONS, or STAY. The player enters a free cell,
    or a cell with a box when the cell behind it is free, pushing the box there; otherwise nothing changes.
    Returns (K,) the change in the number of boxes on targets.
    """
    table = neighbours(size)
    width = boards.cells.shape[1]
    cells = boards.cells.reshape(-1)
    player = boards.player[rows]
    entered = table[actions, player]
    behind = table[actions, entered]
    entered_at = rows * width + entered
    behind_at = rows * width + behind
    entered_cell = cells[entered_at]
    behind_cell = cells[behind_at]
    pushes = ((entered_cell & BOX) != 0) & ((behind_cell & (WALL | BOX)) == 0)
    moves = ((entered_cell & (WALL | BOX)) == 0) | pushes
    boards.player[rows] = np.where(moves, entered, player)
    pushed = np.flatnonzero(pushes)
    cells[entered_at[pushed]] ^= BOX
    cells[behind_at[pushed]] ^= BOX
    change = np.zeros(len(rows), np.int64)
    change[pushed] = (behind_cell[pushed] >= TARGET).astype(np.int64) - (entered_cell[pushed] >= TARGET)
    boards.on_target[rows] += change
    return change


def _symbol_codes() -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """Code points per value of a cell: without and with the player."""
    empty = np.full(8, ord(FLOOR_SYMBOL), np.uint32)
    for bits, symbol in (
        (WALL, WALL_SYMBOL),
        (BOX, BOX_SYMBOL),
        (TARGET, TARGET_SYMBOL),
        (BOX | TARGET, BOX_ON_TARGET_SYMBOL),
    ):
        empty[bits] = ord(symbol)
    player = np.full(8, ord(PLAYER_SYMBOL), np.uint32)
    player[TARGET] = ord(PLAYER_ON_TARGET_SYMBOL)
    return empty, player


_CODES, _PLAYER_CODES = _symbol_codes()


class BoardText:
    """Writes boards as text: one word per cell, rows separated by the word `/`.

    border: also write the wall around the interior, as the usual pictures of Sokoban rooms do.
    """

    def __init__(self, size: int, *, border: bool) -> None:
        side = size + 2 if border else size
        picture = np.full((side, side + 1), ord(WALL_SYMBOL), np.uint32)
        picture[:, -1] = ord(ROW_END)
        words = picture.ravel()[:-1]
        self._template = np.full(2 * len(words) - 1, ord(" "), np.uint32)
        self._template[::2] = words
        offset = 1 if border else 0
        rows, columns = np.divmod(np.arange(size * size), size)
        self._places = 2 * ((rows + offset) * (side + 1) + columns + offset)

    def __call__(self, boards: Boards) -> list[str]:
        """The text of every board."""
        count, length = len(boards), len(self._template)
        text = np.tile(self._template, (count, 1))
        text[:, self._places] = _CODES[boards.cells[:, :-1]]
        every = np.arange(count)
        text[every, self._places[boards.player]] = _PLAYER_CODES[boards.cells[every, boards.player]]
        lines: list[str] = text.view(f"<U{length}")[:, 0].tolist()
        return lines
