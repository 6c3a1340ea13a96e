"""Starting a trial again after a failure that need not happen again, and remembering that it was done."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from arena.identity import TrialConfig
from arena.job import Ending
from arena.records import METRICS, OUTCOME, read_last_rows
from arena.trial_sheet import read_sheet, write_sheet


class NoRemedyError(RuntimeError):
    """Memory ran out and less of it cannot be asked for; the message says why."""


def fewer_rows(config: TrialConfig, now: int | None, folder: Path) -> int:
    """Half as many rows in memory at once as a trial had, which changes nothing but rounding.

    now: how many it was given last, None for what the configuration says. A trial that was not told any
    number had a whole mini-batch, as large as its records say or else as its configuration allows. Raises
    NoRemedyError.
    """
    if config.loss_aggregation.parameters.get("scope") == "microbatch":
        raise NoRemedyError("`scope: microbatch` makes micro-batches a part of the result")
    rows = now or config.trainer.micro_rows or _minibatch_rows(config, folder)
    if rows <= 1:
        raise NoRemedyError("it had one row in memory at a time already")
    return math.ceil(rows / 2)


def note_retry(folder: Path, ending: Ending, micro_rows: int | None = None) -> None:
    """Write into a trial's sheet why it is started again, and with how many rows where that changes.

    Takes away its outcome: it has none any more. Raises OSError, FileNotFoundError and CorruptRecordError.
    """
    sheet = read_sheet(folder)
    retry = {"cause": ending.kind, "reason": ending.reason, "attempt": ending.attempts}
    if micro_rows is not None:
        retry["micro_rows"] = micro_rows
    write_sheet(
        folder, replace(sheet, retries=(*sheet.retries, retry), micro_rows=micro_rows or sheet.micro_rows)
    )
    with suppress(FileNotFoundError):
        (folder / OUTCOME).unlink()


def _minibatch_rows(config: TrialConfig, folder: Path) -> int:
    for row in reversed(read_last_rows(folder / METRICS)):
        rows = row.get("train/rows_per_update")
        if isinstance(rows, int | float) and math.isfinite(rows) and rows >= 1:
            return math.ceil(rows)
    trainer = config.trainer
    if trainer.minibatch.rows is not None:
        return trainer.minibatch.rows
    turns = int(config.env.get("max_turns", 1)) if config.rows == "turn" else 1
    return math.ceil(trainer.groups * trainer.group_size * turns / (trainer.minibatch.count or 1))
