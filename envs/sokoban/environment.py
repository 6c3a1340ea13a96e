"""Sokoban as a text environment: single episodes, a vectorised pool, and what the platform asks of both.

An observation is one word per cell, rows separated by `/`; it is its own anchor, as it shows the whole state.
All four moves are always admissible: walking into a wall is a turn in which nothing moves, as in the usual
Sokoban. Any other text is such a turn too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from envs.demonstrations import draw
from envs.pool import EpisodeBook
from envs.sokoban import drawing
from envs.sokoban.board import (
    ACTION_INDEX,
    ACTIONS,
    BOX_ON_TARGET_SYMBOL,
    BOX_SYMBOL,
    FLOOR_SYMBOL,
    PLAYER_ON_TARGET_SYMBOL,
    PLAYER_SYMBOL,
    ROW_END,
    STAY,
    SYMBOLS,
    TARGET_SYMBOL,
    WALL_SYMBOL,
    Boards,
    BoardText,
    move,
)
from envs.sokoban.config import SokobanConfig
from envs.sokoban.expert import Planner, make_planner, play_demonstrations
from envs.sokoban.levels import boards_in, data_id, levels
from envs.sokoban.search_planner import SearchPlanner
from envs.sokoban.wording import THOUGHT_WORDS
from envs.text_env import Demonstration, EnvPool, Info, Inventory, Observation, Outcome, Split, TextEnv

_LEGEND = ", ".join(
    f"{symbol} {meaning}"
    for symbol, meaning in (
        (WALL_SYMBOL, "wall"),
        (FLOOR_SYMBOL, "floor"),
        (TARGET_SYMBOL, "target"),
        (BOX_SYMBOL, "box"),
        (BOX_ON_TARGET_SYMBOL, "box on a target"),
        (PLAYER_SYMBOL, "you"),
        (PLAYER_ON_TARGET_SYMBOL, "you on a target"),
    )
)
_TASK = f"""You play Sokoban: push every box onto a target.
The board is written row by row, rows separated by {ROW_END}. Symbols: {_LEGEND}.
You move one cell up, down, left or right. Moving into a box pushes it if the cell behind it is free; boxes \
cannot be pulled. You have {{turns}} moves."""


_PLENTY = 20
"""A room with so many more boards than levels needs no trial generation before a study is planned."""


class SokobanEnv(TextEnv):
    """One episode; `split`, `level` and `boards` (of one board) are there for the expert."""

    def __init__(self, config: SokobanConfig) -> None:
        self.config = config
        self.split: Split = "train"
        self.level = 0
        self.boards: Boards | None = None
        self._turns = 0
        self._over = True

    def reset(self, seed: int, options: Mapping[str, Any] | None = None) -> tuple[str, Info]:
        """Start level `seed` modulo the number of levels; see `TextEnv.reset`."""
        self.split = (options or {}).get("split", "train")
        every = levels(self.config, self.split)
        self.level = seed % len(every)
        self.boards = every.boards.take([self.level])
        self._turns = 0
        self._over = False
        return self._observe(self.boards, success=False)

    def step(self, text: str) -> tuple[str, float, bool, bool, Info]:
        """Move; see `TextEnv.step`. Raises ValueError when no episode is running."""
        boards = self.boards
        if self._over or boards is None:
            raise ValueError("the episode is over: reset first")
        config = self.config
        change = int(move(boards, np.array([0]), np.array([ACTION_INDEX.get(text, STAY)]), config.size)[0])
        self._turns += 1
        success = int(boards.on_target[0]) == config.boxes
        truncated = not success and self._turns >= config.max_turns
        self._over = success or truncated
        observation, info = self._observe(boards, success=success)
        return observation, _rewards(config)[change, success], success, truncated, info

    def render(self, *, colors: bool = False) -> str | None:
        """The board as people draw it; see `TextEnv.render`."""
        return None if self.boards is None else drawing.lines(self.boards, self.config.size, colors=colors)

    def render_png(self) -> bytes | None:
        """A picture of the board; see `TextEnv.render_png`."""
        return None if self.boards is None else drawing.png(self.boards, self.config.size)

    def _observe(self, boards: Boards, *, success: bool) -> tuple[str, Info]:
        text = _writer(self.config)(boards)[0]
        return text, {"anchor": text, "admissible": list(ACTIONS), "success": success}


class SokobanPool(EnvPool):
    """Episodes side by side, as one batch of boards."""

    def __init__(self, config: SokobanConfig) -> None:
        self._config = config
        self._write = _writer(config)
        self._rewards = _rewards(config)
        self._book = EpisodeBook()
        self._boards: Boards | None = None
        self._turns = np.zeros(0, np.int64)

    def reset(self, seeds: Sequence[int], split: Split) -> list[Observation]:
        """See `EnvPool.reset`."""
        every = levels(self._config, split)
        self._boards = every.boards.take(
            np.fromiter((seed % len(every) for seed in seeds), np.int64, len(seeds))
        )
        self._turns = np.zeros(len(seeds), np.int64)
        self._book.start(len(seeds))
        return [Observation(text, text, ACTIONS) for text in self._write(self._boards)]

    def step(self, episodes: Sequence[int], actions: Sequence[str]) -> list[Outcome]:
        """See `EnvPool.step`."""
        self._book.check(episodes, actions)
        boards = self._boards
        if boards is None or not len(episodes):
            return []
        rows = np.array(episodes, np.int64)
        moves = np.array([ACTION_INDEX.get(action, STAY) for action in actions])
        changes = move(boards, rows, moves, self._config.size).tolist()
        self._turns[rows] += 1
        solved = boards.on_target[rows] == self._config.boxes
        truncated = ~solved & (self._turns[rows] >= self._config.max_turns)
        going = ~(solved | truncated)
        self._book.finish(rows[~going].tolist())
        texts = iter(self._write(boards.take(rows[going])))
        outcomes = []
        for change, success, late in zip(changes, solved.tolist(), truncated.tolist(), strict=True):
            observation = None
            if not success and not late:
                text = next(texts)
                observation = Observation(text, text, ACTIONS)
            outcomes.append(Outcome(observation, self._rewards[change, success], success, late, success))
        return outcomes


class SokobanExpert:
    """Plays a `SokobanEnv` optimally."""

    def __init__(self, config: SokobanConfig) -> None:
        self._config = config

    def action(self, env: SokobanEnv) -> str | None:
        """See `Expert.action`."""
        planner, boards = self._look(env)
        best = int(planner.best(np.array([env.level]), planner.states(boards))[0])
        return None if best == STAY else ACTIONS[best]

    def thought(self, env: SokobanEnv, action: str) -> str:
        """See `Expert.thought`: the plan of moves, as `Planner.thoughts` writes it."""
        planner, boards = self._look(env)
        first = np.array([ACTION_INDEX[action]])
        return planner.thoughts(np.array([env.level]), planner.states(boards), first)[0]

    def _look(self, env: SokobanEnv) -> tuple[Planner | SearchPlanner, Boards]:
        if env.boards is None:
            raise ValueError("no episode is running: reset first")
        return make_planner(self._config, env.split), env.boards


class SokobanEnvironment:
    """See `envs.text_env.Environment`."""

    config_type = SokobanConfig

    def data_id(self, config: SokobanConfig) -> str:
        """The level generator, whose parameters are in the configuration, or a fingerprint of the files."""
        return data_id(config)

    def problems(self, config: SokobanConfig) -> list[str]:
        """Files without levels of such a room, or a small room with fewer levels than asked for."""
        wanted = config.train_levels + config.eval_levels
        if config.levels_path is None and wanted * _PLENTY < boards_in(config):
            return []
        try:
            levels(config, "train")
        except ValueError as error:
            return [str(error)]
        return []

    def inventory(self, config: SokobanConfig) -> Inventory:
        """It needs nothing."""
        where = "made from a seed" if config.levels_path is None else f"at most, from {config.levels_path}"
        return Inventory(f"{config.train_levels:,} + {config.eval_levels:,} levels {where}")

    def task(self, config: SokobanConfig) -> str:
        """The rules and the symbols."""
        return _TASK.format(turns=config.max_turns)

    def vocabulary(self, config: SokobanConfig) -> tuple[str, ...]:
        """Symbols, the end of a row, and the words of plans."""
        return (*SYMBOLS, ROW_END, *THOUGHT_WORDS)

    def has_anchors(self, config: SokobanConfig) -> bool:
        """The observation is the whole state."""
        return True

    def make(self, config: SokobanConfig) -> SokobanEnv:
        """One environment."""
        return SokobanEnv(config)

    def make_pool(self, config: SokobanConfig) -> SokobanPool:
        """A vectorised pool."""
        return SokobanPool(config)

    def expert(self, config: SokobanConfig) -> SokobanExpert:
        """Optimal play."""
        return SokobanExpert(config)

    def demonstrations(
        self, config: SokobanConfig, *, episodes: int, seed: int, explore: float, error: float, history: int
    ) -> list[Demonstration]:
        """As `envs.demonstrations.demonstrate` gives them, with many episodes side by side."""
        draws = draw(episodes, config.max_turns, seed=seed, explore=explore, error=error)
        return play_demonstrations(config, draws, history)


@lru_cache(maxsize=8)
def _writer(config: SokobanConfig) -> BoardText:
    return BoardText(config.size, border=config.border)


@lru_cache(maxsize=8)
def _rewards(config: SokobanConfig) -> dict[tuple[int, bool], float]:
    """The reward of a turn by (change in boxes on targets, solved)."""
    rewards = config.rewards
    boxes = {-1: rewards.box_off, 0: 0.0, 1: rewards.box_on}
    return {
        (change, solved): rewards.step + boxes[change] + (rewards.solved if solved else 0.0)
        for change in boxes
        for solved in (False, True)
    }


SOKOBAN = SokobanEnvironment()
