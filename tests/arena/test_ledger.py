from __future__ import annotations

import json
from pathlib import Path

import fake_study
import pytest

from arena import records
from arena.ledger import (
    NoSuchTrialError,
    find_study,
    find_trial,
    follow_log,
    last_log_lines,
    read_plan,
    standings,
    study_states,
    trial_state,
)
from arena.locks import Lock
from arena.records import LOCK, LOG, CorruptRecordError, Outcome, write_outcome
from arena.trial import run_trial


def folder_of(study: Path, name: str) -> Path:
    folder = study / "trials" / name
    folder.mkdir(parents=True)
    return folder


def test_the_state_of_a_trial_is_what_its_files_say(tmp_path: Path) -> None:
    expected = {}
    for outcome in ("stable", "unstable", "undecided", "collapsed", "diverged"):
        write_outcome(folder_of(tmp_path, outcome), Outcome(outcome))
        expected[outcome] = "done"
    for state in ("failed", "interrupted"):
        write_outcome(folder_of(tmp_path, state), Outcome(state))
        expected[state] = state
    folder_of(tmp_path, "prepared")
    (folder_of(tmp_path, "killed") / LOCK).touch()
    (folder_of(tmp_path, "killed-foreground") / records.METRICS).touch()
    (folder_of(tmp_path, "corrupt") / records.OUTCOME).write_text('{"outcome": "sta')
    (tmp_path / "trials" / "corrupt" / LOCK).touch()
    expected |= {"prepared": "pending", "killed": "interrupted"}
    expected |= {"killed-foreground": "interrupted", "corrupt": "interrupted"}
    assert study_states(tmp_path) == expected
    assert trial_state(tmp_path / "trials" / "never seen") == "pending"


@pytest.mark.parametrize("before", ["none", "failed", "interrupted"])
def test_a_trial_is_running_as_long_as_its_lock_is_held(tmp_path: Path, before: str) -> None:
    folder = folder_of(tmp_path, "a-s0")
    if before == "failed":
        write_outcome(folder, Outcome("failed"))
    elif before == "interrupted":
        write_outcome(folder, Outcome("interrupted"))
    lock = Lock(folder / LOCK)
    assert trial_state(folder) == "running"
    lock.release()
    assert trial_state(folder) == ("interrupted" if before == "none" else before)


def test_standings_follow_the_plan_and_name_what_it_lacks(tmp_path: Path) -> None:
    ids = [f"{cell}-s{seed}" for cell in ("bbb", "aaa") for seed in (1, 0)]
    trials = [{"id": name, "label": "GRPO", "env": "sokoban", "seed": int(name[-1])} for name in ids]
    records.write_json(tmp_path / "plan.json", {"trials": trials})
    write_outcome(folder_of(tmp_path, "bbb-s0"), Outcome("collapsed", step=7))
    write_outcome(folder_of(tmp_path, "old-s0"), Outcome("stable"))
    found = standings(tmp_path)
    assert [standing.id for standing in found] == [*ids, "old-s0"]
    assert [standing.state for standing in found] == ["pending", "done", "pending", "pending", "done"]
    assert [standing.planned for standing in found] == [True] * 4 + [False]
    assert (found[1].label, found[1].seed, found[1].step) == ("GRPO", 0, 7)


def test_a_running_trial_stands_where_its_records_end(tmp_path: Path) -> None:
    folder = fake_study.make_trial(tmp_path, fake_study.fake_config())
    run_trial(folder)
    (folder / records.OUTCOME).unlink()
    rows = records.read_lines(folder / records.METRICS).rows
    last = [row["eval/success"] for row in rows if "eval/success" in row][-1]
    (standing,) = standings(folder.parents[1])
    assert (standing.state, standing.step, standing.success) == ("interrupted", 12, last)


def test_a_plan_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    assert read_plan(tmp_path) == {}
    for content in ('{"trials"', "[]"):
        (tmp_path / "plan.json").write_text(content)
        with pytest.raises(CorruptRecordError, match=r"plan\.json"):
            read_plan(tmp_path)


def test_a_trial_is_found_by_a_unique_beginning(tmp_path: Path) -> None:
    one = folder_of(tmp_path / "one", "abc123-s0")
    folder_of(tmp_path / "one", "abc123-s1")
    ten = folder_of(tmp_path / "one", "abc123-s10")
    other = folder_of(tmp_path / "other", "abd999-s0")
    assert find_trial(tmp_path, "abc123-s0") == one
    assert find_trial(tmp_path, "abc123-s10") == ten
    assert find_trial(tmp_path, "abc123-s1").name == "abc123-s1"
    assert find_trial(tmp_path, "abd") == other
    assert find_trial(tmp_path, "other/ab") == other
    with pytest.raises(NoSuchTrialError, match="may mean 4 trials"):
        find_trial(tmp_path, "ab")
    with pytest.raises(NoSuchTrialError, match="no trial 'xyz'"):
        find_trial(tmp_path, "xyz")
    with pytest.raises(NoSuchTrialError, match="may mean 4 trials"):
        find_trial(tmp_path, "")


def test_a_study_that_is_not_there_is_answered_with_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(NoSuchTrialError, match="arena run GRID"):
        find_study(tmp_path, "none")
    folder_of(tmp_path / "one", "a-s0")
    with pytest.raises(NoSuchTrialError, match="there are: one"):
        find_study(tmp_path, "none")
    assert find_study(tmp_path, "one") == tmp_path / "one"


def test_a_log_is_followed_as_long_as_its_trial_runs(tmp_path: Path) -> None:
    assert last_log_lines(tmp_path) == []
    (tmp_path / LOG).write_text("one\ntwo\n")
    lock = Lock(tmp_path / LOCK)
    texts = follow_log(tmp_path)
    assert next(texts) == "one\ntwo\n"
    assert next(texts) == ""
    with (tmp_path / LOG).open("a") as file:
        file.write("three\n")
    assert next(texts) == "three\n"
    (tmp_path / LOG).write_text("cut\n")
    assert next(texts).endswith("cut\n")
    lock.release()
    assert "".join(texts) == ""
    assert last_log_lines(tmp_path, 1) == ["cut"]


def test_a_held_lock_tells_who_holds_it(tmp_path: Path) -> None:
    lock = Lock(tmp_path / LOCK)
    lock.write({"pid": 12, "host": "here", "since": "noon"})
    lock.write({"pid": 3})
    assert json.loads((tmp_path / LOCK).read_text()) == {"pid": 3}
    lock.release()
    assert Lock(tmp_path / LOCK).found == {"pid": 3}


def test_what_is_being_removed_is_seen_by_nobody(tmp_path: Path) -> None:
    from analysis.study import load_study
    from arena.ledger import study_folders, trial_folders

    for study in ("kept", ".removed-gone"):
        for trial in ("aaa-s0", ".removed-bbb-s0"):
            write_outcome(folder_of(tmp_path / study, trial), Outcome("stable"))
    assert study_folders(tmp_path) == [tmp_path / "kept"]
    assert trial_folders(tmp_path / "kept") == [tmp_path / "kept" / "trials" / "aaa-s0"]
    assert [standing.id for standing in standings(tmp_path / "kept")] == ["aaa-s0"]
    assert [trial.id for trial in load_study(tmp_path / "kept").trials] == ["aaa-s0"]
    with pytest.raises(NoSuchTrialError, match="there are: kept"):
        find_study(tmp_path, "gone")
    assert find_trial(tmp_path, "aaa") == tmp_path / "kept" / "trials" / "aaa-s0"
