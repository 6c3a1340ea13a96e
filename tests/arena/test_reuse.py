"""Results of the same trials, taken over from another study."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_study import fake_config, make_study, run_without_ray

from arena.plan import Study
from arena.records import OUTCOME, RECORDS, TRIAL
from arena.reuse import elsewhere, take_over
from arena.trial_sheet import read_sheet

DONE, CUT, BROKEN = (fake_config(seed=0), fake_config(seed=1), fake_config(behaviour="crash", at=5))


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """A study with a result, a trial that was never run, and one that failed."""
    studies = tmp_path_factory.mktemp("studies")
    study = make_study(studies, [DONE, BROKEN], name="first")
    with pytest.MonkeyPatch.context() as patch:
        run_without_ray(patch, study)
    return study


def second(first: Study, *configs: Any) -> Study:
    return make_study(first.studies, configs, name="second")


def content(study: Study, trial: str) -> dict[str, bytes]:
    folder = study.folder / "trials" / trial
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_a_result_is_taken_over_whole_and_said_to_be(first: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    study = second(first, DONE, CUT)
    done, cut = (trial.id for trial in study.trials)
    study = replace(study, trials=tuple(replace(trial, label=f"our {trial.seed}") for trial in study.trials))
    assert elsewhere(study) == {"first": [done]}
    assert elsewhere(study, [cut]) == {}
    assert run_without_ray(monkeypatch, study, reuse=[first.folder]) == 0
    before, after = content(first, done), content(study, done)
    assert {name: after[name] for name in (*RECORDS, OUTCOME)} == {
        name: before[name] for name in (*RECORDS, OUTCOME)
    }
    assert not (study.folder / "trials" / done / "checkpoints").exists()
    was, sheet = (read_sheet(one.folder / "trials" / done) for one in (first, study))
    assert (sheet.study, sheet.label) == ("second", "our 0")
    assert dict(sheet.provenance) == {"taken_from": "first", **was.provenance}
    assert sheet.config == was.config
    # The other was trained here.
    assert "taken_from" not in read_sheet(study.folder / "trials" / cut).provenance
    events = [json.loads(line) for line in (study.folder / "events.jsonl").read_text().splitlines()]
    assert [(e["study"], e["trials"]) for e in events if e["event"] == "taken over"] == [("first", [done])]
    assert json.loads((study.folder / "plan.json").read_text())["trials"][0]["state"] == "done"


def test_what_has_no_result_is_not_taken(first: Study, tmp_path: Path) -> None:
    study = make_study(tmp_path, [BROKEN, CUT], name="second")
    (study.folder / "trials").mkdir(parents=True)
    assert take_over(study, study.trials, first.folder) == []
    assert list((study.folder / "trials").iterdir()) == []


def test_neither_is_one_without_a_readable_sheet_nor_one_that_was_begun_here(
    first: Study, tmp_path: Path
) -> None:
    study = make_study(tmp_path, [DONE], name="second")
    (study.folder / "trials").mkdir(parents=True)
    begun = [replace(trial, state="interrupted") for trial in study.trials]
    assert take_over(study, begun, first.folder) == []
    sheet = first.folder / "trials" / study.trials[0].id / TRIAL
    text = sheet.read_bytes()
    sheet.write_bytes(b"\x00")
    try:
        assert take_over(study, study.trials, first.folder) == []
    finally:
        sheet.write_bytes(text)


def test_a_copy_cut_short_is_no_trial_and_the_next_run_makes_it(
    first: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = make_study(tmp_path, [DONE], name="second")
    places = study.folder / "trials"
    places.mkdir(parents=True)

    def fail(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("arena.reuse.write_sheet", fail)
        with pytest.raises(OSError, match="No space"):
            take_over(study, study.trials, first.folder)
    assert not (places / study.trials[0].id).exists()
    assert take_over(study, study.trials, first.folder) == [study.trials[0].id]
    assert [path.name for path in places.iterdir()] == [study.trials[0].id]
