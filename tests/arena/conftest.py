"""A study's files written by hand, for what reads them: MLflow and the live table."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

COLLAPSE = {"stop": True, "window": 3, "patience": 3}


class HandmadeStudy:
    """Writes trial folders in the format that a run leaves behind; nothing of the platform is used for it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def plan(self, trials: int, question: str = "Which holds?") -> None:
        names = [*self.trials, *(f"planned{i}-s0" for i in range(trials))][:trials]
        listed = [{"id": name, "label": "GRPO", "env": "sokoban", "seed": 0} for name in names]
        (self.folder / "plan.json").write_text(
            json.dumps(
                {
                    "study": self.folder.name,
                    "question": question,
                    "axes": {"is_clipping": ["cispo(hi=4)"], "advantage": ["grpo"]},
                    "trials": listed,
                }
            )
        )

    @property
    def trials(self) -> list[str]:
        return sorted(path.name for path in self.folder.glob("trials/*"))

    def trial(self, cell: str, seed: int, *, label: str = "GRPO", steps: int = 6, **config: Any) -> Path:
        folder = self.folder / "trials" / f"{cell}-s{seed}"
        folder.mkdir(parents=True)
        sheet = {
            "trial": folder.name,
            "cell": cell,
            "study": self.folder.name,
            "label": label,
            "methods": [label],
            "point": {"is_clipping": {"cispo": {"hi": 4}}, "advantage": "grpo"},
            "env": "sokoban",
            "seed": seed,
            "clone": "0" * 16,
            "config": {
                "seed": seed,
                "trainer": {"steps": steps, "kl": {"coefficient": 0.01}},
                "collapse": COLLAPSE,
                **config,
            },
            "provenance": {"commit": "abc123", "created": "2026-01-02T03:04:05+00:00"},
        }
        (folder / "trial.yaml").write_text(yaml.safe_dump(sheet))
        return folder

    def rows(self, folder: Path, rows: Iterable[Mapping[str, Any]]) -> None:
        with (folder / "metrics.jsonl").open("a") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)

    def outcome(self, folder: Path, outcome: str, **more: Any) -> None:
        content = {"outcome": outcome, "learned": True, "reason": "because", "step": 6, "steps": 6, **more}
        (folder / "outcome.json").write_text(json.dumps(content))


def evaluation(step: int, success: float, **more: Any) -> dict[str, Any]:
    row = {"step": step, "kind": "eval", "eval/success": success, "eval/episodes": 256}
    return {**row, "time/evaluation": 0.5, **more}


def training(step: int, **more: Any) -> dict[str, Any]:
    row = {"step": step, "kind": "train", "rollout/success": 0.4, "train/loss": 0.1 * step}
    return {**row, "time/step": 2.0, **more}


@pytest.fixture
def make_study(tmp_path: Path) -> Callable[[str], HandmadeStudy]:
    return lambda name="tried": HandmadeStudy(tmp_path / "studies" / name)


@pytest.fixture
def row_of() -> Mapping[str, Callable[..., dict[str, Any]]]:
    return {"eval": evaluation, "train": training}
