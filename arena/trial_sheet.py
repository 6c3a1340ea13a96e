"""`trial.yaml`: what a trial is, in full, and where it came from. All its process is given to read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import yaml

from arena.records import TRIAL, CorruptRecordError, write_text


@dataclass(frozen=True, slots=True)
class TrialSheet:
    """The content of `trial.yaml`.

    clone: the id of the clone it starts from (`arena.clones`). config: the TrialConfig as plain data.
    provenance: `{versions, commit, dirty, machine, created}`, `trainer` where a back-end says which runs, and
    `resumed`, a list of such, where it went on under other code or on another machine. retries: every start
    that nobody asked for, `{cause, reason, attempt, micro_rows}`. micro_rows: rows in memory at once since
    memory ran out, None for what `config` says.
    """

    trial: str
    cell: str
    study: str
    label: str
    env: str
    seed: int
    clone: str
    config: Mapping[str, Any]
    methods: tuple[str, ...] = ()
    point: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)
    retries: tuple[Mapping[str, Any], ...] = ()
    micro_rows: int | None = None

    @property
    def steps(self) -> int:
        """Update steps it is to make."""
        return int(self.config["trainer"]["steps"])


def write_sheet(folder: Path, sheet: TrialSheet) -> None:
    """Write `trial.yaml` atomically."""
    content = {
        **asdict(sheet),
        "methods": list(sheet.methods),
        "config": dict(sheet.config),
        "retries": [dict(retry) for retry in sheet.retries],
    }
    text = yaml.dump(
        content, Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper), sort_keys=False, width=100
    )
    write_text(folder / TRIAL, text)


def read_sheet(folder: Path) -> TrialSheet:
    """Read `trial.yaml`. Raises FileNotFoundError, and CorruptRecordError when it describes no trial."""
    path = folder / TRIAL
    try:
        content = yaml.load(path.read_bytes(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        sequences = {"methods": tuple(content["methods"]), "retries": tuple(content.get("retries", ()))}
        sheet = TrialSheet(**{**content, **sequences})
        if not sheet.steps >= 0 or not isinstance(sheet.config, dict):
            raise ValueError("no configuration")
    except (yaml.YAMLError, TypeError, KeyError, ValueError, AttributeError) as error:
        raise CorruptRecordError(f"{path} does not describe a trial: {error!r}") from error
    return sheet
