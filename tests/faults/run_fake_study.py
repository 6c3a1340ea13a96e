"""A driver in a process of its own: `run_fake_study.py STUDIES TRIALS SCRIPT [GPUS]`; SCRIPT is JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import fake_study

from arena.controller import run_study


def main(studies: str, trials: str, script: str, gpus: str = "0") -> int:
    configs = [fake_study.fake_config(seed=seed, **json.loads(script)) for seed in range(int(trials))]
    study = fake_study.make_study(Path(studies), configs, gpus=float(gpus))
    return run_study(study)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
