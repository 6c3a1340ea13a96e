"""What a tree of processes uses at this moment, from /proc of the host."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
# places in /proc/PID/stat after the name, which may itself hold spaces and brackets
_TIMES, _RESIDENT = slice(11, 15), 21


@dataclass(frozen=True, slots=True)
class Usage:
    """CPU time of a process and the children it waited for, and its resident memory, shared pages too."""

    cpu_seconds: float
    memory_bytes: int


def usage(process: int) -> Usage:
    """Of one process; nothing when it is gone."""
    try:
        fields = Path(f"/proc/{process}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return Usage(0.0, 0)
    return Usage(sum(map(int, fields[_TIMES])) / _TICKS, int(fields[_RESIDENT]) * _PAGE)


def descendants(process: int) -> Iterator[int]:
    """Children, their children and so on, parents first; what comes and goes meanwhile may be missed."""
    try:
        threads = os.listdir(f"/proc/{process}/task")
    except OSError:
        return
    for thread in threads:
        try:
            children = Path(f"/proc/{process}/task/{thread}/children").read_bytes().split()
        except OSError:
            continue
        for child in map(int, children):
            yield child
            yield from descendants(child)
