"""Levels, seeded with a shortest solution in a range, or from files; no eval board is a train board."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import comb
from pathlib import Path

import numpy as np

from envs.sokoban.board import BOX, TARGET, WALL, Boards, Cells, Ints, boards_from
from envs.sokoban.config import SokobanConfig
from envs.sokoban.level_files import fingerprint, read_levels
from envs.sokoban.search import UNSOLVABLE, is_small, state_space
from envs.sokoban.solver import solve
from envs.text_env import Split

GENERATOR = "random-placement-1"
"""Names the algorithm below; to be raised whenever the same seed would give other levels."""

Room = tuple[int, int, int, int, int]
"""Size, boxes, walls, shortest and longest solution: what a level depends on beside its seed."""

_MAX_CANDIDATES = 4096
_MAX_TABLE = 2**22
_PATIENCE = 200


@dataclass(frozen=True, slots=True)
class Levels:
    """The levels of one split: their boards, and the lengths (N,) of their shortest solutions.

    Of levels from files nobody has searched for those: 0.
    """

    boards: Boards
    optimal: Ints

    def __len__(self) -> int:
        return len(self.optimal)


def levels(config: SokobanConfig, split: Split) -> Levels:
    """The levels of a split, made or read at the first call.

    Raises ValueError when the room has fewer different levels than asked for, and for files without levels
    of such a room.
    """
    if split not in ("train", "eval"):
        raise ValueError(f"unknown split {split!r}: expected 'train' or 'eval'")
    if config.levels_path is not None:
        path = Path(config.levels_path).expanduser()
        return _levels_of(path, split, config.size, config.boxes, config.train_levels, config.eval_levels)
    room = (config.size, config.boxes, config.walls, config.min_optimal, config.max_optimal)
    if split == "eval":
        return _eval_levels(room, config.level_seed, config.eval_levels)
    return _train_levels(room, config.level_seed, config.train_levels, config.eval_levels)


def data_id(config: SokobanConfig) -> str:
    """The generator of levels, or a fingerprint of their files."""
    if config.levels_path is None:
        return GENERATOR
    try:
        return f"files-{fingerprint(Path(config.levels_path).expanduser())}"
    except (OSError, ValueError):
        return "files-missing"


def boards_in(config: SokobanConfig) -> int:
    """How many different boards the room has, whatever their solution."""
    others = config.size**2 - 1
    rest = others - 2 * config.boxes
    walls = sum(comb(rest, count) for count in range(config.walls + 1))
    return (others + 1) * comb(others, config.boxes) * comb(others - config.boxes, config.boxes) * walls


@lru_cache(maxsize=8)
def _levels_of(path: Path, split: Split, size: int, boxes: int, train: int, evaluation: int) -> Levels:
    found = read_levels(path, split, size=size, boxes=boxes, train=train, evaluation=evaluation)
    if not found:
        raise ValueError(f"levels_path: no levels for {split} in {path}")
    return _made([cells for cells, _ in found], [player for _, player in found], [0] * len(found))


@lru_cache(maxsize=8)
def _eval_levels(room: Room, seed: int, count: int) -> Levels:
    return _generate(room, np.random.default_rng([seed, 1]), count, frozenset())


@lru_cache(maxsize=8)
def _train_levels(room: Room, seed: int, count: int, eval_count: int) -> Levels:
    # the eval levels come first, so that another number of train levels leaves them as they are
    boards = _eval_levels(room, seed, eval_count).boards
    taken = frozenset(map(_content, boards.cells, boards.player.tolist()))
    return _generate(room, np.random.default_rng([seed, 0]), count, taken)


def _generate(room: Room, random: np.random.Generator, count: int, taken: frozenset[bytes]) -> Levels:
    """`count` different levels, none with a board in `taken`."""
    size, boxes, walls, low, high = room
    states = size**2 * comb(size**2, boxes)
    candidates = int(np.clip(_MAX_TABLE // states, 16, _MAX_CANDIDATES))
    found: dict[bytes, tuple[Cells, int, int]] = {}
    fruitless = 0
    while len(found) < count:
        cells, player = _candidates(random, candidates, size, boxes, walls)
        lengths = _shortest(cells, player, size, boxes, high)
        before = len(found)
        for index in np.flatnonzero((lengths >= low) & (lengths <= high)).tolist():
            content = _content(cells[index], int(player[index]))
            if content not in taken:
                found.setdefault(content, (cells[index], int(player[index]), int(lengths[index])))
        fruitless = fruitless + 1 if len(found) == before else 0
        if fruitless == _PATIENCE:
            raise ValueError(
                f"only {len(found)} of {count} different levels found with a shortest solution of {low} to "
                f"{high} moves in a room of size {size} with {boxes} boxes: "
                "ask for fewer levels or a wider range of lengths"
            )
    chosen = list(found.values())[:count]
    return _made(
        [level[0] for level in chosen], [level[1] for level in chosen], [level[2] for level in chosen]
    )


def _made(cells: Sequence[Cells], player: Sequence[int], optimal: Sequence[int]) -> Levels:
    boards = boards_from(np.stack(cells), np.array(player))
    for array in (boards.cells, boards.player, boards.on_target):
        array.flags.writeable = False
    return Levels(boards, np.array(optimal))


def _shortest(cells: Cells, player: Ints, size: int, boxes: int, longest: int) -> Ints:
    """(N,) lengths of the shortest solutions; UNSOLVABLE where there is none of at most `longest` moves."""
    if is_small(size, boxes):
        space = state_space(size, boxes)
        every = np.arange(len(cells))
        return space.distances(cells, longest)[space.index(cells, player), every].astype(np.int64)
    solutions = [
        solve(board, int(at), size, longest=longest) for board, at in zip(cells, player, strict=True)
    ]
    return np.array([UNSOLVABLE if found is None else len(found) for found in solutions], np.int64)


def _candidates(
    random: np.random.Generator, count: int, size: int, boxes: int, walls: int
) -> tuple[Cells, Ints]:
    """Player, boxes, targets and 0 to `walls` walls on different cells, uniformly.

    Built on uniform floats only, the part of numpy's generators least likely to change between versions.
    """
    area = size * size
    places = random.random((count, area)).argsort(1, kind="stable")
    used = 1 + 2 * boxes
    built = np.arange(walls)[None] < (random.random((count, 1)) * (walls + 1)).astype(np.int64)
    cells = np.zeros((count, area + 1), np.uint8)
    cells[:, area] = WALL
    every = np.arange(count)[:, None]
    cells[every, places[:, 1 : 1 + boxes]] = BOX
    cells[every, places[:, 1 + boxes : used]] = TARGET
    cells[every, places[:, used : used + walls]] = np.where(built, WALL, 0)
    return cells, places[:, 0]


def _content(cells: Cells, player: int) -> bytes:
    return cells.tobytes() + bytes([player])
