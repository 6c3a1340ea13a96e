from __future__ import annotations

import json
import os
import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import fake_study
import pytest
import yaml
from fake_study import HANDLING, fake_config, make_study, run_without_ray, wait_for

from arena import records
from arena.clones import clone_folder, clone_job_folder, is_ready
from arena.interrupts import counting_interrupts
from arena.job import Ending, Job
from arena.jobs import Jobs
from arena.ledger import read_plan, study_states
from arena.locks import Lock, LockedError
from arena.plan import Budget, Study
from arena.records import Outcome, read_outcome, write_outcome
from arena.remedies import NoRemedyError, fewer_rows
from arena.schedule import Schedule, Waiting
from arena.spending import Spent, spent, used_up
from arena.study_files import DRIVER_LOCK, EventLog, make_study_folder, prepare_trial, write_plan
from arena.supervisor import supervise
from arena.terminal import Terminal, output_into
from arena.trial_sheet import read_sheet

FINISHED = Ending("finished")
ORIGIN = {"versions": {"python": "3"}, "commit": "abc", "dirty": False, "machine": {}, "created": "now"}


def waiting(*pairs: tuple[str, str]) -> list[Waiting]:
    return [Waiting(Job("trial", trial, f"/{trial}"), clone) for trial, clone in pairs]


def make_schedule(trials: list[Waiting], ready: set[str]) -> Schedule:
    return Schedule(trials, lambda trial: Job("clone", trial.clone, f"/{trial.clone}"), ready.__contains__)


def names(schedule: Schedule, count: int) -> list[str | None]:
    jobs = [schedule.next() for _ in range(count)]
    return [None if job is None else job.name for job in jobs]


def test_trials_wait_for_their_clone_which_is_made_once() -> None:
    schedule = make_schedule(waiting(("a", "X"), ("b", "X"), ("c", "Y"), ("d", "Z")), {"Z"})
    assert names(schedule, 4) == ["clone X", "clone Y", "trial d", None]
    assert not schedule.is_finished
    schedule.ended(Job("clone", "X", "/X"), FINISHED)
    assert names(schedule, 3) == ["trial a", "trial b", None]
    schedule.ended(Job("clone", "Y", "/Y"), FINISHED)
    assert names(schedule, 2) == ["trial c", None]
    for trial in "abcd":
        assert not schedule.is_finished
        assert schedule.ended(Job("trial", trial, ""), FINISHED) == []
    assert schedule.is_finished


def test_without_their_clone_trials_fail_with_its_reason_and_others_go_on() -> None:
    schedule = make_schedule(waiting(("a", "X"), ("b", "Y"), ("c", "X")), set())
    assert names(schedule, 2) == ["clone X", "clone Y"]
    failed = schedule.ended(Job("clone", "X", "/X"), Ending("crashed", "It broke."))
    assert [job.id for job, _ in failed] == ["a", "c"]
    assert all("It broke." in reason for _, reason in failed)
    schedule.ended(Job("clone", "Y", "/Y"), FINISHED)
    assert names(schedule, 2) == ["trial b", None]


def test_a_clone_that_was_stopped_fails_nothing() -> None:
    schedule = make_schedule(waiting(("a", "X")), set())
    assert names(schedule, 1) == ["clone X"]
    schedule.stop()
    assert schedule.ended(Job("clone", "X", "/X"), Ending("stopped")) == []
    assert names(schedule, 1) == [None]
    assert schedule.is_finished


def test_a_job_that_goes_out_again_comes_before_all_others(tmp_path: Path) -> None:
    schedule = make_schedule(waiting(("a", "X"), ("b", "X")), {"X"})
    first = schedule.next()
    assert first is not None
    assert schedule.again(first)
    assert names(schedule, 3) == ["trial a", "trial b", None]
    assert not schedule.is_finished
    schedule.stop()
    assert not schedule.again(first)
    assert schedule.is_finished


def make_jobs(study: Study, states: dict[str, str] | None = None) -> Jobs:
    make_study_folder(study)
    found = {trial.id: trial.state for trial in study.trials}
    return Jobs(study, study.trials, found, EventLog(study.folder), ORIGIN)


def events(study: Study) -> list[tuple[str, str | None]]:
    lines = records.read_lines(study.folder / "events.jsonl").rows
    return [(line["event"], line.get("trial") or line.get("clone")) for line in lines]


def test_a_run_makes_the_clone_and_then_every_trial(tmp_path: Path) -> None:
    study = make_study(tmp_path, [fake_config(seed=seed, steps=2) for seed in range(2)])
    jobs = make_jobs(study)
    done = []
    while (job := jobs.take()) is not None:
        jobs.ended(job, supervise(job))
        done.append(job.kind)
    assert done == ["clone", "trial", "trial"]
    assert jobs.is_finished()
    assert set(jobs.states.values()) == {"done"}
    assert study_states(study.folder) == jobs.states
    clone = study.trials[0].clone
    assert is_ready(clone_folder(tmp_path, clone))
    first = study.trials[0].id
    assert ("clone finished", clone) in events(study)
    assert ("trial finished", first) in events(study)


def test_a_clone_that_cannot_be_made_fails_its_trials_on_file(tmp_path: Path) -> None:
    study = make_study(tmp_path, [fake_config(seed=seed, clone_behaviour="crash") for seed in range(2)])
    jobs = make_jobs(study)
    clone = jobs.take()
    assert clone is not None
    assert jobs.take() is None
    jobs.ended(clone, supervise(clone))
    assert jobs.is_finished()
    for trial in study.trials:
        outcome = read_outcome(study.trial_folder(trial))
        assert outcome is not None
        assert outcome.outcome == "failed"
        assert "could not be made" in outcome.reason
        assert "boom" in outcome.reason
    assert set(study_states(study.folder).values()) == {"failed"}


def test_a_lost_supervisor_is_no_failure_until_it_happens_again_and_again(tmp_path: Path) -> None:
    study = make_study(tmp_path, [fake_config(steps=2)])
    clone_is_there(study)
    jobs = make_jobs(study)
    for _ in range(3):
        job = jobs.take()
        assert job is not None
        assert read_outcome(Path(job.folder)) is None
        jobs.ended(job, None)
    assert jobs.is_finished()
    outcome = read_outcome(study.trial_folder(study.trials[0]))
    assert outcome is not None
    assert (outcome.outcome, outcome.reason) == ("failed", "Its supervisor was lost.")
    assert outcome.retries == 2


def clone_is_there(study: Study) -> None:
    for name in {trial.clone for trial in study.trials}:
        clone = clone_folder(study.studies, name)
        clone.mkdir(parents=True)
        (clone / "clone.json").write_text('{"value": "0"}')


def run_jobs(jobs: Jobs) -> list[str]:
    """Run all jobs here; how they ended."""
    endings = []
    while (job := jobs.take()) is not None:
        ending = supervise(job)
        endings.append(ending.kind)
        jobs.ended(job, ending)
    assert jobs.is_finished()
    return endings


@pytest.mark.parametrize("behaviour", ["signal", "stale"])
def test_a_failure_of_the_machine_is_retried_from_the_checkpoint_and_counted(
    tmp_path: Path, behaviour: str
) -> None:
    script = {"behaviour": behaviour, "at": 8, "once": True}
    study = make_study(tmp_path, [fake_config(seed=0), fake_config(seed=0, **script)])
    clone_is_there(study)
    kind = {"signal": "killed", "stale": "unavailable"}[behaviour]
    assert run_jobs(make_jobs(study)) == ["finished", kind, "finished"]
    undisturbed, retried = (study.trial_folder(trial) for trial in study.trials)
    for name in records.RECORDS:
        assert (retried / name).read_bytes() == (undisturbed / name).read_bytes()
    outcome = read_outcome(retried)
    assert outcome is not None
    assert outcome.is_result
    assert (outcome.attempts, outcome.retries) == (2, 1)
    (retry,) = read_sheet(retried).retries
    assert (retry["cause"], retry["attempt"]) == (kind, 1)
    assert ("trial retried", retried.name) in events(study)


def test_retries_of_failures_of_the_machine_are_bounded(tmp_path: Path) -> None:
    for retries in (0, 2):
        studies = tmp_path / str(retries)
        handling = replace(HANDLING, retries=retries)
        study = make_study(studies, [fake_config(behaviour="signal", at=8)], handling=handling)
        clone_is_there(study)
        assert run_jobs(make_jobs(study)) == ["killed"] * (retries + 1)
        outcome = read_outcome(study.trial_folder(study.trials[0]))
        assert outcome is not None
        assert (outcome.outcome, outcome.retries, outcome.cause) == ("failed", retries, "unavailable")


@pytest.mark.parametrize("behaviour", ["crash", "exit_code", "exit", "segfault", "memory", "return"])
def test_a_failure_of_the_trial_is_not_retried(tmp_path: Path, behaviour: str) -> None:
    study = make_study(tmp_path, [fake_config(behaviour=behaviour, at=2)])
    clone_is_there(study)
    assert len(run_jobs(make_jobs(study))) == 1
    assert set(study_states(study.folder).values()) == {"failed"}


def test_a_diverged_trial_is_a_result_and_not_retried(tmp_path: Path) -> None:
    study = make_study(tmp_path, [fake_config(behaviour="nan", at=2)])
    clone_is_there(study)
    assert run_jobs(make_jobs(study)) == ["finished"]


def test_a_trial_out_of_memory_goes_on_with_half_as_many_rows_in_memory(tmp_path: Path) -> None:
    handling = replace(HANDLING, retries=0, on_out_of_memory="halve_micro_batch")
    config = fake_config(behaviour="torch_memory", at=8)
    # 16 groups of 8 in 4 mini-batches: 32 rows, of which 4 fit.
    study = make_study(tmp_path, [fake_config(), config], handling=handling)
    clone_is_there(study)
    assert run_jobs(make_jobs(study)) == ["finished", *["out_of_memory"] * 3, "finished"]
    undisturbed, retried = (study.trial_folder(trial) for trial in study.trials)
    assert (retried / records.METRICS).read_bytes() == (undisturbed / records.METRICS).read_bytes()
    outcome = read_outcome(retried)
    assert outcome is not None
    assert (outcome.retries, outcome.micro_rows) == (3, 4)
    sheet = read_sheet(retried)
    assert [retry["micro_rows"] for retry in sheet.retries] == [16, 8, 4]
    assert sheet.config == config.model_dump(mode="json")


def test_fewer_rows_start_from_the_largest_number_that_is_known(tmp_path: Path) -> None:
    config = fake_config()
    assert fewer_rows(config, None, tmp_path) == 16
    trainer = config.trainer.model_copy(update={"micro_rows": 5})
    assert fewer_rows(config.model_copy(update={"trainer": trainer}), None, tmp_path) == 3
    assert fewer_rows(config, 3, tmp_path) == 2
    (tmp_path / records.METRICS).write_text('{"step": 1, "kind": "train", "train/rows_per_update": 40.5}\n')
    assert fewer_rows(config, None, tmp_path) == 21
    with pytest.raises(NoRemedyError, match="one row"):
        fewer_rows(config, 1, tmp_path)
    aggregation = config.loss_aggregation.model_copy(update={"scope": "microbatch"})
    with pytest.raises(NoRemedyError, match="part of the result"):
        fewer_rows(config.model_copy(update={"loss_aggregation": aggregation}), None, tmp_path)


def test_when_all_workers_are_lost_only_what_had_begun_counts_a_retry(tmp_path: Path) -> None:
    study = make_study(tmp_path, [fake_config(seed=seed, steps=2) for seed in range(3)])
    clone_is_there(study)
    jobs = make_jobs(study)
    done, begun, queued = (jobs.take() for _ in range(3))
    assert done is not None
    assert begun is not None
    assert queued is not None
    supervise(done)
    lock = Lock(Path(begun.folder) / records.LOCK)
    lock.write({"attempt": 1})
    lock.release()
    jobs.session_lost()
    assert jobs.states[done.id] == "done"
    again = [jobs.take(), jobs.take(), jobs.take()]
    assert [(job.id, job.retries) for job in again if job] == [(begun.id, 1), (queued.id, 0)]


def test_what_is_killed_while_everything_stops_is_interrupted(tmp_path: Path) -> None:
    study = make_study(tmp_path, [fake_config(behaviour="signal", at=8, once=True)])
    clone_is_there(study)
    jobs = make_jobs(study)
    job = jobs.take()
    assert job is not None
    ending = supervise(job)
    jobs.stop()
    jobs.ended(job, ending)
    assert jobs.states[job.id] == "interrupted"
    assert study_states(study.folder)[job.id] == "interrupted"


def test_a_stop_reaches_what_runs_and_what_is_about_to(tmp_path: Path) -> None:
    study = make_study(tmp_path, [fake_config(seed=seed, steps=2) for seed in range(3)])
    jobs = make_jobs(study)
    clone = jobs.take()
    assert clone is not None
    jobs.ended(clone, supervise(clone))
    first = jobs.take()
    assert first is not None
    folder = Path(first.folder)
    jobs.stop()
    assert (folder / records.STOP).read_text() == ""
    assert jobs.take() is None
    jobs.stop(kill=True)
    assert (folder / records.STOP).read_text() == records.KILL
    jobs.ended(first, supervise(first))
    assert jobs.states[first.id] == "interrupted"
    jobs.clear_stops()
    assert not (folder / records.STOP).exists()
    assert study_states(study.folder)[first.id] == "pending"


def test_a_trial_that_is_running_elsewhere_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("arena.supervisor._LOCK_WAIT", 0.1)
    study = make_study(tmp_path, [fake_config(steps=2)])
    jobs = make_jobs(study)
    clone = jobs.take()
    assert clone is not None
    jobs.ended(clone, supervise(clone))
    job = jobs.take()
    assert job is not None
    lock = Lock(Path(job.folder) / records.LOCK)
    ending = supervise(job)
    assert ending.kind == "busy"
    jobs.ended(job, ending)
    lock.release()
    assert jobs.states[job.id] == "running"
    assert read_outcome(Path(job.folder)) is None


@pytest.mark.parametrize("obstacle", ["file", "outcome"])
def test_a_folder_that_cannot_be_prepared_fails_its_trial_only(tmp_path: Path, obstacle: str) -> None:
    study = make_study(tmp_path, [fake_config(seed=seed, steps=2) for seed in range(2)])
    jobs = make_jobs(study)
    blocked, other = (study.trial_folder(trial) for trial in study.trials)
    if obstacle == "file":
        blocked.touch()
    else:
        (blocked / records.STOP).mkdir(parents=True)
    clone = jobs.take()
    assert clone is not None
    jobs.ended(clone, supervise(clone))
    job = jobs.take()
    assert job is not None
    assert Path(job.folder) == other.absolute()
    assert jobs.states[study.trials[0].id] == "failed"


def test_a_sheet_keeps_where_it_began_and_notes_where_it_goes_on(tmp_path: Path) -> None:
    study = make_study(tmp_path, [fake_config()])
    trial = study.trials[0]
    folder = study.trial_folder(trial)
    prepare_trial(study, trial, ORIGIN)
    written = (folder / records.TRIAL).stat().st_mtime_ns
    prepare_trial(study, trial, {**ORIGIN, "created": "later"})
    assert (folder / records.TRIAL).stat().st_mtime_ns == written
    prepare_trial(study, trial, {**ORIGIN, "created": "later", "commit": "def"})
    prepare_trial(study, trial, {**ORIGIN, "created": "still later", "commit": "def"})
    sheet = yaml.safe_load((folder / records.TRIAL).read_text())
    assert sheet["provenance"]["commit"] == "abc"
    assert [again["commit"] for again in sheet["provenance"]["resumed"]] == ["def"]
    assert read_sheet(folder).config == trial.config.model_dump(mode="json")


def test_preparing_takes_away_what_a_crash_left(tmp_path: Path) -> None:
    study = make_study(tmp_path, [fake_config()])
    folder = study.trial_folder(study.trials[0])
    folder.mkdir(parents=True)
    (folder / records.STOP).touch()
    (folder / ".outcome.json.abc").touch()
    prepare_trial(study, study.trials[0], ORIGIN)
    assert [path.name for path in folder.iterdir()] == [records.TRIAL]


def test_a_plan_is_written_with_the_states_of_now(tmp_path: Path) -> None:
    study = make_study(tmp_path, [fake_config(seed=seed) for seed in range(2)])
    make_study_folder(study)
    write_plan(study, {study.trials[0].id: "done"})
    plan = read_plan(study.folder)
    assert [trial["state"] for trial in plan["trials"]] == ["done", "pending"]
    assert (study.folder / "grid.yaml").read_text() == study.text


def test_two_drivers_do_not_run_one_study(tmp_path: Path) -> None:
    from arena.controller import run_study

    study = make_study(tmp_path, [fake_config()])
    make_study_folder(study)
    lock = Lock(study.folder / DRIVER_LOCK)
    lock.write({"pid": 4711, "host": "elsewhere", "since": "noon"})
    with pytest.raises(LockedError, match="process 4711 on elsewhere since noon"):
        run_study(study)
    lock.release()


def test_a_folder_that_cannot_be_written_is_an_error_at_once(tmp_path: Path) -> None:
    from arena.controller import run_study

    study = make_study(tmp_path, [fake_config()])
    study.folder.touch()
    with pytest.raises(OSError, match="faults"):
        run_study(study)


def test_only_chosen_trials_are_run_and_only_they_decide_the_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = make_study(
        tmp_path, [fake_config(seed=0, steps=2, behaviour="crash"), fake_config(steps=2, seed=1)]
    )
    failing, good = (trial.id for trial in study.trials)
    assert run_without_ray(monkeypatch, study, only={good}) == 0
    assert study_states(study.folder) == {good: "done"}
    assert run_without_ray(monkeypatch, study, only={failing}) == 1
    assert study_states(study.folder) == {good: "done", failing: "failed"}
    assert run_without_ray(monkeypatch, study, only={good}) == 0


def test_what_has_priority_goes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = make_study(tmp_path, [fake_config(seed=seed, steps=1) for seed in range(3)])
    trials = [replace(trial, rank=rank) for trial, rank in zip(study.trials, (1, 1, 0), strict=True)]
    study = replace(study, trials=tuple(trials))
    assert run_without_ray(monkeypatch, study) == 0
    finished = [name for event, name in events(study) if event == "trial finished"]
    assert finished == [trials[index].id for index in (2, 0, 1)]


def test_a_study_stops_when_its_hours_are_used_up_and_goes_on_with_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("arena.controller.WRITTEN_EVERY", 0.1)
    configs = [fake_config(seed=seed, steps=40, seconds=0.05) for seed in range(3)]
    study = make_study(tmp_path, configs)
    tight = replace(study, budget=Budget(hours=2.5 / 3600))
    assert run_without_ray(monkeypatch, tight) == 2
    states = study_states(study.folder)
    assert "failed" not in states.values()
    assert states.get(study.trials[2].id) is None
    before = spent(tight.budget, study.folder, study.trials).hours
    assert before >= 2.5 / 3600
    assert run_without_ray(monkeypatch, tight) == 2
    assert study_states(study.folder).get(study.trials[2].id) is None
    assert run_without_ray(monkeypatch, replace(study, budget=Budget(hours=1))) == 0
    assert set(study_states(study.folder).values()) == {"done"}
    assert spent(Budget(hours=1), study.folder, study.trials).hours > before


def test_gpu_hours_are_those_of_all_attempts_of_trials_and_of_their_clones(tmp_path: Path) -> None:
    study = make_study(tmp_path, [fake_config(steps=1, behaviour="signal", once=True)], gpus=0.5)
    handling = replace(HANDLING, retries=1)
    jobs = make_jobs(replace(study, handling=handling))
    endings = []
    while (job := jobs.take()) is not None:
        endings.append(supervise(job, ["0"]))
        jobs.ended(job, endings[-1])
    assert [ending.kind for ending in endings] == ["finished", "killed", "finished"]
    hours = spent(Budget(gpu_hours=1), study.folder, study.trials).gpu_hours
    assert hours == pytest.approx(0.5 * sum(ending.seconds for ending in endings) / 3600, rel=0.2)
    assert used_up(Budget(gpu_hours=hours), Spent(0.0, hours)) is not None
    assert used_up(Budget(gpu_hours=hours, hours=0.1), Spent(0.05, 0.99 * hours)) is None


def test_a_run_with_nothing_to_do_makes_report_and_mlflow_only_when_something_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from arena.tracking import SyncResult, Tracker

    study = make_study(tmp_path, [fake_config(steps=2)])
    report = study.folder / "report" / "report.md"
    made: list[str] = []

    def write_report(*_: object) -> str:
        report.parent.mkdir(exist_ok=True)
        report.touch()
        made.append("report")
        return str(report)

    def sync(tracker: Tracker, _: float) -> None:
        made.append("mlflow")
        tracker.last = SyncResult(errors=problems)

    def run(**changes: object) -> list[str]:
        made.clear()
        monkeypatch.setattr("arena.controller.provenance", lambda: {**ORIGIN, **changes})
        assert run_without_ray(monkeypatch, study, report=write_report, close=sync) == 0
        return made

    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///somewhere.db")
    problems: tuple[str, ...] = ("it is away",)
    both = ["report", "mlflow"]
    assert run() == both
    assert run() == both, "MLflow was away"
    problems = ()
    assert run() == both
    assert run() == run() == []
    assert run(commit="def") == both
    assert run(dirty=True) == both, "nobody knows what the code was"
    assert run() == both
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///elsewhere.db")
    assert run() == both
    report.unlink()
    assert run() == both
    folder = study.trial_folder(study.trials[0])
    write_outcome(folder, Outcome("collapsed"))
    assert run() == both
    assert run() == []


def test_interrupts_are_counted_and_handlers_given_back() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    with counting_interrupts() as interrupts:
        for count, number in enumerate((signal.SIGINT, signal.SIGTERM, signal.SIGHUP), start=1):
            signal.raise_signal(number)
            assert interrupts.count == count
            assert interrupts.event.is_set()
    after = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    assert after == before


def test_what_libraries_print_goes_to_the_log_and_ours_to_the_terminal(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with output_into(tmp_path / "log") as terminal:
        os.write(1, b"to stdout\n")
        subprocess.run(["sh", "-c", "echo from a child >&2"], check=True)
        Terminal(file=terminal).print("for people")
    os.write(1, b"afterwards\n")
    assert (tmp_path / "log").read_text() == "to stdout\nfrom a child\n"
    assert capfd.readouterr() == ("for people\nafterwards\n", "")


def test_a_reader_that_leaves_silences_the_terminal_and_ends_nothing() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    terminal = Terminal(file=os.fdopen(writer, "w"))
    terminal.print("one")
    terminal.print("two")
    assert terminal.quiet


def test_an_event_is_a_line_of_json(tmp_path: Path) -> None:
    EventLog(tmp_path).write("trial finished", trial="a", reason="ä\n", path=Path("/x"))
    (line,) = (tmp_path / "events.jsonl").read_text().splitlines()
    assert json.loads(line)["path"] == "/x"


def test_done_means_done(tmp_path: Path) -> None:
    """What has a result is not handed to a supervisor that would run it."""
    study = make_study(tmp_path, [fake_config(steps=2)])
    folder = study.trial_folder(study.trials[0])
    folder.mkdir(parents=True)
    write_outcome(folder, Outcome("collapsed"))
    ending = supervise(fake_study.make_job(folder))
    assert ending.reason == "It had a result already."
    assert not (folder / records.METRICS).exists()
    assert not clone_job_folder(tmp_path, study.trials[0].clone).exists()
    assert wait_for(lambda: read_outcome(folder)).outcome == "collapsed"
