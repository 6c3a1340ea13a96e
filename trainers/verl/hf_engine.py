"""`hf_cpu`: a small rollout engine for verl on machines without GPU, on a transformers model.

Three parts, as of every engine of verl: a server (a Ray actor that answers requests for tokens, many at a
time), a replica (which starts it), and a rollout (in the trainer's worker, which sends it new weights).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
import torch
from torch import Tensor
from verl.utils.config import omega_conf_to_dataclass
from verl.workers.config import HFModelConfig
from verl.workers.rollout.base import BaseRollout
from verl.workers.rollout.replica import RolloutReplica, TokenOutput

from trainers.config import ModelConfig, PromptConfig
from trainers.native.language_model import LanguageModel
from trainers.policy import Sampling

GATHER = 0.01  # seconds in which requests become one batch
MOST_TOGETHER = 512  # requests of a batch


@dataclass
class _Request:
    prompt: tuple[int, ...]
    sampling: Sampling
    answer: asyncio.Future[tuple[list[int], list[float]]]


class HfServer:
    """Generates for all episodes at once, one batch after the other."""

    def __init__(self, config: Any, model_config: Any) -> None:
        torch.set_num_threads(max(1, int(os.environ.get("OMP_NUM_THREADS", "1"))))
        self.config = omega_conf_to_dataclass(config)
        model = omega_conf_to_dataclass(model_config, dataclass_type=HFModelConfig)
        path = Path(model.local_path)
        settings = ModelConfig(name="language_model", path=str(path), device="cpu")
        self.policy = LanguageModel.load(path, settings, PromptConfig(), seed=0)
        self.generator = torch.Generator().manual_seed(int(self.config.seed))
        self.step: int | None = None
        self._waiting: asyncio.Queue[_Request] | None = None

    async def generate(
        self, prompt_ids: list[int], sampling_params: dict[str, Any], request_id: str, **_: Any
    ) -> TokenOutput:
        """Tokens that follow a prompt, and their log-probs at the temperature asked for."""
        if self._waiting is None:
            self._waiting = asyncio.Queue()
            self._serving = asyncio.create_task(self._serve(self._waiting))
        top_k = int(sampling_params.get("top_k", -1))
        sampling = Sampling(
            temperature=float(sampling_params.get("temperature", 1.0)),
            top_p=float(sampling_params.get("top_p", 1.0)),
            top_k=max(top_k, 0),
            max_tokens=int(sampling_params.get("max_tokens") or self.config.response_length),
        )
        answer = asyncio.get_running_loop().create_future()
        await self._waiting.put(_Request(tuple(prompt_ids), sampling, answer))
        tokens, log_probs = await answer
        known = {"global_steps": self.step, "num_cached_tokens": 0}
        return TokenOutput(token_ids=tokens, log_probs=log_probs, stop_reason="completed", extra_fields=known)

    async def _serve(self, waiting: asyncio.Queue[_Request]) -> None:
        while True:
            batch = [await waiting.get()]
            await asyncio.sleep(GATHER)
            while not waiting.empty() and len(batch) < MOST_TOGETHER:
                batch.append(waiting.get_nowait())
            for sampling in dict.fromkeys(request.sampling for request in batch):
                requests = [request for request in batch if request.sampling == sampling]
                try:
                    answers = await asyncio.to_thread(self._generate, requests, sampling)
                except Exception as error:  # noqa: BLE001 - whoever asked is told
                    for request in requests:
                        request.answer.set_exception(error)
                    continue
                for request, answer in zip(requests, answers, strict=True):
                    request.answer.set_result(answer)

    def _generate(self, requests: list[_Request], sampling: Sampling) -> list[tuple[list[int], list[float]]]:
        places: dict[tuple[int, ...], int] = {}
        rows = [places.setdefault(request.prompt, len(places)) for request in requests]
        made = self.policy.generate(list(places), rows, sampling, self.generator)
        return [
            (tokens[:length], log_probs[:length])
            for tokens, log_probs, length in zip(
                made.tokens.tolist(), made.log_probs.tolist(), made.lengths.tolist(), strict=True
            )
        ]

    async def load_weights(self, weights: dict[str, Tensor], step: int | None) -> int:
        """Take over the trainer's weights, by transformers' names; how many."""
        own = self.policy.module.state_dict()
        with torch.no_grad():
            for name, value in weights.items():
                own[name].copy_(value)
        self.step = step
        return len(weights)

    async def ready(self) -> bool:
        """Answers when it can be used."""
        return True

    async def set_global_steps(self, step: int) -> None:
        """Which step the weights are of."""
        self.step = step

    async def wake_up(self, tags: Any = None) -> None:
        """Nothing sleeps on a CPU."""

    async def sleep(self) -> None:
        """Nothing sleeps on a CPU."""

    async def clear_kv_cache(self) -> None:
        """Nothing is kept between batches."""

    async def release_kv_cache(self) -> None:
        """Nothing is kept between batches."""

    async def resume_kv_cache(self) -> None:
        """Nothing is kept between batches."""

    async def abort_all_requests(self, reject_request: bool = False) -> None:
        """Nothing is aborted: batches are short."""

    async def resume_generation(self) -> None:
        """Generation never pauses."""

    async def start_profile(self, **_: Any) -> None:
        """There is no profiler."""

    async def stop_profile(self) -> None:
        """There is no profiler."""


def _name(rank: int) -> str:
    return f"arlarena_hf_server_{rank}"


class HfReplica(RolloutReplica):
    """Starts one server, under a name that the worker of the same rank knows."""

    async def launch_servers(self) -> None:
        """Start it and wait until it answers."""
        actor = ray.remote(HfServer).options(
            name=_name(self.replica_rank), max_concurrency=self.max_concurrency, num_cpus=1
        )
        server = actor.remote(self.config, self.model_config)
        await server.ready.remote()
        self.servers, self._server_handle = [server], server
        self._server_address = f"ray://{_name(self.replica_rank)}"


class HfRollout(BaseRollout):
    """Sends the trainer's weights to the server."""

    def __init__(self, config: Any, model_config: Any, device_mesh: Any, replica_rank: int = -1) -> None:
        super().__init__(config, model_config, device_mesh)
        self.replica_rank = int(os.environ["RANK"]) if replica_rank == -1 else replica_rank
        self._server: Any = None

    async def resume(self, tags: list[str]) -> None:
        """Nothing was released."""

    async def release(self) -> None:
        """Nothing to release."""

    @torch.no_grad()
    async def update_weights(
        self, weights: Iterable[tuple[str, Tensor]], global_steps: int | None = None, **_: Any
    ) -> None:
        """Send all weights at once: the models here are small."""
        named = {name: value.detach().cpu().clone() for name, value in weights}
        if self._server is None:
            self._server = ray.get_actor(_name(self.replica_rank))
        await self._server.load_weights.remote(named, global_steps)
