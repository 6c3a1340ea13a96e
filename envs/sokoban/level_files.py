"""Levels from files in Boxoban's format (Guez et al. 2018): rooms drawn in text, under lines `; number`.

    ; 0
    ##########
    #   .  $@#        # wall   @ player   $ box   . target   * box on a target   + player on a target
    ...

A folder with `train` beside `valid` or `test` has its own splits; any other files are split here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from pathlib import Path

import numpy as np

from envs.sokoban.board import BOX, TARGET, WALL, Cells
from envs.text_env import Split

_CELLS = {" ": 0, "-": 0, "_": 0, "#": WALL, "$": BOX, ".": TARGET, "*": BOX | TARGET, "@": 0, "+": TARGET}
_PLAYERS = "@+"
_EVAL_FOLDERS = ("valid", "test")

Level = tuple[Cells, int]
"""The cells of a board as in `Boards`, and the player's."""


class LevelFileError(ValueError):
    """What was read is no level of the room asked for; the message says where and why."""


@lru_cache(maxsize=8)
def read_levels(
    path: Path, split: Split, *, size: int, boxes: int, train: int, evaluation: int
) -> list[Level]:
    """At most `train` or `evaluation` different levels of a split; none of it is in the other.

    size: of the interior; boxes: on every board. Raises LevelFileError.
    """
    folders = _own_splits(path)
    if folders is None:
        # the same levels are for evaluation however many there are: those with the smallest hashes
        found = _different(_levels(path, size, boxes))
        ordered = sorted(found.items(), key=lambda item: hashlib.sha256(item[0]).digest())
        if len(ordered) < 2:
            raise LevelFileError(
                f"levels_path: {path} has {len(ordered)} levels: two are the fewest to split"
            )
        held_out = [level for _, level in ordered[: min(evaluation, len(ordered) // 2)]]
        if split == "eval":
            return held_out
        kept = {_content(level) for level in held_out}
        return [level for content, level in found.items() if content not in kept][:train]
    held = _different(_levels(folders[1], size, boxes), evaluation)
    if split == "eval":
        return list(held.values())
    first = _different(_levels(folders[0], size, boxes), train + len(held))
    return [level for content, level in first.items() if content not in held][:train]


@lru_cache(maxsize=8)
def fingerprint(path: Path) -> str:
    """Names the files: their paths below the folder, sizes and contents of the first of them."""
    files = _files(path)
    digest = hashlib.sha256()
    for number, file in enumerate(files):
        name = file.relative_to(path) if path.is_dir() else Path(file.name)
        digest.update(f"{name} {file.stat().st_size}\n".encode())
        if number < 4:
            digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def parse_levels(text: str, name: str, *, size: int, boxes: int) -> Iterator[Level]:
    """The levels in the text of a file; `name` is what messages call it. Raises LevelFileError."""
    rows: list[str] = []
    begins = 1
    for number, line in enumerate([*text.splitlines(), ";"], 1):
        if line.strip() and not line.startswith(";"):
            if not rows:
                begins = number
            rows.append(line.rstrip())
        elif rows:
            yield _level(rows, f"{name}:{begins}", size, boxes)
            rows = []


def _level(rows: list[str], where: str, size: int, boxes: int) -> Level:
    side = size + 2
    if len(rows) != side or any(len(row) != side for row in rows):
        raise LevelFileError(
            f"{where}: a board of {len(rows)} rows and up to {max(map(len, rows))} columns; env.size={size} "
            f"expects {side} by {side}, the border included"
        )
    drawn = "".join(rows)
    if unknown := sorted(set(drawn) - set(_CELLS)):
        raise LevelFileError(f"{where}: unknown symbol {unknown[0]!r}, expected one of {''.join(_CELLS)!r}")
    grid = np.array([_CELLS[symbol] for symbol in drawn], np.uint8).reshape(side, side)
    inside = grid[1:-1, 1:-1]
    if (grid & WALL).sum() - (inside & WALL).sum() != 4 * (side - 1):
        raise LevelFileError(f"{where}: the border is not all walls")
    players = [place for place, symbol in enumerate(drawn) if symbol in _PLAYERS]
    counts = len(players), int((grid & BOX != 0).sum()), int((grid & TARGET != 0).sum())
    if counts != (1, boxes, boxes):
        raise LevelFileError(
            f"{where}: {counts[0]} players, {counts[1]} boxes and {counts[2]} targets; expected one player "
            f"and {boxes} of each (env.boxes)"
        )
    if (grid & BOX != 0).tolist() == (grid & TARGET != 0).tolist():
        raise LevelFileError(f"{where}: every box is on a target already")
    row, column = divmod(players[0], side)
    cells = np.append(inside.ravel(), np.uint8(WALL))
    return cells, (row - 1) * size + column - 1


def _own_splits(path: Path) -> tuple[Path, Path] | None:
    """The folders for training and evaluation, where a folder has both."""
    for name in _EVAL_FOLDERS:
        if (path / "train").is_dir() and (path / name).is_dir():
            return path / "train", path / name
    return None


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    found = sorted(path.rglob("*.txt")) if path.is_dir() else []
    if not found:
        raise LevelFileError(f"levels_path: no level files (*.txt) in {path}")
    return found


def _levels(path: Path, size: int, boxes: int) -> Iterator[Level]:
    for file in _files(path):
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise LevelFileError(f"levels_path: {file} cannot be read: {error}") from error
        yield from parse_levels(text, str(file), size=size, boxes=boxes)


def _different(levels: Iterator[Level], count: int | None = None) -> dict[bytes, Level]:
    """The first so many different levels (None: all) by their content; no more files are read than needed."""

    def new() -> Iterator[tuple[bytes, Level]]:
        seen: set[bytes] = set()
        for level in levels:
            content = _content(level)
            if content not in seen:
                seen.add(content)
                yield content, level

    return dict(islice(new(), count))


def _content(level: Level) -> bytes:
    return level[0].tobytes() + level[1].to_bytes(2, "little")
