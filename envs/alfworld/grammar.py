"""Derives the texts of actions and observations as `textworld.envs.pddl.textgen` does, without its copies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType

from envs.alfworld.facts import Assignment, Condition, Facts, Query, Signature
from envs.alfworld.grammar_parser import Data, GrammarError, Tree

Signatures = Callable[[str, tuple[str, ...]], tuple[Signature, ...]]
"""From a predicate and the types in a condition to the signatures of the facts that may match."""

TASK = "task"


class Entity:
    """What the grammar may say of a thing: the attributes of textworld's `EntityInfo`."""

    __slots__ = (
        "adj", "definite", "desc", "id", "indefinite", "name", "noun", "room_type", "synonyms", "type"
    )  # fmt: skip

    def __init__(self, identifier: str, kind: str, name: str) -> None:
        self.id, self.type, self.name = identifier, kind, name
        self.definite, self.indefinite = "the", "a"
        self.noun = self.adj = self.desc = self.room_type = self.synonyms = None

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Context:
    """Where a text is derived: what is true, and what the placeholders stand for."""

    facts: Facts
    entities: Mapping[str, Entity]
    mapping: Assignment

    def variables(self) -> dict[str, Entity]:
        """What expressions may name."""
        return {placeholder: self.entities[thing] for (placeholder, _), (thing, _) in self.mapping.items()}


class Symbol:
    """Something that writes its text."""

    __slots__ = ()

    def write(self, out: list[str], context: Context, grammar: Grammar) -> None:
        """Append to `out`; raises GrammarError where the grammar has no rule."""
        raise NotImplementedError


Symbols = Sequence[Symbol]


class Grammar:
    """The rules of one game. signatures: how subtypes are found, which depends on the domain."""

    def __init__(self, data: Data, task: Sequence[Tree] | None, signatures: Signatures) -> None:
        self._signatures = signatures
        self._rules: dict[str, list[tuple[Query | None, Symbols]]] = {
            name: [(self._query(query), self.symbols(trees)) for query, trees in rules]
            for name, rules in data["rules"].items()
        }
        if task is not None:
            query, _ = self._rules[TASK][0]
            self._rules[TASK][0] = (query, self.symbols(task))
        self.templates = {name: self.symbols(action["template"]) for name, action in data["actions"].items()}
        self.feedbacks = {name: self.symbols(action["feedback"]) for name, action in data["actions"].items()}
        self._enumeration = [_Rule(name) for name in ("list_empty", "list_separator", "list_last_separator")]

    def symbols(self, trees: Sequence[Tree]) -> Symbols:
        """Symbols ready to derive from."""
        return [self._symbol(tree) for tree in trees]

    def derive(self, symbols: Symbols, context: Context) -> str:
        """The text of symbols. Raises GrammarError when the grammar has no rule for one of them."""
        out: list[str] = []
        for symbol in symbols:
            symbol.write(out, context, self)
        return "".join(out)

    def applicable(self, name: str, context: Context) -> Symbols:
        """The right-hand side of the first rule of that name whose condition holds."""
        for query, symbols in self._rules.get(name, ()):
            if query is None or next(context.facts.answers(query, context.mapping), None) is not None:
                return symbols
        raise GrammarError(f"the grammar has no rule for #{name}# here")

    def enumerate(self, count: int, index: int) -> Symbol | None:
        """What comes before item `index` of an enumeration of `count` (and for an empty one)."""
        empty, separator, last = self._enumeration
        if count == 0:
            return empty
        if index == 0:
            return None
        return last if index == count - 1 else separator

    def _symbol(self, tree: Tree) -> Symbol:
        kind, *rest = tree
        if kind == "text":
            return _Text(rest[0])
        if kind == "rule":
            return _Rule(rest[0])
        if kind == "value":
            return _Value(compile(rest[0].strip(), "<grammar>", "eval"))
        if kind == "each":
            return _Each(self._symbol(rest[0]), self._query(rest[1]))
        if kind == "list":
            each = self._symbol(rest[0])
            if isinstance(each, _Each):
                return _List(each)
        raise GrammarError(f"unknown symbol in a grammar: {tree!r}")

    def _query(self, query: Tree | None) -> Query | None:
        if query is None:
            return None
        found = []
        for name, parameters in query:
            placeholders = tuple((placeholder, kind) for placeholder, kind in parameters)
            found.append(
                Condition(placeholders, self._signatures(name, tuple(kind for _, kind in placeholders)))
            )
        return tuple(found)


class _Text(Symbol):
    """Itself."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def write(self, out: list[str], context: Context, grammar: Grammar) -> None:
        out.append(self.text)


class _Rule(Symbol):
    """What the rule of that name derives."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def write(self, out: list[str], context: Context, grammar: Grammar) -> None:
        for symbol in grammar.applicable(self.name, context):
            symbol.write(out, context, grammar)


class _Value(Symbol):
    """A Python expression over the variables; it comes from the game's file, as in the stock engine."""

    __slots__ = ("code",)

    def __init__(self, code: CodeType) -> None:
        self.code = code

    def write(self, out: list[str], context: Context, grammar: Grammar) -> None:
        out.append(str(eval(self.code, {}, context.variables())))


class _Each(Symbol):
    """A symbol once for every answer to a query."""

    __slots__ = ("query", "symbol")

    def __init__(self, symbol: Symbol, query: Query | None) -> None:
        self.symbol, self.query = symbol, query

    def contexts(self, context: Context) -> list[Context]:
        if self.query is None:
            return [context]
        return [
            Context(context.facts, context.entities, mapping)
            for mapping in context.facts.answers(self.query, context.mapping)
        ]

    def write(self, out: list[str], context: Context, grammar: Grammar) -> None:
        for each in self.contexts(context):
            self.symbol.write(out, each, grammar)


class _List(Symbol):
    """The same as an enumeration: `a, b, and c` in the words of the grammar's separators."""

    __slots__ = ("each",)

    def __init__(self, each: _Each) -> None:
        self.each = each

    def write(self, out: list[str], context: Context, grammar: Grammar) -> None:
        contexts = self.each.contexts(context)
        for index, each in enumerate(contexts or [context]):
            if before := grammar.enumerate(len(contexts), index):
                before.write(out, context, grammar)
            if contexts:
                self.each.symbol.write(out, each, grammar)
