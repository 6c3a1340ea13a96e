"""A made-up study on disk, for tests of what reads studies. Its curves are drawn, not trained."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from analysis.collapse import CollapseRule, CollapseWatch

STEPS, EVERY, EPISODES = 30, 2, 256
CLONE = 0.31


@dataclass(frozen=True)
class Method:
    """A drawn method: where success ends, and whether it falls on the way."""

    label: str
    loss_aggregation: str
    is_clipping: str
    dynamic_filtering: str
    advantage: str
    end: float
    falls: bool = False
    methods: tuple[str, ...] = ()

    @property
    def point(self) -> dict[str, Any]:
        return {
            "loss_aggregation": self.loss_aggregation,
            "is_clipping": self.is_clipping,
            "dynamic_filtering": self.dynamic_filtering,
            "advantage": self.advantage,
        }


METHODS = (
    Method("GRPO", "token_mean", "token", "none", "grpo", 0.56, methods=("GRPO",)),
    Method("CISPO", "token_mean", "cispo", "none", "grpo", 0.17, falls=True, methods=("CISPO",)),
    Method("GSPO", "seq_mean_token_mean", "sequence", "none", "grpo", 0.65, methods=("GSPO",)),
    Method("SAMPO", "seq_mean_token_mean", "sequence", "group_variance", "gigpo", 0.79, methods=("SAMPO",)),
)


def success_course(method: Method, step: int) -> float:
    done = step / STEPS
    if method.falls:
        return CLONE + (method.end - CLONE) * (1 - math.exp(-4 * done))
    return CLONE + (method.end - CLONE) * (1 - math.exp(-6 * done))


def train_row(method: Method, step: int, random: np.random.Generator) -> dict[str, Any]:
    loose = method.falls
    wobble = float(random.lognormal(0, 0.1))
    kl_old = (0.02 + 0.16 * (1 - math.exp(-step / 6)) if loose else 0.02) * wobble
    neg = {"share": 0.24 * wobble, "given": 0.5 * wobble, "depth": (0.15 if loose else 0.05) * wobble}
    row: dict[str, Any] = {
        "step": step,
        "kind": "train",
        "rollout/success": min(1.0, success_course(method, step) * wobble),
        "rollout/return": success_course(method, step) - 0.1,
        "rollout/valid_format": 0.97 - (0.2 * step / STEPS if loose else 0.0),
        "rollout/valid_action": 0.95,
        "rollout/group_reward_std": 0.4,
        "rollout/uniform_groups_return": 0.2,
        "rollout/response_tokens": 12.0 * wobble,
        "rollout/response_tokens_cv": 0.4,
        "train/learning_rate": 6e-4 * min(1.0, (step * 16 + 1) / 20),
        "train/updates": 16,
        "train/gradient_clipped": 0.6,
        "time/rollout": 0.8,
        "time/update": 1.1,
        "time/step": 1.9,
        "time/cpu": 1.85,
        "time/clock": 1_790_000_000.0 + 2.5 * step,
    }
    statistics = {
        "loss": 0.01,
        "gradient_norm": (0.9 + (step / 10 if loose else 0)) * wobble,
        "entropy": 0.9 - 0.02 * step,
        "kl_old": kl_old,
        "kl_ref": 0.01 * step * (3 if loose else 1),
        "clip_low": 0.06 * wobble,
        "clip_high": 0.03 * wobble,
        "clip_token_low": 0.08 * wobble,
        "clip_token_high": 0.04 * wobble,
        "clip_row_low": 0.2 * wobble,
        "clip_row_high": 0.2 * wobble,
        "neg_low_share": neg["share"],
        "neg_low_given_negative": neg["given"],
        "neg_low_depth": neg["depth"],
        "neg_low_depth_p95": 3 * neg["depth"],
        "masked": 0.0,
        "effective_sample_size": 0.9,
        "min_sequence_ratio": 0.5,
    }
    for name, value in statistics.items():
        row |= {f"train/{name}": value, f"train/{name}_first": value * 0.2, f"train/{name}_last": value * 1.5}
    return row


def histogram_rows(method: Method, step: int) -> list[dict[str, Any]]:
    side = [float(f"{10 ** (k / 4):.3g}") for k in range(-16, 5)]
    edges = [*(-edge for edge in reversed(side)), 0.0, *side]
    width = (0.06 + 0.01 * step) if method.falls else 0.07
    rows = []
    for quantity in ("log_ratio_token", "log_ratio_row", "log_ratio_row_of_token"):
        for sign, shift in (("positive", 0.4), ("negative", -0.6)):
            below = [(1 + math.erf((edge / width - shift) / math.sqrt(2))) / 2 for edge in edges]
            counts = [int(4000 * (high - low)) for low, high in itertools.pairwise(below)]
            rows.append(
                {"step": step, "name": f"{quantity}/{sign}", "edges": edges, "counts": counts, "exact": 900}
            )
    advantage = {"edges": [-1.0, 0.0, 1.0], "counts": [400, 500], "exact": 50}
    return [*rows, {"step": step, "name": "advantage/all", **advantage}]


def config_of(method: Method, env: str, seed: int, rule: CollapseRule, **changes: Any) -> dict[str, Any]:
    return {
        "seed": seed,
        **{
            axis: {"option": option, "function": f"package.{option}"} for axis, option in method.point.items()
        },
        "env": {"name": env, "max_turns": 10},
        "model": {"name": "tiny", "hidden": 64},
        "trainer": {"steps": STEPS, "learning_rate": 6e-4},
        "cloning": {"clone_seed": 0},
        "evaluation": {"every": EVERY, "episodes": EPISODES},
        "collapse": rule.to_dict(),
        **changes,
    }


@dataclass
class StudyBuilder:
    """Writes the files of a study; `plan()` last."""

    folder: Path
    question: str = "Which clipping keeps training from collapsing?"
    entries: list[dict[str, Any]] = field(default_factory=list)

    def entry(self, method: Method, seed: int, env: str = "sokoban", **facts: Any) -> dict[str, Any]:
        cell = f"{hash_text(method.label + env):012x}"
        entry = {
            "id": f"{cell}-s{seed}",
            "cell": cell,
            "label": method.label,
            "methods": list(method.methods),
            "point": method.point,
            "env": env,
            "seed": seed,
            "state": "pending",
            **facts,
        }
        self.entries.append(entry)
        return entry

    def trial(
        self,
        method: Method,
        seed: int,
        *,
        env: str = "sokoban",
        rule: CollapseRule | None = None,
        finish: bool = True,
        outcome: Mapping[str, Any] | None = None,
        until: int = STEPS,
        commit: str = "abc1234",
        facts: Mapping[str, Any] | None = None,
        rows: Sequence[Mapping[str, Any]] | None = None,
        **changes: Any,
    ) -> Path:
        """A trial with records up to a step; without `finish` it has no outcome.json."""
        rule = rule or CollapseRule()
        entry = self.entry(method, seed, env, **(facts or {}))
        folder = self.folder / "trials" / entry["id"]
        folder.mkdir(parents=True)
        config = config_of(method, env, seed, rule, **changes)
        provenance = {
            "versions": {"python": "3.11.7", "torch": "2.13.0"},
            "commit": commit,
            "dirty": False,
            "machine": {"cpu": "a processor", "cores": 2, "memory_gb": 8, "gpus": []},
            "created": "2026-11-30T01:00:00+00:00",
        }
        document = {**entry, "trial": entry["id"], "study": self.folder.name}
        (folder / "trial.yaml").write_text(
            yaml.safe_dump({**document, "config": config, "provenance": provenance}), encoding="utf-8"
        )
        random = np.random.default_rng([seed, hash_text(method.label)])
        watch, histograms = CollapseWatch(rule), []
        recorded: list[Mapping[str, Any]] = []
        for row in rows if rows is not None else self._rows(method, until, random):
            recorded.append(row)
            if row["kind"] == "train":
                histograms += histogram_rows(method, row["step"])
            if watch.update(row) and rule.stop:
                break
        write_lines(folder / "metrics.jsonl", recorded)
        write_lines(folder / "histograms.jsonl", histograms)
        if finish:
            verdict = watch.verdict(finished=True)
            result = {
                "outcome": verdict.outcome,
                "learned": verdict.learned,
                "reason": verdict.reason,
                "onset": verdict.onset,
                "step": recorded[-1]["step"],
                "steps": STEPS,
                "exit": 0,
                "attempts": 1,
                "warnings": [{"name": w.name, "step": w.step} for w in verdict.warnings],
                **(outcome or {}),
            }
            (folder / "outcome.json").write_text(json.dumps(result), encoding="utf-8")
        return folder

    def _rows(self, method: Method, until: int, random: np.random.Generator) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        shift = float(random.normal(0, 0.02))
        for step in range(until + 1):
            if step:
                rows.append(train_row(method, step, random))
            if step % EVERY == 0:
                n = EPISODES * (4 if step == 0 else 1)
                p = CLONE if step == 0 else min(0.99, max(0.01, success_course(method, step) + shift))
                rows.append(
                    {
                        "step": step,
                        "kind": "eval",
                        "eval/success": float(random.binomial(n, p)) / n,
                        "eval/return": p,
                        "eval/episodes": n,
                        "eval/valid_format": 0.97,
                        "time/evaluation": 0.5,
                        "time/clock": 1_790_000_000.0 + 2.5 * step + 1,
                    }
                )
        return rows

    def plan(self, **facts: Any) -> Path:
        """Write plan.json for all entries so far."""
        points = [entry["point"] for entry in self.entries]
        axes = {axis: list(dict.fromkeys(str(point[axis]) for point in points)) for axis in METHODS[0].point}
        document = {
            "study": self.folder.name,
            "question": self.question,
            "axes": axes,
            "design": "points",
            "trials": self.entries,
            **facts,
        }
        (self.folder / "plan.json").write_text(json.dumps(document), encoding="utf-8")
        return self.folder


def hash_text(text: str) -> int:
    return int(hashlib.sha256(text.encode()).hexdigest()[:12], 16)


def write_lines(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


@pytest.fixture(scope="session")
def methods() -> tuple[Method, ...]:
    """GRPO, CISPO (falls), GSPO, SAMPO."""
    return METHODS


@pytest.fixture
def new_study(tmp_path: Path) -> Callable[..., StudyBuilder]:
    """Start an empty study folder: `new_study("name")`."""

    def start(name: str = "drawn") -> StudyBuilder:
        folder = tmp_path / name
        folder.mkdir()
        return StudyBuilder(folder)

    return start


@pytest.fixture
def drawn_study(new_study: Callable[..., StudyBuilder]) -> Path:
    """Four methods, three seeds, all finished; CISPO falls."""
    builder = new_study()
    for method in METHODS:
        for seed in range(3):
            builder.trial(method, seed)
    return builder.plan()


@pytest.fixture(scope="session")
def study_builder() -> type[StudyBuilder]:
    """The builder itself, for studies that outlive a test."""
    return StudyBuilder
