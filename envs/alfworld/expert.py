"""Experts: one that knows where everything is, and the search that comes with alfworld."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

from envs.alfworld.config import AlfworldConfig
from envs.alfworld.engine import Game, Node
from envs.alfworld.goal import Goal
from envs.alfworld.package import importing
from envs.alfworld.planning import Situation, Step, shortest_way

if TYPE_CHECKING:
    from envs.alfworld.environment import AlfworldEnv

LINK = "then"
"""Between the steps of a thought."""
SEARCH, BRING = "find", "bring"
"""What a step is for, in the thoughts of one who does not know where things are."""


_WORDS = {
    "gotolocation": "go",
    "openobject": "open",
    "pickupobject": "take",
    "putobject": "move",
    "cleanobject": "clean",
    "heatobject": "heat",
    "coolobject": "cool",
    "toggleobject": "use",
}
"""What the planner's steps are called in thoughts."""


class WalkthroughExpert:
    """Follows the game's stored walkthrough; off it, takes a shortest way to the goal from where it is.

    Where the task is none it knows, the planner library finds the way. Its thoughts are its plan.
    """

    def __init__(self, config: AlfworldConfig) -> None:
        self._config = config

    def action(self, env: AlfworldEnv) -> str | None:
        """See `Expert.action`."""
        game, node = env.game, env.node
        if len(game.walkthrough) <= self._config.max_turns and (noted := game.noted(node)) is not None:
            return noted
        plan = _way(game, node, env.goal)
        if plan:
            return game.command(node, *plan[0])
        commands = game.plan(node)
        return commands[0] if commands else None

    def thought(self, env: AlfworldEnv, action: str) -> str:
        """See `Expert.thought`: the action, and the shortest way on from where it leads."""
        node, _ = env.game.step(env.node, action)
        plan = [] if node.won else _way(env.game, node, env.goal)
        steps = [" ".join([_WORDS[name], *map(env.game.name, things)]) for name, *things in plan]
        return _within(self._config.thought_words, [_short(action), *steps])


class HandcodedExpert:
    """alfworld's own expert: looks through likely places, without knowing where anything is.

    It does not always get there. Where it is at a loss, there is no action.
    """

    def __init__(self, config: AlfworldConfig) -> None:
        self._config = config
        self._following: _Following | None = None

    def action(self, env: AlfworldEnv) -> str | None:
        """See `Expert.action`."""
        if self._following is None or not self._following.follows(env):
            self._following = _Following(env)
        return self._following.action()

    def thought(self, env: AlfworldEnv, action: str) -> str:
        """See `Expert.thought`: the action, and what it is for."""
        goal, situation = env.goal, Situation.of(env.game.facts(env.node))
        found = situation.held is not None and situation.kinds[situation.held] == goal.thing
        aim = f"{BRING} {goal.thing} {goal.destination}" if found else f"{SEARCH} {goal.thing}"
        return _within(self._config.thought_words, [_short(action), aim])


class _Following:
    """One episode as alfworld's agent sees it: every turn is shown to it once, and its last word kept."""

    def __init__(self, env: AlfworldEnv) -> None:
        self._env, self._episode, self._shown = env, env.episode, 0
        self._random = random.Random(f"handcoded {env.game.path}")
        with importing():
            from alfworld.agents.expert import HandCodedTWAgent

        self._agent = HandCodedTWAgent(max_steps=10 * env.config.max_turns)
        with self._own_chance():
            self._agent.reset(str(env.game.path))
            self._agent.observe(env.history[0].feedback)
        self._action: str | None = self._ask("")

    def follows(self, env: AlfworldEnv) -> bool:
        """Whether it is this episode."""
        return env is self._env and env.episode == self._episode

    def action(self) -> str | None:
        """What the agent would do now."""
        turns = self._env.history
        while self._shown < len(turns) - 1:
            self._shown += 1
            # the agent has emptied its hands when it hears `put`; the package's games say `move`
            command = re.sub("^move ", "put ", turns[self._shown].command)
            self._action = self._ask(command)
        return self._action

    def _ask(self, command: str) -> str | None:
        from alfworld.agents.expert.handcoded_expert import HandCodedAgentFailed, HandCodedAgentTimeout

        turn = self._env.history[self._shown]
        game = self._env.game
        state = {
            "feedback": turn.feedback,
            "facts": [
                SimpleNamespace(name=fact.name, names=tuple(game.name(thing) for thing, _ in fact.arguments))
                for fact in sorted(game.facts(turn.node), key=lambda fact: (fact.name, fact.arguments))
            ],
            "admissible_commands": list(turn.node.choices.commands),
        }
        try:
            with self._own_chance():
                action = self._agent.act(state, 0, turn.node.won, command)
        except (HandCodedAgentFailed, HandCodedAgentTimeout, IndexError, KeyError):
            return None
        return str(action) if action in turn.node.choices.commands else None

    @contextmanager
    def _own_chance(self) -> Iterator[None]:
        """The agent draws from the module `random`; here it draws from a generator of its own."""
        from alfworld.agents.expert import handcoded_expert

        handcoded_expert.random = self._random
        try:
            yield
        finally:
            handcoded_expert.random = random


def _way(game: Game, node: Node, goal: Goal) -> list[Step]:
    """A shortest way to a game's goal; empty when it is reached, or when there is none."""
    if node.note is None:
        node.note = shortest_way(goal, Situation.of(game.facts(node))) or []
    return cast("list[Step]", node.note)


def _short(command: str) -> str:
    """A command in the words of a thought."""
    return " ".join(word for word in command.split() if word not in ("to", "from", "with", "in/on"))


def _within(words: int, steps: list[str]) -> str:
    """As many steps as fit into so many words, at least one."""
    thought = steps[0]
    for step in steps[1:]:
        longer = f"{thought} {LINK} {step}"
        if len(longer.split()) > words:
            break
        thought = longer
    return thought
