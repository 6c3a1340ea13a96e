"""The batch: rows of a rollout, one per turn or one per trajectory.

A row of a trajectory (`rows: transcript`) has as its prompt what the policy saw first; its response is all
that came after, of which the policy wrote what the mask says. Its reward is the return R_i, its penalty the
sum of its turns' penalties, its turn 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Rows:
    """What a rollout leaves for the update; N rows, at most P prompt and T response tokens.

    prompts         (N, P) long    right-padded
    prompt_lengths  (N,)   long
    prompt_id       (N,)   long    rows with the identical prompt share an id (it is computed once)
    responses       (N, T) long    right-padded, the end-of-sequence token included
    mask            (N, T) bool    tokens the policy wrote; the rest is outside every loss and statistic
    old_log_probs   (N, T) float   log pi_old at the training temperature; 0 outside the mask
    entropies       (N,)   float   mean token entropy of the row under pi_old, in nats
    group           (N,)   long    rows of one group started from the same initial state
    trajectory      (N,)   long    unique over the batch
    turn            (N,)   long    position k of the row in its trajectory, from 0
    rewards         (N,)   float   environment reward r_ik of the turn
    penalties       (N,)   float   p_ik: malformed or inadmissible, else 0
    anchor          (N,)   long    rows with the identical raw observation share an id; -1: none
    success         (N,)   bool    whether the row's trajectory succeeded
    anchor_texts    the observation of every anchor id (for fuzzy anchors)
    token_entropies (N, T) float   entropy of every token under pi_old, where the rollout kept it
    void            (N, T) bool    tokens of turns that did nothing, where the rollout kept it
    """

    prompts: Tensor
    prompt_lengths: Tensor
    prompt_id: Tensor
    responses: Tensor
    mask: Tensor
    old_log_probs: Tensor
    entropies: Tensor
    group: Tensor
    trajectory: Tensor
    turn: Tensor
    rewards: Tensor
    penalties: Tensor
    anchor: Tensor
    success: Tensor
    anchor_texts: tuple[str, ...] = ()
    token_entropies: Tensor | None = None
    void: Tensor | None = None

    def __len__(self) -> int:
        return len(self.group)

    @property
    def tokens(self) -> Tensor:
        """(N,) long: response tokens the policy wrote in each row."""
        return self.mask.sum(1)

    def select(self, index: Tensor) -> Rows:
        """The rows named by a boolean or integer index; anchors keep their ids."""
        return self._map(lambda tensor: tensor[index])

    def to(self, device: torch.device | str) -> Rows:
        """The same rows on another device."""
        return self._map(lambda tensor: tensor.to(device))

    def _map(self, change: Callable[[Tensor], Tensor]) -> Rows:
        changed: dict[str, Any] = {
            field.name: change(value)
            for field in fields(self)
            if isinstance(value := getattr(self, field.name), Tensor)
        }
        return replace(self, **changed)


def concatenate(parts: Sequence[Rows]) -> Rows:
    """One batch of several rollouts; groups, trajectories, prompts and anchors keep apart."""
    if len(parts) == 1:
        return parts[0]
    prompts = max(part.prompts.shape[1] for part in parts)
    tokens = max(part.responses.shape[1] for part in parts)
    widths = {"prompts": prompts} | dict.fromkeys(
        ("responses", "mask", "old_log_probs", "token_entropies", "void"), tokens
    )
    numbered = ("group", "trajectory", "prompt_id", "anchor")
    columns: dict[str, list[Tensor]] = {}
    offsets = dict.fromkeys(numbered, 0)
    for part in parts:
        for column in fields(part):
            value = getattr(part, column.name)
            if not isinstance(value, Tensor):
                continue
            if column.name in widths:
                value = torch.nn.functional.pad(value, (0, widths[column.name] - value.shape[1]))
            if column.name in numbered and len(value):
                moved = value + offsets[column.name]
                value = torch.where(value < 0, value, moved)
            columns.setdefault(column.name, []).append(value)
        for name in numbered:
            last = len(part.anchor_texts) - 1 if name == "anchor" else int(getattr(part, name).max())
            offsets[name] += last + 1
    whole: dict[str, Any] = {name: torch.cat(values) for name, values in columns.items()}
    return Rows(**whole, anchor_texts=tuple(text for part in parts for text in part.anchor_texts))
