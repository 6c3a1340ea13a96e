"""Steps per second of two one-thread trials at once, beside one trial with two threads.

    python benchmarks/two_trials.py

Wall time, so it wants a quiet machine of at least two cores; the load while it ran is printed with it. The
arrangements take turns, and medians are compared.
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path

import torch

from arena.planning import plan_study
from trainers.config import TrainingConfig
from trainers.monitor import MemoryMonitor
from trainers.native.cloning import make_clone
from trainers.native.training import NativeTrainer

ROUNDS, STEPS = 5, 4
GRID = """
name: benchmark
methods: [GRPO]
envs: [sokoban]
seeds: 1
overrides:
  trainer.epochs: 1
  cloning.stages: [{steps: 100, learning_rate: 3e-3}]
"""


def trial(config: TrainingConfig, clone: Path, threads: int, orders: Connection) -> None:
    """Train so many steps whenever told to, and say when they are done."""
    torch.set_num_threads(threads)
    with tempfile.TemporaryDirectory() as folder:
        trainer = NativeTrainer(config, clone, Path(folder), MemoryMonitor())
        trainer.step(1)
        orders.send("ready")
        step = 1
        while orders.recv():
            for _ in range(STEPS):
                step += 1
                trainer.step(step)
            orders.send("done")


def main() -> None:
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "grid.yaml").write_text(GRID)
        config = plan_study(folder / "grid.yaml", studies=folder).trials[0].config
        clone = folder / "clone"
        clone.mkdir()
        torch.set_num_threads(1)
        make_clone(config, clone, lambda done, total: None)
        pipes, processes = [], []
        for threads in (1, 1, 2):
            here, there = context.Pipe()
            process = context.Process(target=trial, args=(config, clone, threads, there), daemon=True)
            process.start()
            pipes.append(here)
            processes.append(process)
        for pipe in pipes:
            pipe.recv()

        def seconds(running: list[Connection]) -> float:
            began = time.perf_counter()
            for pipe in running:
                pipe.send(True)
            for pipe in running:
                pipe.recv()
            return time.perf_counter() - began

        both, one = [], []
        for _ in range(ROUNDS):
            both.append(2 * STEPS / seconds(pipes[:2]))
            one.append(STEPS / seconds(pipes[2:]))
        load = os.getloadavg()[0]
        for pipe in pipes:
            pipe.send(False)
        for process in processes:
            process.join()
    ratio = statistics.median(both) / statistics.median(one)
    print(
        f"two trials of one thread {statistics.median(both):.2f} steps a second; one of two threads "
        f"{statistics.median(one):.2f}; ratio {ratio:.2f} ({os.cpu_count()} cores, load {load:.1f})"
    )


if __name__ == "__main__":
    main()
