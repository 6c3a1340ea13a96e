"""The command that `arena export` writes, run as somebody would who runs verl by themselves."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.trainers.native.test_language_model import make_model
from trainers.verl import schema

ARENA = [sys.executable, "-c", "from arena.cli import main; main()"]
ENVIRONMENT = {key: value for key, value in os.environ.items() if not key.startswith(("RAY_", "MLFLOW_"))}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(bool(schema.problems()), reason="verl is not installed"),
]


def arena(*arguments: str, folder: Path) -> str:
    done = subprocess.run(
        [*ARENA, *arguments], cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def tiny(_: Path) -> dict[str, Any]:
    """The built-in policy, cloned for a moment."""
    return {"cloning": {"episodes": 100, "stages": [{"steps": 30, "learning_rate": 3e-3}]}}


def language_model(folder: Path) -> dict[str, Any]:
    """A random model of transformers, cloned by supervised learning on the expert's episodes."""
    return {
        "model": "language_model",
        "model.path": str(make_model(folder / "model", template=True)),
        "prompt": {"style": "full", "history": 0, "max_response_tokens": 64},
        "cloning": {"episodes": 20, "batch": 8, "stages": [{"steps": 10, "learning_rate": 3e-3}]},
    }


@pytest.mark.parametrize("policy", [tiny, language_model])
def test_an_exported_command_trains_the_trial_by_itself(
    tmp_path: Path, policy: Callable[[Path], dict[str, Any]]
) -> None:
    grid = {
        "name": "exported",
        "methods": ["GRPO"],
        "envs": ["sokoban"],
        "seeds": 1,
        "profile": "laptop",
        "overrides": {
            "trainer": {"steps": 1, "groups": 2, "group_size": 2, "minibatch": {"count": 1}},
            "evaluation": {"every": 1, "episodes": 2},
            "env": {"train_levels": 50, "eval_levels": 16, "max_turns": 7},
            **policy(tmp_path),
        },
    }
    (tmp_path / "exported.yaml").write_text(yaml.safe_dump(grid))
    # a trial of the built-in trainer; verl starts from its clone, which is made once
    arena("run", "exported.yaml", "--yes", "--studies", str(tmp_path / "studies"), folder=tmp_path)
    (trial,) = (tmp_path / "studies" / "exported" / "trials").iterdir()
    (clone,) = (tmp_path / "studies" / ".cache" / "clones").glob("*/clone.json")
    (stage,) = json.loads(clone.read_text())["stages"]
    assert stage["source"] == "expert"
    assert stage["last_loss"] < stage["first_loss"]
    written = arena(
        *("export", f"exported/{trial.name[:6]}", "--to", "verl", "--out", "there"),
        *("--studies", str(tmp_path / "studies")),
        folder=tmp_path,
    )
    config, command = (tmp_path / line for line in written.split())
    started_from = yaml.safe_load(config.read_text())["actor_rollout_ref"]["model"]["path"]
    assert started_from == str(clone.parent)
    path = os.pathsep.join([str(Path(sys.executable).parent), ENVIRONMENT["PATH"]])
    done = subprocess.run(
        [str(command)],
        cwd=tmp_path,
        env={**ENVIRONMENT, "PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout[-5000:]
    tracker = tmp_path / "there" / "checkpoints" / "latest_checkpointed_iteration.txt"
    assert tracker.read_text() == "1"
    # verl's own logger tells the metrics of ours, in its own way
    logged = re.findall(r"step:(\d+) - .*?(train/updates|eval/success):", done.stdout)
    assert ("1", "train/updates") in logged
    assert ("0", "eval/success") in logged
    assert ("1", "eval/success") in logged
