"""Estimates: from the configuration, or from trials that were measured."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from arena.clones import clone_folder
from arena.estimate import Cost, trial_seconds
from arena.plan import Study
from arena.planning import plan_study

Plan = Callable[..., Study]
CONF = Path(__file__).parents[2] / "arena" / "conf"
SETTINGS = {
    "trainer": {"steps": 5, "groups": 3, "group_size": 4, "epochs": 2},
    "evaluation": {"every": 2, "episodes": 10},
}


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    path = tmp_path / "g.yaml"

    def plan_value(*assignments: str, **grid: Any) -> Study:
        path.write_text(yaml.safe_dump({"name": "tried", "overrides": SETTINGS, "profile": "laptop", **grid}))
        return plan_study(path, assignments, studies=tmp_path / "studies")

    return plan_value


def test_a_trial_costs_its_episodes(plan: Plan) -> None:
    (trial,) = plan().trials
    cost = Cost(session=0, start=100, clone=0, rollout=1, update=10, evaluation=0.1)
    # 60 episodes rolled out, each learned from twice; evaluations of 40, and of 10 after steps 2, 4, 5
    assert trial_seconds(trial.config, cost) == pytest.approx(100 + 60 * 1 + 120 * 10 + 70 * 0.1)


def finish(study: Study, number: int, *, rollout: float, update: float, evaluation: float) -> None:
    """Leave the files of a finished trial, five steps of which took these seconds in all."""
    trial = study.trials[number]
    folder = study.trial_folder(trial)
    folder.mkdir(parents=True)
    config = trial.config.model_dump(mode="json")
    sheet = {
        "trial": trial.id,
        "cell": trial.cell,
        "study": study.name,
        "label": trial.label,
        "env": trial.env,
        "seed": trial.seed,
        "clone": trial.clone,
        "config": config,
        "methods": [],
    }
    (folder / "trial.yaml").write_text(yaml.safe_dump(sheet))
    rows: list[dict[str, Any]] = [
        {"kind": "eval", "step": 0, "eval/episodes": 40, "time/evaluation": evaluation},
        *(
            {"kind": "train", "step": step, "time/rollout": rollout / 5, "time/update": update / 5}
            for step in range(1, 6)
        ),
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "outcome.json").write_text(json.dumps({"outcome": "stable"}))


def test_finished_trials_say_how_long_the_others_take(plan: Plan) -> None:
    before = plan(seeds=3)
    assert "nothing was measured" in before.estimate.source
    finish(before, 0, rollout=60 * 0.5, update=120 * 2.0, evaluation=40 * 0.25)
    after = plan("trainer.epochs=3", seeds=3)
    start = 4
    expected = start + 60 * 0.5 + 180 * 2.0 + 70 * 0.25
    assert after.estimate.source == "from finished trials"
    assert list(after.estimate.trial_seconds.values()) == pytest.approx([expected] * 3)


@pytest.mark.parametrize("change", ["model.hidden=512", "trainer.groups=40"])
def test_trials_of_another_size_are_no_measure(plan: Plan, change: str) -> None:
    finish(plan(), 0, rollout=1000, update=1000, evaluation=1000)
    assert plan("trainer.steps=6").estimate.source == "from finished trials"
    assert "nothing was measured" in plan(change).estimate.source


@pytest.mark.parametrize("damage", ["trial.yaml", "metrics.jsonl"])
def test_damaged_trials_are_passed_over(plan: Plan, damage: str) -> None:
    before = plan()
    finish(before, 0, rollout=1000, update=1000, evaluation=1000)
    (before.trial_folder(before.trials[0]) / damage).write_text("{")
    assert "nothing was measured" in plan("trainer.steps=6").estimate.source


def test_trials_of_other_studies_count_too(plan: Plan) -> None:
    finish(plan(name="earlier"), 0, rollout=1, update=1, evaluation=1)
    assert plan("trainer.steps=6").estimate.source == "from finished trials"


def test_a_clone_is_paid_once_and_only_until_it_is_there(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arena.plan_estimate._at_once", lambda _: 1)
    study = plan(seeds=4)
    work = sum(study.estimate.trial_seconds.values())
    assert study.estimate.seconds == pytest.approx(20 + 100 + work)
    folder = clone_folder(study.studies, study.trials[0].clone)
    folder.mkdir(parents=True)
    (folder / "clone.json").write_text("{}")
    assert plan(seeds=4).estimate.seconds == pytest.approx(20 + work)


def test_each_clone_takes_what_the_files_of_its_environment_say(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    problems = plan(envs=["alfworld"]).trials[0].problems
    if problems:
        pytest.skip(problems[0])
    monkeypatch.setattr("arena.plan_estimate._at_once", lambda _: 1)
    said = yaml.safe_load((CONF / "model" / "tiny" / "alfworld.yaml").read_text())["cost"]["clone"]
    assert said != 100  # config.yaml's, which Sokoban's takes
    for alone in (plan(envs=["alfworld"]), plan(envs=["sokoban"]), plan(envs=["sokoban", "alfworld"])):
        clones = {"alfworld": said, "sokoban": 100}
        expected = sum(alone.estimate.trial_seconds.values())
        expected += sum(clones[env] for env in {trial.env for trial in alone.trials})
        assert alone.estimate.seconds == pytest.approx(20 + expected)
    measured = plan(envs=["sokoban", "alfworld"], seeds=2)
    finish(
        measured,
        [trial.env for trial in measured.trials].index("alfworld"),
        rollout=1,
        update=1,
        evaluation=1,
    )
    after = plan(envs=["sokoban", "alfworld"], seeds=2).estimate
    assert after.seconds == pytest.approx(20 + 100 + said + sum(after.trial_seconds.values()))


def test_what_is_done_costs_nothing(plan: Plan) -> None:
    finish(plan(), 0, rollout=1, update=1, evaluation=1)
    estimate = plan().estimate
    assert (estimate.seconds, dict(estimate.trial_seconds)) == (0, {})


def test_a_budget_is_exceeded_by_trials_hours_and_gpu_hours(plan: Plan) -> None:
    budget = {"trials": 1, "hours": 0.001, "gpu_hours": 0.001}
    study = plan("trainer.steps=100000", seeds=2, budget=budget, resources={"cpus": 1, "gpus": 0.5})
    assert [reason.split(", the budget allows")[1][:6] for reason in study.over_budget] == [
        " 1; pl",
        " 0.001",
        " 0.001",
    ]
    assert study.estimate.gpu_hours == pytest.approx(sum(study.estimate.trial_seconds.values()) / 2 / 3600)
    assert not plan(seeds=2, budget={"trials": 2, "hours": 1}).over_budget
