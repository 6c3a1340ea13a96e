"""How often the kernel has killed a process for lack of memory."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def out_of_memory_kills() -> int:
    """How many processes the kernel has killed for lack of memory: on the machine, in our control group."""
    counts = [_counter(Path("/proc/vmstat"), "oom_kill")]
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            if line.startswith("0::"):
                group = Path("/sys/fs/cgroup") / line[3:].lstrip("/")
                counts.append(_counter(group / "memory.events", "oom_kill"))
    return sum(counts)


def _counter(path: Path, wanted: str) -> int:
    with suppress(OSError, ValueError):
        for line in path.read_text().splitlines():
            name, _, value = line.partition(" ")
            if name == wanted:
                return int(value)
    return 0
