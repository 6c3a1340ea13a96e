"""One run of the smoke grid through the real command line, whose files all tests here look at."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

_GRID = Path(__file__).parents[2] / "grids" / "smoke.yaml"
_ARENA = [sys.executable, "-c", "from arena.cli import main; main()"]


@dataclass(frozen=True)
class SmokeRun:
    """A finished run: its exit code and output, and the study it left."""

    studies: Path
    done: subprocess.CompletedProcess[str]

    @property
    def study(self) -> Path:
        return self.studies / "smoke"

    @property
    def trials(self) -> list[Path]:
        return sorted((self.study / "trials").iterdir())

    def arena(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Another command on the same studies."""
        return _arena(self.studies, *arguments)


@pytest.fixture(scope="session")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> SmokeRun:
    studies = tmp_path_factory.mktemp("studies")
    return SmokeRun(studies, _arena(studies, "run", str(_GRID), "--yes"))


def _arena(studies: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if key != "MLFLOW_TRACKING_URI"}
    environment["ARENA_STUDIES"] = str(studies)
    # Somewhere else than the checkout: nothing may depend on where it is started.
    return subprocess.run(
        [*_ARENA, *arguments], cwd=studies, env=environment, capture_output=True, text=True, timeout=280
    )
