"""How verl's agent loop workers play our environments: one episode per session, many at once.

Episodes are coroutines on the worker's event loop, which waits for the engine; environments are reset and
stepped in threads, so that a slow one holds up no other. What an episode is: `trainers.verl.episode`.
"""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput

from trainers.verl.carried import trial_of
from trainers.verl.episode import Made, episode_rows
from trainers.verl.stage import stage_of


class EpisodeLoop(AgentLoopBase):
    """Plays one episode; verl makes one of these per session.

    Prompts are encoded as in cloning, whole: what verl prepares for growing conversations is left out.
    """

    def __init__(self, trainer_config: Any, server_manager: Any, **_: Any) -> None:
        self.rollout_config = trainer_config.config.actor_rollout_ref.rollout
        self.server_manager = server_manager
        path = trainer_config.config.actor_rollout_ref.model.path
        self.stage = stage_of(trial_of(self.rollout_config).model_dump_json(), path)

    async def run(self, sampling_params: dict[str, Any], **fields: Any) -> list[AgentLoopOutput]:
        """The episode's rows. fields: `state_seed`, `split`, of how many sessions `transcripts` are kept."""
        sampling = {**sampling_params, "max_tokens": self.stage.config.prompt.max_response_tokens}

        async def generate(prompt: list[int]) -> Made:
            made = await self.server_manager.generate(
                request_id=uuid4().hex, prompt_ids=prompt, sampling_params=sampling
            )
            return Made(list(made.token_ids), list(made.log_probs or []), dict(made.extra_fields))

        rows = await episode_rows(
            self.stage,
            generate,
            seed=int(fields["state_seed"]),
            split=fields["split"],
            keep=int(fields["session_id"]) < int(fields["transcripts"]),
            prompt_limit=self.rollout_config.prompt_length,
        )
        return [AgentLoopOutput(**row, metrics=AgentLoopMetrics()) for row in rows]
