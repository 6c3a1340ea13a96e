"""From what agent loops stored to rollouts of ours, and from our tensors to fields of verl's batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from trainers.monitor import Kind, Transcript
from trainers.policy import pad
from trainers.rollout import Episodes, Rollout
from trainers.rows import Rows


class EpisodeError(RuntimeError):
    """Episodes did not come back from verl's agent loops."""


@dataclass(frozen=True)
class Stored:
    """A row as an agent loop stored it.

    key: verl's; episode: its number in the batch of episodes; prompt, response (T,) long; mask (T,) bool,
    what the policy wrote; log_probs (T,) float of the engine; told: see `agent_loop`.
    """

    key: str
    episode: int
    prompt: Tensor
    response: Tensor
    mask: Tensor
    log_probs: Tensor
    told: Mapping[str, Any]


@dataclass(frozen=True)
class Played:
    """A rollout and the keys under which verl has its rows, in their order."""

    rollout: Rollout
    keys: tuple[str, ...]


def episodes_of(keys: Sequence[str], groups: Mapping[str, int], group_size: int) -> list[int]:
    """The episode of every key `<group>_<session>_<turn>`; `groups` numbers the groups."""
    numbers = []
    for key in keys:
        group, session, _ = key.rsplit("_", 2)
        numbers.append(groups[group] * group_size + int(session))
    return numbers


def as_rollout(stored: Sequence[Stored], *, episodes: int, group_size: int, kind: Kind) -> Played:
    """Rows turn by turn, as the native trainer has them. Raises EpisodeError when an episode has no row."""
    ordered = sorted(stored, key=lambda row: (row.told["turn"], row.episode))
    missing = set(range(episodes)) - {row.episode for row in ordered}
    if missing:
        raise EpisodeError(
            f"{len(missing)} of {episodes} episodes failed; the agent loop's error is above in this log"
        )
    prompts, prompt_lengths = pad([row.prompt.tolist() for row in ordered], 0)
    responses, _ = pad([row.response.tolist() for row in ordered], 0)
    mask = _padded([row.mask for row in ordered]).bool()
    trajectory = torch.tensor([row.episode for row in ordered])
    prompt_ids: dict[tuple[int, ...], int] = {}
    anchors: dict[str, int] = {}
    told = [row.told for row in ordered]
    rows = Rows(
        prompts=prompts,
        prompt_lengths=prompt_lengths,
        prompt_id=torch.tensor(
            [prompt_ids.setdefault(tuple(row.prompt.tolist()), len(prompt_ids)) for row in ordered]
        ),
        responses=responses,
        mask=mask,
        old_log_probs=_padded([row.log_probs for row in ordered]) * mask,
        entropies=torch.zeros(len(ordered)),
        group=trajectory // group_size,
        trajectory=trajectory,
        turn=torch.tensor([row["turn"] for row in told]),
        rewards=torch.tensor([float(row["reward"]) for row in told]),
        penalties=torch.tensor([float(row["penalty"]) for row in told]),
        anchor=torch.tensor(
            [-1 if row["anchor"] is None else anchors.setdefault(row["anchor"], len(anchors)) for row in told]
        ),
        success=torch.tensor([bool(row["success"]) for row in told]),
        anchor_texts=tuple(anchors),
    )
    return Played(
        Rollout(rows, _episodes(rows, told, episodes), _transcripts(ordered, kind)),
        tuple(row.key for row in ordered),
    )


def _episodes(rows: Rows, told: Sequence[Mapping[str, Any]], count: int) -> Episodes:
    turns = torch.bincount(rows.trajectory, minlength=count)

    def total(values: Tensor) -> Tensor:
        return torch.zeros(count).index_add_(0, rows.trajectory, values.float())

    return Episodes(
        returns=total(rows.rewards),
        turns=turns,
        success=total(rows.success) > 0,
        valid_format=total(torch.tensor([bool(row["well_formed"]) for row in told])) / turns,
        valid_action=total(torch.tensor([bool(row["admissible"]) for row in told])) / turns,
        response_tokens=rows.tokens,
    )


def _transcripts(ordered: Sequence[Stored], kind: Kind) -> tuple[Transcript, ...]:
    turns: dict[int, list[Stored]] = {}
    for row in ordered:
        if "transcript" in row.told:
            turns.setdefault(row.episode, []).append(row)
    return tuple(
        Transcript(
            kind,
            bool(rows[0].told["success"]),
            float(sum(row.told["reward"] for row in rows)),
            tuple(row.told["transcript"] for row in rows),
        )
        for _, rows in sorted(turns.items())
    )


def _padded(values: Sequence[Tensor]) -> Tensor:
    """(n, longest), padded with 0 on the right."""
    return torch.nn.utils.rnn.pad_sequence([value.float() for value in values], batch_first=True)


def jagged(values: Tensor, lengths: Sequence[int]) -> Tensor:
    """(n, tokens) as verl keeps it: every row with its own length."""
    rows = [row[:length].contiguous() for row, length in zip(values, lengths, strict=True)]
    return torch.nested.as_nested_tensor(rows, layout=torch.jagged)


def unjagged(values: Any, tokens: int) -> Tensor:
    """The rows of a jagged tensor, or of a dense one, as (n, tokens), padded with 0 on the right."""
    rows = list(values.unbind()) if values.is_nested else list(values)
    return torch.nn.functional.pad(_padded(rows), (0, tokens))[:, :tokens]
