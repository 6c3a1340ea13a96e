"""Which points of the axes' space a grid runs. Pure: a candidate is, per axis, the index of an option.

Every design chooses among candidates that rules allow, and chooses the same ones every time.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence, Sized

import numpy as np

from arena.contrasts import Matrix, columns, width

Candidate = tuple[int, ...]

_STARTS = 10
"""How many starts the searches try, fewer among many candidates; the best result is taken."""
_EXCHANGES = 400
"""How many exchanges a search makes at most."""
_LOWER_ORDERS_FIRST = 0.1
"""How much less imbalance weighs for each further axis that takes part in it."""
_MOST_KEPT = 2000
"""With more candidates than this their kernel is not kept, but computed again for each."""
_RIDGE = 1e-6
"""Added to the information matrix: candidates that cannot show everything still show what they can."""


def full(levels: Sequence[int]) -> list[Candidate]:
    """Every combination of that many options per axis; the last axis varies fastest."""
    return list(itertools.product(*map(range, levels)))


def one_factor(candidates: Sequence[Candidate]) -> list[Candidate]:
    """The first option of every axis, and every single change from it.

    Shows what each change does at that baseline; no interaction can be told from it.
    """
    changes = {candidate: [axis for axis, index in enumerate(candidate) if index] for candidate in candidates}
    return sorted((one for one in candidates if len(changes[one]) <= 1), key=lambda one: (changes[one], one))


def pairwise(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Few candidates in which every pair of options occurs that occurs in any candidate.

    Greedy: the candidate with most pairs that are still missing comes next (Cohen et al. 1997, "AETG"). Then,
    as long as that succeeds, one is left out and the others are exchanged until all pairs are there again.
    """
    pairs = _Pairs(candidates)
    taken = min((pairs.cover(start) for start in range(_STARTS)), key=len)
    while (fewer := pairs.exchange(taken[:-1])) is not None:
        taken = fewer
    return [candidates[index] for index in sorted(set(taken))]


def fraction(candidates: Sequence[Candidate], levels: Sequence[int], share: float) -> list[Candidate]:
    """A share of the candidates in which options, then pairs, triples ... of options come equally often.

    Minimises sum_k w^k A_k by exchanges, A_k being the generalised word lengths (Xu and Wu 2001): how far the
    contrasts of k axes are from summing to zero. For two options per axis this finds regular fractions.
    """
    count = max(1, round(share * len(candidates)))
    if count >= len(candidates):
        return list(candidates)
    balance = _Balance(np.array(candidates), levels)
    tries = [balance.choose(count, start) for start in range(_starts(candidates))]
    taken = min(tries, key=lambda found: round(found[1], 9))[0]
    return [candidates[int(index)] for index in np.flatnonzero(taken)]


def d_optimal(
    candidates: Sequence[Candidate], levels: Sequence[int], runs: int, *, interactions: bool = False
) -> list[Candidate]:
    """`runs` candidates that together maximise |X'X|: the smallest joint confidence region of all effects.

    X has the mean and main effects, with `interactions` the two-factor ones too. Exchanges of one candidate
    for another while one increases it (Fedorov 1972). No candidate comes twice: repetition is for seeds.
    """
    if runs >= len(candidates):
        return list(candidates)
    model = columns(np.array(candidates), levels, interactions=interactions).matrix
    tries = [_exchanged(model, runs, start) for start in range(_starts(model))]
    taken = max(tries, key=lambda found: round(found[1], 9))[0]
    return [candidates[int(index)] for index in np.flatnonzero(taken)]


def least_runs(candidates: Sequence[Candidate], levels: Sequence[int], *, interactions: bool = False) -> int:
    """With fewer runs than this the effects of a model cannot be told apart."""
    occurring = [len({candidate[axis] for candidate in candidates}) for axis in range(len(levels))]
    return width(occurring, interactions=interactions)


def _starts(candidates: Sized) -> int:
    return max(1, min(_STARTS, 1200 // max(1, len(candidates))))


class _Pairs:
    """The pairs of options that occur in candidates (an option is a pair with itself), and covers of them."""

    def __init__(self, candidates: Sequence[Candidate]) -> None:
        found: dict[tuple[int, ...], int] = {}
        rows = [
            [
                found.setdefault((a, b, candidate[a], candidate[b]), len(found))
                for a, b in itertools.combinations_with_replacement(range(len(candidate)), 2)
            ]
            for candidate in candidates
        ]
        self.of = np.array(rows, dtype=int)
        self.count = len(found)

    def cover(self, start: int) -> list[int]:
        """Candidates that together have every pair; other starts break ties differently."""
        ties = np.random.default_rng(start).random(len(self.of)) / 2 if start else np.zeros(len(self.of))
        missing = np.ones(self.count, bool)
        taken: list[int] = []
        while missing.any():
            taken.append(int(np.argmax(missing[self.of].sum(1) + ties)))
            missing[self.of[taken[-1]]] = False
        return taken

    def exchange(self, taken: Sequence[int]) -> list[int] | None:
        """Exchange one at random for the one that adds most, until they are a cover; else None."""
        random = np.random.default_rng(0)
        chosen = list(taken)
        times = np.bincount(self.of[chosen].ravel(), minlength=self.count)
        for _ in range(_EXCHANGES if chosen else 0):
            if times.all():
                return chosen
            place = random.integers(len(chosen))
            times -= np.bincount(self.of[chosen[place]], minlength=self.count)
            new = (times == 0)[self.of].sum(1) + random.random(len(self.of)) / 2
            new[chosen[place]] = -1
            chosen[place] = int(np.argmax(new))
            times += np.bincount(self.of[chosen[place]], minlength=self.count)
        return None


class _Balance:
    """How evenly a choice among points takes options, pairs, triples ... of options."""

    def __init__(self, points: Matrix, levels: Sequence[int]) -> None:
        self.points, self.levels = points, levels
        keep = len(points) <= _MOST_KEPT
        self._kernel = np.array([self._row(index) for index in range(len(points))]) if keep else None

    def choose(self, count: int, start: int) -> tuple[Matrix, float]:
        """A choice (points,) bool of `count` points, and its imbalance; other starts take other ways."""
        size = len(self.points)
        order = np.random.default_rng(start).permutation(size) if start else np.arange(size)
        own = self.row(0)[0]
        taken = np.zeros(size, bool)
        sums = np.zeros(size)
        for _ in range(count):
            index = order[np.argmin(np.where(taken, np.inf, sums)[order])]
            taken[index] = True
            sums += self.row(index)
        improved = True
        while improved:
            improved = False
            for out in order[taken[order]]:
                change = 2 * (sums - sums[out] - self.row(out) + own)
                change[taken] = np.inf
                into = order[np.argmin(change[order])]
                if change[into] < -1e-9:
                    taken[out], taken[into] = False, True
                    sums += self.row(into) - self.row(out)
                    improved = True
        return taken, float(sums[taken].sum()) / count**2

    def row(self, index: int) -> Matrix:
        """Of a point against every point: prod over axes of 1 + w (L [same option] - 1).

        Summed over pairs of chosen points it is n^2 sum_k w^k A_k.
        """
        return self._row(index) if self._kernel is None else self._kernel[index]

    def _row(self, index: int) -> Matrix:
        kernel = np.ones(len(self.points))
        for axis, options in enumerate(self.levels):
            same = self.points[:, axis] == self.points[index, axis]
            kernel *= 1 + _LOWER_ORDERS_FIRST * (options * same - 1)
        return kernel


def _exchanged(model: Matrix, runs: int, start: int) -> tuple[Matrix, float]:
    """A choice (candidates,) bool of `runs` rows of a model matrix, and the logarithm of its |X'X|."""
    random = np.random.default_rng(start)
    taken = np.zeros(len(model), bool)
    if start:
        taken[random.permutation(len(model))[:runs]] = True
    else:
        inverse = np.eye(model.shape[1]) / _RIDGE
        for _ in range(runs):
            variance = np.where(taken, -1.0, _variance(model, inverse))
            best = int(np.argmax(variance))
            taken[best] = True
            direction = inverse @ model[best]
            inverse = inverse - np.outer(direction, direction) / (1 + variance[best])
    for _ in range(_EXCHANGES):
        information = model[taken].T @ model[taken] + _RIDGE * np.eye(model.shape[1])
        inverse = np.linalg.inv(information)
        outs, ins = np.flatnonzero(taken), np.flatnonzero(~taken)
        covariance = model[outs] @ inverse @ model[ins].T
        variance = _variance(model, inverse)
        gain = variance[None, ins] * (1 - variance[outs, None]) + covariance**2 - variance[outs, None]
        best = int(np.argmax(gain))
        if gain.flat[best] < 1e-7:
            break
        out, into = np.unravel_index(best, gain.shape)
        taken[outs[out]], taken[ins[into]] = False, True
    information = model[taken].T @ model[taken] + _RIDGE * np.eye(model.shape[1])
    return taken, float(np.linalg.slogdet(information)[1])


def _variance(model: Matrix, inverse: Matrix) -> Matrix:
    """x' M^-1 x of every row x: how little is known of the outcome there."""
    variance: Matrix = ((model @ inverse) * model).sum(1)
    return variance
