"""Games as graphs of what the engine has already worked out.

A state of a game is a node; what a command leads to is an edge with its text. What one episode has seen is
there for all others in the process, and states that no later text, action or win can tell apart are one
node. Only new edges ask the planner library and the grammar, and they are what the stock engine would
answer, to the byte (`tests/envs/alfworld/test_engine.py`).
"""

from __future__ import annotations

import zlib
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envs.alfworld.downward import LOCK, Operator, downward
from envs.alfworld.facts import Assignment, Fact, Facts
from envs.alfworld.grammar import Context, Entity, Grammar
from envs.alfworld.grammar_parser import is_fixed
from envs.alfworld.naming import entity_names
from envs.alfworld.translation import optimised_task, parse_atom, read_game, translation

NOTHING_HAPPENS = "Nothing happens."
"""What the engine says to anything that is not admissible."""

MAX_NODES = 60_000
"""States kept in a process, about 1 kB each; beyond, the games not played for longest are forgotten."""
MAX_GAMES = 256
"""Games kept in a process, up to 0.3 MB each."""


@dataclass(frozen=True, slots=True)
class Choices:
    """What can be done in a state: the admissible commands, sorted, and the operator behind each."""

    commands: tuple[str, ...]
    operators: Mapping[str, int]


class Node:
    """A state of a game: what can be done, whether it is won, and where commands lead as far as is known.

    note: whatever an expert wants to remember of it.
    """

    __slots__ = ("_operator", "_parent", "choices", "edges", "note", "state", "won")

    def __init__(self, parent: Node | None, operator: int, choices: Choices, *, won: bool) -> None:
        self._parent, self._operator = parent, operator
        self.choices, self.won = choices, won
        self.edges: dict[str, tuple[Node, str]] = {}
        self.state: tuple[object, int] | None = None
        self.note: object = None

    def way(self) -> list[tuple[Node, int]]:
        """A way from the start to here: nodes, each with the operator that led to it (-1 at the start)."""
        found: list[tuple[Node, int]] = []
        node: Node | None = self
        while node is not None:
            found.append((node, node._operator))
            node = node._parent
        return found[::-1]


@dataclass(slots=True)
class _Ground:
    """A ground operator. command: None when it depends on the state; effects: None before the first time."""

    operator: Operator
    action: str
    mapping: Assignment
    command: str | None
    effects: list[tuple[Fact, Fact]] | None = None


class Game:
    """One game, played by any number of episodes side by side.

    data: what a game file holds; path: which one. Raises ValueError for a grammar that cannot be used.
    walkthrough: the commands that the file says win the game.
    """

    def __init__(self, data: dict[str, Any], path: Path | None = None) -> None:
        self.data, self.path = data, path
        self.walkthrough = tuple(str(command) for command in data.get("walkthrough") or ())
        made = translation(data)
        self.sas, self._types, self._parameters = made.sas, made.objects, made.parameters
        names = entity_names({thing for fact in made.facts for thing, _ in fact.arguments})
        self._names = names
        self._entities = {thing: Entity(thing, made.objects[thing], name) for thing, name in names.items()}
        self._grammar = Grammar(made.grammar, made.task, lambda name, kinds: made.signatures[name, kinds])
        self._fixed = frozenset(
            action
            for action, parts in made.grammar["actions"].items()
            if is_fixed(parts["template"], made.changing)
        )
        self._telling = (made.read & made.changing) | {
            name for name in made.read if name.removeprefix("not_") in made.changing
        }
        self._mergeable = made.mergeable
        self._initial = Facts(made.facts)
        self._grounds: dict[int, _Ground] = {}
        self._choices: dict[tuple[int, ...], Choices] = {}
        self._nodes: dict[int, Node] = {}
        self.forget()

    def forget(self) -> None:
        """Drop the graph; nodes that somebody holds can still be played on."""
        _library.nodes -= len(self._nodes)
        self._start: tuple[Node, str] | None = None
        self._nodes = {}
        self._bits: dict[Fact, int] = {}
        self._last: tuple[Node, Facts] | None = None
        self._noted: dict[Node, str] | None = None

    def start(self) -> tuple[Node, str]:
        """The initial state and the introduction."""
        if self._start is None:
            with LOCK:
                _library.load(self)
                intro = self._grammar.derive(
                    self._grammar.symbols([["rule", "intro"]]), Context(self._initial, self._entities, {})
                )
                root = self._node(None, -1, self._initial)
                self._start = root, intro
        return self._start

    def step(self, node: Node, command: str) -> tuple[Node, str]:
        """Where a command leads, and what the engine says. What is not admissible leads nowhere."""
        command = command.strip()
        edge = node.edges.get(command)
        if edge is None:
            operator = node.choices.operators.get(command)
            if operator is None:
                return node, NOTHING_HAPPENS
            with LOCK:
                edge = node.edges[command] = self._expand(node, operator)
        return edge

    def facts(self, node: Node) -> Facts:
        """What is true in a state, as the stock engine would have noted it on the way there."""
        way = node.way()
        facts, begin = self._initial, 1
        if self._last is not None:
            known, at_known = self._last
            for index in range(len(way), 1, -1):
                if way[index - 1][0] is known:
                    facts, begin = at_known, index
                    break
        if begin < len(way):
            facts = facts.copy()
            for _, operator in way[begin:]:
                self._change(facts, self._grounds[operator])
            self._last = node, facts
        return facts

    def noted(self, node: Node) -> str | None:
        """What the walkthrough does in a state; None where it never is, and everywhere if it does not win."""
        if self._noted is None:
            noted: dict[Node, str] = {}
            at, _ = self.start()
            for command in self.walkthrough:
                noted[at] = command  # where it comes again, what it does the last time
                at, _ = self.step(at, command)
            self._noted = noted if at.won else {}
        return self._noted.get(node)

    def name(self, thing: str) -> str:
        """What a thing is called in texts."""
        return self._names[thing]

    def command(self, node: Node, action: str, *things: str) -> str | None:
        """The admissible command for an action of the domain done to some things; None: there is none."""
        for command, index in node.choices.operators.items():
            ground = self._grounds[index]
            if ground.action == action and set(things) <= {thing for thing, _ in ground.mapping.values()}:
                return command
        return None

    def plan(self, node: Node) -> list[str] | None:
        """The cheapest commands from here to winning, as the planner finds them; None: there are none.

        Takes milliseconds in a small room, 0.1 to 0.2 s in a full one.
        """
        with LOCK:
            _library.go(self, node)
            operators = downward().plan(optimised_task(self.data))
        if operators is None:
            return None
        commands = []
        for name in operators:
            command = next(
                command
                for command, index in node.choices.operators.items()
                if self._grounds[index].operator.name == name
            )
            commands.append(command)
            node, _ = self.step(node, command)
        return commands

    def _expand(self, node: Node, operator: int) -> tuple[Node, str]:
        ground = self._grounds[operator]
        facts = self.facts(node).copy()
        _library.go(self, node)
        if ground.effects is None:
            atoms = map(parse_atom, downward().effects(ground.operator))
            effects = [
                Fact(name, tuple((thing, self._types[thing]) for thing in things)) for name, things in atoms
            ]
            ground.effects = [(effect, effect.negated()) for effect in effects]
        else:
            downward().apply(operator)
        self._change(facts, ground)
        context = Context(facts, self._entities, ground.mapping)
        feedback = self._grammar.derive(self._grammar.feedbacks[ground.action], context)
        return self._node(node, operator, facts), feedback

    def _node(self, parent: Node | None, operator: int, facts: Facts) -> Node:
        """The node of the library's current state, in which these facts hold."""
        key = 0
        for fact in facts.of(self._telling):
            key |= 1 << self._bits.setdefault(fact, len(self._bits))
        if not self._mergeable:
            key = -1 - len(self._nodes)
        node = self._nodes.get(key)
        if node is None:
            planner = downward()
            node = Node(parent, operator, self._choose(facts), won=planner.goal_reached())
            node.state = _library.here()
            self._nodes[key] = node
            self._last = node, facts
            _library.nodes += 1
        return node

    def _change(self, facts: Facts, ground: _Ground) -> None:
        for fact, negated in ground.effects or ():
            facts.become_true(fact, negated)

    def _choose(self, facts: Facts) -> Choices:
        """What can be done in the library's current state."""
        grounds: dict[str, _Ground] = {}
        for operator in downward().applicable():
            grounds.setdefault(operator.name, self._ground(operator, facts))
        key = tuple(ground.operator.index for ground in grounds.values())
        choices = self._choices.get(key)
        if choices is None:
            operators: dict[str, int] = {}
            fixed = True
            for ground in grounds.values():
                fixed = fixed and ground.command is not None
                operators.setdefault(ground.command or self._command(ground, facts), ground.operator.index)
            choices = Choices(tuple(sorted(operators)), operators)
            if fixed:
                self._choices[key] = choices
        return choices

    def _ground(self, operator: Operator, facts: Facts) -> _Ground:
        ground = self._grounds.get(operator.index)
        if ground is None:
            action, *arguments = operator.name.split()
            parameters = self._parameters[action]
            mapping = {
                (name, kind): (thing, kind)
                for (name, kind), thing in zip(parameters, arguments, strict=False)
            }
            ground = self._grounds[operator.index] = _Ground(operator, action, mapping, None)
            if action in self._fixed:
                ground.command = self._command(ground, facts)
        return ground

    def _command(self, ground: _Ground, facts: Facts) -> str:
        context = Context(facts, self._entities, ground.mapping)
        command = self._grammar.derive(self._grammar.templates[ground.action], context)
        return command.format_map(self._names) if "{" in command else command


class _Library:
    """The games of this process, how many nodes they have, and which of them the planner library holds."""

    def __init__(self) -> None:
        self.nodes = 0
        self._games: OrderedDict[Path, Game] = OrderedDict()
        self._loaded: Game | None = None
        self._loading = object()

    def open(self, path: Path) -> Game:
        """A game by its file. It is read once, as long as it is among the games kept."""
        with LOCK:
            game = self._games.get(path)
            if game is None:
                game = Game(read_game(path), path)
                self._games[path] = game
            self._games.move_to_end(path)
            while len(self._games) > MAX_GAMES or (self.nodes > MAX_NODES and len(self._games) > 1):
                _, old = self._games.popitem(last=False)
                old.forget()
            return game

    def load(self, game: Game) -> None:
        """Make a game's initial state the library's current one."""
        downward().load(zlib.decompress(game.sas).decode())
        self._loaded, self._loading = game, object()

    def here(self) -> tuple[object, int]:
        """The library's current state, to come back to as long as the same loading lasts."""
        return self._loading, downward().state

    def go(self, game: Game, node: Node) -> None:
        """Make the state of a node the library's current one."""
        way = node.way()
        if self._loaded is not game:
            self.load(game)
            way[0][0].state = self.here()
        begin = len(way) - 1
        while (state := way[begin][0].state) is None or state[0] is not self._loading:
            begin -= 1
        downward().state = state[1]
        for each, operator in way[begin + 1 :]:
            downward().apply(operator)
            each.state = self.here()


_library = _Library()


def open_game(path: Path) -> Game:
    """The game of a file, shared by all who ask for it. Raises ValueError when it is none."""
    return _library.open(path)
