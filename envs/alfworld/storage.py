"""A cache folder of the user's: what can be made again, written so that no crash leaves half of it."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from functools import lru_cache
from pathlib import Path

CACHE_VARIABLE = "ARENA_CACHE"

_ABANDONED_AFTER = 3600.0
"""Seconds after which something unfinished belongs to no living process: writing takes milliseconds."""


def cache_folder() -> Path:
    """$ARENA_CACHE, or `arlarena` in the user's cache folder; it need not exist."""
    if named := os.environ.get(CACHE_VARIABLE):
        return Path(named).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base).expanduser() if base else Path("~/.cache").expanduser()) / "arlarena"


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file that is there whole or not at all, also beside other processes that write the same."""
    handle, name = tempfile.mkstemp(dir=_unfinished(cache_folder()))
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        path.parent.mkdir(parents=True, exist_ok=True)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def publish(folder: Path, files: dict[str, bytes]) -> None:
    """Make a folder with these files at once; one that is already there is left as it is."""
    if folder.is_dir():
        return
    made = Path(tempfile.mkdtemp(dir=_unfinished(cache_folder())))
    try:
        for name, data in files.items():
            (made / name).write_bytes(data)
        made.chmod(0o755)
        folder.parent.mkdir(parents=True, exist_ok=True)
        os.rename(made, folder)
    except OSError:
        if not folder.is_dir():  # not because another process was faster
            raise
    finally:
        shutil.rmtree(made, ignore_errors=True)


@lru_cache(maxsize=8)
def _unfinished(cache: Path) -> Path:
    """Where things are written before they are renamed; swept of what killed processes left."""
    folder = cache / "unfinished"
    folder.mkdir(parents=True, exist_ok=True)
    for left in folder.iterdir():
        try:
            if time.time() - left.stat().st_mtime > _ABANDONED_AFTER:
                shutil.rmtree(left) if left.is_dir() else left.unlink()
        except FileNotFoundError:  # another process sweeps too
            continue
    return folder
