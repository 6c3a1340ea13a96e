"""gymnasium's FrozenLake in words: a new map per seed, what the agent sees, and who knows the way."""

from __future__ import annotations

from collections import deque
from typing import Any

import gymnasium
from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv, generate_random_map

MOVES = {"left": (0, -1), "down": (1, 0), "right": (0, 1), "up": (-1, 0)}
"""The actions in the library's order, and where they lead: (row, column)."""


class Lakes(gymnasium.Env[str, int]):  # type: ignore[misc]
    """FrozenLake with a map that the seed makes; observations are text.

    size: of the side; frozen: probability of ice that holds; slippery: whether one slides sideways.
    """

    def __init__(self, size: int = 4, frozen: float = 0.7, *, slippery: bool = False) -> None:
        self._size, self._frozen, self._slippery = size, frozen, slippery
        self.action_space = gymnasium.spaces.Discrete(len(MOVES))
        self.observation_space = gymnasium.spaces.Text(size * size * 2)
        self.lake: Any = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Any]:
        """A new map, at its start."""
        desc = generate_random_map(self._size, self._frozen, seed)
        self.lake = FrozenLakeEnv(desc=desc, is_slippery=self._slippery)
        _, info = self.lake.reset(seed=seed)
        return self._see(), info

    def step(self, action: int) -> tuple[str, float, bool, bool, Any]:
        """See gymnasium."""
        _, reward, terminated, truncated, info = self.lake.step(action)
        return self._see(), float(reward), terminated, truncated, info

    @property
    def rows(self) -> list[str]:
        """The map: S start, F ice, H hole, G goal."""
        return [b"".join(row).decode() for row in self.lake.desc]

    @property
    def at(self) -> tuple[int, int]:
        """Row and column of the agent."""
        return divmod(int(self.lake.s), self._size)

    def _see(self) -> str:
        """One word per place, P for the agent, _ for ice, rows divided by a stroke."""
        signs = [list(row.replace("S", "_").replace("F", "_")) for row in self.rows]
        row, column = self.at
        signs[row][column] = "P"
        return " / ".join(" ".join(line) for line in signs)


class Guide:
    """Goes the shortest way around the holes."""

    def action(self, env: Any) -> str | None:
        """The first move of that way; None when there is none."""
        way = self._way(env)
        return way[0] if way else None

    def thought(self, env: Any, action: str) -> str:
        """The first moves of the way that goes on with `action`, as far as it is the shortest."""
        way = self._way(env)
        return " ".join(way[:4] if way and way[0] == action else [action])

    def _way(self, env: Any) -> list[str]:
        lakes: Lakes = env.engine.inner
        rows, began = lakes.rows, lakes.at
        ways: dict[tuple[int, int], list[str]] = {began: []}
        waiting = deque([began])
        while waiting:
            at = waiting.popleft()
            for name, (down, right) in MOVES.items():
                there = (at[0] + down, at[1] + right)
                if there in ways or not all(0 <= axis < len(rows) for axis in there):
                    continue
                sign = rows[there[0]][there[1]]
                if sign == "G":
                    return [*ways[at], name]
                if sign != "H":
                    ways[there] = [*ways[at], name]
                    waiting.append(there)
        return []
