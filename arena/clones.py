"""Clones: policies imitating an expert, from which trials start. Made once, kept by content."""

from __future__ import annotations

import hashlib
from pathlib import Path

from arena.backends import find_backend
from arena.identity import TrialConfig, canonical_json, section_text
from trainers.config import clone_sections

CLONE_VERSION = 1
"""Part of every id. Raise it when the same configuration starts to mean another clone."""

SUMMARY = "clone.json"
"""In a finished clone: what it was made of, its losses, how long it took."""
PROGRESS = "progress.json"
"""In the folder of a clone's job: `{"done", "total"}` of the updates."""


def clone_id(config: TrialConfig, data_id: str) -> str:
    """The id of the clone a trial starts from: 16 hexadecimal digits.

    data_id: what the environment's episodes are made of (`Environment.data_id`).
    """
    parts = {
        "sections": {name: section_text(name, value) for name, value in clone_sections(config).items()},
        "data": data_id,
        "maker": find_backend(config.backend).cloning,
        "version": CLONE_VERSION,
    }
    return hashlib.sha256(canonical_json(parts).encode()).hexdigest()[:16]


def clones_folder(studies: Path) -> Path:
    """Where a studies folder keeps its clones."""
    return studies / ".cache" / "clones"


def clone_folder(studies: Path, clone: str) -> Path:
    """Where a finished clone lies; it appears there whole or not at all."""
    return clones_folder(studies) / clone


def clone_job_folder(studies: Path, clone: str) -> Path:
    """Where a clone is made: like a trial's folder, with `trial.yaml`, `stdout.log` and `lock`."""
    return clones_folder(studies) / f"{clone}.job"


def target_of(job: Path) -> Path:
    """Where the clone of a job's folder goes when it is finished."""
    return job.with_suffix("")


def is_ready(folder: Path) -> bool:
    """Whether a clone's folder holds a finished one."""
    return (folder / SUMMARY).is_file()
