"""What a trial is: its resolved configuration and the ids computed from it. Imports nothing heavy."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any

from pydantic import Field

from trainers.config import Count, NonNegative, Section, Share, TrainingConfig

IDENTITY_VERSION = 1
"""Part of every id. Raise it when the same configuration starts to mean something else."""

FIRST_TUNING_SEED = 1_000_000
"""Tuning tries its candidates with seeds from here on, which no trial has whose result is compared."""

NOT_IN_IDENTITY = frozenset(
    {
        ("seed",),
        ("model", "device"),
        ("trainer", "checkpoint_every"),
        ("trainer", "keep_checkpoints"),
        ("trainer", "transcripts"),
        ("collapse", "learned_floor"),
        ("collapse", "stable_variance"),
    }
)
"""Keys that change where a trial runs or what is kept and said of it, never what it learns.

So are an environment's `path`, `*_path` and `url` keys: where its data lies, or where it is served. What it
is comes in with `data_id`.
"""

_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)


class CollapseConfig(Section):
    """When training has collapsed (methods.md section 8), and whether that ends the trial.

    The defaults live in `conf/config.yaml`; `best_*` is the fall from the best success, `start_floor` the
    fall below the clone, `format_*` the loss of the reply format; `learned_floor` and `stable_variance` only
    judge.
    """

    stop: bool
    window: Count
    patience: Count
    best_share: Share
    best_floor: Share
    start_floor: Share
    standard_errors: NonNegative
    format_broken: Share
    format_healthy: Share
    learned_floor: Share
    stable_variance: NonNegative


class TrialConfig(TrainingConfig):
    """Everything that decides what a trial does: what a back-end is given, which back-end, when to stop."""

    backend: Annotated[str, Field(min_length=1)] = "native"
    collapse: CollapseConfig


def cell_id(config: TrialConfig, data_id: str) -> str:
    """The id of a configuration whatever its seed: 12 hexadecimal digits.

    data_id: what the environment's episodes are made of (`Environment.data_id`); official and generated data
    are different cells. Computed alike for a planned trial and for one read back from its `trial.yaml`.
    """
    sections = {name: section_text(name, value) for name, value in config.model_dump(mode="json").items()}
    return digest(sections, data_id, stops=config.collapse.stop)


def trial_id(cell: str, seed: int) -> str:
    """The id of a trial: its cell and its seed."""
    return f"{cell}-s{seed}"


def section_text(name: str, value: Any) -> str:
    """The canonical text of one section of a dumped configuration, without what is not in the identity.

    What is null is off, and left out too: a switch that is added later, off by default, changes no id.
    """
    if isinstance(value, Mapping):
        value = {key: inner for key, inner in value.items() if not _left_out(name, key)}
    return canonical_json(_without_null(value))


def digest(sections: Mapping[str, str], data_id: str, *, stops: bool) -> str:
    """Hash the canonical texts of a configuration's sections (`section_text`) into a cell id.

    stops: whether a collapse ends the trial; if not, the collapse thresholds decide nothing it does.
    """
    names = [name for name in _decisive(tuple(sections), stops) if sections[name] != "null"]
    body = ",".join([f'"{name}":{sections[name]}' for name in names])
    whole = f'{{"config":{{{body}}},"data":{_ENCODER.encode(data_id)},"version":{IDENTITY_VERSION}}}'
    return hashlib.sha256(whole.encode()).hexdigest()[:12]


@cache
def _decisive(sections: tuple[str, ...], stops: bool) -> tuple[str, ...]:
    return tuple(sorted(name for name in sections if name != "seed" and (stops or name != "collapse")))


def canonical_json(value: Any) -> str:
    """JSON with sorted keys and one spelling per number: 1, 1.0 and 1e0 give the same text."""
    return _ENCODER.encode(_plain_numbers(value))


def _left_out(section: str, key: str) -> bool:
    return (section, key) in NOT_IN_IDENTITY or (
        section == "env" and (key in ("path", "url") or key.endswith("_path"))
    )


def _without_null(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_null(inner) for key, inner in value.items() if inner is not None}
    return value


def _plain_numbers(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    if isinstance(value, Mapping):
        return {str(key): _plain_numbers(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain_numbers(inner) for inner in value]
    return value
