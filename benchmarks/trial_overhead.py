"""What a trial costs beside its training: 20 no-op trials, two at once, beside bare Ray Tune in the same run.

    python benchmarks/trial_overhead.py

Ours includes a process of its own for each trial, its lock, its lifeline, its records and its outcome.
"alone" is the supervisor without Ray. Start-up of Ray is given by itself; wall seconds.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

_FAULTS = Path(__file__).parents[1] / "tests" / "faults"
sys.path[:0] = [str(_FAULTS), str(_FAULTS.parents[1])]
os.environ["PYTHONPATH"] = os.pathsep.join(sys.path[:2])

TRIALS = 20


def main() -> None:
    import ray

    from arena.tune_thread import _ENVIRONMENT

    os.environ.update(_ENVIRONMENT)
    began = time.perf_counter()
    ray.init(address="local", num_cpus=2, log_to_driver=False, include_dashboard=False, logging_level="ERROR")
    print(f"starting Ray                    {time.perf_counter() - began:6.2f} s")
    with tempfile.TemporaryDirectory() as folder:
        for name, run in {
            "bare Tune, fresh workers": lambda: bare(folder, reuse=False),
            "bare Tune, reused workers": lambda: bare(folder, reuse=True),
            "ours": lambda: ours(Path(folder) / "ours"),
            "ours, alone, one at a time": lambda: alone(Path(folder) / "alone"),
        }.items():
            print(f"{name:30}  {timed(run) / TRIALS:6.2f} s a trial", flush=True)
    ray.shutdown()


def timed(run: Callable[[], None]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def bare(folder: str, *, reuse: bool) -> None:
    from ray import tune

    def nothing(config: dict[str, int]) -> None:
        tune.report({"x": config["x"]})

    tune.Tuner(
        nothing,
        param_space={"x": tune.grid_search(list(range(TRIALS)))},
        tune_config=tune.TuneConfig(reuse_actors=reuse),
        run_config=tune.RunConfig(name=f"bare{reuse}", storage_path=folder, verbose=0),
    ).fit()


def ours(folder: Path) -> None:
    import fake_study

    from arena.jobs import Jobs
    from arena.study_files import EventLog, make_study_folder
    from arena.tune_jobs import Feed, run_jobs

    study = fake_study.make_study(
        folder, [fake_study.fake_config(seed=seed, steps=1) for seed in range(TRIALS)]
    )
    make_study_folder(study)
    os.environ["TUNE_MAX_PENDING_TRIALS_PG"] = "2"
    states = {trial.id: trial.state for trial in study.trials}
    jobs = Jobs(study, study.trials, states, EventLog(study.folder), {})
    run_jobs(Feed(jobs.take, jobs.is_finished, jobs.ended), folder / "ray", "run")
    if set(states.values()) != {"done"}:
        raise RuntimeError(f"not all trials have a result: {states}")


def alone(folder: Path) -> None:
    import fake_study

    from arena.supervisor import supervise

    for seed in range(TRIALS):
        trial = fake_study.make_trial(folder, fake_study.fake_config(seed=seed, steps=1))
        ending = supervise(fake_study.make_job(trial))
        if ending.kind != "finished":
            raise RuntimeError(ending.reason)


if __name__ == "__main__":
    main()
