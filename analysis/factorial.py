"""Main effects and interactions of a design's settings, estimated within blocks and compared over them.

A block (environment, clone, seed) holds every cell once: it is a whole experiment. Its least-squares fit
gives one estimate of every effect; how far these differ between blocks says how sure the effect is. For
complete designs this is the analysis of variance with repeated measures; incomplete ones show what they can.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import fdtrc

from analysis.resampling import LEAST_BLOCKS, Interval, seed_interval
from analysis.significance import holm

Floats = NDArray[np.float64]

MOST_COLUMNS = 200
"""A model with more coefficients than this is fitted without interactions."""
_NOISE = 1e-8


@dataclass(frozen=True)
class FactorialEffect:
    """A main effect (one factor) or a two-factor interaction.

    levels: the options, or pairs of options; deviations: per level how far the mean outcome lies from the
    grand mean, for an interaction how far it lies from what the main effects add up to. size: the root mean
    square of the deviations, in units of the outcome. share: of the variance between cells that it explains;
    NaN where effects are not orthogonal. f, degrees, p: over blocks, p corrected for sphericity (Greenhouse
    and Geisser); None below five blocks. p_holm: corrected for all effects of the table. alone: the effect
    can only be told where there are no interactions.
    """

    factors: tuple[str, ...]
    levels: tuple[tuple[str, ...], ...]
    deviations: tuple[Interval, ...]
    size: float
    share: float
    blocks: int
    f: float | None
    degrees: tuple[int, int]
    p: float | None
    p_holm: float | None = None
    alone: bool = False

    @property
    def name(self) -> str:
        """`is_clipping`, or `is_clipping x advantage`."""
        return " x ".join(self.factors)


@dataclass(frozen=True)
class FactorialFit:
    """All effects that can be told, the grand mean, and the names of those that cannot."""

    mean: Interval
    effects: tuple[FactorialEffect, ...]
    hidden: tuple[str, ...]


def fit_factorial(
    table: pd.DataFrame, factors: Sequence[str], metric: str, *, block: str = "block"
) -> FactorialFit:
    """Fit all main effects and, where the cells tell them apart, two-factor interactions.

    table: a row per run with columns `factors` (labels), `block` and `metric`; rows without the metric are
    left out. Blocks whose own runs do not determine an effect are left out of it.
    """
    used = table[table[metric].notna()]
    levels = {name: list(dict.fromkeys(map(str, used[name]))) for name in factors}
    varying = [name for name in factors if len(levels[name]) > 1]
    blocks = [rows for _, rows in used.groupby(block, sort=True)]
    if not blocks or not varying:
        return FactorialFit(seed_interval([rows[metric].mean() for rows in blocks]), (), tuple(varying))
    codes = [
        np.array([[levels[name].index(str(value)) for value in rows[name]] for name in varying], dtype=int)
        for rows in blocks
    ]
    responses = [rows[metric].to_numpy(dtype=float) for rows in blocks]
    sizes = [len(levels[name]) for name in varying]
    singles: list[tuple[int, ...]] = [(k,) for k in range(len(varying))]
    terms = [*singles, *combinations(range(len(varying)), 2)]
    with_interactions = 1 + sum(_width(term, sizes) for term in terms) <= MOST_COLUMNS
    rich = _estimates(codes, responses, sizes, terms) if with_interactions else {}
    plain = _estimates(codes, responses, sizes, singles)
    effects, hidden = [], []
    for term in terms:
        alone = not rich or not np.isfinite(rich[term]).any()
        if alone and len(term) > 1:
            hidden.append(" x ".join(varying[k] for k in term))
            continue
        found = plain[term] if alone else rich[term]
        if not np.isfinite(found).any():
            hidden.append(varying[term[0]])
            continue
        effects.append(_effect(term, found, varying, levels, alone=alone and len(varying) > 1))
    corrected = holm([effect.p for effect in effects])
    total = _variance(codes, responses, sizes)
    finished = tuple(
        replace(effect, p_holm=p, share=effect.size**2 / total if total else np.nan)
        for effect, p in zip(effects, corrected, strict=True)
    )
    return FactorialFit(seed_interval([response.mean() for response in responses]), finished, tuple(hidden))


def contrasts(levels: int) -> Floats:
    """(levels, levels - 1): columns that sum to 0, are orthogonal and have a mean square of 1 (Helmert)."""
    matrix = np.zeros((levels, levels - 1))
    for column in range(levels - 1):
        matrix[: column + 1, column] = -1.0
        matrix[column + 1, column] = column + 1.0
    scaled: Floats = matrix * np.sqrt(levels / (matrix**2).sum(0, keepdims=True))
    return scaled


def _estimates(
    codes: Sequence[NDArray[np.int_]],
    responses: Sequence[Floats],
    sizes: Sequence[int],
    terms: Sequence[tuple[int, ...]],
) -> dict[tuple[int, ...], Floats]:
    """Per term (blocks, columns): coefficients of each block's own fit, NaN where it does not have them."""
    widths = [_width(term, sizes) for term in terms]
    edges = np.cumsum([1, *widths])
    found = {term: np.full((len(codes), width), np.nan) for term, width in zip(terms, widths, strict=True)}
    known: dict[bytes, tuple[Floats, Floats]] = {}
    for row, (code, response) in enumerate(zip(codes, responses, strict=True)):
        key = code.tobytes()
        if key not in known:  # blocks of equal cells share their inverse
            parts = [_columns(term, sizes)[_index(term, sizes, code)] for term in terms]
            matrix = np.concatenate([np.ones((code.shape[1], 1)), *parts], axis=1)
            _, values, right = np.linalg.svd(matrix, full_matrices=True)
            rank = int((values > _NOISE * values.max()).sum())
            known[key] = np.linalg.pinv(matrix, rcond=_NOISE), right[rank:]
        inverse, null = known[key]
        coefficients = inverse @ response
        for term, low, high in zip(terms, edges, edges[1:], strict=False):
            if np.abs(null[:, low:high]).sum() < 1e-6:
                found[term][row] = coefficients[low:high]
    return found


def _effect(
    term: tuple[int, ...],
    estimates: Floats,
    names: Sequence[str],
    levels: dict[str, list[str]],
    *,
    alone: bool,
) -> FactorialEffect:
    estimates = estimates[np.isfinite(estimates).all(1)]
    sizes = [len(levels[name]) for name in names]
    deviations = estimates @ _columns(term, sizes).T
    f, degrees, p = _repeated_measures(estimates)
    mean = deviations.mean(0)
    return FactorialEffect(
        factors=tuple(names[k] for k in term),
        levels=tuple(product(*(levels[names[k]] for k in term))),
        deviations=tuple(seed_interval(column) for column in deviations.T),
        size=float(np.sqrt((mean**2).mean())),
        share=np.nan,
        blocks=len(estimates),
        f=f,
        degrees=degrees,
        p=p,
        alone=alone,
    )


def _repeated_measures(estimates: Floats) -> tuple[float | None, tuple[int, int], float | None]:
    """F of orthonormal contrasts (blocks, q) against their own scatter over blocks, and its p-value."""
    blocks, q = estimates.shape
    degrees = (q, q * (blocks - 1))
    if blocks < LEAST_BLOCKS:
        return None, degrees, None
    mean = estimates.mean(0)
    scatter = np.atleast_2d(np.cov(estimates.T))
    noise = float(np.trace(scatter))
    if noise < 1e-18:
        return None, degrees, 1.0 if np.abs(mean).max() < 1e-9 else None
    f = blocks * float(mean @ mean) / noise
    epsilon = noise**2 / (q * float((scatter**2).sum()))
    return f, degrees, float(fdtrc(epsilon * degrees[0], epsilon * degrees[1], f))


def _variance(codes: Sequence[NDArray[np.int_]], responses: Sequence[Floats], sizes: Sequence[int]) -> float:
    """Between cells, of their means over blocks; NaN unless every combination occurs in every block."""
    if any(
        code.shape[1] != np.prod(sizes) or len(set(map(tuple, code.T))) != code.shape[1] for code in codes
    ):
        return float("nan")
    means: dict[Hashable, list[float]] = {}
    for code, response in zip(codes, responses, strict=True):
        for cell, value in zip(map(tuple, code.T), response, strict=True):
            means.setdefault(cell, []).append(value)
    return float(np.var([np.mean(values) for values in means.values()]))


def _columns(term: tuple[int, ...], sizes: Sequence[int]) -> Floats:
    """(combinations, columns): the contrasts of a term, a row per combination of its levels."""
    columns = np.ones((1, 1))
    for k in term:
        columns = np.asarray(np.kron(columns, contrasts(sizes[k])), dtype=np.float64)
    return columns


def _index(term: tuple[int, ...], sizes: Sequence[int], code: NDArray[np.int_]) -> NDArray[np.int_]:
    """Which combination of a term's levels each run has."""
    index = np.zeros(code.shape[1], dtype=int)
    for k in term:
        index = index * sizes[k] + code[k]
    return index


def _width(term: tuple[int, ...], sizes: Sequence[int]) -> int:
    return int(np.prod([sizes[k] - 1 for k in term]))
