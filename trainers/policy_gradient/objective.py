"""The loss of one mini-batch: clipping, masks, aggregation, KL and entropy put together.

    L = - sum(w * objective)  +  beta sum(w_all * KL)  -  eta sum(w_all * H)

w are the aggregation's weights of the tokens that the masks keep (and, where void turns are dropped, of the
other turns), w_all those of all tokens: KL and entropy keep every row. Weights, masks and sequence ratios
belong to the whole mini-batch, so the gradient is the same under any split into micro-batches (but for
`scope: microbatch`, whose point is that it is not).

A trainer makes an `Objective` from its config once; per step it calls `mark_void`, `charge_kl` and
`advantages`, per mini-batch `backward`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from trainers.config import TrainingConfig
from trainers.policy_gradient import advantage, kl
from trainers.policy_gradient.is_clipping import Clip
from trainers.policy_gradient.loss_aggregation import Aggregation, token_weights
from trainers.policy_gradient.masks import kept_tokens, void_trajectories, without_void
from trainers.policy_gradient.options import bind
from trainers.policy_gradient.parameters import PER_TURN, AggregationSettings, ClippingSettings, settings
from trainers.rows import Rows

# rows -> log-probs of their tokens, with gradient, and token entropies in nats, both (rows, tokens); the
# entropies need a gradient only under an entropy bonus
Score = Callable[[Rows], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Pass:
    """What a mini-batch's forward and backward pass leaves for the diagnostics, without gradient.

    loss       the mini-batch's loss
    log_probs  (rows, tokens) float  before the update
    entropies  (rows, tokens) float  in nats
    kept       (rows, tokens) bool   tokens whose policy-loss term stayed
    """

    loss: float
    log_probs: Tensor
    entropies: Tensor
    kept: Tensor


@dataclass(frozen=True)
class Weights:
    """Of a mini-batch, (rows, tokens): weights of the policy loss, of KL and entropy; what the masks kept.

    draws: what a clipping option that draws at random is given, None for others.
    """

    policy: Tensor
    every: Tensor
    kept: Tensor
    draws: Tensor | None = None


class Objective:
    """A point of the axes as a loss.

    Raises ValueError for a wrong option, for trajectory ratios under mini-batches that cut trajectories, and
    for rows of whole trajectories under an advantage of turns (`PER_TURN`).
    """

    def __init__(self, config: TrainingConfig) -> None:
        trainer = config.trainer
        self.clip: Clip = bind("is_clipping", config.is_clipping)
        self.draws = "draws" in inspect.signature(self.clip).parameters
        self.clip_settings = settings(config.is_clipping, ClippingSettings)
        self.aggregation: Aggregation = bind("loss_aggregation", config.loss_aggregation)
        self.aggregation_settings = settings(config.loss_aggregation, AggregationSettings)
        self.advantage: advantage.Advantage = bind("advantage", config.advantage)
        self.penalty_where = trainer.penalty.where
        self.kl = trainer.kl
        self.entropy_bonus = trainer.entropy_bonus
        self.void_turns = trainer.void_turns
        turns = int(config.env.get("max_turns", 1)) if config.rows == "transcript" else 1
        self.max_tokens = turns * config.prompt.max_response_tokens
        self.micro_rows = trainer.micro_rows
        # sequence ratios run over trajectories: the loss of a row depends on other rows
        self.whole_trajectories = config.is_clipping.parameters.get("unit") == "trajectory"
        if config.rows == "transcript" and config.advantage.function in PER_TURN:
            raise ValueError(
                f"advantage {config.advantage.option} is that of a turn, and with rows: transcript a row is "
                "a whole trajectory: set rows: turn"
            )
        if self.whole_trajectories and config.rows == "turn" and trainer.shuffle != "trajectories":
            raise ValueError(
                "is_clipping.unit: trajectory needs whole trajectories in a mini-batch: "
                f"set trainer.shuffle: trajectories, not {trainer.shuffle}"
            )

    @property
    def needs_reference(self) -> bool:
        """Whether the loss has a KL term."""
        return self.kl.where == "loss" and self.kl.coefficient > 0

    @property
    def needs_every_row(self) -> bool:
        """Whether the loss of some rows depends on the policy's log-probs of others."""
        return self.whole_trajectories or self.clip_settings != ClippingSettings()

    def mark_void(self, rows: Rows) -> Rows:
        """A whole step's rows, whose void tokens are all those to drop (`trainer.void_turns`)."""
        if self.void_turns is None or rows.void is None:
            return replace(rows, void=None)
        if self.void_turns.drop == "turn":
            return rows
        return replace(rows, void=void_trajectories(rows.void, rows.mask, rows.trajectory))

    def charge_kl(self, rows: Rows, ref_log_probs: Tensor) -> Rows:
        """The rows with KL taken off their rewards under `kl.where: reward`, else as they are."""
        if self.kl.where != "reward" or not self.kl.coefficient:
            return rows
        estimator = kl.ESTIMATORS[self.kl.estimator]
        return kl.charge_rewards(rows, ref_log_probs, coefficient=self.kl.coefficient, estimator=estimator)

    def advantages(self, rows: Rows) -> Tensor:
        """(rows,) float32; raises ValueError when the option needs anchors that rows do not have."""
        return advantage.advantages(rows, self.advantage, penalty_where=self.penalty_where)

    def backward(
        self,
        rows: Rows,
        advantages: Tensor,
        ref_log_probs: Tensor | None,
        score: Score,
        generator: torch.Generator | None = None,
    ) -> Pass:
        """Add the gradient of a mini-batch's loss to the parameters.

        advantages: (rows,); ref_log_probs: (rows, tokens), None only where the loss has no KL; generator: for
        `random_mask` and random gates only. Where rows depend on each other, several micro-batches cost a
        forward pass without gradient first.
        """
        size = self.micro_rows or max(len(rows), 1)
        splits = [slice(start, min(start + size, len(rows))) for start in range(0, len(rows), size)]
        parts = [rows] if len(splits) == 1 else [_part(rows, split) for split in splits]
        whole = score(rows) if len(splits) == 1 else None
        if whole is not None:
            known = whole[0].detach()
        elif self.needs_every_row:
            with torch.no_grad():
                known = torch.cat([score(part)[0] for part in parts])
        else:
            known = rows.old_log_probs
        weights = self.weights(rows, advantages, known, splits, generator)
        losses, outputs = [], []
        for split, part in zip(splits, parts, strict=True):
            output = whole or score(part)
            loss = self.loss(rows, advantages, ref_log_probs, weights, known, split, output)
            loss.backward()  # type: ignore[no-untyped-call]
            losses.append(loss.detach())
            outputs.append((output[0].detach(), output[1].detach()))
        log_probs, entropies = (torch.cat(values) for values in zip(*outputs, strict=True))
        return Pass(float(torch.stack(losses).sum()), log_probs, entropies, weights.kept)

    def weights(
        self,
        rows: Rows,
        advantages: Tensor,
        log_probs: Tensor,
        splits: Sequence[slice] = (slice(None),),
        generator: torch.Generator | None = None,
    ) -> Weights:
        """Masks and aggregation weights of a whole mini-batch; log_probs: (rows, tokens) of all its rows."""
        kept = kept_tokens(
            log_probs,
            rows.old_log_probs,
            advantages,
            rows.mask,
            settings=self.clip_settings,
            generator=generator,
        )
        if self.void_turns is not None and rows.void is not None:
            kept = without_void(kept, rows.void, self.void_turns)
        counted, every = (
            token_weights(
                self.aggregation,
                mask,
                rows.trajectory,
                settings=self.aggregation_settings,
                max_tokens=self.max_tokens,
                micro_batches=splits,
            )
            for mask in (kept.counted, rows.mask)
        )
        draws = None
        if self.draws and generator is not None:
            # drawn on the generator's device, so that a draw is the same wherever the rows are
            draws = torch.rand(rows.mask.shape, generator=generator, device=generator.device)
            draws = draws.to(rows.mask.device)
        return Weights(torch.where(kept.terms, counted, 0.0), every, kept.terms, draws)

    def loss(
        self,
        rows: Rows,
        advantages: Tensor,
        ref_log_probs: Tensor | None,
        weights: Weights,
        log_probs: Tensor,
        split: slice,
        output: tuple[Tensor, Tensor],
    ) -> Tensor:
        """() the part of the mini-batch's loss that belongs to some of its rows; the parts add up to it.

        log_probs: (rows, tokens) of the whole mini-batch, read only where rows depend on each other; split:
        which rows; output: log-probs with gradient and entropies of those.
        """
        mask = rows.mask[split]
        written = torch.where(mask, output[0], 0.0)
        everything, seen = written, split
        if self.whole_trajectories:
            # the option sees the whole mini-batch, of which only these rows carry a gradient
            everything = torch.cat([log_probs[: split.start], written, log_probs[split.stop :]])
            seen = slice(None)
        drawn = () if weights.draws is None else (weights.draws[seen],)
        objective = self.clip(
            everything,
            rows.old_log_probs[seen],
            advantages[seen],
            rows.mask[seen],
            rows.trajectory[seen],
            *drawn,
        )
        if self.whole_trajectories:
            objective = objective[split]
        loss = -(weights.policy[split] * objective).sum()
        if self.needs_reference:
            if ref_log_probs is None:
                raise ValueError("KL in the loss needs ref_log_probs")
            estimate = kl.ESTIMATORS[self.kl.estimator](written, ref_log_probs[split], mask)
            loss = loss + self.kl.coefficient * (weights.every[split] * estimate).sum()
        if self.entropy_bonus:
            if not output[1].requires_grad:
                raise ValueError("an entropy bonus needs entropies with gradient")
            entropies = torch.where(mask, output[1], 0.0)
            loss = loss - self.entropy_bonus * (weights.every[split] * entropies).sum()
        return loss


def _part(rows: Rows, split: slice) -> Rows:
    return rows.select(torch.arange(split.start, split.stop, device=rows.mask.device))
