"""Grouped multi-turn rollouts: a policy plays many episodes side by side, and what it wrote becomes rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from envs.prompts import Parsed, parse, render
from envs.text_env import EnvPool, Observation, Split
from trainers.config import PenaltyConfig, PromptConfig
from trainers.monitor import Kind, Transcript
from trainers.policy import Generated, Policy, Sampling, pad
from trainers.rows import Rows


@dataclass(frozen=True)
class Episodes:
    """What a rollout did, one entry per episode unless said otherwise.

    returns, turns, success, valid_format, valid_action: (episodes,) tensors, the last two as the share of
    the episode's turns. response_tokens (rows,) long.
    """

    returns: Tensor
    turns: Tensor
    success: Tensor
    valid_format: Tensor
    valid_action: Tensor
    response_tokens: Tensor


@dataclass(frozen=True)
class Rollout:
    """Rows of a rollout (trajectory i belongs to episode i), its episodes and some transcripts."""

    rows: Rows
    episodes: Episodes
    transcripts: tuple[Transcript, ...]


class Prompter:
    """Renders and encodes prompts, remembering both: at one turn most episodes of a group look alike."""

    def __init__(self, policy: Policy, prompt: PromptConfig, task: str) -> None:
        self.policy, self.prompt, self.task = policy, prompt, task
        self._encoded: dict[str, list[int]] = {}

    def text(self, history: Sequence[tuple[str, str]], observation: Observation) -> str:
        """The prompt: the task, the last turns as the configuration says, and the observation."""
        kept = history[-self.prompt.history :] if self.prompt.history else ()
        return render(self.prompt.style, self.task, kept, observation)

    def encode(self, text: str) -> list[int]:
        """Token ids of a prompt."""
        tokens = self._encoded.get(text)
        if tokens is None:
            if len(self._encoded) > 200_000:
                self._encoded.clear()
            tokens = self._encoded[text] = self.policy.encode(text)
        return tokens


@dataclass
class _Turn:
    """All rows of one turn, before padding."""

    episodes: list[int]
    prompts: list[list[int]]
    prompt_ids: list[int]
    anchors: list[int]
    generated: Generated
    rewards: list[float]
    penalties: list[float]


def rollout(
    policy: Policy,
    pool: EnvPool,
    prompter: Prompter,
    seeds: Sequence[int],
    *,
    split: Split,
    group_size: int,
    sampling: Sampling,
    penalty: PenaltyConfig,
    generator: torch.Generator,
    transcripts: int = 0,
) -> Rollout:
    """Play one episode per seed to its end; `group_size` neighbours form a group.

    The response opens right after the prompt; a malformed one is stepped as the empty action. Penalties are
    those of the configuration, the larger of the two that apply (a malformed response is also inadmissible).
    """
    count = len(seeds)
    observations: list[Observation | None] = list(pool.reset(seeds, split))
    history: list[list[tuple[str, str]]] = [[] for _ in range(count)]
    prompt_ids: dict[str, int] = {}
    anchor_ids: dict[str, int] = {}
    returns, success = [0.0] * count, [False] * count
    well_formed, admissible = [0] * count, [0] * count
    written: list[list[dict[str, object]]] = [[] for _ in range(min(transcripts, count))]
    turns: list[_Turn] = []
    running = list(range(count))
    while running:
        shown = [observation for index in running if (observation := observations[index]) is not None]
        texts = [
            prompter.text(history[index], observation)
            for index, observation in zip(running, shown, strict=True)
        ]
        distinct: dict[str, int] = {}
        row_prompt = [distinct.setdefault(text, len(distinct)) for text in texts]
        encoded = [prompter.encode(text) for text in distinct]
        generated = policy.generate(encoded, row_prompt, sampling, generator)
        responses = [
            policy.decode(tokens[:length])
            for tokens, length in zip(generated.tokens.tolist(), generated.lengths.tolist(), strict=True)
        ]
        parsed = [
            parse(response, observation.admissible)
            for response, observation in zip(responses, shown, strict=True)
        ]
        outcomes = pool.step(running, [result.action for result in parsed])
        turn = _Turn(
            episodes=running,
            prompts=[encoded[place] for place in row_prompt],
            prompt_ids=[prompt_ids.setdefault(text, len(prompt_ids)) for text in texts],
            anchors=[
                -1 if shown_.anchor is None else anchor_ids.setdefault(shown_.anchor, len(anchor_ids))
                for shown_ in shown
            ],
            generated=generated,
            rewards=[outcome.reward for outcome in outcomes],
            penalties=[penalty_of(result, penalty) for result in parsed],
        )
        turns.append(turn)
        still = []
        for place, index in enumerate(running):
            result, outcome, observation = parsed[place], outcomes[place], shown[place]
            returns[index] += outcome.reward
            success[index] = outcome.success
            well_formed[index] += result.well_formed
            admissible[index] += result.rejection is None
            if prompter.prompt.history:
                history[index].append((observation.text, result.action))
            if index < len(written):
                written[index].append(
                    {
                        "observation": observation.text,
                        "response": responses[place],
                        "action": result.action,
                        "reward": outcome.reward,
                        "rejection": result.rejection,
                    }
                )
            observations[index] = outcome.observation
            if outcome.observation is not None:
                still.append(index)
        running = still
    rows = _rows(turns, group_size, success, tuple(anchor_ids))
    lengths = torch.bincount(rows.trajectory, minlength=count)
    return Rollout(
        rows=rows,
        episodes=Episodes(
            returns=torch.tensor(returns),
            turns=lengths,
            success=torch.tensor(success),
            valid_format=torch.tensor(well_formed) / lengths,
            valid_action=torch.tensor(admissible) / lengths,
            response_tokens=rows.tokens,
        ),
        transcripts=tuple(
            Transcript(_kind(split), success[index], returns[index], tuple(turns_of))
            for index, turns_of in enumerate(written)
        ),
    )


def _kind(split: Split) -> Kind:
    return split


def penalty_of(result: Parsed, penalty: PenaltyConfig) -> float:
    """What a response costs its row: p_ik."""
    if result.rejection is None:
        return 0.0
    if result.well_formed:
        return penalty.inadmissible
    return max(penalty.format, penalty.inadmissible)


def _rows(turns: Sequence[_Turn], group_size: int, success: Sequence[bool], anchors: tuple[str, ...]) -> Rows:
    """Concatenate the turns, padding prompts and responses to the longest."""
    longest = max(turn.generated.tokens.shape[1] for turn in turns)

    def widen(tensor: Tensor) -> Tensor:
        return torch.nn.functional.pad(tensor, (0, longest - tensor.shape[1]))

    prompts, prompt_lengths = pad([prompt for turn in turns for prompt in turn.prompts], 0)
    lengths = torch.cat([turn.generated.lengths for turn in turns])
    token_entropies = torch.cat([widen(turn.generated.token_entropies) for turn in turns])
    trajectory = torch.tensor([index for turn in turns for index in turn.episodes])
    return Rows(
        prompts=prompts,
        prompt_lengths=prompt_lengths,
        prompt_id=torch.tensor([index for turn in turns for index in turn.prompt_ids]),
        responses=torch.cat([widen(turn.generated.tokens) for turn in turns]),
        mask=torch.arange(longest) < lengths[:, None],
        old_log_probs=torch.cat([widen(turn.generated.log_probs) for turn in turns]),
        entropies=token_entropies.sum(1) / lengths,
        token_entropies=token_entropies,
        group=trajectory // group_size,
        trajectory=trajectory,
        turn=torch.tensor([number for number, turn in enumerate(turns) for _ in turn.episodes]),
        rewards=torch.tensor([reward for turn in turns for reward in turn.rewards]),
        penalties=torch.tensor([value for turn in turns for value in turn.penalties]),
        anchor=torch.tensor([anchor for turn in turns for anchor in turn.anchors]),
        success=torch.tensor(success)[trajectory],
        anchor_texts=anchors,
    )
