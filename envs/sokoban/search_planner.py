"""Plans in rooms whose states are too many to search them all: solved one state at a time, and remembered."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np

from envs.sokoban.board import ACTIONS, BOX, STAY, Boards, Ints
from envs.sokoban.levels import Levels
from envs.sokoban.solver import Maze, bits_of, maze_of, with_border
from envs.sokoban.wording import PUSH, STUCK

_REMEMBERED = 200_000
_GREED = 4
"""Of the second search, where the first one for a shortest solution took too long."""

State = tuple[int, int]
"""The bits of the boxes, and the player's cell, on the board with its border."""


class SearchPlanner:
    """As `expert.Planner`: plans in the levels of one split, for a room of any size.

    A solution is a shortest one where that is found soon; otherwise one that a greedy search finds.
    """

    def __init__(self, levels: Levels, size: int, thought_words: int) -> None:
        self.levels, self._size, self._limit = levels, size, thought_words
        self.block = len(levels)
        self._numbers: dict[State, int] = {}
        self._states: list[State] = []
        self._plans: OrderedDict[tuple[int, State], int] = OrderedDict()

    def states(self, boards: Boards) -> Ints:
        """(N,) the states of boards, as `thoughts` and `best` take them."""
        found = [
            (bits_of(cells, BOX, self._size), with_border(int(player), self._size))
            for cells, player in zip(boards.cells, boards.player.tolist(), strict=True)
        ]
        return np.array([self._number(state) for state in found], np.int64)

    def best(self, level: Ints, states: Ints) -> Ints:
        """(N,) the next action of a solution; STAY where none was found."""
        pairs = zip(level.tolist(), states.tolist(), strict=True)
        return np.array([self._best(at, self._states[state]) for at, state in pairs], np.int64)

    def thoughts(self, level: Ints, states: Ints, first: Ints) -> list[str]:
        """The plan that begins with the actions `first`; see `expert.Planner.thoughts`."""
        return [
            self._thought(at, self._states[state], action)
            for at, state, action in zip(level.tolist(), states.tolist(), first.tolist(), strict=True)
        ]

    def _thought(self, level: int, state: State, action: int) -> str:
        room, words = self._maze(level), list[str]()
        if self._best(level, state) == STAY:
            action = STAY
        while True:
            after, pushes = _act(room, state, action)
            said = [STUCK] if action == STAY else [PUSH, ACTIONS[action]] if pushes else [ACTIONS[action]]
            if len(words) + len(said) > self._limit:
                break
            words += said
            if action == STAY or after[0] == room.targets:
                break
            state, action = after, self._best(level, after)
        return " ".join(words)

    def _best(self, level: int, state: State) -> int:
        if (level, state) not in self._plans:
            self._search(level, state)
        return self._plans[level, state]

    def _search(self, level: int, state: State) -> None:
        """Note the next action of this state, and of all that the solution passes through."""
        room = self._maze(level)
        actions = room.solve(*state) or room.solve(*state, greed=_GREED)
        if not actions:
            self._note(level, state, STAY)
            return
        passed = []
        for action in actions:
            passed.append((state, action))
            state, _ = _act(room, state, action)
        for state, action in reversed(passed):
            self._note(level, state, action)

    def _note(self, level: int, state: State, action: int) -> None:
        self._plans[level, state] = action
        if len(self._plans) > _REMEMBERED:
            self._plans.popitem(last=False)

    def _number(self, state: State) -> int:
        if len(self._states) > _REMEMBERED:
            self._numbers.clear()
            self._states.clear()
        number = self._numbers.setdefault(state, len(self._states))
        if number == len(self._states):
            self._states.append(state)
        return number

    def _maze(self, level: int) -> Maze:
        return maze_of(self.levels.boards.cells[level], self._size)


def _act(room: Maze, state: State, action: int) -> tuple[State, bool]:
    """The state after an action, and whether it pushed a box."""
    boxes, player = state
    if action == STAY:
        return state, False
    entered = player + room.shifts[action]
    if boxes >> entered & 1:
        behind = entered + room.shifts[action]
        if not (room.free & ~boxes) >> behind & 1:
            return state, False
        return (room.after(boxes, entered, action), entered), True
    return ((boxes, entered), False) if room.free >> entered & 1 else (state, False)
