"""Reading studies, whole and damaged."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from analysis.collapse import CollapseRule
from analysis.provenance import what_ran
from analysis.study import load_study, metric_frame, read_histograms, replay


def test_a_study_reads_back_what_was_planned_and_recorded(drawn_study: Path) -> None:
    study = load_study(drawn_study)
    assert study.question == "Which clipping keeps training from collapsing?"
    assert len(study.trials) == 12
    assert not study.others
    assert not study.problems
    trial = next(trial for trial in study.trials if trial.label == "CISPO")
    assert trial.options["is_clipping"] == "cispo"
    assert (trial.env, trial.seed, trial.methods) == ("sokoban", 0, ("CISPO",))
    assert trial.has_result
    assert trial.status == "collapsed"
    assert list(trial.train.index) == list(range(1, 31))
    assert list(trial.evaluations.index) == list(range(0, 31, 2))
    recorded = json.loads((trial.folder / "outcome.json").read_text())
    assert trial.verdict.reason == recorded["reason"]
    assert trial.verdict.onset == recorded["onset"]


def test_trials_that_the_last_plan_does_not_name_are_others(drawn_study: Path) -> None:
    plan = json.loads((drawn_study / "plan.json").read_text())
    dropped = plan["trials"].pop()
    (drawn_study / "plan.json").write_text(json.dumps(plan))
    study = load_study(drawn_study)
    assert len(study.trials) == 11
    assert [trial.id for trial in study.others] == [dropped["id"]]
    assert study.others[0].label == "SAMPO"


def test_without_a_plan_every_trial_counts_and_the_study_says_so(drawn_study: Path) -> None:
    (drawn_study / "plan.json").unlink()
    study = load_study(drawn_study)
    assert len(study.trials) == 12
    assert study.name == drawn_study.name
    assert any("plan.json" in problem for problem in study.problems)


def test_lines_cut_short_by_a_crash_are_skipped(drawn_study: Path) -> None:
    trial = load_study(drawn_study).trials[0]
    path = trial.folder / "metrics.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"step": 31, "kind": "tra')
    (trial.folder / "histograms.jsonl").write_bytes(b'\xff\xfe\n{"step": 1, "name"')
    again = load_study(drawn_study).trials[0]
    assert again.train.equals(trial.train)
    assert again.histograms("log_ratio_token/negative") is None


def test_the_last_row_of_a_step_counts() -> None:
    frame = metric_frame(
        [{"step": 1, "kind": "train", "a": "NaN"}, {"step": 2, "kind": "train", "b": 2}], "train"
    )
    assert math.isnan(frame.loc[1, "a"])
    assert frame.loc[2, "b"] == 2.0
    assert math.isnan(frame.loc[1, "b"])


def test_a_step_recorded_twice_counts_once(new_study: Callable[..., Any], methods: tuple[Any, ...]) -> None:
    builder = new_study()
    rows = [
        {"step": 1, "kind": "train", "train/loss": 1.0},
        {"step": 1, "kind": "train", "train/loss": 2.0},
    ]
    builder.trial(methods[0], 0, rows=rows)
    trial = load_study(builder.plan()).trials[0]
    assert trial.train["train/loss"].tolist() == [2.0]


def test_infinite_numbers_come_back_from_words() -> None:
    rows = [
        {"step": k, "kind": "train", "a": word} for k, word in enumerate(["Infinity", "-Infinity", "x", 1])
    ]
    assert metric_frame(rows, "train")["a"].tolist()[:2] == [math.inf, -math.inf]
    assert math.isnan(metric_frame(rows, "train").loc[2, "a"])


def test_a_trial_says_how_far_it_came(new_study: Callable[..., Any], methods: tuple[Any, ...]) -> None:
    builder = new_study()
    builder.trial(methods[0], 0)
    builder.trial(methods[0], 1, finish=False, until=7)
    builder.trial(methods[0], 2, outcome={"outcome": "failed", "reason": "out of memory"})
    builder.trial(methods[0], 3, outcome={"outcome": "interrupted"})
    builder.entry(methods[0], 4)
    builder.entry(methods[0], 5, state="unavailable")
    trials = load_study(builder.plan()).trials
    statuses = [trial.status for trial in trials]
    assert statuses == ["stable", "unfinished", "failed", "interrupted", "missing", "unavailable"]
    assert [trial.has_result for trial in trials] == [True] + [False] * 5
    assert trials[1].verdict.outcome == "undecided"
    assert trials[3].verdict.outcome == "interrupted"
    assert trials[4].evaluations.empty


@pytest.mark.parametrize("content", ["", "[1]", "{nonsense", '{"outcome": "splendid"}'])
def test_unreadable_outcomes_are_named_not_guessed(drawn_study: Path, content: str) -> None:
    trial = load_study(drawn_study).trials[0]
    (trial.folder / "outcome.json").write_text(content)
    again = load_study(drawn_study).trials[0]
    assert again.status == "unfinished"
    assert any("outcome.json" in problem for problem in again.problems)


@pytest.mark.parametrize("content", ["", "- 1", "a: [", "config: 3", "config: {collapse: {windows: 2}}"])
def test_unreadable_trial_files_leave_the_records_readable(drawn_study: Path, content: str) -> None:
    trial = load_study(drawn_study).trials[0]
    (trial.folder / "trial.yaml").write_text(content)
    again = load_study(drawn_study).trials[0]
    assert again.label == "GRPO"
    assert again.rule == CollapseRule()
    assert again.verdict == trial.verdict


def test_replay_judges_under_other_thresholds(drawn_study: Path) -> None:
    study = load_study(drawn_study)
    same = replay(study)
    assert [replayed.verdict for replayed in same] == [trial.verdict for trial in study.trials]
    lax = replay(study, best_share=1.0, start_floor=1.0)
    assert not any(replayed.verdict.outcome == "collapsed" for replayed in lax)
    assert not any(replayed.cut_short for replayed in lax), "nothing was stopped, so nothing is cut short"


def test_replay_says_where_a_stopped_trial_cannot_be_judged_again(
    new_study: Callable[..., Any], methods: tuple[Any, ...]
) -> None:
    builder = new_study()
    builder.trial(methods[1], 0, rule=CollapseRule(stop=True))
    (replayed,) = replay(load_study(builder.plan()), start_floor=1.0, best_share=1.0)
    assert replayed.trial.verdict.carried
    assert replayed.cut_short


def test_histograms_come_back_step_by_step(tmp_path: Path) -> None:
    path = tmp_path / "histograms.jsonl"
    rows = [
        {"step": 2, "name": "a/all", "edges": [0, 1, 2], "counts": [3, 4], "exact": 5},
        {"step": 1, "name": "a/all", "edges": [0, 1, 2], "counts": [1, 2]},
        {"step": 3, "name": "a/all", "edges": [0, 1, 9], "counts": [7, 7]},
        {"step": 3, "name": "b/all", "edges": [0, 1, 2], "counts": [7, 7]},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = read_histograms(path, "a/all")
    assert found is not None
    np.testing.assert_array_equal(found.steps, [1, 2])
    np.testing.assert_array_equal(found.counts, [[1, 2], [3, 4]])
    np.testing.assert_array_equal(found.exact, [0, 5])


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no study"):
        load_study(tmp_path / "nothing")


def test_what_was_started_again_and_what_ran_out_of_memory_is_said(
    new_study: Callable[..., Any], methods: Sequence[Any]
) -> None:
    builder = new_study()
    builder.trial(methods[0], 0, until=2, outcome={"attempts": 3, "retries": 2, "micro_rows": 16})
    builder.trial(methods[0], 1, until=2, outcome={"attempts": 2, "retries": 1})
    builder.trial(methods[0], 2, until=2)
    text = "\n".join(what_ran(load_study(builder.plan())))
    assert "2 trials, 3 times in all, after failures of the machine or for lack of memory" in text
    assert f"fewer rows in memory at once: `{builder.entries[0]['id']}` (16)." in text


def test_which_trainer_ran_and_in_which_study_is_said_where_a_trial_says_it(
    new_study: Callable[..., Any], methods: Sequence[Any]
) -> None:
    builder = new_study()
    for seed in range(3):
        sheet = builder.trial(methods[0], seed, until=2) / "trial.yaml"
        if seed:
            document = yaml.safe_load(sheet.read_text())
            document["provenance"] |= {"trainer": "verl's V1 trainer", "taken_from": "masking"}
            sheet.write_text(yaml.safe_dump(document))
    text = "\n".join(what_ran(load_study(builder.plan())))
    assert re.search(r"trainer \| verl's V1 trainer \(2 trials\)", text)
    assert "| taken over | from masking (2 trials) |" in text
