"""A disk that runs full, and one that cannot be written, each a file system of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

NAMESPACE = ["unshare", "--map-root-user", "--mount"]


def has_namespaces() -> bool:
    try:
        return subprocess.run([*NAMESPACE, "true"], capture_output=True).returncode == 0
    except OSError:
        return False


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not has_namespaces(), reason="needs a mount namespace of its own"),
]


def test_a_full_disk_costs_no_result_and_the_rest_goes_on_when_there_is_room(tmp_path: Path) -> None:
    script = Path(__file__).with_name("full_disk.py")
    done = subprocess.run(
        [*NAMESPACE, sys.executable, str(script), str(tmp_path)], capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_folder_that_cannot_be_written_is_said_in_a_line(tmp_path: Path) -> None:
    grid = tmp_path / "grid.yaml"
    grid.write_text("name: tried\n")
    studies = tmp_path / "studies"
    (studies / "tried" / "trials").mkdir(parents=True)
    inside = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"'
    arena = [
        sys.executable,
        "-c",
        "from arena.cli import main; main()",
        "run",
        str(grid),
        "--yes",
        "--studies",
        str(studies),
    ]
    done = subprocess.run(
        [*NAMESPACE, "sh", "-c", inside, str(studies), *arena],
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, "COLUMNS": "200"},
    )
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stderr.splitlines()[-1].startswith("error: Read-only file system: ")
    assert "Traceback" not in done.stderr
    assert [path.name for path in studies.rglob("*")] == ["tried", "trials"]
