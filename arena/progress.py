"""Showing how far something is: a bar in a terminal, a line now and then elsewhere; on standard error."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from envs.text_env import Progress

PLAIN_EVERY = 5.0
"""Seconds between lines where there is no terminal."""


@contextmanager
def progress_bar(label: str, unit: str) -> Iterator[Progress]:
    """What to tell how much is done, and of how much; `unit` is the plural of what is counted."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from arena.plan_view import console

    terminal = console(stderr=True)
    if not terminal.is_terminal:
        yield _Lines(label, unit)
        return
    columns = (TextColumn(label), BarColumn(), MofNCompleteColumn(), TextColumn(unit), TimeRemainingColumn())
    with Progress(*columns, console=terminal) as bar:
        task = bar.add_task("", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


class _Lines:
    """Writes a line at the beginning, every few seconds, and at the end."""

    def __init__(self, label: str, unit: str) -> None:
        self._label, self._unit, self._next = label, unit, 0.0

    def __call__(self, done: int, total: int) -> None:
        import click

        if done == total or time.monotonic() >= self._next:
            self._next = time.monotonic() + PLAIN_EVERY
            click.echo(f"{self._label}: {done:,} of {total:,} {self._unit}", err=True)
