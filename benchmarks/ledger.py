"""What a trial's record costs per reported step, and what thousands of trials cost those who look at them.

    python benchmarks/ledger.py

A step reports 60 metrics, five histograms of 42 bins and two transcripts of eight turns, which are JSON lines
in three files when `report` returns; the collapse rule is evaluated in it. The peer is what MLflow takes for
the same 60 metrics in one batch, in a database of its own. Then `arena status` and a redraw of the live view
with 10,000 trials. CPU milliseconds; wall time beside it where files are waited for.
"""

from __future__ import annotations

import io
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

STEPS, TRIALS = 300, 10_000


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shown("report a step, ours", *per_step(ours(folder)))
        shown("60 metrics alone, MLflow", *per_step(mlflow(folder)))
        shown(f"a redraw with {TRIALS:,} waiting", *live(folder / "live"))
        shown(f"arena status of {TRIALS:,} trials", *status(folder / "many"))


def shown(what: str, cpu: float, wall: float) -> None:
    print(f"{what:36} {1000 * cpu:8.2f} ms CPU {1000 * wall:8.2f} ms", flush=True)


def measured(action: Callable[[], object]) -> tuple[float, float]:
    cpu, wall = time.process_time(), time.perf_counter()
    action()
    return time.process_time() - cpu, time.perf_counter() - wall


def per_step(report: Callable[[int], object]) -> tuple[float, float]:
    """The median step."""
    times = [measured(lambda step=step: report(step)) for step in range(1, STEPS + 1)]
    return statistics.median(cpu for cpu, _ in times), statistics.median(wall for _, wall in times)


def metrics(step: int) -> dict[str, float]:
    return {f"train/quantity_{index}_last": 0.1234567 * index / step for index in range(60)}


def ours(folder: Path) -> Callable[[int], object]:
    from analysis.collapse import CollapseRule, CollapseWatch
    from arena.records import Recorder
    from trainers.monitor import Histogram, Transcript

    trial = folder / "trial"
    trial.mkdir()
    recorder = Recorder(trial, lambda: CollapseWatch(CollapseRule()), stop_on_collapse=True)
    edges = tuple(float(f"{index / 100:.3g}") for index in range(-21, 22))
    turn = {
        "observation": "#" * 80,
        "response": "word " * 8,
        "action": "Up",
        "reward": 0.0,
        "rejection": None,
    }

    def report(step: int) -> None:
        counts = tuple(range(step, step + 42))
        recorder.report(
            step,
            "train",
            metrics(step),
            histograms=[Histogram(f"log_ratio/{index}", edges, counts) for index in range(5)],
            episodes=[Transcript("train", True, 1.0, (turn,) * 8)] * 2,
        )

    return report


def mlflow(folder: Path) -> Callable[[int], object]:
    from mlflow import MlflowClient
    from mlflow.entities import Metric

    client = MlflowClient(f"sqlite:///{folder}/mlflow.db")
    run = client.create_run(client.create_experiment("peer")).info.run_id

    def report(step: int) -> None:
        rows = [Metric(name, value, 1_790_000_000_000 + step, step) for name, value in metrics(step).items()]
        client.log_batch(run, metrics=rows)

    return report


def live(folder: Path) -> tuple[float, float]:
    """A redraw of a table of which two trials run."""
    from arena.live import LiveView
    from arena.live_state import ShownTrial, StudyProgress

    trials = [
        ShownTrial(f"{index:012x}-s0", f"label {index % 40}", "sokoban", 0, 60) for index in range(TRIALS)
    ]
    begun = [trial.id for trial in trials[:2]]
    progress = StudyProgress(folder, trials, at_once=2, begun=lambda: begun)
    console = Console(file=io.StringIO(), force_terminal=True, width=120, height=40)
    with LiveView("many", progress, console=console) as view:
        times = [measured(lambda: view.refresh(now=True)) for _ in range(20)]
    return statistics.median(cpu for cpu, _ in times), statistics.median(wall for _, wall in times)


def status(folder: Path) -> tuple[float, float]:
    """As `arena status` prints it, of a study most of which is done."""
    from arena.status_view import study_view

    names = [f"{index:012x}-s0" for index in range(TRIALS)]
    for name in names[:-10]:
        trial = folder / "trials" / name
        trial.mkdir(parents=True)
        (trial / "outcome.json").write_text(json.dumps({"outcome": "stable", "step": 60, "steps": 60}))
        (trial / "metrics.jsonl").write_text('{"step": 60, "kind": "eval", "eval/success": 0.5}\n')
    plan = [{"id": name, "label": "GRPO", "env": "sokoban", "seed": 0} for name in names]
    (folder / "plan.json").write_text(json.dumps({"study": folder.name, "trials": plan}))
    return measured(lambda: Console(file=io.StringIO(), width=140).print(study_view(folder)))


if __name__ == "__main__":
    sys.exit(main())
