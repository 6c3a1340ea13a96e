"""ALFWorld as a text environment: single episodes, their pools, and what the platform asks of it.

The anchor of a state is what the engine said last of it. What is not admissible changes nothing: the engine
says so (`Nothing happens.`), and the anchor stays; the empty action, which stands for a malformed response,
is not even answered.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from envs.alfworld.config import AlfworldConfig
from envs.alfworld.engine import NOTHING_HAPPENS, Game, Node, open_game
from envs.alfworld.expert import HandcodedExpert, WalkthroughExpert
from envs.alfworld.games import (
    TRAJECTORY_FILE,
    Games,
    data_id,
    games,
    official_problems,
    place,
    prepare,
    ready,
    source,
)
from envs.alfworld.goal import Goal, read_goal
from envs.alfworld.notes import Notes, goal_of
from envs.alfworld.package import EXTRA, missing, packages
from envs.alfworld.vocabulary import vocabulary
from envs.demonstrations import demonstrate
from envs.pool import SerialPool
from envs.process_pool import ProcessPool
from envs.text_env import Demonstration, EnvPool, Expert, Info, Inventory, Need, Progress, Split, TextEnv

_TASK = """You are in a room of a house and are given a household task: find things, carry them, clean, heat \
or cool them, and put them where they belong. You hold one thing at a time. You see what is in or on a \
receptacle only when you are there, and if it is open. A sinkbasin cleans, a microwave heats, a fridge cools.
Commands: go to, open, close, take ... from, move ... to, clean ... with, heat ... with, cool ... with, use, \
examine, look, inventory. You have {turns} turns."""
_GOAL = "Your task is to:"


@dataclass(frozen=True, slots=True)
class Turn:
    """A command, what the engine said to it, and the state after it; an episode opens without a command."""

    command: str
    feedback: str
    node: Node


class AlfworldEnv(TextEnv):
    """One episode.

    game, node, goal, history and episode (how many were started) are there for experts.
    """

    def __init__(self, config: AlfworldConfig) -> None:
        self.config = config
        self.episode = 0
        self.history: list[Turn] = []
        self._games: dict[str, Games] = {}
        self._start: tuple[int, Split] | None = None
        self._over = True

    @property
    def node(self) -> Node:
        """The state of the game."""
        return self.history[-1].node

    def reset(self, seed: int, options: Mapping[str, Any] | None = None) -> tuple[str, Info]:
        """Start game `seed` modulo the number of games; see `TextEnv.reset`."""
        split: Split = (options or {}).get("split", "train")
        if split not in self._games:
            self._games[split] = games(self.config, split)
        every = self._games[split]
        self._start = seed, split
        self._begin(open_game(every.path(seed % len(every))))
        return self._observe()

    def step(self, text: str) -> tuple[str, float, bool, bool, Info]:
        """Give the engine a command; see `TextEnv.step`. Raises ValueError when no episode is running."""
        if self._over:
            raise ValueError("the episode is over: reset first")
        self._take(text)
        won = self.node.won
        truncated = not won and len(self.history) > self.config.max_turns
        self._over = won or truncated
        rewards = self.config.rewards
        observation, info = self._observe()
        return observation, rewards.step + (rewards.won if won else 0.0), won, truncated, info

    def close(self) -> None:
        """Nothing is held but what all share."""
        self._over = True

    def _begin(self, game: Game) -> None:
        self.game: Game = game
        if game.path is None:
            raise ValueError("a game without a file has no goal to read")
        self.goal: Goal = read_goal(game.path.parent / TRAJECTORY_FILE)
        node, introduction = game.start()
        self.episode += 1
        self.history = [Turn("", introduction, node)]
        self._anchor = self._said = introduction
        self._goal = goal_of(introduction)
        self._notes = Notes(introduction)
        self._over = False

    def _take(self, command: str) -> None:
        node, feedback = self.game.step(self.node, command)
        self.history.append(Turn(command, feedback, node))
        if feedback != NOTHING_HAPPENS:
            self._anchor = feedback
            self._notes.hear(feedback)
        if command:
            self._said = feedback

    def _observe(self) -> tuple[str, Info]:
        if self.config.observation == "compact":
            text = self._notes.line()
        else:
            text = self._said if _GOAL in self._said else f"{self._said}\n\n{_GOAL} {self._goal}"
        node = self.node
        info: Info = {
            "anchor": self._anchor,
            "admissible": list(node.choices.commands),
            "success": node.won,
            "task_type": self.goal.type,
        }
        return text, info

    def __getstate__(self) -> dict[str, Any]:
        """How the episode came here: states of the engine are found again by playing it."""
        commands = [turn.command for turn in self.history[1:]]
        return {"config": self.config, "start": self._start, "commands": commands, "over": self._over}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["config"])  # type: ignore[misc]
        if state["start"] is not None:
            seed, split = state["start"]
            self.reset(seed, {"split": split})
            for command in state["commands"]:
                self._take(command)
        self._over = state["over"]


class AlfworldEnvironment:
    """See `envs.text_env.Environment`."""

    config_type = AlfworldConfig

    def data_id(self, config: AlfworldConfig) -> str:
        """A fingerprint of the official games, or the version of the generator."""
        return data_id(config)

    def problems(self, config: AlfworldConfig) -> list[str]:
        """The engine is not installed, or official games are asked for and not there."""
        if lacking := missing():
            return [f"ALFWorld needs {' and '.join(lacking)}: {EXTRA}"]
        return official_problems(config) if source(config) == "official" else []

    def inventory(self, config: AlfworldConfig) -> Inventory:
        """The engine's packages, and which games are played."""
        needs = tuple(Need(name, found, EXTRA) for name, found in packages().items())
        if source(config) == "official":
            problems = official_problems(config)
            data = problems[0] if problems else f"{ready(config)[1]:,} official games in {place(config)}"
        else:
            made, wanted = ready(config)
            data = f"{made:,} of {wanted:,} generated games on file in {place(config)}"
        return Inventory(data, needs)

    def prepare(self, config: AlfworldConfig, progress: Progress) -> str:
        """Make the games that are not on file; those of official data are there. Says where they are."""
        prepare(config, progress)
        return f"{ready(config)[0]:,} games; ALFWORLD_DATA={place(config)} plays them elsewhere"

    def task(self, config: AlfworldConfig) -> str:
        """What can be done; the goal itself is in every observation."""
        return _TASK.format(turns=config.max_turns)

    def vocabulary(self, config: AlfworldConfig) -> tuple[str, ...]:
        """Names, numbers and the words around them."""
        return vocabulary(config)

    def has_anchors(self, config: AlfworldConfig) -> bool:
        """What the engine says recurs."""
        return True

    def make(self, config: AlfworldConfig) -> AlfworldEnv:
        """One environment."""
        return AlfworldEnv(config)

    def make_pool(self, config: AlfworldConfig) -> EnvPool:
        """A pool in this process, or in `workers` of its own."""
        make = partial(AlfworldEnv, config)
        if config.workers:
            return ProcessPool(make, workers=config.workers, step_seconds=config.step_seconds)
        return SerialPool(make)

    def expert(self, config: AlfworldConfig) -> Expert:
        """The one that the configuration names."""
        return WalkthroughExpert(config) if config.expert == "walkthrough" else HandcodedExpert(config)

    def demonstrations(
        self, config: AlfworldConfig, *, episodes: int, seed: int, explore: float, error: float, history: int
    ) -> list[Demonstration]:
        """As `envs.demonstrations.demonstrate` gives them."""
        return demonstrate(
            partial(AlfworldEnv, config),
            self.expert(config),
            max_turns=config.max_turns,
            episodes=episodes,
            seed=seed,
            explore=explore,
            error=error,
            history=history,
        )


ALFWORLD = AlfworldEnvironment()
