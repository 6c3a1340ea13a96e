"""The generic pool and the generic demonstrations, on an environment small enough to see through."""

from __future__ import annotations

from itertools import pairwise

import pytest

from envs.demonstrations import demonstrate
from envs.pool import SerialPool
from envs.prompts import parse
from envs.text_env import TextEnv


class Countdown(TextEnv):
    """Say `down` until zero; `skip` changes nothing. `listed`: whether it tells its actions."""

    def __init__(self, listed=True):
        self.listed, self.closed, self.left, self.turns = listed, 0, 0, 0

    def reset(self, seed, options=None):
        self.left, self.turns = 2 + seed % 3, 0
        return self._look()

    def step(self, text):
        self.turns += 1
        self.left -= text == "down"
        text, info = self._look()
        return text, 1.0, not self.left, bool(self.left) and self.turns >= 5, info

    def close(self):
        self.closed += 1

    def _look(self):
        admissible = ["down", "skip"] if self.listed else None
        return f"{self.left} left", {"anchor": None, "admissible": admissible, "success": not self.left}


class Counter:
    """Its expert, who despairs of the number three."""

    def action(self, env):
        return None if env.left == 3 else "down"

    def thought(self, env, action):
        return f"{env.left} {action}"


def test_environments_are_made_once_and_closed_with_the_pool():
    made = []
    pool = SerialPool(lambda: made.append(Countdown()) or made[-1])
    pool.reset([0, 1, 2], "train")
    pool.reset([0], "train")
    pool.reset([0, 1], "eval")
    assert len(made) == 3
    pool.close()
    pool.close()
    assert [env.closed for env in made] == [1, 1, 1]


def test_episodes_end_on_their_own():
    pool = SerialPool(Countdown)
    first = pool.reset([0, 1, 0], "train")
    assert [observation.text for observation in first] == ["2 left", "3 left", "2 left"]
    pool.step([0, 1, 2], ["down", "down", "skip"])
    ended, going = pool.step([0, 1], ["down", "down"])
    assert (ended.observation, ended.terminated, ended.success) == (None, True, True)
    assert going.observation.text == "1 left"
    with pytest.raises(ValueError, match="episode 0 is over"):
        pool.step([0], ["down"])


def show(listed=True, **changes):
    arguments = {"episodes": 200, "seed": 0, "explore": 0.0, "error": 0.0, "history": 3, **changes}
    return demonstrate(lambda: Countdown(listed), Counter(), max_turns=5, **arguments)


def test_history_holds_what_was_executed_not_what_was_written():
    turns = show(explore=1.0, error=0.0)
    executed = [action for turn in turns for _, action in turn.history]
    written = [parse(turn.response, None).action for turn in turns if turn.observation.text != "3 left"]
    assert set(written) == {"down"}
    assert 0.4 < executed.count("skip") / len(executed) < 0.6


def test_errors_are_written_and_executed():
    turns = show(error=0.5)
    before, after = next((turn, following) for turn, following in pairwise(turns) if following.history)
    assert after.history[-1] == (before.observation.text, parse(before.response, None).action)
    actions = [parse(turn.response, None).action for turn in turns if turn.observation.text != "3 left"]
    assert 0.2 < actions.count("skip") / len(actions) < 0.3


def test_an_expert_without_advice_is_replaced_by_chance():
    actions = [parse(turn.response, None).action for turn in show() if turn.observation.text == "3 left"]
    assert 0.4 < actions.count("skip") / len(actions) < 0.6


def test_unlisted_actions_are_left_to_the_expert():
    turns = show(listed=False, explore=0.5, error=0.5)
    assert {parse(turn.response, None).action for turn in turns} == {"down"}
    assert "3 left" not in {turn.observation.text for turn in turns}
