"""Making a clone: from random or pretrained weights to an imitator of an expert, or of its own best."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from envs.registry import load_environment
from trainers.behavior_cloning import CloningError, encode_demonstrations, imitate
from trainers.config import TrainingConfig, clone_sections
from trainers.native.policies import new_policy
from trainers.randomness import stream_seed
from trainers.rejection_sampling import batches, own_examples
from trainers.rollout import Prompter


def make_clone(config: TrainingConfig, folder: Path, progress: Callable[[int, int], None]) -> None:
    """Write the clone of a configuration into an existing empty folder (transformers' format, clone.json).

    progress(done, total) is called after every update, and every batch of own episodes. Raises CloningError
    when there is nothing to imitate or it could not be written.
    """
    began = time.perf_counter()
    environment, env_config = load_environment(config.env)
    policy = new_policy(config, environment, env_config)
    prompter = Prompter(policy, config.prompt, environment.task(env_config), config.rows)
    cloning = config.cloning
    own = [
        cloning.source == "own" and (number > 0 or config.model.path is not None)
        for number in range(len(cloning.stages))
    ]
    total = sum(stage.steps for stage in cloning.stages) + sum(own) * batches(cloning.episodes)
    done, report = 0, []
    for number, stage in enumerate(cloning.stages):
        told: dict[str, Any] = {"source": "own" if own[number] else "expert"}
        if own[number]:
            pool = environment.make_pool(env_config)
            try:
                advance = partial(_after, progress, done, total)
                chosen = own_examples(prompter, pool, config, stage=number, progress=advance)
            finally:
                pool.close()
            done += batches(cloning.episodes)
            examples = chosen.examples
            told |= {"return": chosen.mean_return, "kept_return": chosen.kept_return}
        else:
            if config.rows == "transcript" and cloning.explore:
                raise CloningError(
                    "an expert whose transcripts are imitated must do what it writes: "
                    f"set cloning.explore: 0, not {cloning.explore:g}"
                )
            demonstrations = environment.demonstrations(
                env_config,
                episodes=cloning.episodes,
                seed=stream_seed(config.clone_seed, "demonstrations", number),
                explore=cloning.explore,
                error=stage.error,
                history=env_config.max_turns if config.rows == "transcript" else config.prompt.history,
            )
            examples = encode_demonstrations(
                demonstrations, prompter, max_tokens=config.prompt.max_response_tokens
            )
        losses = imitate(
            policy,
            examples,
            stage,
            cloning,
            seed=config.clone_seed,
            stage_number=number,
            progress=partial(_after, progress, done, total),
        )
        done += stage.steps
        report.append(told | {"examples": len(examples), "first_loss": losses[0], "last_loss": losses[-1]})
    policy.export(folder)
    summary = {
        "sections": clone_sections(config),
        "stages": report,
        "seconds": round(time.perf_counter() - began, 2),
    }
    (folder / "clone.json").write_text(json.dumps(summary, indent=1))


def _after(progress: Callable[[int, int], None], before: int, total: int, step: int) -> None:
    progress(before + step, total)
