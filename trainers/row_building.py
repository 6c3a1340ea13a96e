"""From the turns of a rollout to rows: one per turn, or one per trajectory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from trainers.policy import Generated, pad
from trainers.rows import Rows


@dataclass(frozen=True)
class Turn:
    """One turn of the episodes that were still running, an entry each.

    prompts: token ids of all that the policy was shown; void: whether the turn did nothing.
    """

    episodes: list[int]
    prompts: list[Sequence[int]]
    prompt_ids: list[int]
    anchors: list[int]
    generated: Generated
    rewards: list[float]
    penalties: list[float]
    void: list[bool]


def turn_rows(
    turns: Sequence[Turn], group_size: int, success: Sequence[bool], anchors: tuple[str, ...]
) -> Rows:
    """A row per turn, prompts and responses padded to the longest; trajectory i is episode i."""
    longest = max(turn.generated.tokens.shape[1] for turn in turns)

    def widen(tensor: Tensor) -> Tensor:
        return torch.nn.functional.pad(tensor, (0, longest - tensor.shape[1]))

    prompts, prompt_lengths = pad([prompt for turn in turns for prompt in turn.prompts], 0)
    lengths = torch.cat([turn.generated.lengths for turn in turns])
    mask = torch.arange(longest) < lengths[:, None]
    token_entropies = torch.cat([widen(turn.generated.token_entropies) for turn in turns])
    trajectory = torch.tensor([index for turn in turns for index in turn.episodes])
    return Rows(
        prompts=prompts,
        prompt_lengths=prompt_lengths,
        prompt_id=torch.tensor([index for turn in turns for index in turn.prompt_ids]),
        responses=torch.cat([widen(turn.generated.tokens) for turn in turns]),
        mask=mask,
        old_log_probs=torch.cat([widen(turn.generated.log_probs) for turn in turns]),
        entropies=token_entropies.sum(1) / lengths,
        token_entropies=token_entropies,
        void=mask & torch.tensor([void for turn in turns for void in turn.void])[:, None],
        group=trajectory // group_size,
        trajectory=trajectory,
        turn=torch.tensor([number for number, turn in enumerate(turns) for _ in turn.episodes]),
        rewards=torch.tensor([reward for turn in turns for reward in turn.rewards]),
        penalties=torch.tensor([value for turn in turns for value in turn.penalties]),
        anchor=torch.tensor([anchor for turn in turns for anchor in turn.anchors]),
        success=torch.tensor(success)[trajectory],
        anchor_texts=anchors,
    )


def transcript_rows(turns: Sequence[Turn], group_size: int, success: Sequence[bool]) -> Rows:
    """A row per trajectory; trajectory i is episode i, of which every turn's prompt begins with all before.

    What stands between two responses is part of the row's response and outside its mask.
    """
    opening, count = turns[0], len(success)
    said: list[list[int]] = [[] for _ in range(count)]
    rewards, penalties = [0.0] * count, [0.0] * count
    starts: list[list[int]] = []
    for turn in turns:
        starts.append([])
        lengths = turn.generated.lengths.tolist()
        for place, (episode, tokens) in enumerate(
            zip(turn.episodes, turn.generated.tokens.tolist(), strict=True)
        ):
            row = said[episode]
            row += turn.prompts[place][len(opening.prompts[episode]) + len(row) :]
            starts[-1].append(len(row))
            row += tokens[: lengths[place]]
            rewards[episode] += turn.rewards[place]
            penalties[episode] += turn.penalties[place]
    prompts, prompt_lengths = pad(opening.prompts, 0)
    responses, _ = pad(said, 0)
    mask, void = torch.zeros(2, *responses.shape, dtype=torch.bool)
    old_log_probs, token_entropies = torch.zeros(2, *responses.shape)
    for turn, begins in zip(turns, starts, strict=True):
        number = torch.arange(turn.generated.tokens.shape[1])
        written = number < turn.generated.lengths[:, None]
        index = torch.tensor(turn.episodes)[:, None].expand_as(written)[written]
        column = (torch.tensor(begins)[:, None] + number)[written]
        mask[index, column] = True
        void[index, column] = torch.tensor(turn.void)[:, None].expand_as(written)[written]
        old_log_probs[index, column] = turn.generated.log_probs[written]
        token_entropies[index, column] = turn.generated.token_entropies[written]
    trajectory = torch.arange(count)
    return Rows(
        prompts=prompts,
        prompt_lengths=prompt_lengths,
        prompt_id=torch.tensor(opening.prompt_ids),
        responses=responses,
        mask=mask,
        old_log_probs=old_log_probs,
        entropies=token_entropies.sum(1) / mask.sum(1),
        token_entropies=token_entropies,
        void=void,
        group=trajectory // group_size,
        trajectory=trajectory,
        turn=torch.zeros_like(trajectory),
        rewards=torch.tensor(rewards),
        penalties=torch.tensor(penalties),
        anchor=torch.full_like(trajectory, -1),
        success=torch.tensor(success),
    )
