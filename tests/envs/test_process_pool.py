"""Environments in processes of their own: the same results, and what becomes of those that die or hang."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from functools import partial

import numpy as np
import psutil
import pytest
from unruly_environment import Unruly

from envs.pool import SerialPool
from envs.process_pool import ProcessPool, WorkerError


@pytest.fixture
def make_pool():
    pools = []

    def make(factory=Unruly, workers=2, step_seconds=60.0, **arguments):
        pools.append(ProcessPool(factory, workers=workers, step_seconds=step_seconds, **arguments))
        return pools[-1]

    yield make
    for pool in pools:
        pool.close()


def play(pool, seeds, random):
    """Episodes of random length; all that comes out of them."""
    seen = [pool.reset(seeds, "eval")]
    running = list(range(len(seeds)))
    while running:
        chosen = [episode for episode in running if random.random() < 0.8] or running
        outcomes = pool.step(
            chosen, random.choice(["go", "win", "stay"], len(chosen), p=[0.5, 0.1, 0.4]).tolist()
        )
        seen.append(outcomes)
        over = {e for e, outcome in zip(chosen, outcomes, strict=True) if outcome.observation is None}
        running = [episode for episode in running if episode not in over]
    return seen


@pytest.mark.parametrize("workers", [1, 3])
def test_plays_as_in_one_process(make_pool, workers):
    pool, serial = make_pool(workers=workers), SerialPool(Unruly)
    for count in (7, 1, 12):
        seeds = [seed // 3 for seed in range(count)]
        expected = play(serial, seeds, np.random.default_rng(count))
        assert play(pool, seeds, np.random.default_rng(count)) == expected


def test_workers_share_the_episodes_evenly_and_groups_stay_together(make_pool):
    pool = make_pool(partial(Unruly, speaks_of_itself=True), workers=3)
    observations = pool.reset([5, 9, 5, 2, 9, 2], "train")
    process = [observation.text.split()[-1] for observation in observations]
    assert len(set(process)) == 3
    assert process[0] == process[2]
    assert process[1] == process[4]
    assert process[3] == process[5]
    assert str(os.getpid()) not in process


@pytest.mark.parametrize(("action", "reason"), [("die", "died of SIGKILL"), ("leave", "exit code 7")])
def test_episodes_of_a_dead_worker_end_without_success_and_say_why(make_pool, action, reason):
    pool = make_pool()
    pool.reset([1, 2, 3, 4], "train")
    first, killed = pool.step([0, 1], ["go", action])
    assert first.observation.text == "seed 1 turn 1 go"
    assert first.failure is None
    assert (killed.observation, killed.reward, killed.success, killed.truncated) == (None, 0.0, False, True)
    assert reason in killed.failure
    # episode 0 was in the same worker; those of the other worker go on
    later = pool.step([0, 2, 3], ["go", "go", "win"])
    assert later[0].observation is None
    assert reason in later[0].failure
    assert later[1].observation.text == "seed 3 turn 1 go"
    assert (later[2].success, later[2].failure) == (True, None)
    with pytest.raises(ValueError, match="episode 1 is over"):
        pool.step([1], ["go"])
    # and the next episodes find a new worker
    again = pool.reset([1, 2, 3, 4], "train")
    assert [observation.text for observation in again] == [
        f"seed {seed} turn 0 train" for seed in (1, 2, 3, 4)
    ]
    assert all(outcome.failure is None for outcome in pool.step([0, 1, 2, 3], ["go"] * 4))


def test_a_turn_that_hangs_is_cut_off(make_pool):
    pool = make_pool(step_seconds=0.5)
    pool.reset([1, 2], "train")
    began = time.monotonic()
    hanging, going = pool.step([0, 1], ["hang", "go"])
    assert time.monotonic() - began < 100
    assert "longer than 0.5 s" in hanging.failure
    assert going.observation.text == "seed 2 turn 1 go"


def test_an_exception_of_an_environment_is_raised_and_leaves_the_pool_usable(make_pool):
    pool = make_pool()
    pool.reset([1, 2, 3, 4], "train")
    with pytest.raises(WorkerError, match=r"(?s)ValueError: turn 0 of seed 2.*Traceback.*in step"):
        pool.step([0, 1, 2], ["go", "raise", "go"])
    assert pool.reset([8], "train")[0].text == "seed 8 turn 0 train"
    assert pool.step([0], ["go"])[0].observation.text == "seed 8 turn 1 go"


def test_an_environment_that_cannot_be_started_is_an_error_that_names_the_seed(make_pool):
    pool = make_pool()
    with pytest.raises(WorkerError, match="seed -1 cannot be started: its worker died of SIGKILL"):
        pool.reset([3, 4, -1], "train")
    assert pool.reset([3], "train")[0].text == "seed 3 turn 0 train"


def test_no_process_is_left(make_pool):
    pool = make_pool(workers=3)
    pool.reset(range(6), "train")
    workers = [
        each for each in psutil.Process().children() if "envs.process_worker" in " ".join(each.cmdline())
    ]
    assert len(workers) == 3
    pool.close()
    assert not any(worker.is_running() for worker in workers)


def test_workers_end_with_their_parent():
    script = (
        "import os, signal\n"
        "from envs.process_pool import ProcessPool\n"
        "from unruly_environment import Unruly\n"
        "pool = ProcessPool(Unruly, workers=2, step_seconds=60.0)\n"
        "pool.reset([1, 2], 'train')\n"
        "print(*[worker.process.pid for worker in pool._workers], flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, check=False)
    workers = [int(word) for word in done.stdout.split()]
    assert len(workers) == 2
    for _ in range(200):
        if not any(psutil.pid_exists(worker) for worker in workers):
            return
        time.sleep(0.1)
    pytest.fail("a worker outlived its parent")
