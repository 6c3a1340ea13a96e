"""What a trial costs beside its training: 20 no-op trials, two at once, beside Ray Tune and Hydra in a run.

    python benchmarks/trial_overhead.py

Ours includes a process of its own for each trial, its lock, its lifeline, its records and its outcome.
"alone" is the supervisor without Ray. Start-up of Ray is given by itself, that of Hydra is in its figure.
Wall seconds. Hydra's joblib launcher isolates nothing: a crash of one job is one of the sweep. It lives in an
environment of its own, made on the first run in the user's cache; where it cannot be, it is not measured.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable
from pathlib import Path

_FAULTS = Path(__file__).parents[1] / "tests" / "faults"
sys.path[:0] = [str(_FAULTS), str(_FAULTS.parents[1])]
os.environ["PYTHONPATH"] = os.pathsep.join(sys.path[:2])

TRIALS = 20
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "arlarena" / "hydra-peer"
HYDRA_JOB = """
import hydra


@hydra.main(version_base=None)
def job(config):
    return config.x


job()
"""


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
        try:
            python = hydra_python()
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"Hydra, joblib launcher: cannot be installed ({error})")
        else:
            seconds = timed(lambda: hydra(python, Path(folder))) / TRIALS
            print(f"{'Hydra, joblib launcher':30}  {seconds:6.2f} s a trial")


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


def hydra_python() -> Path:
    """The interpreter of an environment that has the launcher. Raises OSError and CalledProcessError."""
    python = CACHE / "bin" / "python"
    if not (CACHE / "ready").exists():
        venv.create(CACHE, clear=True, with_pip=True)
        install = [python, "-m", "pip", "install", "--quiet", "hydra-core", "hydra-joblib-launcher"]
        subprocess.run(install, check=True, capture_output=True)
        (CACHE / "ready").touch()
    return python


def hydra(python: Path, folder: Path) -> None:
    (folder / "job.py").write_text(HYDRA_JOB)
    points = ",".join(map(str, range(TRIALS)))
    sweep = ["--multirun", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2", f"+x={points}"]
    subprocess.run([python, "job.py", *sweep], check=True, capture_output=True, cwd=folder)


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
