"""The loss of one mini-batch: clipping, masks, aggregation, KL and entropy put together.

    L = - sum(w * objective)  +  beta sum(w_all * KL)  -  eta sum(w_all * H)

w are the aggregation's weights of the tokens that the masks keep, w_all those of all tokens: KL and entropy
keep every row. Weights, masks and sequence ratios belong to the whole mini-batch, so the gradient is the
same under any split into micro-batches (but for `scope: microbatch`, whose point is that it is not).

A trainer makes an `Objective` from its config once and calls `backward` per mini-batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from trainers.config import KLConfig, TrainingConfig
from trainers.policy_gradient import kl
from trainers.policy_gradient.is_clipping import Clip
from trainers.policy_gradient.loss_aggregation import Aggregation, token_weights
from trainers.policy_gradient.masks import kept_tokens
from trainers.policy_gradient.options import bind
from trainers.policy_gradient.parameters import AggregationSettings, ClippingSettings, settings


@dataclass(frozen=True)
class LossRows:
    """What the loss needs to know of a mini-batch beside the policy.

    mask           (rows, tokens) bool   tokens the policy wrote
    trajectory     (rows,) long
    old_log_probs  (rows, tokens) float
    advantages     (rows,) float
    ref_log_probs  (rows, tokens) float, or None where KL is not in the loss
    """

    mask: Tensor
    trajectory: Tensor
    old_log_probs: Tensor
    advantages: Tensor
    ref_log_probs: Tensor | None = None

    def __len__(self) -> int:
        return len(self.mask)


@dataclass(frozen=True)
class Forward:
    """The policy on some rows: log-probs of their tokens and token entropies in nats, both (rows, tokens).

    With gradient, entropies only if there is an entropy bonus; values outside the mask are ignored.
    """

    log_probs: Tensor
    entropies: Tensor


@dataclass(frozen=True)
class Pass:
    """What a mini-batch's forward and backward pass leaves, without gradient, for the diagnostics.

    loss       ()                    the mini-batch's loss
    log_probs  (rows, tokens) float  before the update
    entropies  (rows, tokens) float
    kept       (rows, tokens) bool   tokens whose policy-loss term stayed
    """

    loss: Tensor
    log_probs: Tensor
    entropies: Tensor
    kept: Tensor


@dataclass(frozen=True)
class Weights:
    """Of a mini-batch, (rows, tokens): weights of the policy loss, of KL and entropy; what the masks kept."""

    policy: Tensor
    every: Tensor
    kept: Tensor


@dataclass(frozen=True)
class Objective:
    """A point of the axes as a loss.

    whole_trajectories: sequence ratios run over trajectories, so rows of one mini-batch depend on each other;
    max_tokens: the configured response limit.
    """

    clip: Clip
    clip_settings: ClippingSettings
    aggregation: Aggregation
    aggregation_settings: AggregationSettings
    kl: KLConfig
    entropy_bonus: float
    max_tokens: int
    whole_trajectories: bool = False

    @classmethod
    def of(cls, config: TrainingConfig) -> Objective:
        """Bind the options of a trial's config.

        Raises ValueError for a wrong option, and for trajectory ratios under mini-batches that cut
        trajectories.
        """
        whole_trajectories = config.is_clipping.parameters.get("unit") == "trajectory"
        if whole_trajectories and config.trainer.shuffle != "trajectories":
            raise ValueError(
                "is_clipping.unit: trajectory needs whole trajectories in a mini-batch: "
                f"set trainer.shuffle: trajectories, not {config.trainer.shuffle}"
            )
        return cls(
            clip=bind("is_clipping", config.is_clipping),
            clip_settings=settings(config.is_clipping, ClippingSettings),
            aggregation=bind("loss_aggregation", config.loss_aggregation),
            aggregation_settings=settings(config.loss_aggregation, AggregationSettings),
            kl=config.trainer.kl,
            entropy_bonus=config.trainer.entropy_bonus,
            max_tokens=config.prompt.max_response_tokens,
            whole_trajectories=whole_trajectories,
        )

    @property
    def needs_reference(self) -> bool:
        """Whether the loss has a KL term."""
        return self.kl.where == "loss" and self.kl.coefficient > 0

    @property
    def needs_every_row(self) -> bool:
        """Whether the loss of some rows depends on the policy's log-probs of others."""
        return self.whole_trajectories or self.clip_settings != ClippingSettings()

    def backward(
        self,
        minibatch: LossRows,
        forward: Callable[[slice], Forward],
        *,
        micro_rows: int | None = None,
        generator: torch.Generator | None = None,
    ) -> Pass:
        """Add the gradient of the mini-batch's loss to the parameters.

        forward: the policy on a slice of the mini-batch's rows; micro_rows: rows per micro-batch, None for
        all at once; generator: for `random_mask` only. Where a loss depends on every row's log-probs,
        several micro-batches cost a forward pass without gradient first.
        """
        rows = len(minibatch)
        size = micro_rows or max(rows, 1)
        splits = [slice(start, min(start + size, rows)) for start in range(0, rows, size)]
        output = forward(splits[0]) if len(splits) == 1 else None
        if output is not None:
            known = output.log_probs.detach()
        elif self.needs_every_row:
            with torch.no_grad():
                known = torch.cat([forward(part).log_probs for part in splits])
        else:
            known = minibatch.old_log_probs
        weights = self.weights(minibatch, known, splits, generator)
        losses, log_probs, entropies = [], [], []
        for part in splits:
            output = output if len(splits) == 1 and output is not None else forward(part)
            loss = self.loss(minibatch, weights, known, part, output)
            loss.backward()  # type: ignore[no-untyped-call]
            losses.append(loss.detach())
            log_probs.append(output.log_probs.detach())
            entropies.append(output.entropies.detach())
        return Pass(torch.stack(losses).sum(), torch.cat(log_probs), torch.cat(entropies), weights.kept)

    def weights(
        self,
        minibatch: LossRows,
        log_probs: Tensor,
        splits: list[slice],
        generator: torch.Generator | None = None,
    ) -> Weights:
        """Masks and aggregation weights of a whole mini-batch; log_probs: (rows, tokens) of all its rows."""
        kept = kept_tokens(
            log_probs,
            minibatch.old_log_probs,
            minibatch.advantages,
            minibatch.mask,
            settings=self.clip_settings,
            generator=generator,
        )
        counted, every = (
            token_weights(
                self.aggregation,
                mask,
                minibatch.trajectory,
                settings=self.aggregation_settings,
                max_tokens=self.max_tokens,
                micro_batches=splits,
            )
            for mask in (kept.counted, minibatch.mask)
        )
        return Weights(torch.where(kept.terms, counted, 0.0), every, kept.terms)

    def loss(
        self, minibatch: LossRows, weights: Weights, log_probs: Tensor, rows: slice, output: Forward
    ) -> Tensor:
        """() the part of the mini-batch's loss that belongs to `rows`; the parts add up to the whole.

        log_probs: (rows, tokens) of the whole mini-batch, read only where rows depend on each other;
        output: the policy on `rows`.
        """
        mask = minibatch.mask[rows]
        written = torch.where(mask, output.log_probs, 0.0)
        if self.whole_trajectories:
            # the option sees the whole mini-batch, of which only these rows carry a gradient
            everything = torch.cat([log_probs[: rows.start], written, log_probs[rows.stop :]])
            within = slice(None)
        else:
            everything, within = written, rows
        objective = self.clip(
            everything,
            minibatch.old_log_probs[within],
            minibatch.advantages[within],
            minibatch.mask[within],
            minibatch.trajectory[within],
        )
        objective = objective[rows] if self.whole_trajectories else objective
        loss = -(weights.policy[rows] * objective).sum()
        if self.needs_reference:
            if minibatch.ref_log_probs is None:
                raise ValueError("KL in the loss needs the mini-batch's ref_log_probs")
            estimate = kl.ESTIMATORS[self.kl.estimator](written, minibatch.ref_log_probs[rows], mask)
            loss = loss + self.kl.coefficient * (weights.every[rows] * estimate).sum()
        if self.entropy_bonus:
            entropies = torch.where(mask, output.entropies, 0.0)
            loss = loss - self.entropy_bonus * (weights.every[rows] * entropies).sum()
        return loss
