"""Trials and studies of the fake back-end, built by hand: no grid file, no planning, no Ray."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from arena.clones import SUMMARY, clone_folder, clone_id
from arena.controller import run_study
from arena.identity import CollapseConfig, TrialConfig, cell_id, trial_id
from arena.job import Job
from arena.jobs import Jobs
from arena.limits import Handling, Limits
from arena.plan import Budget, Estimate, PlannedTrial, Resources, Study
from arena.processes import ProcessMark
from arena.records import write_json
from arena.supervisor import supervise
from arena.trial_sheet import TrialSheet, write_sheet

COLLAPSE = CollapseConfig(
    stop=False,
    window=3,
    patience=3,
    best_share=0.5,
    best_floor=0.1,
    start_floor=0.05,
    standard_errors=3,
    format_broken=0.5,
    format_healthy=0.8,
    learned_floor=0.05,
    stable_variance=0.0025,
)


HANDLING = Handling(Limits(hang=60, grace=2))


def fake_config(*, steps: int = 12, seed: int = 0, checkpoint_every: int = 3, **script: Any) -> TrialConfig:
    """A trial of the fake back-end; `script` is what it is to do."""
    option = {"option": "fake", "function": "fake_backend.train"}
    return TrialConfig.model_validate(
        {
            "seed": seed,
            "backend": "fake_backend",
            "loss_aggregation": option,
            "is_clipping": option,
            "dynamic_filtering": option,
            "advantage": option,
            "env": {"name": "fake", "environment": "fake_environment.FAKE", "max_turns": 1, **script},
            "trainer": {"steps": steps, "checkpoint_every": checkpoint_every},
            "collapse": COLLAPSE.model_dump(),
        }
    )


def fake_sheet(config: TrialConfig, *, study: str = "faults") -> TrialSheet:
    cell = cell_id(config, "fake")
    return TrialSheet(
        trial=trial_id(cell, config.seed),
        cell=cell,
        study=study,
        label="fake",
        env="fake",
        seed=config.seed,
        clone=clone_id(config, "fake"),
        config=config.model_dump(mode="json"),
    )


def make_trial(studies: Path, config: TrialConfig, *, with_clone: bool = True) -> Path:
    """A trial's folder, ready to be run."""
    sheet = fake_sheet(config)
    folder = studies / sheet.study / "trials" / sheet.trial
    folder.mkdir(parents=True)
    write_sheet(folder, sheet)
    clone = clone_folder(studies, sheet.clone)
    if with_clone and not clone.exists():
        clone.mkdir(parents=True)
        write_json(clone / SUMMARY, {"value": "0"})
    return folder


def make_job(folder: Path, **changes: Any) -> Job:
    """The job of a trial's folder. Limits are short, so that what hangs does not take a test with it."""
    job = Job(
        "trial",
        folder.name,
        str(folder),
        driver=str(ProcessMark.of()),
        steps=12,
        limits=Limits(hang=30, total=60, grace=2),
    )
    return replace(job, **changes)


def make_study(
    studies: Path,
    configs: Sequence[TrialConfig],
    *,
    name: str = "faults",
    cpus: float = 1,
    gpus: float = 0,
    handling: Handling = HANDLING,
) -> Study:
    """A study of these trials, as planning would hand it to the controller."""
    trials = []
    for config in configs:
        cell = cell_id(config, "fake")
        trial = PlannedTrial(
            id=trial_id(cell, config.seed),
            cell=cell,
            label=str(config.env.get("behaviour", "fake")),
            methods=(),
            point={"is_clipping": "fake"},
            env="fake",
            seed=config.seed,
            config=config,
            resources=Resources(cpus, gpus),
            state="pending",
            clone=clone_id(config, "fake"),
        )
        trials.append(trial)
    return Study(
        name=name,
        question="Does it survive?",
        folder=studies / name,
        grid=studies / "grid.yaml",
        text=f"name: {name}\n",
        assignments=(),
        axes={"is_clipping": ("fake",)},
        design="full",
        profile="laptop",
        trials=tuple(trials),
        budget=Budget(),
        estimate=Estimate({}, 0.0, 0.0, 1, "made up"),
        handling=handling,
    )


class LocalThread(threading.Thread):
    """Stands in for `TuneThread`: runs a study's jobs one after another in this process, without Ray."""

    def __init__(self, jobs: Jobs, *_: Any, **__: Any) -> None:
        super().__init__(daemon=True)
        self._jobs = jobs
        self.error: Exception | None = None

    def run(self) -> None:
        while not self._jobs.is_finished():
            if (job := self._jobs.take()) is None:
                time.sleep(0.05)
            else:
                self._jobs.ended(job, supervise(job))


def run_without_ray(
    monkeypatch: pytest.MonkeyPatch,
    study: Study,
    *,
    report: Callable[..., str] = lambda *_: "report.md",
    close: Callable[..., None] = lambda *_: None,
    tracked: bool = False,
    **arguments: Any,
) -> int:
    """`run_study` without Ray, and with `report` and `close` for report and MLflow; the exit code.

    tracked: leave MLflow as it is.
    """
    monkeypatch.setattr("arena.controller.TuneThread", LocalThread)
    if not tracked:
        monkeypatch.setattr("arena.tracking.Tracker.start", lambda self: None)
        monkeypatch.setattr("arena.tracking.Tracker.close", close)
    monkeypatch.setattr("arena.controller._Run._write_report", report)
    return run_study(study, **arguments)


def wait_for(condition: Callable[[], Any], seconds: float = 20.0) -> Any:
    """Wait until something holds, and return it."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds} s in vain")
        time.sleep(0.03)
    return value


def is_running(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        ProcessMark.of(pid)
    except ProcessLookupError:
        return False
    return True


def alive(pids: Sequence[int]) -> list[int]:
    return [pid for pid in pids if is_running(pid)]
