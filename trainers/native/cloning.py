"""Making a clone: a policy, from random or pretrained weights to a mediocre imitator of the expert."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from envs.registry import load_environment
from trainers.behavior_cloning import encode_demonstrations, imitate
from trainers.config import TrainingConfig, clone_sections
from trainers.native.policies import new_policy
from trainers.randomness import stream_seed
from trainers.rollout import Prompter


def make_clone(config: TrainingConfig, folder: Path, progress: Callable[[int, int], None]) -> None:
    """Clone the environment's expert into an existing empty folder (transformers' format, and clone.json).

    progress(done, total) is called after every update.
    """
    began = time.perf_counter()
    environment, env_config = load_environment(config.env)
    cloning = config.cloning
    policy = new_policy(config, environment, env_config)
    prompter = Prompter(policy, config.prompt, environment.task(env_config))
    total = sum(stage.steps for stage in cloning.stages)
    done, report = 0, []
    for number, stage in enumerate(cloning.stages):
        demonstrations = environment.demonstrations(
            env_config,
            episodes=cloning.episodes,
            seed=stream_seed(cloning.clone_seed, "demonstrations", number),
            explore=cloning.explore,
            error=stage.error,
            history=config.prompt.history,
        )
        examples = encode_demonstrations(
            demonstrations, prompter, max_tokens=config.prompt.max_response_tokens
        )
        losses = imitate(
            policy,
            examples,
            stage,
            cloning,
            stage_number=number,
            progress=partial(_after, progress, done, total),
        )
        done += stage.steps
        report.append({"examples": len(examples), "first_loss": losses[0], "last_loss": losses[-1]})
    policy.export(folder)
    summary = {
        "sections": clone_sections(config),
        "stages": report,
        "seconds": round(time.perf_counter() - began, 2),
    }
    (folder / "clone.json").write_text(json.dumps(summary, indent=1))


def _after(progress: Callable[[int, int], None], before: int, total: int, step: int) -> None:
    progress(before + step, total)
