"""Time to collapse: survival curves, log-rank tests, restricted means and hazard ratios.

Plain functions on arrays, a run each: `times` (n,), the step of the collapse or the last step seen, and
`events` (n,) bool, whether it collapsed there. A run without an event is censored: all that is known of it is
that it lasted that long. Equal to statsmodels and lifelines (tests/analysis/test_survival.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import chdtrc, ndtri

Floats = NDArray[np.float64]

MOST_ARRANGEMENTS = 20_000
"""Beyond as many arrangements a permutation test draws that many at random instead of taking all."""
_ROUNDING = 1e-9


@dataclass(frozen=True)
class SurvivalCurve:
    """A Kaplan-Meier curve: the share of runs that had not collapsed after each of `times`.

    times: (k,) increasing steps at which runs collapsed; survival, low, high: (k,), the interval by
    Greenwood's variance on the log(-log) scale; at_risk, collapsed: (k,) runs at risk before, and collapsed
    at, each time. Before the first time survival is 1. followed: the last step seen of any run.
    """

    times: Floats
    survival: Floats
    low: Floats
    high: Floats
    at_risk: Floats
    collapsed: Floats
    followed: float

    def at(self, step: float) -> float:
        """The share that had not collapsed after `step`."""
        place = int(np.searchsorted(self.times, step, side="right"))
        return 1.0 if place == 0 else float(self.survival[place - 1])

    @property
    def median(self) -> float | None:
        """The first time at which at most half had not collapsed; None where that was not seen."""
        below = np.flatnonzero(self.survival <= 0.5 + _ROUNDING)
        return float(self.times[below[0]]) if len(below) else None


@dataclass(frozen=True)
class LogRank:
    """A log-rank test: `statistic` with `degrees` of freedom (chi-squared), and its p-value.

    difference: observed minus expected collapses of the first group; exact: the p-value is that of a
    permutation test over `arrangements`, all of them where `exhaustive`.
    """

    statistic: float
    degrees: int
    p: float
    difference: float
    exact: bool = False
    arrangements: int = 0
    exhaustive: bool = False


@dataclass(frozen=True)
class HazardRatios:
    """Of a Cox model: per covariate the log hazard ratio (p,), its standard error and its p-value.

    penalised: the likelihood had no maximum (an option without any collapse), so Firth's penalty was added:
    the ratios are finite, drawn towards 1.
    """

    coefficients: Floats
    errors: Floats
    p: Floats
    penalised: bool

    def ratios(self, *, level: float = 0.95) -> Floats:
        """(p, 3): hazard ratio, lower and upper end of its interval."""
        reach = float(ndtri((1 + level) / 2)) * self.errors
        with np.errstate(over="ignore"):
            ends = [self.coefficients, self.coefficients - reach, self.coefficients + reach]
            ratios: Floats = np.exp(np.stack(ends, axis=1))
        return ratios


def kaplan_meier(times: ArrayLike, events: ArrayLike, *, level: float = 0.95) -> SurvivalCurve:
    """The product-limit estimate (Kaplan and Meier 1958). Raises ValueError without any run."""
    duration, collapsed = _runs(times, events)
    grid = np.unique(duration[collapsed])
    at_risk = (duration[None] >= grid[:, None]).sum(1).astype(float)
    deaths = ((duration[None] == grid[:, None]) & collapsed[None]).sum(1).astype(float)
    survival = np.cumprod(1 - deaths / at_risk)
    with np.errstate(divide="ignore", invalid="ignore"):
        greenwood = np.cumsum(deaths / (at_risk * (at_risk - deaths)))
        spread = np.sqrt(greenwood) / np.abs(np.log(survival))
        reach = np.exp(float(ndtri((1 + level) / 2)) * spread)
        low, high = survival**reach, survival ** (1 / reach)
    # Once all have collapsed the variance is no longer defined; nothing is left to be uncertain of below.
    low = np.where(np.isfinite(low), low, 0.0)
    high = np.where(np.isfinite(high), high, survival)
    return SurvivalCurve(grid, survival, low, high, at_risk, deaths, float(duration.max()))


def restricted_mean(times: ArrayLike, events: ArrayLike, horizon: float) -> float:
    """Mean number of steps until collapse, counting at most `horizon`: the area under the survival curve.

    Raises ValueError where no run was followed up to the horizon and not all had collapsed by then: the
    curve is not known so far.
    """
    curve = kaplan_meier(times, events)
    if curve.followed < horizon and curve.at(curve.followed) > 0:
        raise ValueError(f"no run was followed to step {horizon:g}; the last was seen at {curve.followed:g}")
    inside = curve.times < horizon
    ends = np.append(curve.times[inside], horizon)
    heights = np.append(1.0, curve.survival[inside])
    return float((np.diff(ends, prepend=0.0) * heights).sum())


def restricted_means(
    times: ArrayLike, events: ArrayLike, member: ArrayLike, counts: Floats, horizon: float
) -> Floats:
    """(resamples,): restricted means when block b occurs `counts[..., b]` times.

    member: (n,) the block of every run; counts: (resamples, blocks). As `restricted_mean`, for a bootstrap
    over blocks: at-risk sets are summed per block once. NaN where a resample holds no run.
    """
    duration, collapsed = _runs(times, events)
    block = np.asarray(member, dtype=int)
    grid = np.unique(duration[collapsed & (duration < horizon)])
    inside = np.eye(counts.shape[-1])[block].T
    at_risk = counts @ (inside @ (duration[:, None] >= grid[None]))
    deaths = counts @ (inside @ ((duration[:, None] == grid[None]) & collapsed[:, None]))
    with np.errstate(divide="ignore", invalid="ignore"):
        survival = np.cumprod(np.where(at_risk > 0, 1 - deaths / at_risk, 1.0), axis=-1)
    lengths = np.diff(np.append(grid, horizon))
    first = grid[0] if len(grid) else horizon
    means = np.asarray(first + survival @ lengths[: len(grid)], dtype=np.float64)
    return np.where((counts @ inside).sum(-1) > 0, means, np.nan)


def log_rank_scores(times: ArrayLike, events: ArrayLike, strata: ArrayLike | None = None) -> Floats:
    """(n,): what each run adds to "observed minus expected" of its group; they sum to 0 in every stratum.

    A run's collapse (0 or 1) minus the cumulative hazard of its stratum up to its time.
    """
    duration, collapsed = _runs(times, events)
    stratum = np.zeros(len(duration), int) if strata is None else np.unique(strata, return_inverse=True)[1]
    scores = np.zeros(len(duration))
    for one in range(stratum.max() + 1):
        mine = stratum == one
        own, fell = duration[mine], collapsed[mine]
        grid = np.unique(own[fell])
        at_risk = (own[None] >= grid[:, None]).sum(1)
        deaths = ((own[None] == grid[:, None]) & fell[None]).sum(1)
        hazard = (deaths / at_risk)[:, None] * (own[None] >= grid[:, None])
        scores[mine] = fell - hazard.sum(0)
    return scores


def log_rank(
    times: ArrayLike, events: ArrayLike, groups: ArrayLike, strata: ArrayLike | None = None
) -> LogRank:
    """Do groups collapse at the same rate? (Mantel 1966; hypergeometric variance, stratified.)

    groups: (n,) labels, two or more. Where no group could have differed, the statistic is 0 and p is 1.
    """
    duration, collapsed = _runs(times, events)
    labels, group = np.unique(groups, return_inverse=True)
    stratum = np.zeros(len(duration), int) if strata is None else np.unique(strata, return_inverse=True)[1]
    count = len(labels)
    excess, variance = np.zeros(count), np.zeros((count, count))
    for one in range(stratum.max() + 1):
        mine = stratum == one
        own, fell, member = duration[mine], collapsed[mine], np.eye(count)[group[mine]]
        for time in np.unique(own[fell]):
            risk = member[own >= time].sum(0)
            deaths = member[(own == time) & fell].sum(0)
            n, d = risk.sum(), deaths.sum()
            excess += deaths - d * risk / n
            if n > 1:
                share = risk / n
                variance += d * (n - d) / (n - 1) * (np.diag(share) - np.outer(share, share))
    rank = int(np.linalg.matrix_rank(variance, tol=1e-10)) if count > 1 else 0
    statistic = float(excess @ np.linalg.pinv(variance) @ excess) if rank else 0.0
    p = float(chdtrc(rank, statistic)) if rank else 1.0
    return LogRank(statistic, rank, p, float(excess[0]))


def permutation_log_rank(
    scores: Sequence[Floats], first: Sequence[int], *, seed: int = 0, most: int = MOST_ARRANGEMENTS
) -> LogRank:
    """The exact stratified log-rank test: options are permuted among each other within every block.

    scores: per block (options,), the sum of `log_rank_scores` of each option's runs; first: the positions of
    the options that make the first group, the same in every block. All runs of an option in a block move
    together, since they share a seed: a block is one observation. The p-value is two-sided: the share of
    arrangements whose difference is at least as far from 0. Where they are too many, `most` are drawn at
    random and the one observed is counted among them.
    """
    observed = float(sum(block[list(first)].sum() for block in scores))
    sums = [_arrangements(block, len(first)) for block in scores]
    total = float(np.prod([len(block) for block in sums], dtype=float)) if sums else 1.0
    bound = abs(observed) - _ROUNDING
    if total <= most:
        differences = np.zeros(1)
        for block in sums:
            differences = (differences[:, None] + block[None]).ravel()
        p = float((np.abs(differences) >= bound).mean())
        return LogRank(observed, 1, p, observed, exact=True, arrangements=int(total), exhaustive=True)
    random = np.random.default_rng(seed)
    differences = np.sum([random.choice(block, size=most) for block in sums], axis=0)
    p = float(((np.abs(differences) >= bound).sum() + 1) / (most + 1))
    return LogRank(observed, 1, p, observed, exact=True, arrangements=most)


def cox(
    times: ArrayLike, events: ArrayLike, covariates: ArrayLike, strata: ArrayLike | None = None
) -> HazardRatios:
    """Cox's proportional hazards with Efron's treatment of ties, stratified.

    covariates: (n, p). Where the likelihood grows without bound, as when an option never collapses, Firth's
    penalty (Heinze and Schemper 2001) keeps the ratios finite. Raises ValueError without any collapse, or
    where covariates cannot be told apart.
    """
    duration, collapsed = _runs(times, events)
    x = np.asarray(covariates, dtype=float).reshape(len(duration), -1)
    if not collapsed.any():
        raise ValueError("no run collapsed: there is no hazard to compare")
    stratum = np.zeros(len(duration), int) if strata is None else np.unique(strata, return_inverse=True)[1]
    x = x - x.mean(0)
    parts = [
        (x[stratum == one], duration[stratum == one], collapsed[stratum == one])
        for one in range(stratum.max() + 1)
        if collapsed[stratum == one].any()
    ]
    if np.linalg.matrix_rank(_information(parts, np.zeros(x.shape[1]))[1], tol=1e-8) < x.shape[1]:
        raise ValueError("the covariates cannot be told apart by the runs at risk")
    found = _maximise(parts, x.shape[1], penalised=False)
    penalised = found is None
    if found is None:
        found = _maximise(parts, x.shape[1], penalised=True)
    if found is None:
        raise ValueError("the likelihood has no maximum, even when it is penalised")
    errors = np.sqrt(np.diag(np.linalg.inv(_information(parts, found)[1])))
    return HazardRatios(found, errors, chdtrc(1, (found / errors) ** 2), penalised)


_Part = tuple[Floats, Floats, NDArray[np.bool_]]
_LARGEST_COEFFICIENT = 15.0
_ITERATIONS = 60


def _maximise(parts: Sequence[_Part], size: int, *, penalised: bool) -> Floats | None:
    """Newton's method; None where coefficients run away."""
    beta: Floats = np.zeros(size)
    for _ in range(_ITERATIONS):
        score, information = _information(parts, beta)
        if penalised:
            score = score + _firth(parts, beta, information)
        try:
            step = np.linalg.solve(information, score)
        except np.linalg.LinAlgError:
            return None
        if not np.isfinite(step).all():
            return None
        beta = np.asarray(beta + step / max(1.0, float(np.abs(step).max())), dtype=np.float64)
        if np.abs(beta).max() > _LARGEST_COEFFICIENT:
            return None
        if np.abs(step).max() < (1e-6 if penalised else 1e-9):  # the penalty's slope is a difference
            return beta
    return beta if penalised and np.abs(step).max() < 1e-4 else None


def _firth(parts: Sequence[_Part], beta: Floats, information: Floats) -> Floats:
    """The gradient of log |information| / 2, by central differences."""
    inverse = np.linalg.inv(information)
    gradient = np.zeros(len(beta))
    for k in range(len(beta)):
        shift = np.zeros(len(beta))
        shift[k] = 1e-5
        slope = (_information(parts, beta + shift)[1] - _information(parts, beta - shift)[1]) / 2e-5
        gradient[k] = np.trace(inverse @ slope) / 2
    return gradient


def _information(parts: Sequence[_Part], beta: Floats) -> tuple[Floats, Floats]:
    """(p,) the gradient of Efron's log partial likelihood, and (p, p) minus its second derivative."""
    score, information = np.zeros(len(beta)), np.zeros((len(beta), len(beta)))
    for x, duration, collapsed in parts:
        weight = np.exp(np.clip(x @ beta, -50, 50))
        for time in np.unique(duration[collapsed]):
            risk, dying = duration >= time, (duration == time) & collapsed
            deaths = int(dying.sum())
            shares = np.arange(deaths) / deaths
            score += x[dying].sum(0)
            whole, part = _moments(x[risk], weight[risk]), _moments(x[dying], weight[dying])
            for share in shares:
                zero, one, two = (a - share * b for a, b in zip(whole, part, strict=True))
                mean = one / zero
                score -= mean
                information += two / zero - np.outer(mean, mean)
    return score, information


def _moments(x: Floats, weight: Floats) -> tuple[Floats, Floats, Floats]:
    weighted = x * weight[:, None]
    return np.asarray(weight.sum()), weighted.sum(0), weighted.T @ x


def _arrangements(scores: Floats, size: int) -> Floats:
    """The sums of all choices of `size` of the scores."""
    chosen = list(combinations(range(len(scores)), size))
    sums: Floats = scores[np.array(chosen, dtype=int)].sum(1)
    return sums


def _runs(times: ArrayLike, events: ArrayLike) -> tuple[Floats, NDArray[np.bool_]]:
    duration = np.asarray(times, dtype=float)
    collapsed = np.asarray(events, dtype=bool)
    if not len(duration):
        raise ValueError("no runs")
    if duration.shape != collapsed.shape or duration.ndim != 1:
        raise ValueError(f"times {duration.shape} and events {collapsed.shape} are one each per run")
    return duration, collapsed
