"""Sokoban's speed: board moves, a pool as the trainer uses it, levels and demonstrations, beside gym-sokoban.

    python benchmarks/sokoban.py

CPU time, medians of several runs. gym-sokoban (6x6, one box) lives in an environment of its own, made on the
first run in the user's cache; where it cannot be installed, it is left out. It plays one board at a time, so
the pool's single environments are the like of it, and the batch shows what playing together adds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from time import process_time

import numpy as np
import yaml

from envs.pool import SerialPool
from envs.prompts import parse, render, write_response
from envs.registry import load_environment
from envs.sokoban.board import ACTIONS, move
from envs.sokoban.levels import levels
from envs.text_env import EnvPool

ROOT = Path(__file__).parents[1]
BATCH = 1024
EPISODES = 128
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "arlarena" / "sokoban-peer"

PEER = """
import json, statistics, sys, time, warnings
warnings.simplefilter("ignore")
import numpy as np
from gym_sokoban.envs.sokoban_env import SokobanEnv

env = SokobanEnv(dim_room=(6, 6), max_steps=10**9, num_boxes=1)
resets, steps = [], []
chance = np.random.default_rng(0)
for _ in range(100):
    start = time.process_time()
    env.reset(render_mode="tiny_rgb_array")
    resets.append(time.process_time() - start)
    actions = chance.integers(1, 5, 200).tolist()
    start = time.process_time()
    for action in actions:
        env.step(action, observation_mode="tiny_rgb_array")
    steps.append((time.process_time() - start) / len(actions))
print(json.dumps({"reset": statistics.median(resets), "step": statistics.median(steps)}))
"""


def peer() -> dict[str, float] | None:
    """Seconds of a reset and a step of gym-sokoban; None where it cannot be had."""
    python = CACHE / "bin" / "python"
    try:
        if not python.exists():
            print(f"installing gym-sokoban into {CACHE} ...", flush=True)
            venv.create(CACHE, with_pip=True)
        pip = [
            str(python),
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "gym-sokoban==0.0.6",
        ]
        subprocess.run(pip, check=True, capture_output=True, text=True)
        ran = subprocess.run([str(python), "-c", PEER], check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        reason = (getattr(error, "stderr", None) or str(error)).strip().splitlines()[-1]
        print(f"skipped: gym-sokoban cannot be run here ({reason})")
        return None
    measured: dict[str, float] = json.loads(ran.stdout.splitlines()[-1])
    return measured


def cpu_seconds(work: Callable[[], object], repeats: int) -> float:
    """Median CPU time of `work`."""
    times = []
    for _ in range(repeats):
        start = process_time()
        work()
        times.append(process_time() - start)
    return median(times)


def main() -> None:
    configuration = yaml.safe_load((ROOT / "arena/conf/env/sokoban.yaml").read_text(encoding="utf-8"))
    environment, config = load_environment(configuration)
    random = np.random.default_rng(0)

    boards = levels(config, "train").boards.take(np.arange(BATCH))
    rows = np.arange(BATCH)
    actions = random.integers(0, 4, (200, BATCH))

    def moves() -> None:
        for row in actions:
            move(boards, rows, row, config.size)

    speed = actions.size / cpu_seconds(moves, 15) / 1e6
    print(f"board moves at batch {BATCH}: {speed:.1f} million per CPU-second")

    if (other := peer()) is not None:
        print(
            f"gym-sokoban 0.0.6, one board at a time: {1 / other['step']:,.0f} moves per CPU-second "
            f"(a batch here: {speed * 1e6 * other['step']:,.0f} times as many), "
            f"{other['reset'] * 1e3:.1f} ms a new room"
        )
    env = environment.make(config)
    env.reset(0)
    moves_alone = random.choice(ACTIONS, 2000).tolist()

    def alone() -> None:
        for index, word in enumerate(moves_alone):
            if index % config.max_turns == 0:
                env.reset(index)
            if any(env.step(word)[2:4]):
                env.reset(index)

    seconds = cpu_seconds(alone, 5)
    print(f"one environment with its texts: {len(moves_alone) / seconds:,.0f} steps per CPU-second")

    words = random.choice(ACTIONS, (config.max_turns, EPISODES)).tolist()
    responses = [[write_response(f"push {word} {word} up", word) for word in turn] for turn in words]
    steps = 0

    def episodes(pool: EnvPool) -> None:
        nonlocal steps
        steps = 0
        observations = pool.reset([episode // 8 for episode in range(EPISODES)], "train")
        running = list(range(EPISODES))
        for turn in responses:
            for observation in observations:
                render("compact", "", (), observation)
            parsed = [
                parse(turn[episode], observation.admissible)
                for episode, observation in zip(running, observations, strict=True)
            ]
            outcomes = pool.step(running, [response.action for response in parsed])
            steps += len(running)
            running = [
                episode for episode, outcome in zip(running, outcomes, strict=True) if outcome.observation
            ]
            observations = [outcome.observation for outcome in outcomes if outcome.observation]

    serial = SerialPool(lambda: environment.make(config))
    for name, pool in (("vectorised pool", environment.make_pool(config)), ("one at a time", serial)):
        seconds = cpu_seconds(partial(episodes, pool), 15)
        print(
            f"{EPISODES} episodes with prompts and parsing, {name}: {seconds * 1e3:.1f} ms, "
            f"{steps / seconds:,.0f} steps per CPU-second"
        )

    # a fresh process each time: levels are made once per process
    script = (
        "from time import process_time\n"
        "from envs.registry import load_environment\n"
        "from envs.sokoban.levels import levels\n"
        f"config = load_environment({configuration!r})[1]\n"
        "start = process_time()\n"
        "levels(config, 'train'), levels(config, 'eval')\n"
        "print(process_time() - start)\n"
    )
    made = median(
        float(
            subprocess.run(
                [sys.executable, "-c", script], check=True, cwd=ROOT, stdout=subprocess.PIPE
            ).stdout
        )
        for _ in range(5)
    )
    print(f"{config.train_levels} + {config.eval_levels} levels: {made:.2f} CPU-seconds")

    def demonstrate() -> None:
        environment.demonstrations(config, episodes=1000, seed=0, explore=0.35, error=0.5, history=0)

    print(f"1000 demonstrated episodes: {cpu_seconds(demonstrate, 5):.2f} CPU-seconds")


if __name__ == "__main__":
    main()
