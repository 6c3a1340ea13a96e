"""Boards as people see them: lines of the usual symbols, coloured tiles for terminals, pictures."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING

import numpy as np

from envs.sokoban.board import (
    BOX,
    BOX_ON_TARGET_SYMBOL,
    BOX_SYMBOL,
    FLOOR_SYMBOL,
    PLAYER_ON_TARGET_SYMBOL,
    PLAYER_SYMBOL,
    ROW_END,
    TARGET,
    TARGET_SYMBOL,
    WALL,
    WALL_SYMBOL,
    Boards,
    BoardText,
)

if TYPE_CHECKING:
    from PIL.ImageDraw import ImageDraw

TILE = 32
"""Pixels of a cell's side."""

_RESET = "\x1b[0m"
_TERMINAL = {
    WALL_SYMBOL: "\x1b[48;5;240m  ",
    FLOOR_SYMBOL: "\x1b[48;5;230m  ",
    TARGET_SYMBOL: "\x1b[48;5;230;38;5;160m()",
    BOX_SYMBOL: "\x1b[48;5;173;38;5;52m[]",
    BOX_ON_TARGET_SYMBOL: "\x1b[48;5;71;38;5;22m[]",
    PLAYER_SYMBOL: "\x1b[48;5;230;38;5;25m@@",
    PLAYER_ON_TARGET_SYMBOL: "\x1b[48;5;217;38;5;25m@@",
}
"""Two columns a cell, so that cells are about square."""

_WALL, _MORTAR, _FLOOR = (112, 104, 98), (140, 132, 124), (238, 232, 213)
_TARGET, _BOX, _BOX_EDGE = (203, 60, 51), (196, 142, 84), (112, 70, 30)
_PLACED, _PLACED_EDGE, _PLAYER, _SKIN = (98, 160, 90), (44, 92, 40), (38, 89, 166), (244, 206, 170)


def lines(board: Boards, size: int, *, colors: bool = False) -> str:
    """The one board with its border, a line per row; colors: as tiles with ANSI escapes."""
    rows = [row.split() for row in BoardText(size, border=True)(board)[0].split(f" {ROW_END} ")]
    if not colors:
        return "\n".join(" ".join(row) for row in rows)
    return "\n".join("".join(_TERMINAL[symbol] for symbol in row) + _RESET for row in rows)


def png(board: Boards, size: int, *, tile: int = TILE) -> bytes:
    """The one board with its border as a PNG of ((size + 2) * tile) pixels squared. Imports Pillow."""
    from PIL import Image, ImageDraw

    side = size + 2
    grid = np.full((side, side), WALL)
    grid[1:-1, 1:-1] = board.cells[0, :-1].reshape(size, size)
    row, column = divmod(int(board.player[0]), size)
    image = Image.new("RGB", (side * tile, side * tile), _FLOOR)
    draw = ImageDraw.Draw(image)
    for y, x in np.ndindex(side, side):
        _cell(draw, int(grid[y, x]), x * tile, y * tile, tile)
    _player(draw, (column + 1) * tile, (row + 1) * tile, tile)
    file = BytesIO()
    image.save(file, "PNG", optimize=False)
    return file.getvalue()


def _cell(draw: ImageDraw, cell: int, x: int, y: int, tile: int) -> None:
    right, bottom = x + tile - 1, y + tile - 1

    def inset(share: float) -> tuple[float, float, float, float]:
        return x + share * tile, y + share * tile, x + (1 - share) * tile - 1, y + (1 - share) * tile - 1

    if cell & WALL:
        draw.rectangle(inset(0.0), _WALL)
        middle, half = x + tile // 2, y + tile // 2
        draw.line([(x, y), (right, y)], _MORTAR)
        draw.line([(x, half), (right, half)], _MORTAR)
        draw.line([(middle, y), (middle, half)], _MORTAR)
        draw.line([(x, half), (x, bottom)], _MORTAR)
        return
    if cell & TARGET:
        draw.ellipse(inset(0.04), None, _TARGET, max(1, tile // 16))  # seen around a player, too
        draw.ellipse(inset(0.36), _TARGET)
    if cell & BOX:
        body, edge = (_PLACED, _PLACED_EDGE) if cell & TARGET else (_BOX, _BOX_EDGE)
        x0, y0, x1, y1 = inset(0.1)
        draw.rectangle((x0, y0, x1, y1), body, edge, max(1, tile // 16))
        draw.line([(x0, y0), (x1, y1)], edge, max(1, tile // 16))
        draw.line([(x0, y1), (x1, y0)], edge, max(1, tile // 16))


def _player(draw: ImageDraw, x: int, y: int, tile: int) -> None:
    def at(share_x: float, share_y: float) -> tuple[float, float]:
        return x + share_x * tile, y + share_y * tile

    draw.ellipse([at(0.2, 0.42), at(0.8, 0.98)], _PLAYER)
    draw.ellipse([at(0.3, 0.08), at(0.7, 0.5)], _SKIN)
