"""What is measured of a training step: how far the policy has moved, on which tokens, and what is clipped.

Statistics of a mini-batch are taken in its forward pass, before its update. `StepDiagnostics` collects them
over a step and reports each as mean, first and last; `rollout_metrics` measures its rollouts.

    a step:   diagnostics.start(step)
              diagnostics.add(pass, rows, advantages, ref_log_probs, copies, gradient_norm=...)   per update
              diagnostics.metrics(), diagnostics.histograms()

Everything stays in tensors until `metrics`, which reads them out once. A log-ratio closer to 0 than `EXACT`
is no movement: all of them are before the first update. Shares of nothing are 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from trainers.collection import Collected, group_signals
from trainers.config import TrainingConfig
from trainers.histograms import ADVANTAGE_EDGES, LOG_RATIO_EDGES, count
from trainers.monitor import Histogram
from trainers.policy_gradient import kl
from trainers.policy_gradient.bands import ROW_REFERENCE, TOKEN_REFERENCE, Band, Edge
from trainers.policy_gradient.dynamic_filtering import group_variance
from trainers.policy_gradient.is_clipping import log_ratio, sequence_log_ratio
from trainers.policy_gradient.objective import Objective, Pass
from trainers.rollout import Episodes
from trainers.rows import Rows

EXACT = 1e-6
MEDIAN_STEPS = 10

SPLIT = tuple(
    f"{sign}_{ratio}_{entropy}"
    for sign in ("positive", "negative")
    for ratio in ("below", "above")
    for entropy in ("low", "high")
)
SPLIT_QUANTITIES = ("tokens", "kl_old", "kl_ref")

LEVELS = ("token", "row", "row_of_token")
"""Of which log-ratios there are histograms: w of tokens, s of rows, and s again, once for every token."""


@dataclass(frozen=True)
class Ratios:
    """The ratios of a mini-batch that statistics are made of.

    written             (rows, tokens) bool   tokens that count
    present             (rows,) bool          rows with such a token
    log_w               (rows, tokens) float  token log-ratios, 0 where not written
    log_s               (rows,) float         row log-ratios
    positive, negative  (rows,) bool          rows with A > 0 and A < 0
    """

    written: Tensor
    present: Tensor
    log_w: Tensor
    log_s: Tensor
    positive: Tensor
    negative: Tensor

    @classmethod
    def of(cls, rows: Rows, log_probs: Tensor, advantages: Tensor, copies: Tensor | None = None) -> Ratios:
        """Measure a mini-batch, leaving out its copies (rows,) bool."""
        written = rows.mask if copies is None else rows.mask & ~copies[:, None]
        present = written.any(1)
        return cls(
            written=written,
            present=present,
            log_w=log_ratio(log_probs, rows.old_log_probs, written),
            log_s=sequence_log_ratio(log_probs, rows.old_log_probs, written),
            positive=present & (advantages > 0),
            negative=present & (advantages < 0),
        )


def minibatch_statistics(
    rows: Rows, output: Pass, ratios: Ratios, *, band: Band, ref_log_probs: Tensor | None = None
) -> dict[str, Tensor]:
    """Every statistic of one mini-batch before its update, as () tensors.

    band: the option's own; ref_log_probs: (rows, tokens), without which there is no `kl_ref`. Names:

    entropy, kl_old, kl_ref        means over tokens, in nats; kl_old is mean(w - 1 - log w), kl_ref is k3
    clip_low, clip_high            share of tokens beyond the own band: A < 0 and below, A > 0 and above
    clip_token_*, clip_row_*       the same for the reference bands, as shares of tokens and of rows
    neg_low_share, _given_negative share of the rows (of those with A < 0) with A < 0 and s < 1
    neg_low_depth, _depth_p95      mean and 95th percentile of -log s over those rows
    masked                         share of tokens whose policy-loss term was dropped
    effective_sample_size          (sum w)^2 / (n sum w^2), 1 when all ratios are equal
    min_sequence_ratio             smallest s
    """
    tokens, present = ratios.written.sum().clamp(min=1), ratios.present.sum().clamp(min=1)
    w = torch.where(ratios.written, ratios.log_w.exp(), 0.0)
    own = _log_ratios(rows, output.log_probs, ratios, band)
    negative_low = ratios.negative & (ratios.log_s < -EXACT)
    depth = torch.where(negative_low, -ratios.log_s, torch.nan)
    statistics = {
        "entropy": torch.where(ratios.written, output.entropies, 0.0).sum() / tokens,
        "kl_old": kl_old(ratios),
        "clip_low": (_below(own[0], band.low, ratios) & ratios.written).sum() / tokens,
        "clip_high": (_above(own[1], band.high, ratios) & ratios.written).sum() / tokens,
        "clip_token_low": (_below(ratios.log_w, TOKEN_REFERENCE.low, ratios) & ratios.written).sum() / tokens,
        "clip_token_high": (_above(ratios.log_w, TOKEN_REFERENCE.high, ratios) & ratios.written).sum()
        / tokens,
        "clip_row_low": _below(ratios.log_s[:, None], ROW_REFERENCE.low, ratios).sum() / present,
        "clip_row_high": _above(ratios.log_s[:, None], ROW_REFERENCE.high, ratios).sum() / present,
        "neg_low_share": negative_low.sum() / present,
        "neg_low_given_negative": negative_low.sum() / ratios.negative.sum().clamp(min=1),
        "neg_low_depth": depth.nansum() / negative_low.sum().clamp(min=1),
        "neg_low_depth_p95": depth.nanquantile(0.95).nan_to_num(),
        "masked": (ratios.written & ~output.kept).sum() / tokens,
        "effective_sample_size": w.sum().square() / (tokens * w.square().sum()).clamp(min=1e-30),
        "min_sequence_ratio": torch.where(ratios.present, ratios.log_s, torch.inf).amin().exp(),
    }
    if ref_log_probs is not None:
        statistics["kl_ref"] = kl.k3(output.log_probs, ref_log_probs, ratios.written).sum() / tokens
    return statistics


def split_sums(ratios: Ratios, kl_ref: Tensor | None, old_entropies: Tensor, entropy_median: float) -> Tensor:
    """(9, 3) tokens, KL to old and KL to reference, summed over the cells of `SPLIT` and, last, the rest.

    kl_ref: (rows, tokens); old_entropies: under pi_old, (rows, tokens), or (rows, 1) the row's mean. The rest
    are tokens with A = 0 or whose ratio is exactly 1.
    """
    cell = (
        4 * ratios.negative[:, None].long()
        + 2 * (ratios.log_w > 0).long()
        + (old_entropies > entropy_median).long()
    )
    known = (ratios.positive | ratios.negative)[:, None] & (ratios.log_w.abs() >= EXACT) & ratios.written
    cell = torch.where(known, cell, len(SPLIT)).reshape(-1)
    to_old = _kl_old(ratios)
    quantities = [ratios.written.float(), to_old, torch.zeros_like(to_old) if kl_ref is None else kl_ref]
    sums = [
        torch.bincount(cell, quantity.reshape(-1).double(), minlength=len(SPLIT) + 1)
        for quantity in quantities
    ]
    return torch.stack(sums, 1)


def log_ratio_counts(ratios: Ratios) -> Tensor:
    """(3, 2, bins + 1) long: log-ratios by level (`LEVELS`) and sign of A (positive, negative), counted.

    Bins of `LOG_RATIO_EDGES`, then the exact zeros.
    """
    sign = ratios.negative.long() - (~ratios.positive & ~ratios.negative).long()
    of_tokens = torch.where(ratios.written, sign[:, None], -1)
    return torch.stack(
        [
            count(values, histogram, LOG_RATIO_EDGES, histograms=2, exact=EXACT)
            for values, histogram in (
                (ratios.log_w, of_tokens),
                (ratios.log_s, sign),
                (ratios.log_s[:, None], of_tokens),
            )
        ]
    )


class EntropyMedian:
    """The median of token entropies under pi_old over the first steps, then frozen.

    Kept as counts over logarithmic bins (relative width 3%), so that its state is small.
    """

    LOG_LOW, LOG_HIGH, BINS = -16.0, 3.0, 633

    def __init__(self) -> None:
        self.counts = torch.zeros(self.BINS, dtype=torch.long)

    def observe(self, step: int, entropies: Tensor, written: Tensor) -> None:
        """Count a mini-batch's entropies (rows, tokens) or (rows, 1); nothing after the first steps."""
        if step > MEDIAN_STEPS and bool(self.counts.any()):
            return
        scale = self.BINS / (self.LOG_HIGH - self.LOG_LOW)
        place = ((entropies.clamp(min=1e-30).log() - self.LOG_LOW) * scale).long().clamp(0, self.BINS - 1)
        place = torch.where(written, place.expand_as(written), self.BINS)
        self.counts += torch.bincount(place.reshape(-1), minlength=self.BINS + 1)[: self.BINS].cpu()

    @property
    def value(self) -> float:
        """The median so far, 0 before anything was observed."""
        total = int(self.counts.sum())
        if not total:
            return 0.0
        place = int(torch.searchsorted(self.counts.cumsum(0), (total + 1) // 2))
        log_value = self.LOG_LOW + (place + 0.5) * (self.LOG_HIGH - self.LOG_LOW) / self.BINS
        return float(torch.tensor(log_value).exp())


class StepDiagnostics:
    """Collects the statistics of a step's updates; carries the entropy median from step to step."""

    def __init__(self, config: TrainingConfig) -> None:
        self.band = Band.of(config.is_clipping)
        self.gradient_clip = config.trainer.gradient_clip
        self.median = EntropyMedian()
        self.start(0)

    def start(self, step: int) -> None:
        """Forget the last step's updates."""
        self.step = step
        self._names: tuple[str, ...] = ()
        self._values: list[Tensor] = []
        self._split = torch.zeros(len(SPLIT) + 1, len(SPLIT_QUANTITIES), dtype=torch.float64)
        self._has_reference = False
        self._counts = torch.zeros(len(LEVELS), 2, len(LOG_RATIO_EDGES), dtype=torch.long)
        self._advantages = torch.zeros(len(ADVANTAGE_EDGES), dtype=torch.long)
        self._engine_gap: Tensor | None = None

    def add(
        self,
        output: Pass,
        rows: Rows,
        advantages: Tensor,
        ref_log_probs: Tensor | None,
        copies: Tensor | None = None,
        **measured: float,
    ) -> None:
        """One mini-batch, before its update.

        advantages: (rows,); ref_log_probs: (rows, tokens) or None; copies: (rows,) bool, rows that only
        fill the mini-batch up and stay out of every statistic; measured: numbers of the trainer, such as
        `gradient_norm`, the same names at each update of a step.
        """
        ratios = Ratios.of(rows, output.log_probs, advantages, copies)
        statistics = minibatch_statistics(rows, output, ratios, band=self.band, ref_log_probs=ref_log_probs)
        statistics["rows_per_update"] = ratios.present.sum()
        numbers = torch.tensor([output.loss, *measured.values()], dtype=torch.float64)
        self._names = (*statistics, "loss", *measured)
        values = torch.stack([value.float() for value in statistics.values()])
        self._values.append(torch.cat([values.double().cpu(), numbers]))
        if self._engine_gap is None:
            # nothing was updated since the rollout: what differs is the engine
            self._engine_gap = ratios.log_w.abs().sum() / ratios.written.sum().clamp(min=1)
        old_entropies = rows.entropies[:, None] if rows.token_entropies is None else rows.token_entropies
        self.median.observe(self.step, old_entropies, ratios.written)
        self._has_reference = ref_log_probs is not None
        kl_ref = None if ref_log_probs is None else kl.k3(output.log_probs, ref_log_probs, ratios.written)
        self._split += split_sums(ratios, kl_ref, old_entropies, self.median.value).cpu()
        self._counts += log_ratio_counts(ratios).cpu()
        self._advantages += count(advantages, ratios.present.long() - 1, ADVANTAGE_EDGES, histograms=1)[
            0
        ].cpu()

    def metrics(self) -> dict[str, float]:
        """The step's numbers: mean, first and last over its updates; without any, only their number."""
        metrics = {"train/updates": float(len(self._values))}
        if not self._values:
            return metrics
        values = torch.stack(self._values)
        table = torch.stack([values.mean(0), values[0], values[-1]]).tolist()
        for name, mean, first, last in zip(self._names, *table, strict=True):
            metrics[f"train/{name}"] = mean
            if name != "rows_per_update":
                metrics |= {f"train/{name}_first": first, f"train/{name}_last": last}
        if "gradient_norm" in self._names:
            norms = values[:, self._names.index("gradient_norm")]
            metrics["train/gradient_clipped"] = float((norms > self.gradient_clip).double().mean())
        if self._engine_gap is not None:
            metrics["train/engine_gap"] = float(self._engine_gap)
        shares = (self._split / self._split.sum(0).clamp(min=1e-30)).tolist()
        for cell, row in zip(SPLIT, shares, strict=False):
            for quantity, share in zip(SPLIT_QUANTITIES, row, strict=True):
                if quantity != "kl_ref" or self._has_reference:
                    metrics[f"train/split/{cell}_{quantity}"] = share
        return metrics

    def histograms(self) -> list[Histogram]:
        """Log-ratios at every level by the sign of A, and advantages, over all updates of the step."""
        if not self._values:
            return []
        histograms = [
            Histogram(f"log_ratio_{level}/{sign}", LOG_RATIO_EDGES, tuple(counts[:-1]), counts[-1])
            for level, of_level in zip(LEVELS, self._counts.tolist(), strict=True)
            for sign, counts in zip(("positive", "negative"), of_level, strict=True)
        ]
        counts = tuple(self._advantages.tolist()[:-1])
        return [*histograms, Histogram("advantage/all", ADVANTAGE_EDGES, counts)]

    def state(self) -> dict[str, Any]:
        """What a checkpoint needs, between steps; plain lists."""
        return {"entropy_counts": self.median.counts.tolist()}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from `state()`."""
        self.median.counts = torch.tensor(state["entropy_counts"], dtype=torch.long)


def kl_old(ratios: Ratios) -> Tensor:
    """() mean over tokens of w - 1 - log w, the KL to the policy that wrote them."""
    return _kl_old(ratios).sum() / ratios.written.sum().clamp(min=1)


def _kl_old(ratios: Ratios) -> Tensor:
    """(rows, tokens) w - 1 - log w, never negative."""
    return (torch.expm1(ratios.log_w) - ratios.log_w).clamp(min=0)


def _log_ratios(rows: Rows, log_probs: Tensor, ratios: Ratios, band: Band) -> tuple[Tensor, Tensor]:
    """The log-ratios that the band's low and high edge look at, (rows, tokens) or (rows, 1)."""
    levels = {edge.level for edge in (band.low, band.high) if edge is not None}
    at = {"token": ratios.log_w, "row": ratios.log_s[:, None]}
    if "trajectory" in levels:
        whole = sequence_log_ratio(log_probs, rows.old_log_probs, ratios.written, rows.trajectory)
        at["trajectory"] = whole[:, None]
    return at[band.low.level if band.low else "token"], at[band.high.level if band.high else "token"]


def _below(log_ratios: Tensor, edge: Edge | None, ratios: Ratios) -> Tensor:
    if edge is None:
        return torch.zeros_like(ratios.negative)[:, None]
    return ratios.negative[:, None] & (log_ratios < edge.log_ratio)


def _above(log_ratios: Tensor, edge: Edge | None, ratios: Ratios) -> Tensor:
    if edge is None:
        return torch.zeros_like(ratios.positive)[:, None]
    return ratios.positive[:, None] & (log_ratios > edge.log_ratio)


def rollout_metrics(collected: Collected, objective: Objective, group_size: int) -> dict[str, float]:
    """What a step's rollouts were like, over all episodes of all tries, before any filtering.

    Rates and lengths are means over episodes or responses as their name says; `repeated_ngrams` is the
    share of 4-grams that an earlier one of the same response equals (Welleck et al. 2020, arXiv
    1908.04319); `unique_prompts` the share of rows whose prompt is new; `advantage_discarded` the share of
    sum |A| that filtering left out. Lengths and n-grams are those of rows: turns, or whole transcripts.

    Episodes whose environment failed are counted (`failed_episodes`) and in no other number; `context_full`
    counts those that ended because their transcript had no room left, `void_turns` is the share of turns that
    did nothing.
    """
    rollouts = collected.rollouts
    episodes = [rollout.episodes for rollout in rollouts]
    played = torch.cat([part.played for part in episodes])
    returns = torch.cat([part.returns for part in episodes]).double()
    success = torch.cat([part.success for part in episodes])
    signals = [group_signals(part, group_size) for part in episodes]
    lengths = torch.cat([part.response_tokens for part in episodes]).double()
    turns = torch.tensor([float(part.turns[part.played].sum()) for part in episodes], dtype=torch.float64)
    rows = sum(len(rollout.rows) for rollout in rollouts)
    prompts = sum(_distinct(rollout.rows.prompt_id) for rollout in rollouts)
    ngrams = torch.tensor([repeated_ngrams(rollout.rows) for rollout in rollouts]).sum(0).tolist()
    used = [rollout.rows.trajectory[kept] for rollout, kept in zip(rollouts, collected.used, strict=True)]

    def rate(shares: Sequence[float]) -> float:
        return float((torch.tensor(shares, dtype=torch.float64) * turns).sum() / turns.sum())

    return {
        "rollout/success": float(success[played].double().mean()),
        "rollout/return": float(returns[played].mean()),
        "rollout/turns": float(turns.sum() / played.sum()),
        "rollout/valid_format": rate([part.share(part.valid_format) for part in episodes]),
        "rollout/valid_action": rate([part.share(part.valid_action) for part in episodes]),
        "rollout/void_turns": rate([part.share(part.void) for part in episodes]),
        "rollout/group_reward_std": _mean_std(returns.view(-1, group_size), played.view(-1, group_size)),
        "rollout/uniform_groups_return": _dropped(signals, signal="return"),
        "rollout/uniform_groups_success": _dropped(signals, signal="success"),
        "rollout/response_tokens": float(lengths.mean()),
        "rollout/response_tokens_cv": float(lengths.std(correction=0) / lengths.mean()),
        "rollout/repeated_ngrams": ngrams[0] / max(ngrams[1], 1),
        "rollout/unique_prompts": prompts / rows,
        "rollout/episodes": float(played.sum()),
        "rollout/failed_episodes": float((~played).sum()),
        "rollout/context_full": float(
            sum(int(part.context_full.sum()) for part in episodes if part.context_full is not None)
        ),
        "rollout/episodes_used": float(sum(map(_distinct, used))),
        "rollout/tries": float(len(rollouts)),
        "rollout/advantage_discarded": _advantage_discarded(collected, objective),
        "rollout/rows": float(rows),
        "rollout/tokens": float(lengths.sum()),
    }


def evaluation_metrics(played: Episodes) -> dict[str, float]:
    """What the episodes of an evaluation were like; rates are means over responses.

    Episodes whose environment failed are counted apart and in no other number.
    """
    counted = played.played
    return {
        "eval/success": float(played.success[counted].float().mean()),
        "eval/return": float(played.returns[counted].mean()),
        "eval/turns": float(played.turns[counted].float().mean()),
        "eval/episodes": float(counted.sum()),
        "eval/failed_episodes": float((~counted).sum()),
        "eval/valid_format": played.share(played.valid_format),
        "eval/valid_action": played.share(played.valid_action),
        "eval/response_tokens": float(played.response_tokens.float().mean()),
    }


def repeated_ngrams(rows: Rows, n: int = 4) -> tuple[int, int]:
    """How many n-grams of the responses repeat an earlier one of their response, and how many there are."""
    if rows.responses.shape[1] < n:
        return 0, 0
    # one number per n-gram: different ones collide with probability of about 2^-60
    powers = torch.tensor([pow(1_000_003, place, 2**61 - 1) for place in range(n)])
    grams = (rows.responses.unfold(1, n, 1) * powers.to(rows.responses.device)).sum(2)
    whole = rows.mask.unfold(1, n, 1).all(2)
    lowest = torch.iinfo(torch.long).min
    grams = torch.where(whole, grams, lowest).sort(1).values
    again = (grams[:, 1:] == grams[:, :-1]) & (grams[:, 1:] != lowest)
    return int(again.sum()), int(whole.sum())


def _distinct(values: Tensor) -> int:
    return len(torch.unique(values))


def _mean_std(values: Tensor, counted: Tensor) -> float:
    """The mean over groups of the unbiased std of what is counted; both (groups, G), 0 without two of any."""
    count = counted.sum(1)
    mean = torch.where(counted, values, 0.0).sum(1) / count.clamp(min=1)
    squares = torch.where(counted, values - mean[:, None], 0.0).square().sum(1)
    stds = (squares / (count - 1).clamp(min=1)).sqrt()[count > 1]
    return float(stds.mean()) if len(stds) else 0.0


def _dropped(signals: Sequence[tuple[Tensor, Tensor]], *, signal: Literal["return", "success"]) -> float:
    kept = torch.cat([group_variance(returns, success, signal=signal) for returns, success in signals])
    return float((~kept).double().mean())


def _advantage_discarded(collected: Collected, objective: Objective) -> float:
    if all(bool(rows.all()) for rows in collected.used):
        return 0.0
    total = discarded = 0.0
    for rollout, rows in zip(collected.rollouts, collected.used, strict=True):
        size = objective.advantages(rollout.rows).abs().double()
        total += float(size.sum())
        discarded += float(size[~rows].sum())
    return discarded / total if total else 0.0
