"""In what the cells of a study differ: their axes, environment, model and any other setting."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pandas as pd

from analysis.option_names import option_label

NOT_A_FACTOR = ("seed", "cloning.clone_seed")
"""Settings that make blocks (repetitions), not treatments."""


def settings(config: Mapping[str, Any]) -> dict[str, str]:
    """A resolved configuration as `{dotted key: JSON}`.

    A section that names an option (an axis), or carries a name (environment, model), is one setting: its
    parameters mean nothing apart from it.
    """
    flat: dict[str, str] = {}
    for key, value in config.items():
        _flatten(key, value, flat)
    return {key: value for key, value in flat.items() if key not in NOT_A_FACTOR}


def differing(configs: Mapping[str, Mapping[str, Any]]) -> pd.DataFrame:
    """Cell by setting, only the settings in which the cells differ, with readable values.

    configs: a resolved configuration per cell. Two variants of one option are told apart by the parameters in
    which they differ: `cispo(hi=4)` against `cispo(hi=0.2)`.
    """
    flat = {cell: settings(config) for cell, config in configs.items()}
    keys = dict.fromkeys(key for values in flat.values() for key in values)
    columns = {}
    for key in keys:
        column = {cell: values.get(key, "null") for cell, values in flat.items()}
        if len(set(column.values())) > 1:
            labels = _labels(sorted(set(column.values())))
            columns[key] = [labels[column[cell]] for cell in flat]
    return pd.DataFrame(columns, index=pd.Index(list(flat), name="cell"), dtype=object)


def _flatten(key: str, value: Any, into: dict[str, str]) -> None:
    if isinstance(value, Mapping) and value and "option" not in value and "name" not in value:
        for inner_key, inner in value.items():
            _flatten(f"{key}.{inner_key}", inner, into)
    else:
        into[key] = json.dumps(value, sort_keys=True)


def _labels(variants: list[str]) -> dict[str, str]:
    """A readable name per JSON value, different for different values."""
    values = {text: json.loads(text) for text in variants}
    names = {text: _name(value) for text, value in values.items()}
    labels = {}
    for text, value in values.items():
        namesakes = [values[other] for other in variants if names[other] == names[text]]
        labels[text] = names[text]
        if len(namesakes) > 1:
            labels[text] = option_label({names[text]: _distinguishing(value, namesakes)})
    return labels


def _name(value: Any) -> str:
    if isinstance(value, Mapping):
        return str(value.get("option", value.get("name", "")))
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def _distinguishing(value: Mapping[str, Any], namesakes: list[Mapping[str, Any]]) -> dict[str, Any]:
    """The parameters in which namesakes differ, without those that are off (null) here."""
    keys = dict.fromkeys(key for other in namesakes for key in other)
    return {
        key: value[key]
        for key in keys
        if value.get(key) is not None and any(other.get(key) != value[key] for other in namesakes)
    }
