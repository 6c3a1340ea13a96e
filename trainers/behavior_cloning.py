"""Behaviour cloning before RL: demonstrated turns as rows, and supervised learning on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from envs.text_env import Demonstration
from trainers.config import CloningConfig, CloningStage
from trainers.policy import Policy, pad
from trainers.randomness import torch_generator
from trainers.rollout import Prompter
from trainers.rows import Rows

WARMUP = 20  # updates
DECAY = 0.6  # share of a stage, at its end, over which the learning rate falls to zero


class CloningError(ValueError):
    """The demonstrations cannot be learned as configured."""


@dataclass(frozen=True)
class Examples:
    """Encoded turns to imitate: right-padded prompts (n, P) and responses (n, T), long, lengths (n,)."""

    prompts: Tensor
    prompt_lengths: Tensor
    prompt_id: Tensor
    responses: Tensor
    response_lengths: Tensor

    def __len__(self) -> int:
        return len(self.prompts)

    def rows(self, index: Tensor) -> Rows:
        """The named examples as rows of which every response token is learned."""
        n = len(index)
        lengths = self.response_lengths[index]
        zeros, numbers = torch.zeros(n), torch.arange(n)
        longest = int(lengths.max())
        responses = self.responses[index, :longest]
        return Rows(
            prompts=self.prompts[index],
            prompt_lengths=self.prompt_lengths[index],
            prompt_id=self.prompt_id[index],
            responses=responses,
            mask=torch.arange(longest) < lengths[:, None],
            old_log_probs=torch.zeros(responses.shape),
            entropies=zeros,
            group=numbers,
            trajectory=numbers,
            turn=torch.zeros_like(numbers),
            rewards=zeros,
            penalties=zeros,
            anchor=torch.full((n,), -1),
            success=torch.zeros(n, dtype=torch.bool),
        )


def encode_demonstrations(
    demonstrations: Sequence[Demonstration],
    prompter: Prompter,
    *,
    max_tokens: int,
) -> Examples:
    """Demonstrations as token rows.

    Raises CloningError when a response is longer than the policy may write: it could never be reproduced.
    """
    distinct: dict[str, int] = {}
    prompts, responses, prompt_id = [], [], []
    for demonstration in demonstrations:
        text = prompter.text(demonstration.history, demonstration.observation)
        response = prompter.policy.encode_response(demonstration.response)
        if len(response) > max_tokens:
            raise CloningError(
                f"an expert's response has {len(response)} tokens, but prompt.max_response_tokens is "
                f"{max_tokens}; raise it to at least {len(response)}"
            )
        prompt_id.append(distinct.setdefault(text, len(distinct)))
        prompts.append(prompter.encode(text))
        responses.append(response)
    padded_prompts, prompt_lengths = pad(prompts, 0)
    padded_responses, response_lengths = pad(responses, 0)
    return Examples(
        padded_prompts, prompt_lengths, torch.tensor(prompt_id), padded_responses, response_lengths
    )


def imitate(
    policy: Policy,
    examples: Examples,
    stage: CloningStage,
    config: CloningConfig,
    *,
    seed: int,
    stage_number: int,
    progress: Callable[[int], None],
) -> list[float]:
    """Minimise the mean negative log-likelihood per response token; returns every update's loss (nats)."""
    optimizer = torch.optim.AdamW(
        policy.module.parameters(),
        lr=stage.learning_rate,
        betas=(0.9, 0.95),
        weight_decay=0.01,
        fused=True,
    )
    losses = []
    for step in range(stage.steps):
        generator = torch_generator(seed, "cloning", stage_number, step)
        index = torch.randint(len(examples), (config.batch,), generator=generator)
        decay = (stage.steps - step) / (stage.steps * DECAY)
        for group in optimizer.param_groups:
            group["lr"] = stage.learning_rate * min(1.0, decay, (step + 1) / WARMUP)
        optimizer.zero_grad(set_to_none=True)
        tokens = examples.response_lengths[index].sum()
        total = 0.0
        for part in torch.split(index, config.micro_rows or config.batch):
            log_probs, _ = policy.score(examples.rows(part), temperature=1.0)
            loss = -log_probs.sum() / tokens
            loss.backward()  # type: ignore[no-untyped-call]
            total += float(loss.detach())
        torch.nn.utils.clip_grad_norm_(policy.module.parameters(), 1.0)
        optimizer.step()
        losses.append(total)
        progress(step + 1)
    return losses
