"""Rejection sampling: the best of a policy's own episodes become the examples it is cloned from."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from envs.text_env import EnvPool
from trainers.behavior_cloning import CloningError, Examples
from trainers.config import PenaltyConfig, TrainingConfig
from trainers.policy import Sampling
from trainers.randomness import numpy_generator, torch_generator
from trainers.rollout import Prompter, rollout
from trainers.rows import concatenate

BATCH = 256  # episodes played side by side
MARK = PenaltyConfig(format=1.0, inadmissible=0.0)  # a row's penalty then says whether it is malformed


@dataclass(frozen=True)
class OwnExamples:
    """Examples from a policy's own episodes, and the mean return of all of them and of those kept."""

    examples: Examples
    mean_return: float
    kept_return: float


def batches(episodes: int) -> int:
    """How many batches so many episodes are played in."""
    return math.ceil(episodes / BATCH)


def own_examples(
    prompter: Prompter,
    pool: EnvPool,
    config: TrainingConfig,
    *,
    stage: int,
    progress: Callable[[int], None],
) -> OwnExamples:
    """Play `cloning.episodes` train episodes and keep the best share of them (`cloning.keep`) by return.

    Rows with a malformed response are left out: turns of kept episodes, or whole transcripts.
    progress(batches played) is called after each. Raises CloningError when nothing is left.
    """
    cloning = config.cloning
    seeds = numpy_generator(config.clone_seed, "own_states", stage).integers(2**31, size=cloning.episodes)
    played = []
    for number in range(batches(cloning.episodes)):
        played.append(
            rollout(
                prompter.policy,
                pool,
                prompter,
                seeds[number * BATCH : (number + 1) * BATCH].tolist(),
                split="train",
                group_size=1,
                sampling=Sampling(cloning.temperature, max_tokens=config.prompt.max_response_tokens),
                penalty=MARK,
                generator=torch_generator(config.clone_seed, "own_rollouts", stage, number),
            )
        )
        progress(number + 1)
    counted = torch.cat([part.episodes.played for part in played])
    returns = torch.cat([part.episodes.returns for part in played])
    best = counted.clone()
    best[counted] = best_share(returns[counted], cloning.keep)
    of_part = torch.split(best, [len(part.episodes.returns) for part in played])
    kept = [
        part.rows.select(chosen[part.rows.trajectory] & (part.rows.penalties == 0))
        for part, chosen in zip(played, of_part, strict=True)
    ]
    if not any(map(len, kept)):
        raise CloningError(
            f"cloning.source: own: not one response of the best {int(best.sum())} of {len(best)} episodes "
            "has the right format, so there is nothing to imitate; clone from the expert first"
        )
    rows = concatenate([part for part in kept if len(part)])
    examples = Examples(rows.prompts, rows.prompt_lengths, rows.prompt_id, rows.responses, rows.mask)
    return OwnExamples(examples, float(returns[counted].mean()), float(returns[best].mean()))


def best_share(returns: Tensor, share: float) -> Tensor:
    """(episodes,) bool: the ceil(share x episodes) of highest return; of equal ones the first."""
    # the tolerance keeps 0.07 x 100 = 7.000000000000001 from becoming 8
    wanted = math.ceil(share * len(returns) - 1e-9)
    kept = torch.zeros(len(returns), dtype=torch.bool)
    kept[returns.argsort(descending=True, stable=True)[:wanted]] = True
    return kept
