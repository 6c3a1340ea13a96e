"""Studies of the fake back-end run to their end in this process: what the controller does, without Ray."""

from __future__ import annotations

import random
from pathlib import Path

from arena import records
from arena.growth import live_growth
from arena.job import Ending, Job
from arena.jobs import Jobs
from arena.locks import Lock
from arena.plan import Study
from arena.study_files import EventLog, make_study_folder
from arena.trial import run_trial

ORIGIN = {"versions": {}, "commit": None, "dirty": False, "machine": {}, "created": "now"}


def start(study: Study) -> Jobs:
    make_study_folder(study)
    growth = live_growth(study)
    states = {trial.id: trial.state for trial in study.trials}
    todo = [trial for trial in study.trials if trial.state in ("pending", "interrupted")]
    return Jobs(study, todo, states, EventLog(study.folder), ORIGIN, growth)


def train(job: Job) -> Ending:
    """What a supervisor's child does, in this process."""
    if job.kind == "clone":
        target = Path(job.target)
        target.mkdir(parents=True)
        records.write_json(target / "clone.json", {"value": "0"})
    else:
        lock = Lock(Path(job.folder) / records.LOCK)
        try:
            run_trial(Path(job.folder))
        finally:
            lock.release()
    return Ending("finished")


def run(study: Study, *, side_by_side: int = 1, seed: int = 0, most: int | None = None) -> Study:
    """Run to the end, or until so many jobs have ended; what is running then is lost."""
    jobs, order, out, ended = start(study), random.Random(seed), [], 0
    while True:
        while len(out) < side_by_side and (job := jobs.take()) is not None:
            out.append(job)
        if not out or ended == most:
            return jobs.study
        job = out.pop(order.randrange(len(out)))
        jobs.ended(job, train(job))
        ended += 1


def names(study: Study) -> set[str]:
    return {trial.id for trial in study.trials}
