"""What options and values are called: the same in plans, labels, hypotheses and reports."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any


def option_label(option: Any) -> str:
    """`cispo`, or with its parameters `cispo(hi=4, sequence_mask.delta=0.003)`.

    option: a name, or `{name: parameters}`. Of a part (a mask, a gate) only what is on is told.
    """
    if not isinstance(option, Mapping) or len(option) != 1:
        return str(option)
    ((name, parameters),) = option.items()
    told = _leaves(parameters) if isinstance(parameters, Mapping) else ()
    text = ", ".join(f"{key}={value_text(value)}" for key, value in told)
    return f"{name}({text})" if text else str(name)


def value_text(value: Any) -> str:
    """A value in a label: numbers short and unambiguous, nothing as `off`."""
    if value is None:
        return "off"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return (
            repr(int(value)) if value.is_integer() and abs(value) < 1e9 else repr(value).replace("e-0", "e-")
        )
    return str(value) if isinstance(value, str | int) else json.dumps(value)


def _leaves(parameters: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in parameters.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{above}{key}.")
        elif value is not None or not above:
            yield f"{above}{key}", value
