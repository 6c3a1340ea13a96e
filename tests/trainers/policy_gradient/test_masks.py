"""Masks on rows small enough to see which of them go."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from trainers.policy_gradient.masks import kept_tokens
from trainers.policy_gradient.parameters import ClippingSettings, Mask

# mean log-ratios of the rows: -0.2, -0.2, +0.3, -0.01; the last has one token only
LOG_RATIOS = torch.tensor([[-0.5, 0.1], [-0.5, 0.1], [0.2, 0.4], [-0.01, 9.0]])
MASK = torch.tensor([[True, True], [True, True], [True, True], [True, False]])
ADVANTAGES = torch.tensor([-1.0, 1.0, -1.0, -2.0])


def kept(
    advantages: Tensor = ADVANTAGES, *, generator: torch.Generator | None = None, **masks: Mask
) -> tuple[list[list[bool]], list[list[bool]]]:
    result = kept_tokens(
        LOG_RATIOS,
        torch.zeros_like(LOG_RATIOS),
        advantages,
        MASK,
        settings=ClippingSettings(**masks),
        generator=generator,
    )
    return result.terms.tolist(), result.counted.tolist()


def test_without_masks_everything_is_kept() -> None:
    assert kept() == (MASK.tolist(), MASK.tolist())


def test_a_sequence_mask_drops_rows_with_negative_advantage_that_fell_too_far() -> None:
    terms, counted = kept(sequence_mask=Mask(delta=0.1))
    assert terms == [[False, False], [True, True], [True, True], [True, False]]
    assert counted == terms


def test_a_smaller_delta_drops_more_rows() -> None:
    terms, _ = kept(sequence_mask=Mask(delta=0.003))
    assert terms == [[False, False], [True, True], [True, True], [False, False]]


def test_a_token_mask_drops_single_tokens() -> None:
    terms, _ = kept(token_mask=Mask(delta=0.1))
    assert terms == [[False, True], [True, True], [True, True], [True, False]]


def test_denominator_all_counts_what_was_dropped() -> None:
    terms, counted = kept(sequence_mask=Mask(delta=0.1, denominator="all"))
    assert terms[0] == [False, False]
    assert counted == MASK.tolist()


def test_masks_combine_and_each_has_its_own_denominator() -> None:
    terms, counted = kept(
        sequence_mask=Mask(delta=0.1, denominator="all"), token_mask=Mask(delta=0.003, denominator="kept")
    )
    assert terms == [[False, False], [True, True], [True, True], [False, False]]
    assert counted == [[False, True], [True, True], [True, True], [False, False]]


@pytest.mark.parametrize(("delta", "wanted"), [(0.5, 0), (0.1, 1), (0.003, 2)])
def test_a_random_mask_drops_as_many_negative_rows_as_the_sequence_mask(delta: float, wanted: int) -> None:
    chosen = set()
    for seed in range(30):
        generator = torch.Generator().manual_seed(seed)
        terms, _ = kept(random_mask=Mask(delta=delta), generator=generator)
        dropped = [number for number, row in enumerate(terms) if not any(row)]
        assert len(dropped) == wanted
        chosen.update(dropped)
    assert chosen == ({0, 2, 3} if wanted else set())


def test_a_random_mask_without_a_generator_is_refused() -> None:
    with pytest.raises(ValueError, match="needs a generator"):
        kept(random_mask=Mask(delta=0.1))
