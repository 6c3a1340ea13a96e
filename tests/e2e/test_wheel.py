"""The wheel holds everything planning needs: installed alone, it plans from an empty folder."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("arena", "analysis", "trainers", "envs")


@pytest.mark.slow
def test_an_installed_wheel_plans_from_an_empty_folder(tmp_path: Path) -> None:
    source, site, empty = tmp_path / "source", tmp_path / "site", tmp_path / "empty"
    source.mkdir()
    empty.mkdir()
    for name in PACKAGES:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", source)
    (source / "README.md").write_text("ARLArena\n")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", str(tmp_path), str(source)], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    subprocess.run([*pip, "install", "--no-deps", "--target", str(site), str(wheel)], check=True)

    program = "import arena; print(arena.__file__); from arena.cli import main; main()"
    ran = subprocess.run(
        [
            sys.executable,
            "-c",
            program,
            "plan",
            str(ROOT / "grids" / "full_factorial.yaml"),
            "--format",
            "json",
        ],
        cwd=empty,
        env={"PYTHONPATH": str(site), "PATH": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    where, _, document = ran.stdout.partition("\n")
    assert Path(where).is_relative_to(site)
    assert len({trial["cell"] for trial in json.loads(document)["trials"]}) >= 32
    assert list(empty.iterdir()) == []
