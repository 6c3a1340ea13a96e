"""What the design of a study cannot show, by `estimable` of its plan: which effects are one, and why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.markdown import code, listing

MOST_GROUPS, MOST_NAMES = 12, 8


@dataclass(frozen=True)
class Estimable:
    """What the cells of a plan determine. Names of effects: a factor, or `one:other` for an interaction.

    factors: those that vary; main: main effects that can be told from each other where nothing interacts;
    interactions: those that can be told from everything up to that order; aliased: groups of effects that
    only show as their sum; complete: whether interactions were looked into.
    """

    factors: tuple[str, ...] = ()
    main: tuple[str, ...] = ()
    interactions: tuple[str, ...] = ()
    aliased: tuple[tuple[str, ...], ...] = ()
    complete: bool = True

    def alias_of(self, effect: str) -> tuple[str, ...]:
        """The other effects that an effect cannot be told from; empty when it stands alone."""
        return next((tuple(e for e in group if e != effect) for group in self.aliased if effect in group), ())


def read_estimable(found: Any) -> Estimable | None:
    """The `estimable` of a plan; None where it is absent or not understood."""
    if not isinstance(found, Mapping):
        return None
    try:
        return Estimable(
            factors=_names(found["factors"]),
            main=_names(found["main"]),
            interactions=_names(found["interactions"]),
            aliased=tuple(_names(group) for group in found["aliased"]),
            complete=bool(found.get("complete", True)),
        )
    except (KeyError, TypeError):
        return None


def refusals(design: str, shown: Estimable | None) -> list[str]:
    """Markdown that names the effects nothing is claimed of, with the reason; none where all can be told."""
    if shown is None or len(shown.factors) < 2:
        return []
    lost = [name for name in shown.factors if name not in shown.main]
    lines = []
    if lost:
        lines.append(
            f"no main effect of {_listed(lost)}: what the cells change with it cannot be told from it, so a"
            " difference may come from either"
        )
    for group in shown.aliased[:MOST_GROUPS]:
        mains = [effect for effect in group if ":" not in effect and effect not in lost]
        if len(group) < 2:
            continue
        if not mains:
            lines.append(f"{_listed(group)} only as their sum: they are aliased, and none of them is claimed")
            continue
        others = [effect for effect in group if effect not in mains]
        if others:
            lines.append(
                f"the main effect of {_listed(mains)} apart from {_listed(others)}: they are aliased. It is"
                " claimed, with a star, as what it is if these interactions are nil"
            )
    if len(shown.aliased) > MOST_GROUPS:
        lines.append(
            f"{len(shown.aliased) - MOST_GROUPS} more groups of aliased effects, named by `arena plan`"
        )
    if not shown.complete:
        lines.append("any interaction: there are too many to look into, and none is claimed")
    if not lines:
        return []
    name = f" ({code(design)})" if design else ""
    return [f"**What this design{name} cannot show:**", "\n".join(f"- {line}." for line in lines)]


def _names(found: Iterable[Any]) -> tuple[str, ...]:
    return tuple(str(name) for name in found)


def _listed(names: Sequence[str]) -> str:
    shown = [code(name.replace(":", " x ")) for name in names]
    return listing(shown, MOST_NAMES)
