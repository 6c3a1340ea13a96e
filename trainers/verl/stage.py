"""What all episodes of an agent loop's process share: prompts, and environments to be used again."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from envs.pool import SerialPool
from envs.registry import load_environment
from envs.text_env import EnvPool, Observation, Outcome, Split
from trainers.config import TrainingConfig
from trainers.native.text_codec import TextCodec
from trainers.native.tokenizer import WordTokenizer
from trainers.native.word_codec import WordCodec
from trainers.rollout import Prompter


@dataclass(frozen=True)
class Reader:
    """What a prompter asks of a policy, of one that is elsewhere: its tokens, and how many it can read."""

    codec: Any
    positions: int | None

    def encode(self, prompt: str) -> list[int]:
        """Token ids of a prompt."""
        return self.codec.encode(prompt)  # type: ignore[no-any-return]

    def encode_next(self, text: str, response: Sequence[int]) -> list[int]:
        """Token ids of what follows a response in a transcript."""
        return self.codec.encode_next(text, response)  # type: ignore[no-any-return]


class Stage:
    """Environments, the threads that they are stepped in, and the prompter."""

    def __init__(self, config: TrainingConfig, codec: Any, positions: int | None) -> None:
        self.config, self.codec = config, codec
        self.environment, self.env_config = load_environment(config.env)
        reader: Any = Reader(codec, positions)
        self.prompter = Prompter(reader, config.prompt, self.environment.task(self.env_config), config.rows)
        self.threads = ThreadPoolExecutor(max_workers=min(32, (os.cpu_count() or 1) + 4))
        self._free: list[EnvPool] = []

    async def reset(self, seed: int, split: Split) -> tuple[EnvPool, Observation]:
        """An environment at the start of an episode."""
        pool = self._free.pop() if self._free else self._make()
        return pool, (await self._in_thread(pool.reset, [seed], split))[0]

    async def step(self, pool: EnvPool, action: str) -> Outcome:
        """One action."""
        outcomes: list[Outcome] = await self._in_thread(pool.step, [0], [action])
        return outcomes[0]

    async def give_back(self, pool: EnvPool, *, usable: bool) -> None:
        """For the next episode, unless it failed in this one."""
        if usable:
            self._free.append(pool)
        else:
            await self._in_thread(pool.close)

    def _make(self) -> EnvPool:
        """An environment here, or where it asks for `workers` in a process of its own, which may die."""
        if getattr(self.env_config, "workers", 0):
            return self.environment.make_pool(self.env_config.model_copy(update={"workers": 1}))
        return SerialPool(lambda: self.environment.make(self.env_config))

    async def _in_thread(self, function: Any, *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self.threads, function, *arguments)


@cache
def stage_of(config: str, model: str) -> Stage:
    """This process's stage of a trial: its configuration as JSON, and the folder or name of its model."""
    trial = TrainingConfig.model_validate_json(config)
    if trial.model.path is None:
        words = WordTokenizer.load(Path(model))
        return Stage(trial, WordCodec(words), trial.model.max_positions)
    from transformers import AutoConfig, AutoTokenizer, GenerationConfig

    tokenizer = AutoTokenizer.from_pretrained(model)
    try:
        generation = GenerationConfig.from_pretrained(model)
    except OSError:
        generation = None
    settings = AutoConfig.from_pretrained(model).get_text_config(decoder=True)
    positions = getattr(settings, "max_position_embeddings", None)
    return Stage(trial, TextCodec.of(tokenizer, generation, trial.prompt), positions)
