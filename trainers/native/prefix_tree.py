"""Which positions of a batch of sequences have the same past: they are computed once.

A causal model gives equal outputs where everything up to and including a position is equal. Episodes of a
group begin alike, boards differ in a few cells, and responses open with the same words, so a third to a half
of all positions is the same as another. Equal positions are a node; attention is computed per sequence, the
rest of a layer per node.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class PrefixTree:
    """The nodes of n sequences of at most t tokens.

    node   (n, t) long  the node of every position; of positions that are no part of a sequence some node
    first  (m,)   long  for every node a position that is it, flattened
    """

    node: Tensor
    first: Tensor


def prefix_tree(roots: Tensor, tokens: Tensor, valid: Tensor | None = None) -> PrefixTree:
    """Number the positions whose root and tokens up to there are equal.

    roots: (n,) long, what stands before the sequences; tokens: (n, t) long; valid: (n, t) bool, a prefix of
    every sequence, without which all positions count.
    """
    n, width = tokens.shape
    node = tokens.new_zeros(n, width)
    before, size = roots, int(tokens.max()) + 1 if tokens.numel() else 1
    every = torch.arange(n, device=tokens.device)
    firsts, count = [], 0
    for column in range(width):
        rows = every if valid is None else valid[:, column].nonzero().squeeze(1)
        if not len(rows):
            break
        keys, inverse = torch.unique(before[rows] * size + tokens[rows, column], return_inverse=True)
        first = rows.new_full((len(keys),), n).scatter_reduce(0, inverse, rows, "amin")
        node[rows, column] = inverse + count
        firsts.append(first * width + column)
        before = node[:, column]
        count += len(keys)
    return PrefixTree(node, torch.cat(firsts) if firsts else every[:0])
