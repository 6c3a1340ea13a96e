"""How much of the driver's time MLflow takes, and how long the live table takes to redraw.

    python benchmarks/tracking.py --trials 12 --steps 30

Writes a study of that size into a temporary folder, with as many metrics a step as the trainer reports, and
measures the first sync (import, new database, all rows), a sync with one new row per trial, one with nothing
new, and the reading and redrawing of the live table. Bounds are printed beside the numbers.
"""

from __future__ import annotations

import argparse
import io
import json
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import yaml
from rich.console import Console

from arena.live import LiveView
from arena.live_state import ShownTrial, StudyProgress
from arena.locks import Lock
from arena.records import LOCK
from arena.tracking import Tracker

METRICS_A_STEP = 110


def row(step: int) -> dict[str, object]:
    metrics = {f"train/quantity_{index}": random.random() for index in range(METRICS_A_STEP)}
    return {"step": step, "kind": "train", **metrics, "time/step": 1 + random.random()}


def evaluation(step: int) -> dict[str, object]:
    return {"step": step, "kind": "eval", "eval/success": random.random(), "eval/episodes": 256}


def write_study(folder: Path, trials: int, steps: int) -> list[Path]:
    folders = []
    for index in range(trials):
        cell = f"{index // 3:012x}"
        trial = folder / "trials" / f"{cell}-s{index % 3}"
        trial.mkdir(parents=True)
        sheet = {"trial": trial.name, "cell": cell, "study": folder.name, "label": f"method {index // 3}"}
        sheet |= {"env": "sokoban", "seed": index % 3, "clone": "0" * 16, "methods": [], "point": {}}
        sheet |= {"config": {"trainer": {"steps": steps}}, "provenance": {}}
        (trial / "trial.yaml").write_text(yaml.safe_dump(sheet))
        append(trial, [evaluation(0)])
        for step in range(1, steps + 1):
            append(trial, [row(step), *([evaluation(step)] if step % 2 == 0 else [])])
        folders.append(trial)
    return folders


def append(trial: Path, rows: list[dict[str, object]]) -> None:
    with (trial / "metrics.jsonl").open("a") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def measure(name: str, work: Callable[[], object], note: str = "") -> None:
    wall, processor = time.perf_counter(), time.process_time()
    result = work()
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    print(f"{name:<42} {wall:8.3f} s  {processor:8.3f} CPU-s  {note}{result or ''}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=12)
    parser.add_argument("--steps", type=int, default=30)
    sizes = parser.parse_args()
    random.seed(0)
    with tempfile.TemporaryDirectory(prefix="arena-benchmark-") as studies:
        study = Path(studies) / "benchmark"
        trials = write_study(study, sizes.trials, sizes.steps)
        tracker = Tracker(Path(studies), study)

        def sync() -> str:
            result = tracker.sync()
            return "; ".join(result.errors) or f"{result.metrics} metrics"

        measure("first sync (import, new database)", sync)
        for trial in trials:
            append(trial, [row(sizes.steps + 1)])
        measure("sync of one new row per trial", sync)
        measure("sync of nothing", sync, "(at most 0.2 CPU-s for 12 trials) ")
        tracker.release()

        shown = [
            ShownTrial(path.name, f"method {index // 3}", "sokoban", index % 3, sizes.steps)
            for index, path in enumerate(trials)
        ]
        # Held: being trained, so the live view reads their records.
        locks = [Lock(trial / LOCK) for trial in trials]
        progress = StudyProgress(study, shown, at_once=2)
        console = Console(file=io.StringIO(), force_terminal=True, width=120, height=40)
        view = LiveView("benchmark", progress, console=console)
        measure("first look at the records", progress.look)
        measure("look at records without news", progress.look)
        measure("redraw", lambda: console.print(view.render()), "(at most 0.05 CPU-s for 12 trials) ")
        for lock in locks:
            lock.release()
    print(f"with {sizes.trials} trials of {sizes.steps} steps, {METRICS_A_STEP} metrics each")


if __name__ == "__main__":
    main()
