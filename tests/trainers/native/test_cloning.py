"""Cloning from an expert and from the policy's own best episodes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from envs.prompts import parse
from envs.registry import load_environment
from tests.trainers.native.conftest import Configure
from trainers.behavior_cloning import CloningError
from trainers.config import TrainingConfig
from trainers.native.cloning import make_clone
from trainers.native.policies import load_policy, new_policy
from trainers.rejection_sampling import best_share, own_examples
from trainers.rollout import Prompter

MEDIOCRE = [{"steps": 80, "learning_rate": 1e-2, "error": 0.5}]


def with_cloning(config: TrainingConfig, **changes: Any) -> TrainingConfig:
    """A trial on levels of two moves, which a clone solves now and then after a few seconds."""
    values = config.model_dump(mode="json")
    values["env"].update(max_optimal=2, thought_words=2)
    values["cloning"].update(changes)
    return TrainingConfig.model_validate(values)


def test_the_best_share_is_the_highest_returns_and_of_equal_ones_the_first() -> None:
    returns = torch.tensor([1.0, 3.0, 2.0, 3.0, 2.0, 2.0, 0.0, 2.0])
    assert best_share(returns, 0.25).nonzero()[:, 0].tolist() == [1, 3]
    assert best_share(returns, 0.5).nonzero()[:, 0].tolist() == [1, 2, 3, 4]
    assert best_share(returns, 0.13).sum() == 2
    assert best_share(torch.zeros(100), 0.07).sum() == 7


@pytest.fixture(scope="module")
def mediocre(configure: Configure, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone of an expert of whose actions many are random."""
    folder = tmp_path_factory.mktemp("mediocre")
    make_clone(with_cloning(configure(), stages=MEDIOCRE), folder, lambda done, total: None)
    return folder


def test_own_examples_are_well_formed_turns_of_the_best_episodes(
    configure: Configure, mediocre: Path
) -> None:
    config = with_cloning(configure(), source="own", episodes=300, keep=0.1)
    environment, env_config = load_environment(config.env)
    policy = load_policy(mediocre, config)
    prompter = Prompter(policy, config.prompt, environment.task(env_config))
    seen: list[int] = []
    chosen = own_examples(prompter, environment.make_pool(env_config), config, stage=1, progress=seen.append)
    assert seen == [1, 2]
    assert chosen.kept_return > chosen.mean_return + 1
    examples = chosen.examples
    for response, mask in zip(examples.responses, examples.mask, strict=True):
        assert parse(policy.decode(response[mask].tolist()), None).rejection is None
    every = with_cloning(config, keep=1.0)
    pool = environment.make_pool(env_config)
    whole = own_examples(prompter, pool, every, stage=1, progress=seen.append)
    assert whole.kept_return == whole.mean_return == chosen.mean_return
    assert len(whole.examples) > 5 * len(examples)


def test_a_clone_of_its_own_best_episodes_is_told_from_an_experts(
    configure: Configure, mediocre: Path, tmp_path: Path
) -> None:
    stages = [*MEDIOCRE, {"steps": 20, "learning_rate": 5e-3}]
    config = with_cloning(configure(), source="own", stages=stages, keep=0.15)
    progress: list[tuple[int, int]] = []
    make_clone(config, tmp_path, lambda done, total: progress.append((done, total)))
    total = 80 + 2 + 20  # updates, batches of episodes, updates
    assert progress == [(done, total) for done in range(1, total + 1)]
    first, second = json.loads((tmp_path / "clone.json").read_text())["stages"]
    expert = json.loads((mediocre / "clone.json").read_text())["stages"][0]
    assert first == expert
    assert (first["source"], second["source"]) == ("expert", "own")
    assert second["kept_return"] > second["return"] + 1
    assert second["examples"] < first["examples"] / 2
    assert second["last_loss"] < second["first_loss"]


def test_random_weights_have_nothing_of_their_own_to_imitate(configure: Configure) -> None:
    config = with_cloning(configure(), episodes=20)
    environment, env_config = load_environment(config.env)
    policy = new_policy(config, environment, env_config)
    prompter = Prompter(policy, config.prompt, environment.task(env_config))
    with pytest.raises(CloningError, match=r"the best 5 of 20 episodes .* clone from the expert first"):
        own_examples(
            prompter, environment.make_pool(env_config), config, stage=0, progress=lambda played: None
        )


def test_micro_batches_of_cloning_change_nothing_but_rounding(configure: Configure, tmp_path: Path) -> None:
    stages = [{"steps": 3, "learning_rate": 1e-3}]
    weights = []
    for name, rows in (("whole", None), ("split", 7)):
        (tmp_path / name).mkdir()
        config = with_cloning(configure(), stages=stages, micro_rows=rows)
        make_clone(config, tmp_path / name, lambda done, total: None)
        weights.append(load_file(tmp_path / name / "model.safetensors"))
    for name, value in weights[0].items():
        torch.testing.assert_close(weights[1][name], value, atol=2e-5, rtol=0)
