"""How long a report takes, and how much memory, on a made-up study of 2,000 trials of 200 steps.

    python benchmarks/report.py [--trials 2000] [--steps 200] [--keep FOLDER]

Records have the metrics, the size and the histograms of real ones. Trials share 40 different records by hard
links, so that the study takes little room on disk; every trial is read all the same.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from analysis.collapse import judge

AXES = {
    "loss_aggregation": ["token_mean", "seq_mean_token_mean"],
    "is_clipping": ["token", "soft", "cispo", "sequence"],
    "dynamic_filtering": ["none", "group_variance"],
    "advantage": ["grpo", "gigpo"],
}
RATES = (3e-4, 6e-4, 1.2e-3)
EVERY, EPISODES, RECORDS, BLOCKS = 5, 256, 40, 8
STATISTICS = (
    "loss", "gradient_norm", "entropy", "kl_old", "kl_ref", "clip_low", "clip_high", "clip_token_low",
    "clip_token_high", "clip_row_low", "clip_row_high", "neg_low_share", "neg_low_given_negative",
    "neg_low_depth", "neg_low_depth_p95", "masked", "effective_sample_size", "min_sequence_ratio",
)  # fmt: skip
SPLIT = [
    f"train/split/{sign}_{side}_{entropy}_{measure}"
    for sign in ("positive", "negative")
    for side in ("below", "above")
    for entropy in ("low", "high")
    for measure in ("tokens", "kl_old", "kl_ref")
]
ROLLOUT = (
    "success", "return", "turns", "valid_format", "valid_action", "group_reward_std",
    "uniform_groups_return", "uniform_groups_success", "response_tokens", "response_tokens_cv",
    "repeated_ngrams", "unique_prompts", "episodes", "episodes_used", "tries", "advantage_discarded",
    "rows", "tokens",
)  # fmt: skip


def metric_names() -> list[str]:
    trained = [f"train/{name}{end}" for name in STATISTICS for end in ("", "_first", "_last")]
    timed = [f"time/{name}" for name in ("rollout", "update", "step", "cpu", "clock")]
    fixed = ["train/learning_rate", "train/updates", "train/gradient_clipped", "train/rows_per_update"]
    return [*(f"rollout/{name}" for name in ROLLOUT), *trained, *SPLIT, *fixed, *timed]


def rows(steps: int, random: np.random.Generator, *, falls: bool) -> Iterator[dict[str, Any]]:
    names = metric_names()
    values = 0.1 * random.lognormal(0, 0.2, (steps + 1, len(names)))
    place = {name: names.index(name) for name in names}
    done = np.arange(steps + 1) / steps
    onset = random.uniform(0.3, 0.7)
    end = random.uniform(0.5, 0.8)
    success = 0.3 + (end - 0.3) * (1 - np.exp(-5 * done))
    if falls:
        success = np.where(done < onset, success, np.maximum(0.03, success - 4 * (done - onset)))
        swell = 1 + 6 * np.clip((done - onset + 0.1) / 0.1, 0, 1)
        for name in ("train/neg_low_depth", "train/kl_old", "train/kl_old_last", "train/gradient_norm"):
            values[:, place[name]] *= swell
    values[:, place["rollout/success"]] = success
    for name, value in (("train/updates", 16), ("rollout/episodes", 128), ("rollout/tokens", 9000),
                        ("train/learning_rate", 6e-4), ("rollout/valid_format", 0.97)):  # fmt: skip
        values[:, place[name]] = value
    for step in range(steps + 1):
        if step:
            yield {"step": step, "kind": "train", **dict(zip(names, values[step].tolist(), strict=True))}
        if step % EVERY == 0:
            n = EPISODES * (1 if step else 4)
            seen = float(random.binomial(n, min(0.99, success[step]))) / n
            evaluated = {"eval/success": seen, "eval/episodes": n, "eval/valid_format": 0.97}
            yield {"step": step, "kind": "eval", **evaluated, "eval/return": seen, "time/evaluation": 1.0}


def histograms(steps: int) -> Iterator[dict[str, Any]]:
    side = [float(f"{10 ** (k / 4):.3g}") for k in range(-16, 5)]
    edges = [*(-edge for edge in reversed(side)), 0.0, *side]
    for step in range(1, steps + 1):
        for quantity, sign in itertools.product(
            ("log_ratio_token", "log_ratio_row"), ("positive", "negative")
        ):
            shift = 0.4 if sign == "positive" else -0.6
            below = [(1 + math.erf((edge / 0.07 - shift) / math.sqrt(2))) / 2 for edge in edges]
            counts = [int(4000 * (high - low)) for low, high in itertools.pairwise(below)]
            yield {"step": step, "name": f"{quantity}/{sign}", "edges": edges, "counts": counts, "exact": 900}


def make(folder: Path, trials: int, steps: int) -> None:
    """Write the study."""
    pool = folder / "pool"
    pool.mkdir(parents=True)
    (pool / "histograms.jsonl").write_text("".join(json.dumps(row) + "\n" for row in histograms(steps)))
    for number in range(RECORDS):
        random = np.random.default_rng(number)
        recorded = list(rows(steps, random, falls=number % 4 == 0))
        (pool / f"metrics{number}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in recorded))
        verdict = judge(recorded, {}, finished=True)
        outcome = {"outcome": verdict.outcome, "learned": verdict.learned, "reason": verdict.reason,
                   "onset": verdict.onset, "step": steps, "steps": steps}  # fmt: skip
        (pool / f"outcome{number}.json").write_text(json.dumps(outcome))
    cells = list(itertools.product(*AXES.values(), RATES))
    envs = [f"env{k}" for k in range(math.ceil(trials / (len(cells) * BLOCKS)))]
    entries: list[dict[str, Any]] = []
    random = np.random.default_rng(1)
    for env, seed, (number, cell) in itertools.product(envs, range(BLOCKS), enumerate(cells)):
        if len(entries) == trials:
            break
        point = dict(zip(AXES, cell, strict=False))
        name = f"{envs.index(env):02x}{number:010x}"
        entry = {"id": f"{name}-s{seed}", "cell": name, "label": " / ".join(cell[:4]), "methods": [],
                 "point": point, "env": env, "seed": seed, "state": "done"}  # fmt: skip
        entries.append(entry)
        place = folder / "trials" / entry["id"]
        place.mkdir(parents=True)
        loose = point["is_clipping"] in ("cispo", "soft") and random.random() < 0.6
        record = 4 * int(random.integers(RECORDS // 4)) + (0 if loose else int(random.integers(1, 4)))
        for source, target in ((f"metrics{record}.jsonl", "metrics.jsonl"),
                               (f"outcome{record}.json", "outcome.json"),
                               ("histograms.jsonl", "histograms.jsonl")):  # fmt: skip
            os.link(pool / source, place / target)
        config = {
            "seed": seed,
            **{axis: {"option": option} for axis, option in point.items()},
            "env": {"name": env},
            "trainer": {"steps": steps, "learning_rate": cell[4]},
            "cloning": {"clone_seed": 0},
        }
        (place / "trial.yaml").write_text(yaml.safe_dump({**entry, "config": config}))
    plan = {
        "study": "large",
        "question": "How long does a report take?",
        "axes": AXES,
        "design": "full",
        "hypotheses": ["cispo collapses before sequence", "gigpo beats grpo"],
        "trials": entries,
    }
    (folder / "plan.json").write_text(json.dumps(plan))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=2000)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--keep", type=Path, help="make the study here, or use the one that is here")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.keep or Path(temporary) / "large"
        if not (folder / "plan.json").exists():
            make(folder, given.trials, given.steps)
        code = "import sys; from pathlib import Path; from analysis.report import write_report;"
        code += "write_report(Path(sys.argv[1]), lambda text: print(text, file=sys.stderr))"
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", code, str(folder)], check=True, stderr=subprocess.DEVNULL)
        wall = time.perf_counter() - began
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = used.ru_utime + used.ru_stime
        size = sum(path.stat().st_size for path in (folder / "trials").rglob("metrics.jsonl")) / 1e9
        print(f"{given.trials:,} trials of {given.steps} steps, {size:.2f} GB of metrics")
        print(f"report: {wall:.1f} s, {cpu:.1f} CPU-s, {used.ru_maxrss / 1e6:.2f} GB at the peak")


if __name__ == "__main__":
    main()
