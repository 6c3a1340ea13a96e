"""A back-end without torch whose "training" is a chain of hashes, and which can fail in every way there is.

What it does is in the `env` section of its configuration: `behaviour` at step `at`, `seconds` a step (none
once there is a file `hurry` in its folder).
Records and checkpoints are deterministic, so that a run that was killed and resumed can be compared byte by
byte.
"""

from __future__ import annotations

import errno
import faulthandler
import hashlib
import json
import math
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trainers.config import TrainingConfig
from trainers.monitor import Histogram, Monitor, Transcript


class Diverged(ArithmeticError):
    """A number is not finite."""


def train(config: TrainingConfig, *, clone: Path, checkpoints: Path, monitor: Monitor) -> None:
    script = config.env
    step, value = 0, json.loads((clone / "clone.json").read_text())["value"]
    if checkpoint := _newest(checkpoints):
        step, value = checkpoint["step"], checkpoint["value"]
        monitor.rewind(checkpoint["records"])
    else:
        monitor.rewind({})
        _evaluate(monitor, 0, value)
    best_rate = script.get("best_rate")
    while step < config.trainer.steps and not monitor.should_stop():
        step += 1
        if not (checkpoints.parent / "hurry").exists():
            time.sleep(script.get("seconds", 0))
        value = hashlib.sha256(f"{value} {config.seed}".encode()).hexdigest()
        loss = int(value[:4], 16) / 65536
        if step == script.get("at", 1) and script.get("behaviour") and not _was_done(script, checkpoints):
            if script["behaviour"] == "return":
                return
            loss = _behave(script["behaviour"], loss, config)
        histogram = Histogram("advantage/all", (0.0, 0.5, 1.0), (step, 1))
        monitor.report(step, "train", {"train/loss": loss}, histograms=[histogram])
        if not math.isfinite(loss) and script.get("raises", True):
            raise Diverged(f"loss {loss}")
        if step % config.evaluation.every == 0 or step == config.trainer.steps:
            _evaluate(monitor, step, value, off=_off(config, best_rate))
        if step % config.trainer.checkpoint_every == 0 or monitor.should_stop():
            _save(checkpoints, {"step": step, "value": value, "records": monitor.position()})


def make_clone(config: TrainingConfig, folder: Path, progress: Callable[[int, int], None]) -> None:
    script = config.env
    for done in range(1, 4):
        time.sleep(script.get("clone_seconds", 0))
        progress(done, 3)
    if script.get("clone_log"):
        with Path(script["clone_log"]).open("a") as file:
            file.write(f"{os.getpid()}\n")
    if behaviour := script.get("clone_behaviour"):
        _behave(behaviour, 0.0, config)
    (folder / "model.bin").write_bytes(b"weights")
    (folder / "clone.json").write_text(json.dumps({"value": "0", "environment": _visible()}))


def _off(config: TrainingConfig, best_rate: float | None) -> float | None:
    """How many powers of ten its learning rate lies from the best one, where there is one."""
    return None if best_rate is None else abs(math.log10(config.trainer.learning_rate / best_rate))


def _evaluate(monitor: Monitor, step: int, value: str, *, off: float | None = None) -> None:
    """Success is made up from the hash, or falls off around the best learning rate."""
    success = int(value[-2:], 16) / 1024 + 0.3 if off is None else max(0.0, 0.9 - off)
    turn = {"observation": "o", "response": value[:8], "action": "a", "reward": 1.0, "rejection": None}
    metrics = {"eval/success": success, "eval/episodes": 64.0}
    monitor.report(step, "eval", metrics, episodes=[Transcript("eval", True, 1.0, (turn,))])


def _newest(checkpoints: Path) -> dict[str, Any] | None:
    for path in sorted(checkpoints.glob("step-*.json"), reverse=True):
        try:
            checkpoint: dict[str, Any] = json.loads(path.read_text())
        except ValueError:
            continue
        return checkpoint
    return None


def _save(checkpoints: Path, content: dict[str, Any]) -> None:
    part = checkpoints / "part"
    part.write_text(json.dumps(content))
    part.rename(checkpoints / f"step-{content['step']:06d}.json")


def _was_done(script: dict[str, Any], checkpoints: Path) -> bool:
    """For behaviours that are to happen in a trial's first attempt only."""
    mark = checkpoints.parent / "behaved"
    if script.get("once") and mark.exists():
        return True
    mark.touch()
    return False


def _visible() -> dict[str, str | None]:
    names = ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "ARENA_TRIAL", "RAY_ADDRESS", "RAY_JOB_ID")
    return {name: os.environ.get(name) for name in names}


def _behave(behaviour: str, loss: float, config: TrainingConfig) -> float:
    match behaviour:
        case "crash":
            raise RuntimeError("boom")
        case "memory":
            raise MemoryError
        case "rlimit":
            resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
            bytearray(1 << 34)
        case "torch_memory":
            # As torch says it; four rows fit.
            if config.trainer.micro_rows is None or config.trainer.micro_rows > 4:
                raise RuntimeError(
                    "DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"
                )
        case "stale":
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        case "exit":
            os._exit(0)
        case "exit_code":
            os.write(1, b"something went wrong\n")
            os._exit(7)
        case "exit_politely":
            sys.exit(0)
        case "signal":
            os.kill(os.getpid(), signal.SIGKILL)
        case "segfault":
            faulthandler._sigsegv()
        case "hang":
            time.sleep(3600)
        case "hang_hard":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            while True:
                time.sleep(3600)
        case "flood":
            for number in range(200_000):
                sys.stdout.write(f"line {number} {'x' * 100}\n")
        case "daemon":
            _start_daemon()
        case "daemon_and_signal":
            _start_daemon()
            os.kill(os.getpid(), signal.SIGKILL)
        case "nan":
            return math.nan
        case "disk_full":
            # No file grows any more: every write meets what a full disk is like.
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        case "environment":
            os.write(1, json.dumps(_visible()).encode() + b"\n")
        case "grandchild_holds_output":
            if os.fork() == 0:
                time.sleep(3600)
        case _:
            raise AssertionError(f"no behaviour {behaviour}")
    return loss


def _start_daemon() -> None:
    """A process in a session of its own, with no parent and nothing open."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.closerange(0, 256)
            time.sleep(3600)
        os._exit(0)
    os.wait()
