"""Tuning without Ray: fake trainings whose success depends on the learning rate, killed and resumed."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
import pytest
from fake_run import names, run, start
from fake_study import fake_config, make_study

from analysis.report import write_report
from analysis.results import effect_table
from analysis.study import load_study
from arena.identity import FIRST_TUNING_SEED
from arena.mistakes import MistakesError
from arena.plan import Budget, PlannedTrial, Search, State, Study, TunedKey
from arena.planning import grown
from arena.records import Outcome, write_outcome
from arena.removal import remove_trial
from arena.replication import Replication
from arena.searches import (
    TUNING,
    candidate_trials,
    chosen_trials,
    judged,
    read_progress,
    search_id,
    with_values,
)
from arena.selection import select
from arena.study_files import prepare_trial, write_plan

RATE = TunedKey("trainer.learning_rate", low=1e-5, high=1e-1, log=True)
BEST = 1e-3


def make(
    studies: Path,
    *,
    methods: int = 2,
    script: Mapping[str, Any] | None = None,
    steps: int = 4,
    **changes: Any,
) -> Study:
    """A study of so many methods, told apart by their steps, each to be tuned, then run with two seeds."""
    told = {"best_rate": BEST, **(script or {})}
    configs = [fake_config(steps=steps + method, checkpoint_every=20, **told) for method in range(methods)]
    base = make_study(studies, configs)
    plain = Search("", "", (), (RATE,), 6, (FIRST_TUNING_SEED,), 2, "tpe", False, None)
    searches = []
    for number, trial in enumerate(base.trials):
        cell = replace(trial, data="fake", label=f"method {number}")
        search = replace(plain, cells=(cell,), label=cell.label, **changes)
        searches.append(replace(search, id=search_id(search)))
    return replace(base, trials=(), searches=tuple(searches), seeds=(0, 1))


def scores(study: Study) -> list[list[float | None]]:
    return [[one.score for one in progress.candidates] for progress in read_progress(study.folder).values()]


def test_the_values_of_the_best_candidate_are_run_with_the_seeds_of_the_grid(tmp_path: Path) -> None:
    study = run(make(tmp_path))
    progress = read_progress(study.folder)
    assert all(found.finished for found in progress.values())
    for search in study.searches:
        found = progress[search.id]
        best = max(found.candidates, key=lambda one: one.score or 0)
        assert found.chosen == best
        rates = {one.values["trainer.learning_rate"] for one in found.candidates}
        nearest = min(abs(math.log10(rate / BEST)) for rate in rates)
        assert nearest == pytest.approx(0.9 - (best.success or 0), abs=1e-6)
        compared = [t for t in study.trials if not t.search and t.label == search.label]
        assert [trial.seed for trial in compared] == [0, 1]
        assert {t.config.trainer.learning_rate for t in compared} == {best.values["trainer.learning_rate"]}


def test_every_search_has_the_same_budget_and_no_seed_of_a_claim(tmp_path: Path) -> None:
    study = run(make(tmp_path))
    assert [len(found.candidates) for found in read_progress(study.folder).values()] == [6, 6]
    for trial in study.trials:
        assert bool(trial.search) == (trial.seed >= FIRST_TUNING_SEED)
    with pytest.raises(AssertionError, match="used for tuning"):
        chosen_trials(study.searches[0], {}, [0, FIRST_TUNING_SEED])


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    "sampler", ["tpe", *(pytest.param(name, marks=SLOW) for name in ("random", "qmc", "gp"))]
)
def test_the_order_in_which_candidates_end_changes_nothing(tmp_path: Path, sampler: str) -> None:
    found = [
        run(make(tmp_path / str(seed), sampler=sampler, parallel=3), side_by_side=1 + 2 * seed, seed=seed)
        for seed in range(3)
    ]
    assert len({frozenset(names(study)) for study in found}) == 1
    assert len({json.dumps(scores(study)) for study in found}) == 1


@pytest.mark.parametrize("after", [5, *(pytest.param(count, marks=SLOW) for count in (1, 3, 11))])
def test_a_run_that_was_killed_goes_on_with_the_same_candidates(tmp_path: Path, after: int) -> None:
    whole = run(make(tmp_path / "whole"))
    run(make(tmp_path / "killed"), side_by_side=2, seed=after, most=after)
    resumed = run(grown(make(tmp_path / "killed")), side_by_side=2)
    assert names(resumed) == names(whole)
    assert scores(resumed) == scores(whole)


def test_a_driver_killed_between_asking_and_proposing_loses_no_candidate(tmp_path: Path) -> None:
    whole = run(make(tmp_path / "whole", methods=1))
    cut = make(tmp_path / "cut", methods=1)
    cut.folder.mkdir(parents=True)
    (search,) = cut.searches
    bare = optuna.create_study(
        study_name=f"{cut.name}/{search.id}",
        storage=f"sqlite:///{cut.folder / 'tuning.db'}",
        direction="maximize",
    )
    bare.ask()
    resumed = run(cut)
    assert names(resumed) == names(whole)
    assert [len(found.candidates) for found in read_progress(cut.folder).values()] == [6]


def test_the_plan_knows_of_tuning_what_is_on_file(tmp_path: Path) -> None:
    study = run(make(tmp_path))
    again = grown(make(tmp_path))
    assert names(again) == names(study)
    assert {trial.state for trial in again.trials} == {"done"}
    (study.folder / TUNING).unlink()
    assert grown(make(tmp_path)).trials == ()
    jobs = start(make(tmp_path))
    assert (jobs.take(), names(jobs.study)) == (None, names(study))


def test_more_candidates_go_on_where_fewer_ended(tmp_path: Path) -> None:
    first = run(make(tmp_path, methods=1))
    more = run(make(tmp_path, methods=1, candidates=8))
    assert {trial.id for trial in first.trials if trial.search} < names(more)
    assert len(scores(more)[0]) == 8


def test_a_search_may_end_at_the_first_candidate_that_is_stable_and_learned(tmp_path: Path) -> None:
    study = run(make(tmp_path, methods=1, until_stable=True, candidates=30, sampler="random", steps=12))
    (found,) = read_progress(study.folder).values()
    stable = [one.number for one in found.candidates if one.stable]
    assert found.finished
    assert stable
    # Those tried beside it have ended too.
    assert len(found.candidates) - 2 <= stable[0] < 29


def test_seeds_are_added_to_tuned_cells_and_the_budget_covers_both(tmp_path: Path) -> None:
    made = make(tmp_path, methods=2, script={"best_rate": None})
    adaptive = replace(made, replication=Replication(2, 5, 0.05), budget=Budget(trials=12 + 7))
    study = run(adaptive, side_by_side=3)
    compared = [trial for trial in study.trials if not trial.search]
    assert len(compared) == 7
    assert names(run(grown(replace(adaptive, folder=study.folder)))) == names(study)


def ended(trials: list[PlannedTrial], study: Study, outcome: Outcome) -> None:
    for trial in trials:
        prepare_trial(study, trial, {})
        (study.trial_folder(trial) / "metrics.jsonl").write_text(
            "".join(
                json.dumps({"step": step, "kind": "eval", "eval/success": 0.5, "eval/episodes": 100}) + "\n"
                for step in range(6)
            )
        )
        write_outcome(study.trial_folder(trial), outcome)


@pytest.mark.parametrize(("outcome", "score"), [("stable", 0.5), ("unstable", 0.4), ("collapsed", 0.0)])
def test_instability_is_taken_off_the_success(tmp_path: Path, outcome: Any, score: float) -> None:
    study = make(tmp_path, methods=1)
    trials = candidate_trials(study.searches[0], {RATE.name: 1e-3})
    ended(trials, study, Outcome(outcome, learned=True))
    from arena.plan import Candidate

    found = judged(Candidate(0, {RATE.name: 1e-3}, ()), study.folder, trials)
    assert (found.score, found.success, found.stable) == (score, 0.5, outcome == "stable")


def test_a_failed_candidate_has_no_score_and_the_search_goes_on(tmp_path: Path) -> None:
    study = make(tmp_path, methods=1, candidates=3, parallel=1)
    jobs = start(study)
    (first,) = jobs.study.trials
    ended([first], study, Outcome("failed", reason="broken"))
    resumed = run(grown(make(tmp_path, methods=1, candidates=3, parallel=1)))
    (found,) = read_progress(study.folder).values()
    assert [one.state for one in found.candidates] == ["failed", "done", "done"]
    assert found.chosen is not None
    assert found.chosen.number > 0
    states: dict[str, State] = {trial.id: trial.state for trial in resumed.trials}
    assert states[first.id] == "failed"


def test_proposed_values_are_in_range_and_make_the_cell_that_a_grid_would(tmp_path: Path) -> None:
    study = make(tmp_path, methods=1)
    (cell,) = study.searches[0].cells
    tuned = with_values(cell, {"trainer.learning_rate": 3e-4, "trainer.epochs": 2})
    (planned,) = make_study(tmp_path, [tuned.config]).trials
    assert (planned.id, planned.clone) == (tuned.id, tuned.clone)
    for row in read_progress(run(study).folder).values():
        for one in row.candidates:
            rate = one.values["trainer.learning_rate"]
            assert RATE.low <= rate <= RATE.high
            assert rate == float(f"{rate:.4g}")


def test_the_report_takes_tuning_apart(tmp_path: Path) -> None:
    study = run(make(tmp_path))
    write_plan(study, {trial.id: "done" for trial in study.trials})
    loaded = load_study(study.folder)
    assert {trial.id for trial in loaded.trials} == {trial.id for trial in study.trials if not trial.search}
    assert loaded.others == ()


def test_what_was_tuned_keeps_methods_comparable(tmp_path: Path) -> None:
    """Each method has a rate of its own, which is part of it and no difference beside it."""
    study = run(make(tmp_path))
    write_plan(study, {trial.id: "done" for trial in study.trials})
    rates = {trial.config.trainer.learning_rate for trial in study.trials if not trial.search}
    assert len(rates) == 2
    assert "trainer.learning_rate" not in effect_table(load_study(study.folder)).columns


def test_removing_the_trial_of_a_candidate_runs_it_again_and_chooses_alike(tmp_path: Path) -> None:
    study = run(make(tmp_path, methods=1))
    (found,) = read_progress(study.folder).values()
    assert found.chosen is not None
    remove_trial(study.folder / "trials" / found.chosen.trials[0])
    again = grown(make(tmp_path, methods=1))
    assert [trial.id for trial in again.trials if trial.state == "pending"] == list(found.chosen.trials)
    assert names(run(again)) == names(study)
    assert read_progress(study.folder)[found.search].chosen == found.chosen


def test_a_storage_that_cannot_be_used_is_named_and_starts_nothing(tmp_path: Path) -> None:
    jobs = start(make(tmp_path, storage=f"sqlite:////{tmp_path}/nowhere/at/all.db"))
    assert jobs.take() is None
    assert jobs.is_finished()
    assert jobs.problem is not None
    assert "nowhere/at/all.db" in jobs.problem


def test_nothing_can_be_chosen_from_what_tuning_has_still_to_decide(tmp_path: Path) -> None:
    with pytest.raises(MistakesError, match="run the grid without --only and --limit first"):
        select(make(tmp_path), [], 5)


def test_a_report_of_a_study_that_is_still_tuned_names_what_there_is(tmp_path: Path) -> None:
    study = run(make(tmp_path), most=4)
    write_plan(study, {})
    text = write_report(study.folder).read_text()
    assert "## Tuning" in text
    assert "not finished" in text


def test_a_plan_says_how_many_trials_are_still_to_be_decided(tmp_path: Path) -> None:
    before, after = make(tmp_path).document(), grown(run(make(tmp_path))).document()
    for document, finished in ((before, False), (after, True)):
        for search in document["tuning"]["searches"]:
            assert (search["trials"], search["trials_after"], search["finished"]) == (6, 2, finished)
    assert before["trials"] == []
    assert sum("tuning" in trial for trial in after["trials"]) == 12
