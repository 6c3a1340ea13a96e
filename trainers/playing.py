"""A trained policy as a player of single episodes (`envs.playing.Policy`)."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from envs.playing import Move, Turn
from envs.prompts import parse
from envs.text_env import Observation, TextEnv
from trainers.config import EvaluationConfig
from trainers.policy import Policy, Sampling
from trainers.rollout import Prompter


class TrainedPolicy:
    """Samples responses as an evaluation does: the same prompts, temperature, top-p and top-k."""

    def __init__(self, prompter: Prompter, evaluation: EvaluationConfig, generator: torch.Generator) -> None:
        self._prompter, self._generator = prompter, generator
        self._sampling = Sampling(
            evaluation.temperature, evaluation.top_p, evaluation.top_k, prompter.prompt.max_response_tokens
        )

    @property
    def _policy(self) -> Policy:
        return self._prompter.policy

    def act(self, env: TextEnv, observation: Observation, turns: Sequence[Turn]) -> Move:
        """See `envs.playing.Policy.act`."""
        history = [(turn.observation, turn.move.action) for turn in turns]
        prompt = self._prompter.encode(self._prompter.text(history, observation))
        generated = self._policy.generate([prompt], [0], self._sampling, self._generator)
        response = self._policy.decode(generated.tokens[0, : int(generated.lengths[0])].tolist())
        parsed = parse(response, observation.admissible)
        return Move(parsed.action, response, parsed.rejection)
