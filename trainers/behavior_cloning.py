"""Behaviour cloning before RL: demonstrated turns as rows, and supervised learning on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from envs.prompts import parse
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
    """Encoded turns or transcripts to imitate, n of them.

    prompts (n, P) and responses (n, T), long, right-padded; prompt_lengths, prompt_id (n,) long; mask (n, T)
    bool, the tokens to be learned.
    """

    prompts: Tensor
    prompt_lengths: Tensor
    prompt_id: Tensor
    responses: Tensor
    mask: Tensor

    def __len__(self) -> int:
        return len(self.prompts)

    def rows(self, index: Tensor) -> Rows:
        """The named examples as rows."""
        n = len(index)
        zeros, numbers = torch.zeros(n), torch.arange(n)
        mask = self.mask[index]
        longest = int((mask * torch.arange(1, mask.shape[1] + 1)).max())
        return Rows(
            prompts=self.prompts[index],
            prompt_lengths=self.prompt_lengths[index],
            prompt_id=self.prompt_id[index],
            responses=self.responses[index, :longest],
            mask=mask[:, :longest],
            old_log_probs=torch.zeros(n, longest),
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
    """Demonstrations as token rows: a row per turn, or per episode where the prompter's rows are transcripts.

    Transcripts need demonstrations with all of their history, of an expert that does what it writes. Raises
    CloningError when a response is longer than the policy may write, as it could never be reproduced, and
    when not one transcript fits.
    """
    encoded = _turns if prompter.rows == "turn" else _transcripts
    distinct: dict[tuple[int, ...], int] = {}
    prompts, responses, masks, prompt_id = [], [], [], []
    for prompt, response, mask in encoded(demonstrations, prompter, max_tokens):
        prompt_id.append(distinct.setdefault(prompt, len(distinct)))
        prompts.append(prompt)
        responses.append(response)
        masks.append(mask)
    padded_prompts, prompt_lengths = pad(prompts, 0)
    padded_responses, _ = pad(responses, 0)
    padded_masks, _ = pad(masks, 0)
    return Examples(
        padded_prompts, prompt_lengths, torch.tensor(prompt_id), padded_responses, padded_masks.bool()
    )


Encoded = tuple[tuple[int, ...], list[int], list[bool]]  # prompt, what follows, and what of it is learned


def _turns(demonstrations: Sequence[Demonstration], prompter: Prompter, max_tokens: int) -> Iterator[Encoded]:
    for shown in demonstrations:
        prompt = prompter.encode(prompter.text(shown.history, shown.observation))
        response = _response(shown, prompter, max_tokens)
        yield tuple(prompt), response, [True] * len(response)


def _transcripts(
    demonstrations: Sequence[Demonstration], prompter: Prompter, max_tokens: int
) -> Iterator[Encoded]:
    """One per demonstrated episode, as far as it fits; an episode is found by the histories of its turns."""
    before: dict[tuple[tuple[str, str], ...], Demonstration] = {}
    for shown in demonstrations:
        done = parse(shown.response, None).action
        before[(*shown.history, (shown.observation.text, done))] = shown
    continued = {shown.history for shown in demonstrations}
    found = 0
    for shown in demonstrations:
        done = parse(shown.response, None).action
        if (*shown.history, (shown.observation.text, done)) in continued:
            continue  # not the last turn of its episode
        episode = [before.get(shown.history[:turn]) for turn in range(1, len(shown.history) + 1)]
        turns = [turn for turn in episode if turn is not None]
        if len(turns) < len(episode):
            continue  # a turn without a demonstration: nothing was written there to be shown
        found += 1
        yield _transcript([*turns, shown], prompter, max_tokens)
    if not found:
        raise CloningError("no demonstrated episode shows all of its turns, so no transcript can be made")


def _transcript(turns: Sequence[Demonstration], prompter: Prompter, max_tokens: int) -> Encoded:
    """The turns of one episode, as far as they fit."""
    context = opening = prompter.open(turns[0].observation)
    response = _response(turns[0], prompter, max_tokens)
    mask = [True] * len(response)
    for turn in turns[1:]:
        following = prompter.go_on(context, response, turn.observation)
        if not prompter.fits(following):
            break
        mask += [False] * (len(following) - len(context) - len(response))
        context, response = following, _response(turn, prompter, max_tokens)
        mask += [True] * len(response)
    return opening, [*context[len(opening) :], *response], mask


def _response(shown: Demonstration, prompter: Prompter, max_tokens: int) -> list[int]:
    response = prompter.policy.encode_response(shown.response)
    if len(response) > max_tokens:
        raise CloningError(
            f"an expert's response has {len(response)} tokens, but prompt.max_response_tokens is "
            f"{max_tokens}; raise it to at least {len(response)}"
        )
    return response


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
        tokens = examples.mask[index].sum()
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
