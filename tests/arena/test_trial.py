from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path

import fake_study
import pytest

from analysis.collapse import judge
from arena import records
from arena.clones import clone_folder, is_ready
from arena.locks import Lock, LockedError
from arena.records import LOCK, read_lines, read_outcome
from arena.trial import CHECKPOINTS, prepare_clone, run_foreground, run_trial
from arena.trial_sheet import read_sheet

RECORDS = records.RECORDS


def contents(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in RECORDS}


def test_a_trial_ends_with_the_outcome_of_its_records(tmp_path: Path) -> None:
    config = fake_study.fake_config(steps=12)
    folder = fake_study.make_trial(tmp_path, config)
    outcome = run_trial(folder, attempt=3)
    rows = read_lines(folder / records.METRICS).rows
    assert [row["step"] for row in rows if row["kind"] == "train"] == list(range(1, 13))
    verdict = judge(rows, config.collapse.model_dump(), finished=True)
    assert (outcome.outcome, outcome.learned, outcome.reason) == (
        verdict.outcome,
        verdict.learned,
        verdict.reason,
    )
    assert (outcome.step, outcome.steps, outcome.attempts, outcome.exit) == (12, 12, 3, 0)
    assert outcome.is_result
    assert read_outcome(folder) == outcome


def test_a_stop_file_interrupts_and_running_again_gives_the_same_records(tmp_path: Path) -> None:
    whole = fake_study.make_trial(tmp_path / "a", fake_study.fake_config())
    run_trial(whole)
    folder = fake_study.make_trial(tmp_path / "b", fake_study.fake_config())
    (folder / records.STOP).touch()
    outcome = run_trial(folder)
    assert (outcome.outcome, outcome.step, outcome.is_result) == ("interrupted", 0, False)
    (folder / records.STOP).unlink()
    assert run_trial(folder).is_result
    assert contents(folder) == contents(whole)


def test_non_finite_numbers_are_a_result(tmp_path: Path) -> None:
    folder = fake_study.make_trial(tmp_path, fake_study.fake_config(behaviour="nan", at=5))
    outcome = run_trial(folder)
    assert (outcome.outcome, outcome.onset, outcome.step) == ("diverged", 5, 5)
    assert "NaN" in (folder / records.METRICS).read_text()


def test_a_trainer_that_raises_has_failed_with_its_words(tmp_path: Path) -> None:
    folder = fake_study.make_trial(tmp_path, fake_study.fake_config(behaviour="crash", at=5))
    with pytest.raises(RuntimeError, match="boom"):
        run_trial(folder)
    outcome = read_outcome(folder)
    assert outcome is not None
    assert (outcome.outcome, outcome.reason, outcome.step, outcome.exit) == (
        "failed",
        "RuntimeError: boom",
        4,
        1,
    )


def test_a_trainer_that_gives_up_has_failed(tmp_path: Path) -> None:
    folder = fake_study.make_trial(tmp_path, fake_study.fake_config(behaviour="return", at=5))
    with pytest.raises(RuntimeError, match="after step 4 of 12"):
        run_trial(folder)


def test_without_its_clone_a_trial_says_which(tmp_path: Path) -> None:
    folder = fake_study.make_trial(tmp_path, fake_study.fake_config(), with_clone=False)
    with pytest.raises(FileNotFoundError, match=read_sheet(folder).clone):
        run_trial(folder)


@pytest.mark.parametrize("damage", ["shorter", "shifted"])
def test_records_that_no_longer_fit_the_checkpoint_are_made_again(tmp_path: Path, damage: str) -> None:
    whole = fake_study.make_trial(tmp_path / "a", fake_study.fake_config())
    run_trial(whole)
    folder = fake_study.make_trial(tmp_path / "b", fake_study.fake_config(steps=12))
    shutil.copytree(whole / CHECKPOINTS, folder / CHECKPOINTS)
    data = (whole / records.METRICS).read_bytes()
    (folder / records.METRICS).write_bytes(data[:50] if damage == "shorter" else b" " + data)
    assert run_trial(folder).is_result
    assert contents(folder) == contents(whole)


def test_the_foreground_makes_the_clone_and_counts_attempts(tmp_path: Path) -> None:
    folder = fake_study.make_trial(tmp_path, fake_study.fake_config(), with_clone=False)
    clone = clone_folder(tmp_path, read_sheet(folder).clone)
    (folder / records.STOP).touch()
    (folder / LOCK).write_text(json.dumps({"attempt": 1}))
    assert run_foreground(folder).attempts == 2
    assert is_ready(clone)
    modified = (folder / records.METRICS).stat().st_mtime_ns
    assert run_foreground(folder).attempts == 2
    assert (folder / records.METRICS).stat().st_mtime_ns == modified


def test_a_running_trial_is_not_run_twice(tmp_path: Path) -> None:
    folder = fake_study.make_trial(tmp_path, fake_study.fake_config())
    lock = Lock(folder / LOCK)
    lock.write({"pid": 4711, "host": "elsewhere"})
    with pytest.raises(LockedError, match="process 4711 on elsewhere"):
        run_foreground(folder)
    lock.release()
    assert run_foreground(folder).is_result


def test_handlers_of_signals_are_given_back(tmp_path: Path) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    run_trial(fake_study.make_trial(tmp_path, fake_study.fake_config()))
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_an_unfinished_clone_is_never_seen_as_one(tmp_path: Path) -> None:
    config = fake_study.fake_config(clone_behaviour="crash")
    folder = fake_study.make_trial(tmp_path, config, with_clone=False)
    sheet = read_sheet(folder)
    with pytest.raises(RuntimeError, match="boom"):
        run_foreground(folder)
    assert not clone_folder(tmp_path, sheet.clone).exists()
    assert (prepare_clone(tmp_path, sheet) / "making").is_dir()
