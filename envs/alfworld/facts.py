"""What is true in a state of the engine, and the answers to the grammar's conjunctive queries.

The order of answers is that of the stock engine (`textworld.logic.State.all_assignments`), as it decides the
order in which objects are listed in an observation.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass

Variable = tuple[str, str]
"""Name and type, of a thing in the world or of a placeholder in a query."""
Signature = tuple[str, tuple[str, ...]]
"""Predicate and types of its arguments."""
Assignment = dict[Variable, Variable]
"""From placeholders to things."""


@dataclass(frozen=True, slots=True)
class Fact:
    """A predicate that holds of some things; a negated one is called `not_...`."""

    name: str
    arguments: tuple[Variable, ...]

    @property
    def signature(self) -> Signature:
        """What facts are filed under."""
        return self.name, tuple([kind for _, kind in self.arguments])

    def negated(self) -> Fact:
        """The opposite."""
        name = self.name.removeprefix("not_") if self.name.startswith("not_") else f"not_{self.name}"
        return Fact(name, self.arguments)


@dataclass(frozen=True, slots=True)
class Condition:
    """One conjunct of a query. signatures: those of the facts that may match, subtypes included."""

    placeholders: tuple[Variable, ...]
    signatures: tuple[Signature, ...]


Query = tuple[Condition, ...]


class Facts:
    """A set of facts, filed by signature."""

    def __init__(self, facts: Iterable[Fact] = ()) -> None:
        self._filed: dict[Signature, set[tuple[Variable, ...]]] = {}
        for fact in facts:
            self._filed.setdefault(fact.signature, set()).add(fact.arguments)
        self._own = set(self._filed)

    def __iter__(self) -> Iterator[Fact]:
        for (name, _), filed in self._filed.items():
            for arguments in filed:
                yield Fact(name, arguments)

    def of(self, names: Container[str]) -> Iterator[Fact]:
        """The facts of these predicates."""
        for (name, _), filed in self._filed.items():
            if name in names:
                for arguments in filed:
                    yield Fact(name, arguments)

    def copy(self) -> Facts:
        """An independent copy; cheap, as most facts never change: either side copies what it changes."""
        copy = Facts()
        copy._filed = dict(self._filed)
        self._own.clear()
        return copy

    def become_true(self, fact: Fact, negated: Fact) -> None:
        """Take up a fact and drop its opposite."""
        self._writable(negated.signature).discard(negated.arguments)
        self._writable(fact.signature).add(fact.arguments)

    def _writable(self, signature: Signature) -> set[tuple[Variable, ...]]:
        if signature not in self._own:
            self._filed[signature] = set(self._filed.get(signature, ()))
            self._own.add(signature)
        return self._filed[signature]

    def answers(self, query: Query, given: Assignment) -> Iterator[Assignment]:
        """Every way to fill in the query's placeholders, beyond the given ones, that makes all of it true.

        Different placeholders stand for different things. Each answer holds the given placeholders too.
        """
        mapping = dict(given)
        return self._answers(query, 0, mapping, set(mapping.values()))

    def _answers(
        self, query: Query, depth: int, mapping: Assignment, used: set[Variable]
    ) -> Iterator[Assignment]:
        if depth == len(query):
            yield dict(mapping)
            return
        condition = query[depth]
        open_here = [placeholder for placeholder in condition.placeholders if placeholder not in mapping]
        for signature in condition.signatures:
            filed = self._filed.get(signature)
            if not filed:
                continue
            for arguments in sorted(filed):
                for placeholder, thing in zip(condition.placeholders, arguments, strict=False):
                    known = mapping.get(placeholder)
                    if known is None:
                        if thing in used:
                            break
                        mapping[placeholder] = thing
                        used.add(thing)
                    elif known != thing:
                        break
                else:
                    yield from self._answers(query, depth + 1, mapping, used)
                for placeholder in open_here:
                    bound = mapping.pop(placeholder, None)
                    if bound is not None:
                        used.discard(bound)
