"""Dynamic filtering: which groups of a rollout are used for the update.

An option is `option(returns, success, *, ...) -> keep`:

    returns  (groups, G) float  R_i of a group's episodes, raw: before any penalty
    success  (groups, G) bool
    keep     (groups,) bool

How often rollouts are tried again, and what fills the step, is the same for all options: `select_groups`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor

from trainers.config import Share

Filter = Callable[[Tensor, Tensor], Tensor]

# float32 sums of the same rewards in another order differ by this much at most
SAME_RETURN = 1e-6


def none(returns: Tensor, success: Tensor) -> Tensor:
    """Keep every group."""
    return torch.ones(len(returns), dtype=torch.bool, device=returns.device)


def group_variance(
    returns: Tensor, success: Tensor, *, signal: Literal["return", "success"] = "return"
) -> Tensor:
    """Keep a group iff its episodes differ in the signal (DAPO, Yu et al. 2025, arXiv 2503.14476, eq. 11).

    `return` is the paper's code for agents, `success` its text: some but not all succeed.
    """
    values = returns if signal == "return" else success.to(returns.dtype)
    return values.amax(1) - values.amin(1) > SAME_RETURN


def top_variance(returns: Tensor, success: Tensor, *, keep_fraction: Share = 0.25) -> Tensor:
    """Keep the ceil(keep_fraction x groups) groups of highest return std, never a uniform one.

    StarPO-S (RAGEN, Wang et al. 2025, arXiv 2504.20073). Of equal std the first are kept.
    """
    # the tolerance keeps 0.07 x 100 = 7.000000000000001 from becoming 8
    wanted = math.ceil(keep_fraction * len(returns) - 1e-9)
    # sorted, so that groups of the same returns have the same std to the last bit
    order = returns.double().sort(1).values.std(1, correction=0).argsort(descending=True, stable=True)
    keep = torch.zeros(len(returns), dtype=torch.bool, device=returns.device)
    keep[order[:wanted]] = True
    return keep & group_variance(returns, success)


def select_groups(
    keeps: Sequence[Tensor], wanted: int, *, fill: Literal["uniform", "shrink"]
) -> list[tuple[int, int]]:
    """The groups a step uses, as (try, group), given what the filter kept of each try.

    keeps: one (groups,) bool per try. Kept groups are used in order and the surplus is cut; when they are
    too few, `fill: uniform` adds dropped groups of the last try, in order, `fill: shrink` goes with fewer,
    or none.
    """
    kept = [(number, group) for number, keep in enumerate(keeps) for group in keep.nonzero()[:, 0].tolist()]
    if len(kept) < wanted and fill == "uniform" and keeps:
        kept += [(len(keeps) - 1, group) for group in (~keeps[-1]).nonzero()[:, 0].tolist()]
    return kept[:wanted]


def another_try(keeps: Sequence[Tensor], wanted: int, *, max_tries: int) -> bool:
    """Whether one more batch of new initial states is rolled out: too few are kept and tries are left."""
    return len(keeps) < max_tries and sum(int(keep.sum()) for keep in keeps) < wanted
