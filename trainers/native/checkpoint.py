"""Checkpoints between steps: complete, verified, and never half-written.

A checkpoint is a folder `step-000120` holding the policy in transformers' format, the optimiser's moments and
`state.json` (step, counters, record positions, and the digest of every file). It is written beside its place
and renamed; a damaged one is skipped for the one before.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from trainers.policy import Policy

logger = logging.getLogger(__name__)

STATE = "state.json"
OPTIMIZER = "optimizer.safetensors"


@dataclass(frozen=True)
class Checkpoint:
    """A verified checkpoint: where it lies, the step it was taken after, and the trainer's own state."""

    folder: Path
    step: int
    state: dict[str, Any]


def save_checkpoint(
    checkpoints: Path,
    step: int,
    policy: Policy,
    optimizer: torch.optim.Optimizer,
    state: dict[str, Any],
    *,
    keep: int,
) -> None:
    """Write the checkpoint of `step` and drop all but the newest `keep`."""
    checkpoints.mkdir(parents=True, exist_ok=True)
    making = checkpoints / f".making-{step:06d}"
    shutil.rmtree(making, ignore_errors=True)
    making.mkdir()
    policy.save(making)
    moments = {
        f"{index}.{name}": value.contiguous()
        for index, values in optimizer.state_dict()["state"].items()
        for name, value in values.items()
    }
    save_file(moments, making / OPTIMIZER)
    digests = {path.name: _digest(path) for path in sorted(making.iterdir())}
    content = {"step": step, "files": digests, "state": state}
    with (making / STATE).open("w") as file:
        json.dump(content, file)
        file.flush()
        os.fsync(file.fileno())
    place = checkpoints / f"step-{step:06d}"
    shutil.rmtree(place, ignore_errors=True)
    making.rename(place)
    for old in _newest_first(checkpoints)[keep:]:
        shutil.rmtree(old, ignore_errors=True)


def newest_checkpoint(checkpoints: Path) -> Checkpoint | None:
    """The newest checkpoint whose files are all as they were written, or None."""
    for folder in _newest_first(checkpoints):
        try:
            content = json.loads((folder / STATE).read_text())
            damaged = [name for name, digest in content["files"].items() if _digest(folder / name) != digest]
            if damaged:
                raise ValueError(f"changed since it was written: {', '.join(damaged)}")
            return Checkpoint(folder, int(content["step"]), dict(content["state"]))
        except (OSError, ValueError, KeyError, TypeError) as error:
            logger.warning("checkpoint %s is damaged and left out: %s", folder, error)
    return None


def restore_optimizer(checkpoint: Checkpoint, optimizer: torch.optim.Optimizer) -> None:
    """Load the moments into an optimiser over the same parameters."""
    state: dict[int, dict[str, torch.Tensor]] = {}
    for key, value in load_file(checkpoint.folder / OPTIMIZER).items():
        index, name = key.split(".", 1)
        state.setdefault(int(index), {})[name] = value
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": state, "param_groups": groups})


def _newest_first(checkpoints: Path) -> list[Path]:
    return sorted(checkpoints.glob("step-*"), reverse=True) if checkpoints.is_dir() else []


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
