"""Damaged files, edited grids, other code, other clocks: what is done stays, what is lost is made again."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest
from fake_study import HANDLING, fake_config, make_study, run_without_ray

from arena import identity, records
from arena.ledger import study_states
from arena.limits import Limits
from arena.plan import Study
from arena.records import LOCK, METRICS, OUTCOME, RECORDS, TRIAL, read_outcome
from arena.study_files import DRIVER_LOCK, EVENTS
from arena.trial_sheet import read_sheet

pytestmark = pytest.mark.slow

CUT_SHORT = {"behaviour": "signal", "at": 8, "once": True}
GARBAGE = b"\x00\xff{]" * 5
"""Shorter than a line."""


@pytest.fixture
def half(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Study:
    """A study of three trials: one is done, one died in its eighth step of twelve, one was never started."""
    configs = [fake_config(seed=0), fake_config(seed=1, **CUT_SHORT), fake_config(seed=2)]
    study = make_study(tmp_path / "half", configs, handling=replace(HANDLING, retries=0))
    done, died, _ = (trial.id for trial in study.trials)
    assert run_without_ray(monkeypatch, study, only={done, died}) == 1
    assert study_states(study.folder) == {done: "done", died: "failed"}
    return study


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The records of the same trials when nothing happens to them."""
    study = make_study(tmp_path_factory.mktemp("whole"), [fake_config(seed=seed) for seed in range(3)])
    with pytest.MonkeyPatch.context() as monkeypatch:
        assert run_without_ray(monkeypatch, study) == 0
    return recorded(study)


def recorded(study: Study) -> dict[str, bytes]:
    """The content of all record files, by seed and name."""
    return {
        f"{trial.seed} {name}": (study.trial_folder(trial) / name).read_bytes()
        for trial in study.trials
        for name in RECORDS
    }


def identities(study: Study) -> dict[str, tuple[int, int]]:
    """Inode and time of every result: a trial that is run again gets another file."""
    found = {}
    for trial in study.trials:
        path = study.trial_folder(trial) / OUTCOME
        outcome = read_outcome(path.parent)
        if outcome is not None and outcome.is_result:
            found[trial.id] = (path.stat().st_ino, path.stat().st_mtime_ns)
    return found


@pytest.mark.parametrize("damage", ["cut", "garbage", "empty", "gone"])
@pytest.mark.parametrize("name", [METRICS, "histograms.jsonl", "checkpoint", TRIAL, LOCK])
def test_an_unfinished_trial_with_a_damaged_file_is_completed_as_if_nothing_had_happened(
    half: Study, undisturbed: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, name: str, damage: str
) -> None:
    folder = half.trial_folder(half.trials[1])
    path = max(folder.glob("checkpoints/step-*")) if name == "checkpoint" else folder / name
    spoil(path, damage)
    before = identities(half)
    assert run_without_ray(monkeypatch, half, retry_failed=True) == 0
    found, expected = recorded(half), dict(undisturbed)
    if name in RECORDS and damage == "garbage":
        # A line among those of a checkpoint is not worth training again: it is skipped by all readers.
        for content in (found, expected):
            content[f"1 {name}"] = content[f"1 {name}"].partition(b"\n")[2]
    assert found == expected
    assert before.items() <= identities(half).items()


@pytest.mark.parametrize("damage", ["cut", "garbage", "empty", "gone"])
@pytest.mark.parametrize("name", ["plan.json", EVENTS, DRIVER_LOCK, "grid.yaml"])
def test_a_damaged_file_of_the_study_costs_no_trial(
    half: Study, undisturbed: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, name: str, damage: str
) -> None:
    spoil(half.folder / name, damage)
    before = identities(half)
    assert run_without_ray(monkeypatch, half, retry_failed=True) == 0
    assert recorded(half) == undisturbed
    assert before.items() <= identities(half).items()


@pytest.mark.parametrize("damage", ["cut", "garbage", "empty", "gone"])
def test_a_lost_outcome_is_judged_again_from_the_records(
    half: Study, undisturbed: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    folder = half.trial_folder(half.trials[0])
    before = read_outcome(folder)
    spoil(folder / OUTCOME, damage)
    assert run_without_ray(monkeypatch, half, retry_failed=True) == 0
    after = read_outcome(folder)
    assert before is not None
    assert after is not None
    assert replace(after, attempts=1) == before
    assert recorded(half) == undisturbed


def spoil(path: Path, damage: str) -> None:
    content = path.read_bytes()
    match damage:
        case "cut":
            path.write_bytes(content[: len(content) * 2 // 3])
        case "garbage":
            path.write_bytes(GARBAGE + content[len(GARBAGE) :])
        case "empty":
            path.write_bytes(b"")
        case "gone":
            path.unlink()


def test_a_clock_that_goes_back_ends_nothing(
    half: Study, undisturbed: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All files are from the future, as they are when the clock was put back."""
    later = time.time() + 100_000
    for path in half.folder.rglob("*"):
        os.utime(path, (later, later))
    study = replace(half, handling=replace(HANDLING, limits=Limits(hang=10, grace=2)))
    before = identities(study)
    assert run_without_ray(monkeypatch, study, retry_failed=True) == 0
    assert recorded(study) == undisturbed
    assert before.items() <= identities(study).items()


def test_a_grid_edited_between_two_runs_runs_only_what_is_new(
    half: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run_without_ray(monkeypatch, half, retry_failed=True) == 0
    before = identities(half)
    edited = make_study(half.studies, [fake_config(seed=seed) for seed in (0, 2, 3)])
    assert run_without_ray(monkeypatch, edited) == 0
    kept = {name: found for name, found in before.items() if name in identities(edited)}
    assert len(kept) == 2
    assert kept.items() <= identities(edited).items()
    assert before == identities(half), "what the new grid does not have stays where it is"
    assert len(study_states(half.folder)) == 4


def test_other_code_runs_nothing_again_and_is_noted_where_it_goes_on(
    half: Study, undisturbed: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    origin = {"versions": {}, "commit": "0" * 40, "dirty": False, "machine": {}, "created": "now"}
    monkeypatch.setattr("arena.controller.provenance", lambda: origin)
    before = identities(half)
    assert run_without_ray(monkeypatch, half, retry_failed=True) == 0
    assert before.items() <= identities(half).items()
    assert recorded(half) == undisturbed
    done, died, fresh = (read_sheet(half.trial_folder(trial)).provenance for trial in half.trials)
    assert "resumed" not in done
    assert [later["commit"] for later in died["resumed"]] == ["0" * 40]
    assert fresh["commit"] == "0" * 40


def test_code_that_means_something_else_by_a_configuration_makes_other_trials(
    half: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That is what the version of identities is for: old results are kept, and not taken for new ones."""
    monkeypatch.setattr(identity, "IDENTITY_VERSION", identity.IDENTITY_VERSION + 1)
    before = identities(half)
    again = make_study(half.studies, [fake_config(seed=0)])
    assert again.trials[0].id != half.trials[0].id
    assert run_without_ray(monkeypatch, again) == 0
    assert before == identities(half)
    rows = records.read_lines(again.trial_folder(again.trials[0]) / METRICS).rows
    assert rows == records.read_lines(half.trial_folder(half.trials[0]) / METRICS).rows
