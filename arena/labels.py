"""What people call a point: a named method, a method and what differs, or its options."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

from analysis import option_names
from arena.configuration import Key
from arena.options import AXES
from arena.yaml_source import flatten

Parameters = Mapping[str, Any]
"""An option's parameters as plain data."""

NAMED_LIKE_A_SENTENCE = ("is_clipping", "advantage", "dynamic_filtering", "loss_aggregation")
"""The order in which a point without a name lists its options: what differs most comes first."""


def point_label(
    options: Mapping[str, str],
    parameters: Mapping[str, Parameters],
    *,
    defaults: Mapping[str, Parameters],
    methods: Mapping[str, tuple[Mapping[str, str], Mapping[str, Parameters] | None]],
    baseline: Mapping[str, str],
    extra: Mapping[Key, Any],
    implied: Mapping[str, Collection[Key]] = MappingProxyType({}),
) -> tuple[str, tuple[str, ...]]:
    """The label of a point, and the named methods it is.

    options, parameters: per axis its option and all its parameters; defaults: those parameters unless a grid
    says otherwise; methods: the same two per named method, those to prefer first, without parameters where
    what surrounds the point makes the method impossible; baseline: the options that a grid need not name;
    extra: configuration keys beyond the axes in which a method was changed; implied: per axis the keys that
    go without saying (`differences`).

    A point with the options of a method is that method, `CISPO(hi=4)` where parameters differ (the one that
    differs least). One option away from the method at the baseline it is `GRPO + top_variance`; else it is
    its options.
    """
    same = [
        (_all_differences(parameters, theirs, implied), name)
        for name, (names, theirs) in methods.items()
        if names == options and theirs is not None
    ]
    if same:
        fewest = min(len(differs) for differs, _ in same)
        names = [_with(name, {**differs, **extra}) for differs, name in same if len(differs) == fewest]
        return names[0], tuple(names if not fewest else names[:1])
    labels = {
        axis: option_label(
            options[axis], differences(parameters[axis], defaults[axis], implied.get(axis, ()))
        )
        for axis in options
    }
    changed = [axis for axis in AXES if options[axis] != baseline[axis]]
    at_baseline = [name for name, (names, _) in methods.items() if names == baseline]
    unchanged_are_plain = all(labels[axis] == options[axis] for axis in options if axis not in changed)
    if len(changed) == 1 and at_baseline and unchanged_are_plain:
        return f"{at_baseline[0]} + {labels[changed[0]]}", ()
    return " / ".join(labels[axis] for axis in NAMED_LIKE_A_SENTENCE), ()


def option_label(name: str, differs: Mapping[Key, Any]) -> str:
    """`cispo`, or `cispo(hi=4)` with the parameters that differ from its defaults."""
    return option_names.option_label({name: {".".join(key): value for key, value in differs.items()}})


def differences(ours: Any, theirs: Any, implied: Collection[Key] = ()) -> dict[Key, Any]:
    """The leaves of `ours` that are not the same in `theirs`; what only `theirs` has is None.

    What is off (None) is no difference from what says nothing of it. Nor is a key of `implied`, unless
    `theirs` has others beside it: a mask's denominator is told only where masks differ in it.
    """
    mine, other = _leaves(ours), _leaves(theirs)
    on = [key for key, value in other.items() if value is not None]
    changed = {
        key: value
        for key, value in mine.items()
        if (other.get(key) != value and (key not in implied or _has_beside(other, key)))
        or (value is None and any(_overlap(key, told) for told in on if told != key))
    }
    gone = {key: None for key in other if not any(_overlap(key, kept) for kept in mine)}
    return changed | gone


def settings_text(settings: Mapping[Key, Any]) -> list[str]:
    """`hi=4` for `is_clipping.hi: 4`: without the section, unless two keys would look the same."""
    short = [key[1:] or key for key in settings]
    return [
        f"{'.'.join(key if short.count(brief) > 1 else brief)}={option_names.value_text(value)}"
        for (key, value), brief in zip(settings.items(), short, strict=True)
    ]


def _all_differences(
    ours: Mapping[str, Parameters], theirs: Mapping[str, Parameters], implied: Mapping[str, Collection[Key]]
) -> dict[Key, Any]:
    return {
        (axis, *key): value
        for axis in ours
        for key, value in differences(ours[axis], theirs[axis], implied.get(axis, ())).items()
    }


def _has_beside(leaves: Collection[Key], key: Key) -> bool:
    """Whether one of the leaves lies in the same mapping as a key."""
    return any(len(leaf) >= len(key) and leaf[: len(key) - 1] == key[:-1] for leaf in leaves)


def _with(name: str, differs: Mapping[Key, Any]) -> str:
    return f"{name}({', '.join(settings_text(differs))})" if differs else name


def _overlap(one: Key, other: Key) -> bool:
    """Whether one is the other or lies below it: a mapping that replaced a value, or the other way round."""
    shared = min(len(one), len(other))
    return one[:shared] == other[:shared]


def _leaves(value: Any) -> dict[Key, Any]:
    if not isinstance(value, Mapping):
        return {(): value}
    return {tuple(map(str, key)): inner for key, inner in flatten(value)}
