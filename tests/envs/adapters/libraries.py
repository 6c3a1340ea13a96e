"""Things that configurations of the adapters' tests name by import path."""

from __future__ import annotations

import random

import numpy as np


def blackjack(observation, env):
    """A hand of Blackjack in words."""
    total, dealer, ace = observation
    return f"hand {total} {'soft' if ace else 'hard'} dealer {dealer}"


def first_free(observation):
    """An opponent of TicTacToe: takes the first place that the board shows as free."""
    board = observation.rpartition("[GAME]")[2]
    return next(f"[{place}]" for place in range(9) if f" {place} " in board)


class Coin:
    """Duck-typed, from no library: draws from global randomness, at the start and in every step."""

    def __init__(self, sides=6):
        self.sides = sides

    def reset(self, seed=None):
        return f"start {random.randrange(10**6)}", {}

    def step(self, action):
        drawn = random.randrange(self.sides) + int(np.random.randint(self.sides))
        return f"drawn {drawn}", float(action == str(drawn)), False, False, {}


class Doors:
    """Duck-typed: lists what is admissible, and says itself whether the episode was a success."""

    def reset(self, seed=None):
        self.open = seed % 3
        return f"doors {seed}", {"admissible": ["door 0", "door 1", "door 2"]}

    def step(self, action):
        return "gone", 5.0, True, False, {"success": action == f"door {self.open}"}


class Broken:
    """Cannot be started."""

    def reset(self, seed=None):
        raise RuntimeError("no board")
