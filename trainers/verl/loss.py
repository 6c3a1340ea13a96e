"""Our loss where verl's workers compute theirs: on a micro-batch, with what `updates` sent along."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from verl.workers.utils.padding import no_padding_2_padding

from trainers.config import TrainingConfig
from trainers.policy_gradient.objective import Objective
from trainers.verl.updates import Micro, micro_loss

POLICY, EVERY, DRAWS = "arlarena_policy_weights", "arlarena_weights", "arlarena_draws"
ROW, ADVANTAGE, REST = "arlarena_row", "arlarena_advantage", "arlarena_rest"
"""Fields of a batch, beside verl's: of tokens the first three, of rows the others."""


@dataclass(frozen=True)
class Seen:
    """What a forward pass gave for m rows, on the CPU: row (m,) long; the others (m, tokens) float."""

    row: Tensor
    log_probs: Tensor
    entropies: Tensor


class MicroBatchLoss:
    """verl's loss function of a trial. What it saw since the last `take` is kept for the diagnostics."""

    def __init__(self, config: TrainingConfig) -> None:
        self.objective = Objective(config)
        self._seen: list[Seen] = []

    def __call__(self, model_output: Any, data: Any, dp_group: Any = None) -> tuple[Tensor, dict[str, float]]:
        """Loss and metrics of a micro-batch; verl averages gradients over devices, so it is scaled up."""
        log_probs = no_padding_2_padding(model_output["log_probs"], data).float()
        entropies = no_padding_2_padding(model_output["entropy"], data).float()
        reference = "ref_log_prob" if "ref_log_prob" in data.keys() else None  # noqa: SIM118 - no mapping
        fields = ["response_mask", "old_log_probs", POLICY, EVERY, *([reference] if reference else [])]
        if self.objective.draws:
            fields.append(DRAWS)
        padded = data.select(*fields).to_padded_tensor()
        micro = Micro(
            mask=padded["response_mask"].bool(),
            old_log_probs=padded["old_log_probs"],
            ref_log_probs=None if reference is None else padded[reference],
            advantages=data[ADVANTAGE].reshape(-1),
            policy=padded[POLICY],
            every=padded[EVERY],
            rest=data[REST] if self.objective.whole_trajectories else None,
            draws=padded[DRAWS] if self.objective.draws else None,
        )
        self._seen.append(
            Seen(data[ROW].reshape(-1).cpu(), log_probs.detach().cpu(), entropies.detach().cpu())
        )
        loss = micro_loss(self.objective, micro, log_probs, entropies)
        return loss * data["dp_size"], {}

    def take(self) -> list[Seen]:
        """What was seen since the last call."""
        seen, self._seen = self._seen, []
        return seen


def assemble(seen: list[Seen], index: Tensor, tokens: int) -> tuple[Tensor, Tensor]:
    """Log-probs and entropies (u, tokens) of the rows of an update, of what all workers saw of them.

    index: (u,) long, the update's rows, ascending. Rows that only fill a batch up have other numbers.
    """
    log_probs = torch.zeros(len(index), tokens)
    entropies = torch.zeros(len(index), tokens)
    for part in seen:
        known = torch.isin(part.row, index)
        place, width = torch.searchsorted(index, part.row[known]), part.log_probs.shape[1]
        log_probs[place, :width] = part.log_probs[known][:, :tokens]
        entropies[place, :width] = part.entropies[known][:, :tokens]
    return log_probs, entropies
