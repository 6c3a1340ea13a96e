"""Rows of data files in the usual formats."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

Row = Mapping[str, Any]


def read_rows(path: Path) -> Sequence[Row]:
    """All rows of a Parquet, JSON Lines, JSON (a list) or CSV file. Raises OSError and ValueError."""
    if path.suffix == ".parquet":
        import pandas as pd

        return cast(list[Row], pd.read_parquet(path).to_dict("records"))
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".csv":
        return list(csv.DictReader(io.StringIO(text, newline="")))
    if path.suffix == ".json":
        return list(json.loads(text))
    if path.suffix == ".jsonl":
        # not splitlines: JSON strings may hold the other separators it knows
        return [json.loads(line) for line in text.split("\n") if line.strip()]
    raise ValueError(f"unknown kind of file {path.suffix!r}, expected .parquet, .jsonl, .json or .csv")
