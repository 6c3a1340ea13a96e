"""Every point of the space as verl's configuration: nothing unknown, nothing lost."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from arena.cli import main
from arena.mistakes import MistakesError
from arena.options import CONF
from arena.plan import Study
from arena.planning import plan_study
from arena.study_files import trial_sheet
from trainers.config import TrainingConfig
from trainers.verl import schema
from trainers.verl.readiness import NOWHERE
from trainers.verl.translation import AGGREGATIONS, NAME, refusals, translate

needs_verl = pytest.mark.skipif(bool(schema.problems()), reason="verl is not installed")
METHODS = sorted(path.stem for path in (CONF / "method").glob("*.yaml"))
CPU = {"backend": "verl", "verl.engine": "hf_cpu", "verl.platform": "cpu"}

Plan = Callable[..., Study]


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    def make(*assignments: str, **grid: Any) -> Study:
        folder = tmp_path_factory.mktemp("plan")
        values = {"name": "g", "envs": ["sokoban"], "seeds": 1, "profile": "laptop", "overrides": CPU, **grid}
        (folder / "grid.yaml").write_text(yaml.safe_dump(values))
        return plan_study(folder / "grid.yaml", assignments, studies=folder / "studies")

    return make


@pytest.fixture(scope="module")
def configs(plan: Plan) -> dict[str, TrainingConfig]:
    found: dict[str, TrainingConfig] = {}
    for trial in plan(methods=METHODS).trials:
        found |= dict.fromkeys(trial.methods, trial.config)
    return found


@needs_verl
@pytest.mark.parametrize("method", METHODS)
def test_every_named_method_becomes_a_configuration_that_verl_knows(
    method: str, configs: dict[str, TrainingConfig]
) -> None:
    config = configs[method]
    whole = schema.composed(translate(config, NOWHERE))
    actor = whole.actor_rollout_ref.actor
    assert actor.policy_loss.loss_mode == NAME
    assert actor.loss_agg_mode == AGGREGATIONS[config.loss_aggregation.option]
    assert whole.algorithm.adv_estimator == NAME
    assert whole.actor_rollout_ref.rollout.n == config.trainer.group_size
    assert whole.data.train_batch_size == config.trainer.groups
    carried = whole.actor_rollout_ref.rollout.custom[NAME]
    assert TrainingConfig.model_validate(_plain(carried)) == TrainingConfig.model_validate(
        {name: value for name, value in config.model_dump().items() if name in TrainingConfig.model_fields}
    )


def _plain(node: Any) -> Any:
    from omegaconf import OmegaConf

    return {
        name: value
        for name, value in OmegaConf.to_container(node, resolve=True).items()  # type: ignore[union-attr]
        if name in TrainingConfig.model_fields
    }


@needs_verl
def test_the_band_is_the_options(configs: dict[str, TrainingConfig]) -> None:
    keys = translate(configs["GSPO"], NOWHERE)
    assert keys["actor_rollout_ref.actor.clip_ratio_low"] == configs["GSPO"].is_clipping.parameters["lo"]
    assert keys["actor_rollout_ref.actor.clip_ratio_high"] == configs["GSPO"].is_clipping.parameters["hi"]
    assert translate(configs["SAPO"], NOWHERE)["actor_rollout_ref.actor.tau_neg"] == 1.05


@needs_verl
def test_names_in_verls_registries_are_read_from_its_source() -> None:
    losses = schema.registered("register_policy_loss")
    assert {"vanilla", "gspo", "sapo", "cispo", "geo_mean"} <= set(losses)
    assert {"gae", "grpo", "rloo", "reinforce_plus_plus"} <= set(schema.registered("register_adv_est"))


@needs_verl
@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("trainer.balance_batchh", False, "did you mean 'balance_batch'"),
        ("critic.optim.lr.rate", 1, "no keys below it"),
        ("actor_rollout_ref.actor.loss_agg_mode", "token-men", "did you mean 'token-mean'"),
        ("actor_rollout_ref.actor.policy_loss.loss_mode", "gspoo", "did you mean 'gspo'"),
        ("algorithm.adv_estimator", "grpoo", "did you mean 'grpo'"),
    ],
)
def test_unknown_keys_and_names_are_refused_with_the_nearest(key: str, value: Any, told: str) -> None:
    with pytest.raises(schema.VerlConfigError, match=told):
        schema.check({key: value})


@needs_verl
def test_an_unknown_key_of_verl_is_a_mistake_of_the_grid(plan: Plan) -> None:
    with pytest.raises(MistakesError, match=r"verl\.overrides\.trainer\.balance.*did you mean"):
        plan(methods=["GRPO"], overrides=CPU | {"verl.overrides": {"trainer": {"balance_batchh": False}}})


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        ({"verl.overrides": {"actor_rollout_ref.rollout.n": 4}}, "set `trainer.group_size`"),
        (
            {"rows": "transcript", "model": "language_model", "model.path": "x/4B", "cloning.stages": []},
            "set `prompt.max_context_tokens`",
        ),
        ({"verl.platform": "cuda", "verl.engine": "vllm"}, "verl needs a GPU"),
        ({"verl.engine": "sglang"}, "sglang needs a GPU"),
    ],
)
def test_what_verl_cannot_do_is_refused_with_the_reason(
    plan: Plan, overrides: dict[str, Any], told: str
) -> None:
    with pytest.raises(MistakesError, match=told):
        plan(methods=["GRPO"], overrides=CPU | overrides)


@pytest.mark.parametrize(
    ("unit", "level", "refused"),
    [
        ("row", "token", False),
        ("row", "sequence", False),
        ("trajectory", "sequence", False),
        ("trajectory", "token", True),
    ],
)
def test_tokens_of_whole_trajectories_are_not_gated_at_random(
    unit: str, level: str, refused: bool, make_config: Callable[..., TrainingConfig]
) -> None:
    gate = {"level": level, "share": 0.1}
    clipping = {"gated": {"weight": "token", "low": gate, "high": None, "rule": "gate", "unit": unit}}
    found = refusals(make_config(is_clipping=clipping, verl={"platform": "cpu", "engine": "hf_cpu"}))
    assert [refusal.key for refusal in found] == ([("is_clipping",)] if refused else [])
    assert all("unit: row" in refusal.message for refusal in found)


@pytest.mark.parametrize(
    ("overrides", "lengths"),
    [
        # of the tiny policy: 512 positions, 32 tokens of them a response
        ({}, (480, 32, 512)),
        ({"rows": "transcript", "cloning.explore": 0}, (480, 511, 512)),
        (
            {"rows": "transcript", "cloning.explore": 0, "prompt.max_context_tokens": 100},
            (68, 99, 100),
        ),
        ({"model": "language_model", "model.path": "x/4B"}, (2048, 512, 2560)),
        (
            {
                "model": "language_model",
                "model.path": "x/4B",
                "rows": "transcript",
                "prompt.max_context_tokens": 8000,
                "cloning.stages": [],
            },
            (7488, 7999, 8000),
        ),
    ],
)
def test_prompts_and_responses_have_the_room_that_rows_need(
    plan: Plan, overrides: dict[str, Any], lengths: tuple[int, int, int]
) -> None:
    keys = translate(plan(methods=["GRPO"], overrides=CPU | overrides).trials[0].config, NOWHERE)
    told = ("data.max_prompt_length", "data.max_response_length", "actor_rollout_ref.rollout.max_model_len")
    assert tuple(keys[name] for name in told) == lengths


def test_the_native_back_end_does_not_pass_over_the_section_of_verl(plan: Plan) -> None:
    with pytest.raises(MistakesError, match="does not read the section `verl`"):
        plan(methods=["GRPO"], overrides={"verl.engine": "vllm"})


def test_without_verl_trials_are_unavailable_and_the_remedy_is_told(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "find_spec", lambda name: None)
    trial = plan(methods=["GRPO"]).trials[0]
    assert trial.state == "unavailable"
    assert any("pip install 'arlarena[verl]'" in problem for problem in trial.problems)


@pytest.mark.parametrize(("deterministic", "told"), [(False, ""), (True, "full determinism on, ")])
def test_a_trials_sheet_says_which_of_verls_trainers_runs(plan: Plan, deterministic: bool, told: str) -> None:
    study = plan(methods=["GRPO"], overrides=CPU | {"verl.deterministic": deterministic})
    sheet = trial_sheet(study, study.trials[0], {"commit": "abc"})
    assert sheet.provenance == {
        "commit": "abc",
        "trainer": f"verl's V1 trainer (use_v1: true), synchronous, {told}not reproducible to the bit; "
        "engine hf_cpu",
    }
    native = plan(methods=["GRPO"], overrides={})
    assert "trainer" not in trial_sheet(native, native.trials[0], {}).provenance


def test_a_section_that_is_off_changes_no_id(plan: Plan) -> None:
    native = plan(methods=["GRPO"], overrides={}).trials[0]
    assert native.config.verl is None
    assert refusals(native.config)
    assert native.cell != plan(methods=["GRPO"]).trials[0].cell


@needs_verl
def test_planning_imports_neither_verl_nor_torch(tmp_path: Path) -> None:
    grid = {"name": "g", "methods": ["SAMPO"], "envs": ["sokoban"], "profile": "laptop", "overrides": CPU}
    (tmp_path / "g.yaml").write_text(yaml.safe_dump(grid))
    code = (
        "import sys; from pathlib import Path; from arena.planning import plan_study; "
        f"plan_study(Path({str(tmp_path / 'g.yaml')!r}), studies=Path('none')); "
        "sys.exit(bool({'torch', 'verl', 'ray'} & {name.split('.')[0] for name in sys.modules}))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@needs_verl
def test_a_planned_trial_is_exported_as_configuration_and_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    grid = {"name": "g", "methods": ["SAMPO"], "envs": ["sokoban"], "profile": "laptop"}
    (tmp_path / "g.yaml").write_text(yaml.safe_dump(grid))
    trial = plan_study(tmp_path / "g.yaml", studies=tmp_path / "studies").trials[0].id
    with pytest.raises(SystemExit) as ended:
        main(["export", trial[:6], "--to", "verl", "--grid", "g.yaml", "--out", "there"])
    assert ended.value.code == 0
    written = [Path(line) for line in capsys.readouterr().out.split()]
    whole = yaml.safe_load(written[0].read_text())
    assert whole["actor_rollout_ref"]["rollout"]["custom"][NAME]["advantage"]["option"] == "gigpo"
    assert "verl.trainer.main_ppo" in written[1].read_text()
