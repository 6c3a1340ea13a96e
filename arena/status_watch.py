"""`arena status --watch`: how far a study is, again and again, for as long as somebody runs it."""

from __future__ import annotations

import time
from pathlib import Path

from rich.console import Console
from rich.live import Live

from arena.locks import is_held
from arena.plan_view import console as make_console
from arena.status_view import counts, study_view
from arena.study_files import DRIVER_LOCK

_SHARE = 0.1
"""Of the time at most goes into looking; a study of thousands is looked at less often."""
_AROUND_THE_TABLE = 8
"""Lines of the terminal that the rows of a table do not get."""


def watch(study: Path, *, console: Console | None = None, interval: float = 2.0) -> None:
    """Show a study until nobody runs it any more: a table in a terminal, elsewhere a line when it changes."""
    console = make_console() if console is None else console
    if not console.is_terminal:
        _print_lines(study, console, interval)
        return
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        while True:
            began = time.monotonic()
            is_run = is_held(study / DRIVER_LOCK)
            live.update(study_view(study, most=max(1, console.height - _AROUND_THE_TABLE)), refresh=True)
            if not is_run:
                return
            time.sleep(max(interval, (time.monotonic() - began) / _SHARE))


def _print_lines(study: Path, console: Console, interval: float) -> None:
    said = ""
    while True:
        began = time.monotonic()
        is_run = is_held(study / DRIVER_LOCK)
        if (line := f"{study.name}: {counts(study)}") != said:
            console.print(line, markup=False, highlight=False, soft_wrap=True)
            said = line
        if not is_run:
            return
        time.sleep(max(interval, (time.monotonic() - began) / _SHARE))
