from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fake_study
import pytest
from fake_study import fake_config, make_job, make_trial, wait_for

from arena import records
from arena.capped_log import CappedLog
from arena.clones import clone_folder, is_ready
from arena.job import Ending, Job
from arena.ledger import trial_state
from arena.limits import Limits
from arena.locks import Lock, is_held, read_holder
from arena.processes import ProcessMark, sweep_orphans, tagged
from arena.records import LOCK, LOG, read_outcome
from arena.supervisor import supervise
from arena.trial import prepare_clone, run_trial


def run(studies: Path, *, limits: Limits | None = None, **script: Any) -> tuple[Ending, Path]:
    folder = make_trial(studies, fake_config(**script))
    changes = {} if limits is None else {"limits": limits}
    return supervise(make_job(folder, **changes)), folder


def contents(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in records.RECORDS}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The records of a trial nothing happened to."""
    folder = make_trial(tmp_path_factory.mktemp("undisturbed"), fake_config())
    run_trial(folder)
    return contents(folder)


def test_a_trial_runs_to_its_result_and_leaves_nothing(tmp_path: Path, undisturbed: dict[str, bytes]) -> None:
    ending, folder = run(tmp_path)
    assert (ending.kind, ending.exit, ending.attempts) == ("finished", 0, 1)
    assert not ending.is_failure
    assert contents(folder) == undisturbed
    assert tagged(folder) == []
    assert not is_held(folder / LOCK)


@pytest.mark.parametrize(
    ("behaviour", "kind", "exit_code", "words"),
    [
        ("crash", "failed", 1, "RuntimeError: boom"),
        ("memory", "out_of_memory", 1, "MemoryError"),
        ("rlimit", "out_of_memory", 1, "MemoryError"),
        ("stale", "unavailable", 75, "Stale file handle"),
        ("exit", "no_result", 0, "exit code 0"),
        ("exit_politely", "no_result", 0, "exit code 0"),
        ("exit_code", "crashed", 7, "exit code 7. Its last words: something went wrong"),
        ("signal", "killed", -signal.SIGKILL, "It was killed (SIGKILL), and not by us."),
        ("segfault", "crashed", -signal.SIGSEGV, "SIGSEGV"),
        ("return", "failed", 1, "after step 4 of 12"),
    ],
)
def test_every_way_to_die_is_a_failure_with_its_reason(
    tmp_path: Path, behaviour: str, kind: str, exit_code: int, words: str
) -> None:
    ending, folder = run(tmp_path, behaviour=behaviour, at=5)
    assert (ending.kind, ending.exit) == (kind, exit_code)
    assert ending.is_failure
    outcome = read_outcome(folder)
    assert outcome is not None
    assert (outcome.outcome, outcome.exit, outcome.step, outcome.steps) == ("failed", exit_code, 4, 12)
    assert words in ending.reason
    assert words in outcome.reason


def test_a_full_disk_fails_a_trial_that_then_goes_on_when_there_is_room(
    tmp_path: Path, undisturbed: dict[str, bytes]
) -> None:
    ending, folder = run(tmp_path, behaviour="disk_full", at=8, once=True)
    assert (ending.kind, ending.exit) == ("crashed", 1)
    assert "File too large" in ending.reason
    assert supervise(make_job(folder)).kind == "finished"
    assert contents(folder) == undisturbed


def test_an_outcome_that_cannot_be_written_leaves_a_trial_to_be_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(folder: Path, outcome: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("arena.supervisor.write_outcome", fail)
    ending, folder = run(tmp_path, behaviour="signal", at=5)
    assert ending.kind == "killed"
    assert trial_state(folder) == "interrupted"


def test_a_kill_by_the_kernel_for_lack_of_memory_is_told_from_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = iter([3, 4])
    monkeypatch.setattr("arena.supervisor.out_of_memory_kills", lambda: next(counts))
    ending, _ = run(tmp_path, behaviour="signal", at=5)
    assert (ending.kind, ending.exit) == ("out_of_memory", -signal.SIGKILL)
    assert "out of memory" in ending.reason


def test_the_traceback_is_in_the_log(tmp_path: Path) -> None:
    ending, folder = run(tmp_path, behaviour="crash")
    assert ending.log[-1] == "RuntimeError: boom"
    assert 'raise RuntimeError("boom")' in (folder / LOG).read_text()


def test_a_segfault_leaves_a_traceback_too(tmp_path: Path) -> None:
    _, folder = run(tmp_path, behaviour="segfault")
    assert "fake_backend.py" in (folder / LOG).read_text()


@pytest.mark.parametrize("behaviour", ["hang", "hang_hard"])
def test_what_records_nothing_for_too_long_is_ended(tmp_path: Path, behaviour: str) -> None:
    ending, folder = run(tmp_path, behaviour=behaviour, at=5, limits=Limits(hang=1.5, grace=0.5))
    assert ending.kind == "hung"
    outcome = read_outcome(folder)
    assert outcome is not None
    assert outcome.outcome == "failed"
    assert "nothing was recorded for 1.5 s" in outcome.reason
    assert tagged(folder) == []


def test_a_time_limit_ends_a_trial_that_goes_on_recording(tmp_path: Path) -> None:
    ending, folder = run(tmp_path, steps=1000, seconds=0.05, limits=Limits(hang=1.5, total=3, grace=2))
    assert ending.kind == "timed_out"
    outcome = read_outcome(folder)
    assert outcome is not None
    assert (outcome.outcome, outcome.step > 0) == ("failed", True)


def test_the_time_limit_is_that_of_all_attempts(tmp_path: Path) -> None:
    _, folder = run(tmp_path, steps=1000, seconds=0.05, limits=Limits(total=1.5, grace=2))
    ending = supervise(make_job(folder, limits=Limits(total=1.5, grace=2)))
    assert (ending.kind, ending.attempts) == ("timed_out", 2)
    assert "1.5 s, its time limit in all attempts" in ending.reason


def test_a_flood_on_stdout_is_kept_in_bounds(tmp_path: Path) -> None:
    ending, folder = run(tmp_path, behaviour="flood", limits=Limits(log_bytes=100_000))
    assert ending.kind == "finished"
    text = (folder / LOG).read_text()
    assert len(text) < 150_000
    assert "line 5 " in text
    assert "bytes left out" in text
    assert "line 199999 " in text


def test_a_daemon_in_a_session_of_its_own_is_swept(tmp_path: Path) -> None:
    ending, folder = run(tmp_path, behaviour="daemon")
    assert ending.kind == "finished"
    assert "killed what it left running" in (folder / LOG).read_text()
    assert tagged(folder) == []


def test_a_process_that_keeps_the_output_open_does_not_keep_the_supervisor(tmp_path: Path) -> None:
    ending, folder = run(tmp_path, behaviour="grandchild_holds_output")
    assert ending.kind == "finished"
    assert tagged(folder) == []


def test_a_trial_sees_no_gpu_one_thread_and_nothing_of_ray(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
    monkeypatch.setenv("RAY_ADDRESS", "auto")
    ending, folder = run(tmp_path, behaviour="environment", steps=1)
    assert json.loads(ending.log[-1]) == {
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",
        "ARENA_TRIAL": folder.name,
        "RAY_ADDRESS": None,
        "RAY_JOB_ID": None,
    }


def test_a_trial_sees_the_gpus_it_was_given_and_no_others(tmp_path: Path) -> None:
    folder = make_trial(tmp_path, fake_config(behaviour="environment", steps=1))
    ending = supervise(make_job(folder, cpus=4, gpus=2), ["1", "3"])
    visible = json.loads(ending.log[-1])
    assert (visible["CUDA_VISIBLE_DEVICES"], visible["OMP_NUM_THREADS"]) == ("1,3", "4")


def test_a_failed_trial_goes_on_from_its_checkpoint(tmp_path: Path, undisturbed: dict[str, bytes]) -> None:
    # The second attempt meets the same step and does not fail again.
    ending, folder = run(tmp_path, behaviour="signal", at=8, once=True)
    assert ending.kind == "killed"
    assert (folder / "checkpoints" / "step-000006.json").exists()
    ending = supervise(make_job(folder))
    assert (ending.kind, ending.attempts) == ("finished", 2)
    assert contents(folder) == undisturbed


def test_attempts_are_counted_even_when_nobody_could_write_an_outcome(tmp_path: Path) -> None:
    folder = make_trial(tmp_path, fake_config())
    lock = Lock(folder / LOCK)
    lock.write({"attempt": 6})
    lock.release()
    assert supervise(make_job(folder)).attempts == 7
    outcome = read_outcome(folder)
    assert outcome is not None
    assert outcome.attempts == 7


def test_a_trial_with_a_result_is_not_run_again(tmp_path: Path) -> None:
    _, folder = run(tmp_path)
    before = contents(folder), (folder / records.OUTCOME).read_bytes()
    assert supervise(make_job(folder)).kind == "finished"
    assert (contents(folder), (folder / records.OUTCOME).read_bytes()) == before


@pytest.mark.parametrize("damage", [b"", b'{"outcome": "stab', b"\x00" * 40])
def test_a_corrupt_outcome_is_made_again_from_the_records(
    tmp_path: Path, damage: bytes, undisturbed: dict[str, bytes]
) -> None:
    _, folder = run(tmp_path)
    before = read_outcome(folder)
    (folder / records.OUTCOME).write_bytes(damage)
    assert supervise(make_job(folder)).kind == "finished"
    after = read_outcome(folder)
    assert before is not None
    assert after is not None
    assert (after.outcome, after.reason, after.attempts) == (before.outcome, before.reason, 2)
    assert contents(folder) == undisturbed


def supervise_elsewhere(job: Job) -> multiprocessing.process.BaseProcess:
    process = multiprocessing.get_context("spawn").Process(target=supervise, args=(job,), daemon=True)
    process.start()
    return process


@pytest.mark.parametrize("behaviour", ["none", "daemon", "hang_hard"])
def test_without_its_supervisor_a_trial_ends_with_all_it_started(
    tmp_path: Path, behaviour: str, undisturbed: dict[str, bytes]
) -> None:
    script = {} if behaviour == "none" else {"behaviour": behaviour, "at": 5, "once": True}
    folder = make_trial(tmp_path, fake_config(seconds=0.2, **script))
    supervisor = supervise_elsewhere(make_job(folder))
    wait_for(lambda: (folder / "checkpoints" / "step-000003.json").exists())
    if behaviour != "none":
        wait_for((folder / "behaved").exists)
    pids = wait_for(lambda: tagged(folder))
    supervisor.kill()
    wait_for(lambda: not fake_study.alive(pids))
    assert tagged(folder) == []
    assert read_outcome(folder) is None
    assert supervise(make_job(folder)).kind == "finished"
    if behaviour == "none":
        assert contents(folder) == undisturbed


def test_without_its_driver_a_trial_ends_too(tmp_path: Path) -> None:
    """Ray's workers, and the supervisor in one, may outlive the driver."""
    driver = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(3600,), daemon=True)
    driver.start()
    assert driver.pid is not None
    folder = make_trial(tmp_path, fake_config(steps=1000, seconds=0.2))
    supervisor = supervise_elsewhere(make_job(folder, driver=str(ProcessMark.of(driver.pid))))
    pids = wait_for(lambda: tagged(folder))
    driver.kill()
    wait_for(lambda: not fake_study.alive(pids))
    supervisor.join()
    driver.join()


def test_killed_at_any_moment_a_trial_ends_up_with_the_same_records(
    tmp_path: Path, undisturbed: dict[str, bytes]
) -> None:
    folder = make_trial(tmp_path, fake_config(seconds=0.03))

    def kill_soon() -> None:
        for delay in (0.05, 0.4, 0.55, 0.7):
            pid = wait_for(lambda: read_holder(folder / LOCK).get("pid"))
            time.sleep(delay)
            if fake_study.is_running(pid):
                os.kill(pid, signal.SIGKILL)
            wait_for(lambda pid=pid: not is_held(folder / LOCK) or read_holder(folder / LOCK)["pid"] != pid)

    killer = threading.Thread(target=kill_soon, daemon=True)
    killer.start()
    endings = [supervise(make_job(folder)) for _ in range(6)]
    assert endings[-1].kind == "finished"
    assert contents(folder) == undisturbed


def test_a_stop_lets_a_trial_finish_its_step(tmp_path: Path, undisturbed: dict[str, bytes]) -> None:
    folder = make_trial(tmp_path, fake_config(seconds=0.2))
    metrics = folder / records.METRICS
    ending = supervise_and_stop(folder, lambda: metrics.exists() and metrics.stat().st_size, "")
    assert (ending.kind, ending.exit) == ("stopped", 0)
    assert_it_goes_on(folder, undisturbed)


def test_a_kill_does_not_wait_for_a_step(tmp_path: Path, undisturbed: dict[str, bytes]) -> None:
    folder = make_trial(tmp_path, fake_config(behaviour="hang_hard", at=5, once=True))
    ending = supervise_and_stop(folder, (folder / "behaved").exists, records.KILL)
    assert (ending.kind, ending.exit) == ("stopped", -signal.SIGKILL)
    assert_it_goes_on(folder, undisturbed)


def supervise_and_stop(folder: Path, when: Callable[[], object], content: str) -> Ending:
    def stop() -> None:
        wait_for(when)
        (folder / records.STOP).write_text(content)

    stopper = threading.Thread(target=stop, daemon=True)
    stopper.start()
    ending = supervise(make_job(folder))
    stopper.join()
    return ending


def assert_it_goes_on(folder: Path, undisturbed: dict[str, bytes]) -> None:
    outcome = read_outcome(folder)
    assert outcome is not None
    assert outcome.outcome == "interrupted"
    assert supervise(make_job(folder)).reason == "It was asked to stop before it started."
    (folder / records.STOP).unlink()
    assert supervise(make_job(folder)).kind == "finished"
    assert contents(folder) == undisturbed


def test_a_termination_signal_is_a_stop(tmp_path: Path) -> None:
    folder = make_trial(tmp_path, fake_config(seconds=0.1))

    def terminate() -> None:
        wait_for(lambda: (folder / records.METRICS).exists() and (folder / records.METRICS).stat().st_size)
        os.kill(read_holder(folder / LOCK)["pid"], signal.SIGTERM)

    thread = threading.Thread(target=terminate, daemon=True)
    thread.start()
    assert supervise(make_job(folder)).kind == "stopped"
    thread.join()


def test_two_supervisors_do_not_run_one_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arena.supervisor._LOCK_WAIT", 0.2)
    folder = make_trial(tmp_path, fake_config(seconds=0.2))
    first = supervise_elsewhere(make_job(folder))
    wait_for(lambda: tagged(folder))
    ending = supervise(make_job(folder))
    assert ending.kind == "busy"
    assert "is held by process" in ending.reason
    first.join()
    outcome = read_outcome(folder)
    assert outcome is not None
    assert outcome.is_result


def clone_job(studies: Path, **script: Any) -> tuple[Job, Path]:
    sheet = fake_study.fake_sheet(fake_config(**script))
    target = clone_folder(studies, sheet.clone)
    folder = prepare_clone(studies, sheet)
    job = Job("clone", sheet.clone, str(folder), target=str(target), limits=Limits(hang=20, grace=1))
    return job, target


def test_a_clone_appears_whole_and_is_made_once(tmp_path: Path) -> None:
    log = tmp_path / "made"
    job, target = clone_job(tmp_path, clone_seconds=0.1, clone_log=str(log))
    other = supervise_elsewhere(job)
    assert supervise(job).kind == "finished"
    other.join()
    assert is_ready(target)
    assert (target / "model.bin").read_bytes() == b"weights"
    assert len(log.read_text().splitlines()) == 1
    assert supervise(job).kind == "finished"
    assert len(log.read_text().splitlines()) == 1


def test_a_clone_that_fails_says_why_and_leaves_none(tmp_path: Path) -> None:
    job, target = clone_job(tmp_path, clone_behaviour="crash")
    ending = supervise(job)
    assert (ending.kind, ending.exit) == ("crashed", 1)
    assert "RuntimeError: boom" in ending.reason
    assert not target.exists()


def test_orphans_are_swept_and_those_with_a_driver_are_not(tmp_path: Path) -> None:
    driver = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(0,))
    driver.start()
    assert driver.pid is not None
    gone = ProcessMark(ProcessMark.of().host, driver.pid, 1)
    driver.join()
    folder = make_trial(tmp_path, fake_config(steps=1000, seconds=0.1))
    supervisor = supervise_elsewhere(make_job(folder))
    pids = wait_for(lambda: tagged(folder))
    assert sweep_orphans(tmp_path) == []
    assert fake_study.alive(pids) == pids
    assert gone.is_gone
    # A trial that is stopped cannot notice that its driver is gone.
    os.kill(supervisor.pid or 0, signal.SIGKILL)
    supervisor.join()
    wait_for(lambda: not fake_study.alive(pids))


def test_a_log_on_a_full_disk_ends_nothing(tmp_path: Path) -> None:
    log = CappedLog(Path("/dev/full"), 1000)
    log.append(b"one\n\ntwo\n")
    assert log.error is not None
    assert log.last_lines() == ("one", "two")
    log.close()
    missing = CappedLog(tmp_path / "none" / "log", 1000)
    missing.append(b"words")
    assert missing.last_lines() == ("words",)
