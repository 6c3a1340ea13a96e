"""How improbable a difference is when nothing differs, and what many such numbers at once are worth."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtr

from analysis.resampling import LEAST_BLOCKS

Floats = NDArray[np.float64]


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Holm's step-down correction: p-values that hold for all tests at once. None stays None, untested.

    Holm (1979): the k-th smallest of m counts m - k + 1 times, and none less than those before it.
    """
    tested = sorted((p, place) for place, p in enumerate(p_values) if p is not None)
    corrected: list[float | None] = [None] * len(p_values)
    largest = 0.0
    for rank, (p, place) in enumerate(tested):
        largest = max(largest, min(1.0, (len(tested) - rank) * p))
        corrected[place] = largest
    return corrected


def block_p_value(differences: ArrayLike) -> float | None:
    """The two-sided p-value of a mean difference of 0, one difference per block; None below five blocks.

    Student's t over blocks. Where t cannot say, because all differences are equal, and for differences that
    take few values (a block collapsed or not), the exact sign-flip test (Fisher 1935): every block's
    difference could as well have had the other sign.
    """
    values = np.asarray(differences, dtype=float)
    values = values[~np.isnan(values)]
    count = len(values)
    if count < LEAST_BLOCKS:
        return None
    if not values.any():
        return 1.0
    if len(np.unique(np.round(values, 9))) <= 3:
        return sign_flip_p_value(values)
    t = values.mean() / (values.std(ddof=1) / np.sqrt(count))
    return float(2 * stdtr(count - 1, -abs(t)))


def sign_flip_p_value(differences: ArrayLike, *, most: int = 16) -> float:
    """The share of all sign patterns whose mean is at least as far from 0; beyond 2^most, 2^most drawn."""
    values = np.asarray(differences, dtype=float)
    bound = abs(values.sum()) - 1e-9
    if len(values) <= most:
        signs = np.array(list(product((-1.0, 1.0), repeat=len(values))))
        return float((np.abs(signs @ values) >= bound).mean())
    signs = np.random.default_rng(0).choice((-1.0, 1.0), size=(2**most, len(values)))
    return float(((np.abs(signs @ values) >= bound).sum() + 1) / (2**most + 1))
