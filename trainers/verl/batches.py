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
    """Episodes could not be played by verl's agent loops, or did not come back."""


@dataclass(frozen=True)
class Stored:
    """A row as an agent loop stored it.

    key: verl's; episode: its number in the batch of episodes; prompt, response (T,) long; mask (T,) bool,
    what the policy wrote; log_probs (T,) float of the engine; told: see `written`.
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
    """A rollout and the keys under which verl has its rows, in their order.

    left_out: keys of what verl has of episodes whose environment failed.
    """

    rollout: Rollout
    keys: tuple[str, ...]
    left_out: tuple[str, ...] = ()


def episodes_of(keys: Sequence[str], groups: Mapping[str, int], group_size: int) -> list[int]:
    """The episode of every key `<group>_<session>_<turn>`; `groups` numbers the groups."""
    numbers = []
    for key in keys:
        group, session, _ = key.rsplit("_", 2)
        numbers.append(groups[group] * group_size + int(session))
    return numbers


def failures_of(stored: Sequence[Stored], *, episodes: int) -> dict[int, str]:
    """Of every episode whose environment failed why; raises EpisodeError for those that broke off otherwise.

    A failure is the environment's own and costs an episode; an error is a mistake somewhere and costs the
    trial, as under the native trainer.
    """
    missing = set(range(episodes)) - {row.episode for row in stored}
    errors = {row.episode: str(row.told["error"]) for row in stored if "error" in row.told}
    if errors:
        first = errors[min(errors)]
        raise EpisodeError(
            f"{len(errors)} of {episodes} episodes could not be played; the first says: {first}"
        )
    if missing:
        raise EpisodeError(
            f"{len(missing)} of {episodes} episodes failed; the agent loop's error is above in this log"
        )
    return {row.episode: str(row.told["failure"]) for row in stored if "failure" in row.told}


def as_rollout(stored: Sequence[Stored], *, episodes: int, group_size: int, kind: Kind) -> Played:
    """Rows turn by turn, as the native trainer has them; episodes whose environment failed have none.

    Raises EpisodeError when an episode has no row or could not be played, and ValueError when all of them
    failed (`failures_of` says so before).
    """
    failures = failures_of(stored, episodes=episodes)
    if len(failures) == episodes:
        raise ValueError(f"the environments of all {episodes} episodes failed")
    rows_of = [row for row in stored if row.episode not in failures]
    ordered = sorted(rows_of, key=lambda row: (row.told["turn"], row.episode))
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
        void=_void(told, mask),
    )
    failed = torch.tensor([episode in failures for episode in range(episodes)])
    return Played(
        Rollout(rows, _episodes(rows, told, failed), _transcripts(ordered, kind)),
        tuple(row.key for row in ordered),
        tuple(row.key for row in stored if row.episode in failures),
    )


def _void(told: Sequence[Mapping[str, Any]], mask: Tensor) -> Tensor:
    """(rows, tokens) bool: tokens of turns that did nothing."""
    void = torch.zeros_like(mask)
    for number, row in enumerate(told):
        for start, stop in row["void_spans"]:
            void[number, start:stop] = True
    return void & mask


def _episodes(rows: Rows, told: Sequence[Mapping[str, Any]], failed: Tensor) -> Episodes:
    def total(values: Tensor) -> Tensor:
        return torch.zeros(len(failed)).index_add_(0, rows.trajectory, values.float())

    def of(name: str) -> Tensor:
        return total(torch.tensor([float(row[name]) for row in told]))

    turns = of("turns")
    some = turns.clamp(min=1)
    return Episodes(
        returns=total(rows.rewards),
        turns=turns.long(),
        success=total(rows.success) > 0,
        valid_format=of("well_formed") / some,
        valid_action=of("admissible") / some,
        response_tokens=rows.tokens,
        void=of("void") / some,
        failed=failed,
        context_full=of("context_full") > 0,
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
            tuple(turn for row in rows for turn in row.told["transcript"]),
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
