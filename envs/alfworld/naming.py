"""The names that things have in the game's texts: `cabinet 2` for `cabinet_bar__plus_00_dot_33_...`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

_SIGNS = {"_bar_": "|", "_minus_": "-", "_plus_": "+", "_dot_": ".", "_comma_": ","}


def entity_names(identifiers: Iterable[str]) -> dict[str, str]:
    """Names by identifier, as alfworld's `Demangler` gives them without shuffling.

    Things of one class are numbered against the order of their identifiers. What has no place in the room
    (the agent, types) keeps its identifier, followed by a space.
    """
    classes: dict[str, list[str]] = defaultdict(list)
    names = {}
    for identifier in sorted(identifiers):
        plain = identifier
        for sign, symbol in _SIGNS.items():
            plain = plain.replace(sign, symbol)
        kind, separator, _ = plain.partition("|")
        if separator:
            classes[f"{kind}basin" if "basin" in identifier else kind].append(identifier)
        else:
            names[identifier] = f"{plain} "
    for kind, members in classes.items():
        for number, identifier in enumerate(reversed(members), 1):
            names[identifier] = f"{kind} {number}"
    return names
