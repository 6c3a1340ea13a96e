"""How trials are named and told apart when they are shown: in the live table and in MLflow."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from arena.trial_sheet import TrialSheet


def option_name(choice: Any) -> str:
    """`cispo` of both `cispo` and `{cispo: {hi: 4}}`."""
    return str(next(iter(choice))) if isinstance(choice, Mapping) and choice else str(choice)


def flatten(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as dotted keys, `trainer.kl.coefficient`; lists and empty mappings as JSON text."""
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            flat.update(flatten(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = json.dumps(value) if isinstance(value, Mapping | list | tuple) else value
    return flat


def cell_name(sheet: TrialSheet, distinction: str = "") -> str:
    """`SAMPO · sokoban`, and what tells the cell from others of that label."""
    return " · ".join(part for part in (sheet.label, sheet.env, distinction) if part)


def trial_name(sheet: TrialSheet, distinction: str = "") -> str:
    """`SAMPO · sokoban · s0`, and what tells its cell from others of that label."""
    return f"{cell_name(sheet, distinction)} · s{sheet.seed}"


def distinctions(sheets: Iterable[TrialSheet]) -> dict[str, str]:
    """Per cell, what its label leaves open: `learning_rate=0.001`, or nothing.

    Labels name points, and a sweep makes several cells of one point in one environment.
    """
    alike: dict[tuple[str, str], dict[str, TrialSheet]] = {}
    for sheet in sheets:
        alike.setdefault((sheet.label, sheet.env), {}).setdefault(sheet.cell, sheet)
    told: dict[str, str] = {}
    for cells in alike.values():
        if len(cells) == 1:
            told[next(iter(cells))] = ""
            continue
        flat = {cell: flatten(sheet.config) for cell, sheet in cells.items()}
        keys = sorted(set().union(*flat.values()) - {"seed"})
        differing = [key for key in keys if len({str(config.get(key)) for config in flat.values()}) > 1]
        for cell, config in flat.items():
            told[cell] = " ".join(
                f"{key.rpartition('.')[2]}={config[key]}" for key in differing if key in config
            )
    return told
