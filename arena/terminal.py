"""Keeping the terminal for ourselves while libraries and their processes write wherever they like."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from rich.console import Console


class Terminal(Console):
    """A console that falls silent when nobody reads it any more, where rich would end the process."""

    def on_broken_pipe(self) -> None:
        """Fall silent."""
        self.quiet = True


@contextmanager
def output_into(path: Path) -> Iterator[TextIO]:
    """Send what this process and its children write to a file; yields what used to be standard output.

    Works on file descriptors, because Ray and its workers write to these. Raises OSError without a file.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [os.dup(1), os.dup(2)]
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    terminal = os.fdopen(os.dup(kept[0]), "w", encoding="utf-8", errors="replace")
    try:
        for descriptor in (1, 2):
            os.dup2(log, descriptor)
        os.close(log)
        yield terminal
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        with suppress(OSError):
            terminal.close()
        for descriptor, original in zip((1, 2), kept, strict=True):
            os.dup2(original, descriptor)
            os.close(original)
