"""A driver in a process of its own: `run_fake_study.py STUDIES SCRIPTS [ADDRESS]`.

SCRIPTS is JSON: what each trial is to do, and under `gpus` how many it is given. What fails through no fault
of its own is started again as often as it takes.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import fake_study

from arena.controller import run_study
from arena.plan import Resources


def main(studies: str, scripts: str, address: str | None = None) -> int:
    listed = json.loads(scripts)
    gpus = [script.pop("gpus", 0) for script in listed]
    configs = [fake_study.fake_config(seed=seed, **script) for seed, script in enumerate(listed)]
    handling = replace(fake_study.HANDLING, retries=20)
    study = fake_study.make_study(Path(studies), configs, handling=handling)
    trials = [
        replace(trial, resources=Resources(1, gpu)) for trial, gpu in zip(study.trials, gpus, strict=True)
    ]
    return run_study(replace(study, trials=tuple(trials)), address=address)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
