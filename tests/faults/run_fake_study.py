"""A driver in a process of its own: `python run_fake_study.py STUDIES TRIALS SCRIPT`, SCRIPT as JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import fake_study

from arena.controller import run_study
from arena.supervisor import Limits


def main(studies: str, trials: str, script: str) -> int:
    configs = [fake_study.fake_config(seed=seed, **json.loads(script)) for seed in range(int(trials))]
    study = fake_study.make_study(Path(studies), configs)
    return run_study(study, limits=Limits(hang=60, grace=2))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
