"""How much CPU time planning takes: `arena --help` and `arena plan` whole, and 100,000 trials.

Peers in the same run: an empty Python, and Hydra composing configurations as its multirun does.

    python benchmarks/planning.py
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
GRID = ROOT / "grids" / "full_factorial.yaml"
ARENA = "from arena.cli import main; main()"
PLAN = """
import sys, time, resource
from pathlib import Path
from arena.planning import plan_study
began = time.process_time()
study = plan_study(Path(sys.argv[1]), sys.argv[2:], studies=Path("nowhere"))
seconds = time.process_time() - began
print(len(study.trials), seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""
COMPOSE = """
import time
from hydra import compose, initialize_config_dir
from arena.options import CONF
with initialize_config_dir(version_base="1.3", config_dir=str(CONF)):
    began = time.process_time()
    for _ in range(20):
        compose("config", overrides=["advantage=gigpo"])
    print((time.process_time() - began) / 20)
"""


def cpu_seconds(*arguments: str, repeats: int = 5) -> float:
    """Median CPU time of a whole process, start-up included."""
    times = []
    for _ in range(repeats):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        output(*arguments)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
    return statistics.median(times)


def output(*arguments: str) -> str:
    """What a Python process prints."""
    environment = dict(os.environ, PYTHONPATH=str(ROOT))
    with tempfile.TemporaryDirectory() as folder:
        ran = subprocess.run(
            [sys.executable, *arguments],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
    return ran.stdout


def main() -> None:
    print(f"{'an empty Python':42}{cpu_seconds('-c', 'pass'):8.2f} CPU-s")
    print(f"{'arena --help':42}{cpu_seconds('-c', ARENA, '--help'):8.2f} CPU-s")
    print(f"{'arena plan ' + GRID.name:42}{cpu_seconds('-c', ARENA, 'plan', str(GRID)):8.2f} CPU-s")
    rates = ",".join(str(number) for number in range(1, 61))
    steps = ",".join(str(number) for number in range(1, 53))
    large = {
        "32 cells x 3,125 seeds": ["envs=[sokoban]", "seeds=3125"],
        "100,000 cells of one seed": [
            "envs=[sokoban]",
            "seeds=1",
            f"sweep.trainer.learning_rate=[{rates}]",
            f"sweep.trainer.steps=[{steps}]",
        ],
    }
    for name, words in large.items():
        trials, seconds, peak = output("-c", PLAN, str(GRID), *words).split()
        title = f"{name} ({int(trials):,} trials)"
        print(f"{title:42}{float(seconds):8.2f} CPU-s {int(peak) / 2**30:6.2f} GiB")
    per_job = float(output("-c", COMPOSE))
    print(f"{'Hydra, composing 100,000 configurations':42}{per_job * 100_000:8.0f} CPU-s (from 20)")


if __name__ == "__main__":
    main()
