"""A game's grammar, read once by the engine's own parsers and kept as plain data.

The stock engine parses the whole grammar at every load of a game (0.3 s) and parts of it at every step.
Here the data goes into a cache file; `envs.alfworld.grammar` derives texts from it.

The data: {"rules": {name: [[query, symbols], ...]}, "actions": {name: {"template", "feedback": symbols}}}.
A query is null or [[predicate, [[placeholder, type], ...]], ...]; a symbol is one of
    ["text", literal]  ["rule", name]  ["value", expression]  ["each", symbol, query]  ["list", each]
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

Tree = list[Any]
Data = dict[str, Any]

_TASK_RULE = re.compile(r'("task"\s*:\s*\[\s*\{\s*"rhs"\s*:\s*)("(?:[^"\\\n]|\\.)*")')
_PLAIN = re.compile(r"[A-Za-z][^;|\"<>\[\]#{}\t]*")


class GrammarError(ValueError):
    """A grammar that cannot be used; the message says where it ends."""


def split_task(text: str) -> tuple[str, str | None]:
    """A game's grammar without its goal, and the goal's wording: games of one kind share the first.

    The second is None, and the first everything, when the goal is not where it usually is.
    """
    match = _TASK_RULE.search(text)
    if match is None:
        return text, None
    try:
        task = json.loads(match[2])
    except ValueError:
        return text, None
    return text[: match.start(2)] + '"?"' + text[match.end(2) :], task


def parse_grammar(text: str) -> Data:
    """All rules and actions of a grammar."""
    from textworld.envs.pddl.logic import GameLogic

    logic = GameLogic(domain="", grammar=text)
    return {
        "rules": {
            name: [[_query(rule.condition), [_symbol(symbol) for symbol in rule.rhs]] for rule in rules]
            for name, rules in logic.grammar._rules.items()
        },
        "actions": {
            name: {"template": parse_text(action.template), "feedback": parse_text(action.feedback_rule)}
            for name, action in logic.actions.items()
        },
    }


def parse_text(text: str) -> list[Tree]:
    """The symbols of one text."""
    if _PLAIN.fullmatch(text):  # what the parser would find, without importing it
        return [["text", text]]
    from textworld.envs.pddl.textgen import _parse_and_convert

    return [_symbol(symbol) for symbol in _parse_and_convert(text, rule_name="symbols")]


def conditions(data: Data) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Predicate and argument types of every condition in a grammar."""
    for rules in data["rules"].values():
        for query, symbols in rules:
            yield from _of_query(query)
            yield from conditions_of(symbols)
    for action in data["actions"].values():
        yield from conditions_of(action["template"])
        yield from conditions_of(action["feedback"])


def is_fixed(symbols: list[Tree], changing: frozenset[str]) -> bool:
    """Whether the text of symbols stays the same while only these predicates change."""
    inner = [symbol[1] for symbol in symbols if symbol[0] in ("list", "each")]
    return (
        all(symbol[0] != "rule" for symbol in symbols)
        and not any(name.removeprefix("not_") in changing for name, _ in conditions_of(symbols))
        and (not inner or is_fixed(inner, changing))
    )


def conditions_of(symbols: list[Tree]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The same of some symbols, without the rules they name."""
    for symbol in symbols:
        if symbol[0] == "list":
            yield from conditions_of([symbol[1]])
        elif symbol[0] == "each":
            yield from conditions_of([symbol[1]])
            yield from _of_query(symbol[2])


def _of_query(query: Tree | None) -> Iterator[tuple[str, tuple[str, ...]]]:
    for predicate, placeholders in query or ():
        yield predicate, tuple(kind for _, kind in placeholders)


def _symbol(symbol: Any) -> Tree:
    kind = type(symbol).__name__
    if kind == "TerminalSymbol":
        return ["text", symbol.symbol]
    if kind == "NonterminalSymbol":
        return ["rule", symbol.symbol]
    if kind == "EvalSymbol":
        return ["value", symbol.expression]
    if kind == "ConditionalSymbol":
        return ["each", _symbol(symbol.expression), _query(symbol.given)]
    if kind == "ListSymbol":
        return ["list", _symbol(symbol.symbol)]
    raise GrammarError(f"unknown symbol in a grammar: {kind}")


def _query(text: str | None) -> Tree | None:
    if not text:
        return None
    from textworld.logic import Rule

    return [
        [condition.name, [[placeholder.name, placeholder.type] for placeholder in condition.parameters]]
        for condition in Rule.parse_conjunctive_query(text).preconditions
    ]
