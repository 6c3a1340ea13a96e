"""Which positions share a node, against the definition: equal root and equal tokens up to there."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trainers.native.prefix_tree import prefix_tree


@given(seed=st.integers(0, 2**31), n=st.integers(1, 12), width=st.integers(1, 6), padded=st.booleans())
@settings(max_examples=60, deadline=None)
def test_positions_are_one_node_where_their_past_is_equal(
    seed: int, n: int, width: int, padded: bool
) -> None:
    generator = torch.Generator().manual_seed(seed)
    roots = torch.randint(0, 3, (n,), generator=generator)
    tokens = torch.randint(0, 3, (n, width), generator=generator)
    lengths = torch.randint(1, width + 1, (n,), generator=generator)
    valid = torch.arange(width) < lengths[:, None] if padded else torch.ones(n, width, dtype=torch.bool)
    tree = prefix_tree(roots, tokens, valid if padded else None)
    past = {
        (row, column): (int(roots[row]), *tokens[row, : column + 1].tolist())
        for row in range(n)
        for column in range(width)
        if valid[row, column]
    }
    node = {place: int(tree.node[place]) for place in past}
    assert len(tree.first) == len(set(past.values())) == len(set(node.values()))
    assert len({(past[place], node[place]) for place in past}) == len(tree.first)
    for number, first in enumerate(tree.first.tolist()):
        assert node[divmod(first, width)] == number


def test_without_positions_there_are_no_nodes() -> None:
    empty = torch.zeros(2, 3, dtype=torch.bool)
    assert not len(prefix_tree(torch.arange(2), torch.ones(2, 3, dtype=torch.long), empty).first)
