"""Showing how far something is: in a terminal at once, a line now and then elsewhere; on standard error."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
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
        lines = _Lines(label)
        yield lambda done, total: lines.tell(f"{done:,} of {total:,} {unit}", always=done == total)
        return
    columns = (TextColumn(label), BarColumn(), MofNCompleteColumn(), TextColumn(unit), TimeRemainingColumn())
    with Progress(*columns, console=terminal) as bar:
        task = bar.add_task("", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def progress_line(label: str) -> Iterator[Callable[[str], None]]:
    """What to tell what is being done, where nobody knows how much there is."""
    from rich.markup import escape

    from arena.plan_view import console

    terminal = console(stderr=True)
    if not terminal.is_terminal:
        yield _Lines(label).tell
        return
    with terminal.status(label) as status:
        yield lambda text: status.update(f"{label}: {escape(text)}")


class _Lines:
    """Writes a line at the beginning, every few seconds, and whenever one must be seen."""

    def __init__(self, label: str) -> None:
        self._label, self._next = label, 0.0

    def tell(self, text: str, *, always: bool = False) -> None:
        import click

        if always or time.monotonic() >= self._next:
            self._next = time.monotonic() + PLAIN_EVERY
            click.echo(f"{self._label}: {text}", err=True)
