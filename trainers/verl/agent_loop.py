"""How verl's agent loop workers play our environments: one episode per session, one row per turn.

Episodes are coroutines on the worker's event loop, which waits for the engine; environments are reset and
stepped in threads, so that a slow one holds up no other.
"""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4

from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput

from envs.pool import SerialPool
from envs.prompts import parse
from envs.registry import load_environment
from envs.text_env import EnvPool, Observation, Outcome, Split
from trainers.config import TrainingConfig
from trainers.native.text_codec import TextCodec
from trainers.native.tokenizer import WordTokenizer
from trainers.rollout import Prompter, penalty_of
from trainers.verl.carried import trial_of


class _Words:
    """Text and tokens of the tiny policy, as `TextCodec` is for others."""

    def __init__(self, tokenizer: WordTokenizer) -> None:
        self.tokenizer = tokenizer
        self.ends = (tokenizer.end_id,)

    def encode(self, prompt: str) -> list[int]:
        return [*self.tokenizer.encode(prompt), self.tokenizer.response_id]

    def decode(self, tokens: list[int]) -> str:
        return self.tokenizer.decode(tokens)


class Stage:
    """What all episodes of a process share: environments to be used again, threads, and the prompter."""

    def __init__(self, config: TrainingConfig, codec: Any) -> None:
        self.config, self.codec = config, codec
        self.environment, self.env_config = load_environment(config.env)
        self.prompter = Prompter(codec, config.prompt, self.environment.task(self.env_config))
        self.threads = ThreadPoolExecutor(max_workers=min(32, (os.cpu_count() or 1) + 4))
        self._free: list[EnvPool] = []

    async def reset(self, seed: int, split: Split) -> tuple[EnvPool, Observation]:
        """An environment at the start of an episode."""
        pool = self._free.pop() if self._free else SerialPool(lambda: self.environment.make(self.env_config))
        loop = asyncio.get_running_loop()
        return pool, (await loop.run_in_executor(self.threads, pool.reset, [seed], split))[0]

    async def step(self, pool: EnvPool, action: str) -> Outcome:
        """One action."""
        loop = asyncio.get_running_loop()
        return (await loop.run_in_executor(self.threads, pool.step, [0], [action]))[0]

    def give_back(self, pool: EnvPool) -> None:
        """For the next episode."""
        self._free.append(pool)


@cache
def _stage(config: str, model: str) -> Stage:
    trial = TrainingConfig.model_validate_json(config)
    if trial.model.path is None:
        return Stage(trial, _Words(WordTokenizer.load(Path(model))))
    from transformers import AutoTokenizer, GenerationConfig

    tokenizer = AutoTokenizer.from_pretrained(model)
    try:
        generation = GenerationConfig.from_pretrained(model)
    except OSError:
        generation = None
    return Stage(trial, TextCodec.of(tokenizer, generation, trial.prompt))


class EpisodeLoop(AgentLoopBase):
    """Plays one episode; verl makes one of these per session.

    Prompts are encoded as in cloning, whole: what verl prepares for growing conversations is left out.
    """

    def __init__(self, trainer_config: Any, server_manager: Any, **_: Any) -> None:
        self.rollout_config = trainer_config.config.actor_rollout_ref.rollout
        self.server_manager = server_manager
        path = trainer_config.config.actor_rollout_ref.model.path
        self.stage = _stage(trial_of(self.rollout_config).model_dump_json(), path)

    async def run(self, sampling_params: dict[str, Any], **fields: Any) -> list[AgentLoopOutput]:
        """One output per turn. fields: `state_seed`, `split`, of how many sessions `transcripts` are kept."""
        stage, prompt = self.stage, self.stage.config.prompt
        keep = int(fields["session_id"]) < int(fields["transcripts"])
        sampling = {**sampling_params, "max_tokens": prompt.max_response_tokens}
        limit = self.rollout_config.prompt_length
        pool, observation = await stage.reset(int(fields["state_seed"]), fields["split"])
        history: list[tuple[str, str]] = []
        outputs: list[AgentLoopOutput] = []
        shown: Observation | None = observation
        success = False
        while shown is not None:
            tokens = stage.prompter.encode(stage.prompter.text(history, shown))[-limit:]
            made = await self.server_manager.generate(
                request_id=uuid4().hex, prompt_ids=tokens, sampling_params=sampling
            )
            response = list(made.token_ids)[: prompt.max_response_tokens]
            result = parse(stage.codec.decode(response), shown.admissible)
            outcome = await stage.step(pool, result.action)
            if outcome.failure is not None:
                raise RuntimeError(f"the environment failed: {outcome.failure}")
            told: dict[str, Any] = {
                "turn": len(outputs),
                "reward": outcome.reward,
                "penalty": penalty_of(result, stage.config.trainer.penalty),
                "anchor": shown.anchor,
                "well_formed": result.well_formed,
                "admissible": result.rejection is None,
                "reward_extra_info": {},
            }
            if keep:
                told["transcript"] = {
                    "observation": shown.text,
                    "response": stage.codec.decode(response),
                    "action": result.action,
                    "reward": outcome.reward,
                    "rejection": result.rejection,
                }
            outputs.append(_row(tokens, response, made, told, end=stage.codec.ends[0]))
            if prompt.history:
                history.append((shown.text, result.action))
            success, shown = outcome.success, outcome.observation
        stage.give_back(pool)
        for output in outputs:
            output.extra_fields["success"] = success
            output.reward_score = sum(one.extra_fields["reward"] for one in outputs)
        return outputs


def _row(
    prompt: list[int], response: list[int], made: Any, told: dict[str, Any], *, end: int
) -> AgentLoopOutput:
    """A turn as verl stores it. A response of no token becomes one that was not written."""
    written = bool(response)
    log_probs = list(made.log_probs or [])[: len(response)]
    return AgentLoopOutput(
        prompt_ids=prompt,
        response_ids=response or [end],
        response_mask=[1] * len(response) or [0],
        response_logprobs=log_probs if written else [0.0],
        num_turns=told["turn"] + 1,
        metrics=AgentLoopMetrics(),
        extra_fields={**made.extra_fields, **told},
    )
