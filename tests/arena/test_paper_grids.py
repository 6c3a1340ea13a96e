"""The paper's experiment as grids: its settings, and its code's deviations by one switch."""

from __future__ import annotations

from pathlib import Path

import pytest

from arena.plan import Study
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


def test_a_plan_tells_gpu_hours_and_memory() -> None:
    estimate = planned("sokoban").estimate
    assert estimate.gpu_hours > 100
    assert "GB of each GPU while learning" in estimate.memory
