"""The Python sandbox's speed: start-up, one snippet, batches, and a turn of many episodes.

Wall time is what a rollout waits for, with one worker and best on an idle machine (the load is shown; on a
busy one `chrt -f 20` gives it a core of its own); CPU time is of the worker and the snippets it forked. The
peers are what people do otherwise: a bubblewrap, or an unprotected interpreter, for every snippet.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter, process_time, sleep

import yaml

from envs.registry import load_environment
from envs.tir_math.sandbox.limits import Limits, Snippet
from envs.tir_math.sandbox.pool import SandboxPool
from envs.tir_math.sandbox.usage import descendants, usage

ROOT = Path(__file__).parents[1]
EPISODES = 128
IDLE_SECONDS = 10.0
SMALL = "print(37 * 85)"
SOLVE = "from sympy import *\nx = symbols('x')\nprint(solve(x**2 - 5*x + 6))"
WARM_UP = "from sympy import *\nx = symbols('x')\nsolve(x**2 - 1)"


def cpu_seconds() -> float:
    """CPU time of all workers of this process, and of everything they forked."""
    return sum(usage(process).cpu_seconds for process in descendants(os.getpid()))


def measure(name: str, work: Callable[[], object], repeats: int, each: int = 1) -> None:
    """Print the median wall time and the mean CPU time of one of the `each` things that `work` does."""
    before, times = cpu_seconds(), []
    for _ in range(repeats):
        began = perf_counter()
        work()
        times.append((perf_counter() - began) / each)
    cpu = (cpu_seconds() - before) / repeats / each
    print(f"{name}: median {median(times) * 1e3:.2f} ms, CPU {cpu * 1e3:.2f} ms")


def snippets(label: str, packages: tuple[str, ...], warm_up: str, codes: dict[str, str]) -> None:
    began = perf_counter()
    with SandboxPool(Limits(), packages, warm_up=warm_up, workers=1) as pool:
        pool.run([Snippet(SMALL)])
        print(f"{label}: first result after {perf_counter() - began:.2f} s")
        for name, code in codes.items():
            measure(f"{label}, {name}", lambda code=code: pool.run([Snippet(code)]), 100)
        batch = [Snippet(f"print({number} ** 2)") for number in range(100)]
        measure(f"{label}, small, in batches of 100", lambda: pool.run(batch), 3, each=100)
        session = Snippet(SMALL, (SMALL,) * 3)
        measure(f"{label}, small, fourth of a session", lambda: pool.run([session]), 50)


def idle() -> None:
    """What a worker costs that has nothing to do: it waits for its socket, and nobody polls it."""
    with SandboxPool(Limits(), ("sympy",), warm_up=WARM_UP, workers=1) as pool:
        pool.run([Snippet(SMALL)])
        workers = list(descendants(os.getpid()))
        memory = sum(usage(process).memory_bytes for process in workers)
        before, own = cpu_seconds(), process_time()
        sleep(IDLE_SECONDS)
        worker, host = 1e3 * (cpu_seconds() - before), 1e3 * (process_time() - own)
        print(
            f"idle for {IDLE_SECONDS:g} s, with sympy: worker {worker:.0f} ms of CPU, host {host:.1f} ms; "
            f"{memory / 2**20:.0f} MB resident"
        )


def peers() -> None:
    shown = [path for path in ("/usr", os.path.realpath(sys.base_prefix)) if Path(path).is_dir()]
    wrapped = [
        "bwrap",
        "--unshare-all",
        "--die-with-parent",
        "--proc",
        "/proc",
        "--dev",
        "/dev",
        "--tmpfs",
        "/tmp",
    ]
    wrapped += [word for path in shown for word in ("--ro-bind", path, path)]
    wrapped += [word for name in ("lib", "lib64") for word in ("--symlink", f"usr/{name}", f"/{name}")]
    python = [os.path.realpath(sys.executable), "-I", "-c", SMALL]
    for name, command in (("a bubblewrap each", [*wrapped, *python]), ("an unprotected Python each", python)):
        times = []
        for _ in range(20):
            began = perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            times.append(perf_counter() - began)
        print(f"peer, {name}: median {median(times) * 1e3:.1f} ms")


def turn() -> None:
    """One turn of the laptop variant, all episodes writing code."""
    configuration = yaml.safe_load((ROOT / "arena/conf/env/tir_math.yaml").read_text(encoding="utf-8"))
    environment, config = load_environment(configuration)
    pool = environment.make_pool(config)
    generator = random.Random(0)

    def act(group_size: int) -> None:
        pool.reset([episode // group_size for episode in range(EPISODES)], "train")
        numbers = [generator.randrange(10, 99) for _ in range(EPISODES // group_size)]
        pool.step(
            range(EPISODES), [f"python: {numbers[episode // group_size]} * 7" for episode in range(EPISODES)]
        )

    act(1)
    measure(f"a turn of {EPISODES} episodes, all with code of their own", lambda: act(1), 5)
    measure(f"a turn of {EPISODES} episodes, groups of 8 that write the same", lambda: act(8), 10)


def main() -> None:
    if shutil.which("bwrap") is None:
        print("bubblewrap is not installed: nothing to measure")
        return
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    snippets("plain", (), "", {"small": SMALL})
    snippets("sympy", ("sympy",), WARM_UP, {"small": SMALL, "solve": SOLVE})
    idle()
    peers()
    turn()


if __name__ == "__main__":
    main()
