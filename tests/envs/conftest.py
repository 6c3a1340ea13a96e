"""What the tests of the environments share: their configurations, and Sokoban once more, slow and simple."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

CONFIGURATIONS = Path(__file__).parents[2] / "arena" / "conf" / "env"
STEPS = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}


def read_configuration(name):
    return yaml.safe_load((CONFIGURATIONS / f"{name}.yaml").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class SlowSokoban:
    """One state of a room as sets of (row, column), read from and written as text without a border."""

    size: int
    walls: frozenset
    targets: frozenset
    boxes: frozenset
    player: tuple

    @classmethod
    def read(cls, text):
        rows = [row.split() for row in text.split(" / ")]
        places = {(y, x): word for y, row in enumerate(rows) for x, word in enumerate(row)}

        def where(symbols):
            return frozenset(place for place, word in places.items() if word in symbols)

        (player,) = where("PS")
        return cls(len(rows), where("#"), where("O√S"), where("X√"), player)

    def write(self):
        def word(place):
            if place == self.player:
                return "S" if place in self.targets else "P"
            if place in self.boxes:
                return "√" if place in self.targets else "X"
            return "#" if place in self.walls else "O" if place in self.targets else "_"

        return " / ".join(" ".join(word((y, x)) for x in range(self.size)) for y in range(self.size))

    def free(self, place):
        return all(0 <= axis < self.size for axis in place) and place not in self.walls | self.boxes

    def move(self, action):
        """The state after an action and whether it pushed a box."""
        if action not in STEPS:
            return self, False
        (dy, dx), (y, x) = STEPS[action], self.player
        ahead, beyond = (y + dy, x + dx), (y + 2 * dy, x + 2 * dx)
        if self.free(ahead):
            return SlowSokoban(self.size, self.walls, self.targets, self.boxes, ahead), False
        if ahead in self.boxes and self.free(beyond):
            boxes = self.boxes - {ahead} | {beyond}
            return SlowSokoban(self.size, self.walls, self.targets, boxes, ahead), True
        return self, False

    @property
    def placed(self):
        return len(self.boxes & self.targets)

    @property
    def solved(self):
        return self.boxes == self.targets

    def shortest(self):
        """Length of the shortest solution by breadth-first search, None when there is none."""
        seen, queue = {self}, deque([(self, 0)])
        while queue:
            state, depth = queue.popleft()
            if state.solved:
                return depth
            for action in STEPS:
                after, _ = state.move(action)
                if after not in seen:
                    seen.add(after)
                    queue.append((after, depth + 1))
        return None


@pytest.fixture(scope="session")
def slow():
    return SlowSokoban


@pytest.fixture(scope="session")
def configuration():
    """Reads the platform's configuration of an environment."""
    return read_configuration
