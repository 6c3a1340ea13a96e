"""A study that grows by its results: run to its end without Ray, in any order, killed and run again."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from fake_run import ORIGIN, names, run, start
from fake_study import fake_config, make_study

from analysis.study import load_study
from arena.plan import Budget, Study
from arena.records import Outcome, write_outcome
from arena.replication import Replication, interval_width
from arena.searches import at_seed, final_success
from arena.study_files import prepare_trial, write_plan

RULE = Replication(2, 5, 0.25)


def make(studies: Path, cells: int = 3, rule: Replication | None = RULE, budget: int | None = None) -> Study:
    configs = [fake_config(steps=2 + cell, seed=seed) for seed in range(2) for cell in range(cells)]
    study = make_study(studies, configs)
    trials = tuple(replace(trial, data="fake") for trial in study.trials)
    return replace(study, trials=trials, replication=rule, budget=Budget(trials=budget))


def again(study: Study) -> Study:
    """The study as it is planned after all this."""
    from arena.planning import grown

    return grown(study)


def test_seeds_are_added_until_intervals_are_narrow(tmp_path: Path) -> None:
    study = run(make(tmp_path))
    cells: dict[str, list[float]] = {}
    for trial in study.trials:
        value = final_success(study.trial_folder(trial), trial.config)
        assert value is not None
        cells.setdefault(trial.cell, []).append(value)
    assert len({len(values) for values in cells.values()}) > 1
    for values in cells.values():
        assert len(values) == 5 or interval_width(values) <= RULE.ci_width
        assert all(interval_width(values[:count]) > RULE.ci_width for count in range(2, len(values)))


@pytest.mark.parametrize("budget", [None, 9])
def test_the_same_trials_run_however_many_at_once_and_in_whatever_order(
    tmp_path: Path, budget: int | None
) -> None:
    found = [
        run(make(tmp_path / str(seed), budget=budget), side_by_side=seed + 1, seed=seed) for seed in range(4)
    ]
    assert len({frozenset(names(study)) for study in found}) == 1
    assert budget is None or len(found[0].trials) == budget


@pytest.mark.parametrize("after", [1, 4, 8])
def test_a_run_that_was_killed_goes_on_to_the_same_trials(tmp_path: Path, after: int) -> None:
    expected = names(run(make(tmp_path / "whole")))
    run(make(tmp_path / "killed"), side_by_side=2, seed=after, most=after)
    resumed = again(make(tmp_path / "killed"))
    assert {trial.state for trial in resumed.trials} <= {"done", "pending"}
    assert names(run(resumed)) == expected
    assert names(again(make(tmp_path / "killed"))) == expected
    assert set(os.listdir(tmp_path / "killed" / "faults" / "trials")) == expected


def test_a_failed_seed_holds_its_cell_back_and_no_other(tmp_path: Path) -> None:
    study = make(tmp_path, cells=2)
    failed = study.trials[0]
    prepare_trial(study, failed, ORIGIN)
    write_outcome(study.trial_folder(failed), Outcome("failed", reason="broken", steps=2))
    begun = replace(study, trials=(replace(failed, state="failed"), *study.trials[1:]))
    jobs = start(replace(begun, trials=begun.trials))
    assert jobs.study.trials == begun.trials
    done = run(begun)
    counts = {
        cell: sum(trial.cell == cell for trial in done.trials) for cell in {t.cell for t in done.trials}
    }
    assert counts[failed.cell] == 2


def test_seeds_that_have_a_result_stay_in_the_plan(tmp_path: Path) -> None:
    study = run(make(tmp_path))
    narrow_enough = again(make(tmp_path, rule=Replication(2, 5, 0.99)))
    assert names(narrow_enough) == names(study)
    assert names(again(make(tmp_path, rule=Replication(2, 3, 0.25)))) < names(study)


def test_every_seed_may_have_a_clone_of_its_own(tmp_path: Path) -> None:
    config = fake_config(steps=2)
    own = config.model_copy(update={"cloning": config.cloning.model_copy(update={"clone_seed": "seed"})})
    (trial,) = make_study(tmp_path, [own]).trials
    other = at_seed(replace(trial, data="fake"), 1)
    assert (other.cell, other.config.clone_seed) == (trial.cell, 1)
    assert other.clone != trial.clone == make_study(tmp_path, [config]).trials[0].clone


def test_the_plan_on_file_has_what_was_added(tmp_path: Path) -> None:
    study = run(make(tmp_path))
    write_plan(study, {trial.id: "done" for trial in study.trials})
    assert {trial.id for trial in load_study(study.folder).trials} == names(study)
