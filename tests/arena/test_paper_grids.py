"""The paper's experiment as grids: its settings, and its code's deviations by one switch."""

from __future__ import annotations

from pathlib import Path

import pytest

from arena.identity import TrialConfig
from arena.mistakes import MistakesError
from arena.plan import Estimate, Study
from arena.planning import plan_study

GRIDS = Path(__file__).parents[2] / "grids"

# arXiv 2602.21534: prompts per rollout, most turns, evaluation temperature, rows per mini-batch
SETTINGS = {
    "alfworld": (16, 50, 0.6, 256),
    "webshop": (16, 15, 0.6, 128),
    "sokoban": (32, 15, 0.7, 64),
}
every_grid = pytest.mark.parametrize("name", SETTINGS)


def planned(name: str, *assignments: str) -> Study:
    return plan_study(GRIDS / f"paper_{name}.yaml", assignments, studies=Path("none"))


def estimated(name: str, *assignments: str) -> Estimate:
    """What a plan estimates, for which its trials must be able to run but for the GPU."""
    study = planned(name, *assignments)
    if study.trials[0].state == "unavailable":
        pytest.skip(study.trials[0].problems[0])
    return study.estimate


@every_grid
def test_the_settings_are_the_papers(name: str) -> None:
    groups, turns, temperature, rows = SETTINGS[name]
    for trial in planned(name).trials:
        config, trainer = trial.config, trial.config.trainer
        assert config.backend == "verl"
        assert config.verl is not None
        assert (config.verl.engine, config.verl.platform) == ("vllm", "cuda")
        assert config.model.path == "Qwen/Qwen3-4B"
        assert (trainer.groups, trainer.group_size, trainer.steps) == (groups, 8, 200)
        assert (trainer.learning_rate, trainer.gradient_clip, trainer.temperature) == (1e-6, 1.0, 1.0)
        assert trainer.minibatch.rows == rows
        assert (trainer.kl.coefficient, trainer.penalty.format) == (0.01, 0.1)
        assert (config.prompt.history, config.prompt.max_response_tokens) == (2, 512)
        assert config.env["max_turns"] == turns
        evaluation = config.evaluation
        assert (evaluation.temperature, evaluation.top_p, evaluation.top_k) == (temperature, 0.95, 20)
        assert evaluation.episodes == 128


@every_grid
def test_the_deviations_of_its_code_are_one_switch(name: str) -> None:
    text = {trial.methods: trial.config for trial in planned(name).trials}
    code = {trial.methods: trial.config for trial in planned(name, "overrides.preset=paper_code").trials}
    assert text.keys() == code.keys()
    for methods, config in code.items():
        assert config.loss_aggregation.parameters["scope"] == "microbatch"
        assert (config.trainer.shuffle, config.trainer.pad, config.trainer.weight_decay) == (
            "none",
            "copy",
            0.01,
        )
        plain = text[methods]
        assert plain.loss_aggregation.parameters["scope"] == "minibatch"
        assert (plain.trainer.shuffle, plain.trainer.pad) == ("rows", "none")


def test_a_plan_counts_gpu_hours_and_memory() -> None:
    estimate = estimated("sokoban")
    # an episode of 7.5 turns: 6,750 tokens read, 1,350 written at 8,000 a second, all 8,100 learned from at
    # 12 operations a parameter; 4e9 parameters, 1e15 operations a second of which a third is reached
    play = 2 * 4e9 * 6750 / 3.3e14 + 1350 / 8000
    learn = 12 * 4e9 * 8100 / 3.3e14
    trial = 200 * 256 * (play + learn) + 24 * 128 * play  # 24 evaluations: 20, and the clone's for four
    assert estimate.gpu_hours == pytest.approx(10 * (trial + 4 * 120) / 3600)
    assert "32.1 GB of each GPU while learning" in estimate.memory
    assert "all declared in `estimate`" in estimate.source
    assert not estimate.warnings


def test_what_is_known_better_replaces_what_is_declared() -> None:
    plain = estimated("sokoban")
    known = estimated("sokoban", "estimate.utilisation=0.66", "estimate.generated_per_second=16000")
    start = 10 * 4 * 120 / 3600
    assert known.gpu_hours - start == pytest.approx((plain.gpu_hours - start) / 2)
    assert "66% of 1,000 TFLOP/s, 16,000 tokens" in known.source
    with pytest.raises(MistakesError, match=r"estimate\.utilization.*did you mean 'utilisation'"):
        planned("sokoban", "estimate.utilization=0.5")


def test_what_does_not_fit_its_gpu_is_warned_of() -> None:
    (warning,) = estimated("sokoban", "resources.gpus=1").warnings
    assert "GB while learning by count, and a GPU has 80 GB" in warning
    assert not estimated("sokoban", "resources.gpus=1", "estimate.gpu_memory_gb=141").warnings


def test_a_trial_over_several_machines_has_the_gpus_of_all_and_a_ray_for_itself() -> None:
    one, two = estimated("sokoban"), estimated("sokoban", "overrides.verl.nodes=2")
    # twice the GPUs take half the time, but for the start
    assert two.gpu_hours - one.gpu_hours == pytest.approx(10 * 4 * 120 / 3600)
    assert two.at_once == 1
    assert "weights 2.0, gradients 2.0, Adam 4.0" in two.memory
    (warning,) = two.warnings
    assert "2 machines of 4 GPUs" in warning
    assert "ARLARENA_RAY_ADDRESS" in warning


def test_what_cannot_run_here_is_counted_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ALFWORLD_DATA", raising=False)
    estimate = planned("alfworld").estimate
    assert estimate.gpu_hours == 0
    assert estimate.unavailable.startswith("The 12 unavailable trials would take")
    assert "GPU-hours" in estimate.unavailable
    assert "45.0 GB of each GPU while learning" in estimate.memory


def test_on_a_cluster_any_grid_trains_qwen_under_verl_unless_it_says_otherwise() -> None:
    def config(*assignments: str) -> TrialConfig:
        study = plan_study(GRIDS / "quickstart.yaml", ["profile=cluster", *assignments], studies=Path("none"))
        assert (study.trials[0].resources.gpus, study.profile) == (4, "cluster")
        return study.trials[0].config

    there = config()
    assert (there.backend, there.model.path) == ("verl", "Qwen/Qwen3-4B")
    assert there.verl is not None
    assert (there.verl.engine, there.verl.platform) == ("vllm", "cuda")
    assert there.env["border"]
    assert there.trainer.warmup_updates == 0
    tiny = config("overrides.model=tiny", "overrides.backend=native")
    assert (tiny.backend, tiny.model.path) == ("native", None)


@every_grid
def test_the_models_file_has_the_papers_settings_for_an_environment(name: str, tmp_path: Path) -> None:
    env = {"webshop": "webshop_full"}.get(name, name)
    (tmp_path / "g.yaml").write_text(f"{{name: g, methods: [GRPO], envs: [{env}], profile: cluster}}")
    (plain,) = plan_study(tmp_path / "g.yaml", [], studies=tmp_path).trials[:1]
    stated = planned(name).trials[0].config
    assert plain.config.trainer == stated.trainer
    assert plain.config.evaluation == stated.evaluation
    assert plain.config.prompt == stated.prompt
    assert plain.config.env["max_turns"] == stated.env["max_turns"]
