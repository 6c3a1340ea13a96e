"""Optimal play by exhaustive search, with the remaining plan as its thought."""

from __future__ import annotations

from collections import OrderedDict
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from envs.demonstrations import Draws
from envs.prompts import write_response
from envs.sokoban.board import ACTIONS, STAY, WALL, Boards, BoardText, Ints, move
from envs.sokoban.config import SokobanConfig
from envs.sokoban.levels import Levels, levels
from envs.sokoban.search import UNSOLVABLE, Distances, is_small, state_space
from envs.sokoban.search_planner import SearchPlanner
from envs.sokoban.wording import PUSH, STUCK
from envs.text_env import Demonstration, Observation, Split

_TABLE_ENTRIES = 2**22
_TABLES = 4


class Planner:
    """Distances and plans in the levels of one split.

    Levels are searched in blocks, when one of a block is first asked for; a few blocks are kept.
    """

    def __init__(self, config: SokobanConfig, split: Split) -> None:
        self.levels: Levels = levels(config, split)
        self._space = state_space(config.size, config.boxes)
        self._limit = config.thought_words
        self.block = max(1, _TABLE_ENTRIES // self._space.count)
        self._tables: OrderedDict[int, Distances] = OrderedDict()

    def _table(self, block: int) -> Distances:
        if block not in self._tables:
            cells = self.levels.boards.cells[block * self.block : (block + 1) * self.block]
            self._tables[block] = self._space.distances(cells)
            if len(self._tables) > _TABLES:
                self._tables.popitem(last=False)
        return self._tables[block]

    def states(self, boards: Boards) -> Ints:
        """(N,) the states of boards, as `thoughts` and `best` take them."""
        return self._space.index(boards.cells, boards.player)

    def _next(self, level: Ints, states: Ints) -> tuple[Ints, Distances]:
        """(4, N) the state each action leads to, and its distance from the solution; one block of levels."""
        space, cells = self._space, self.levels.boards.cells
        stopped = (cells[level, space.entered[:, states]] | cells[level, space.behind[:, states]]) & WALL
        reached = np.where(stopped, states, space.successor[:, states])
        return reached, self._table(int(level[0]) // self.block)[reached, level % self.block]

    def best(self, level: Ints, states: Ints) -> Ints:
        """(N,) the best action, the first among equals; STAY where the level cannot be solved any more.

        level (N,): levels of one block (equal `level // block`); states (N,): unsolved ones.
        """
        distances = self._next(level, states)[1]
        return np.where(distances.min(0) < UNSOLVABLE, distances.argmin(0), STAY)

    def thoughts(self, level: Ints, states: Ints, first: Ints) -> list[str]:
        """The plan that begins with the actions `first` and goes on optimally, one text per state.

        A word per move, `push` before a move that pushes, `stuck` where the solution is out of reach (alone
        if it already is); the plan is cut before it exceeds the limit of words. Arguments as in `best`;
        first (N,): indices into ACTIONS.
        """
        plans: list[list[str]] = [[] for _ in range(len(states))]
        every = np.arange(len(states))
        running, actions = every, np.where(self.best(level, states) == STAY, STAY, first)
        while len(running):
            reached, distances = self._next(level[running], states)
            chosen = np.arange(len(running))
            known = np.minimum(actions, STAY - 1)
            pushes, after = self._pushes(level[running], states, known), reached[known, chosen]
            left = distances[known, chosen]
            going = []
            for place, (episode, action, push, distance) in enumerate(
                zip(running.tolist(), actions.tolist(), pushes.tolist(), left.tolist(), strict=True)
            ):
                plan = plans[episode]
                words = [STUCK] if action == STAY else [PUSH, ACTIONS[action]] if push else [ACTIONS[action]]
                if len(plan) + len(words) > self._limit:
                    continue
                plan += words
                if action != STAY and distance:
                    going.append(place)
            running, states = running[going], after[going]
            actions = self.best(level[running], states) if going else running
        return [" ".join(plan) for plan in plans]

    def _pushes(self, level: Ints, states: Ints, actions: Ints) -> NDArray[np.bool_]:
        """(N,) whether the action pushes a box (and no wall stops it)."""
        space, cells = self._space, self.levels.boards.cells
        free: NDArray[np.bool_] = (cells[level, space.behind[actions, states]] & WALL) == 0
        return space.pushes[actions, states] & free


@lru_cache(maxsize=8)
def make_planner(config: SokobanConfig, split: Split) -> Planner | SearchPlanner:
    """The (cached) planner for a room of this size."""
    if is_small(config.size, config.boxes):
        return Planner(config, split)
    return SearchPlanner(levels(config, split), config.size, config.thought_words)


def play_demonstrations(config: SokobanConfig, draws: Draws, history: int) -> list[Demonstration]:
    """All turns of the drawn train episodes, in the order of episodes; many are played side by side."""
    planner = make_planner(config, "train")
    chosen = draws.seeds % len(planner.levels)
    turns: list[tuple[int, Demonstration]] = []
    for block in np.unique(chosen // planner.block).tolist():
        episodes = np.flatnonzero(chosen // planner.block == block)
        turns += _play_block(config, planner, draws, episodes, chosen[episodes], history)
    turns.sort(key=lambda turn: turn[0])
    return [demonstration for _, demonstration in turns]


def _play_block(
    config: SokobanConfig,
    planner: Planner | SearchPlanner,
    draws: Draws,
    episodes: Ints,
    level: Ints,
    history: int,
) -> list[tuple[int, Demonstration]]:
    boards = planner.levels.boards.take(level)
    write = BoardText(config.size, border=config.border)
    past: list[list[tuple[str, str]]] = [[] for _ in episodes]
    turns: list[tuple[int, Demonstration]] = []
    running = np.arange(len(episodes))
    for turn in range(config.max_turns):
        now, there = boards.take(running), level[running]
        states, texts = planner.states(now), write(now)
        drawn = episodes[running]
        best = planner.best(there, states)
        fallback = np.where(best == STAY, _action(draws.fallback[drawn, turn]), best)
        written = _pick(draws.written[drawn, turn], fallback)
        executed = _pick(draws.executed[drawn, turn], written)
        thoughts = planner.thoughts(there, states, written)
        for place, text, thought, said, done in zip(
            running.tolist(), texts, thoughts, written.tolist(), executed.tolist(), strict=True
        ):
            before = past[place]
            demonstration = Demonstration(
                history=tuple(before[len(before) - min(history, len(before)) :]),
                observation=Observation(text, text, ACTIONS),
                response=write_response(thought, ACTIONS[said]),
            )
            turns.append((int(episodes[place]), demonstration))
            before.append((text, ACTIONS[done]))
        move(boards, running, executed, config.size)
        running = running[boards.on_target[running] < config.boxes]
        if not len(running):
            break
    return turns


def _action(draws: NDArray[np.float64]) -> Ints:
    return (draws * len(ACTIONS)).astype(np.int64)


def _pick(draws: NDArray[np.float64], otherwise: Ints) -> Ints:
    """The drawn actions; `otherwise` where nothing (-1) was drawn."""
    return np.where(draws < 0, otherwise, _action(draws))
