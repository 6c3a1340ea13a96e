"""The written-out gradients against textbook forms under autograd, and by finite differences."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from trainers.native.kernels import NORM_EPSILON, rms_norm, rotate, swiglu, token_log_probs

TOKENS, HIDDEN, HEADS, HEAD = 5, 12, 2, 4


def norm_textbook(x: Tensor, weight: Tensor) -> Tensor:
    return x / (x.pow(2).mean(-1, keepdim=True) + NORM_EPSILON).sqrt() * weight


def swiglu_textbook(gate_up: Tensor) -> Tensor:
    gate, up = gate_up.chunk(2, -1)
    return gate / (1 + (-gate).exp()) * up


def rotate_textbook(qkv: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """As a rotation of each pair (x_i, x_{i + half}), written as complex multiplication."""
    turned = qkv.clone()
    for head in range(HEADS):
        start, half = head * HEAD, HEAD // 2
        pair = torch.complex(qkv[:, start : start + half], qkv[:, start + half : start + HEAD])
        pair = pair * torch.complex(cos[:, 0], sin[:, 0])
        turned[:, start : start + half], turned[:, start + half : start + HEAD] = pair.real, pair.imag
    return turned


def draw(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape)))


ANGLE = draw(TOKENS, 1, HEAD // 2)
CASES: dict[str, tuple[Callable[..., Tensor], Callable[..., Tensor], tuple[Tensor, ...]]] = {
    "rms_norm": (rms_norm, norm_textbook, (draw(TOKENS, HIDDEN), draw(HIDDEN))),
    "swiglu": (swiglu, swiglu_textbook, (draw(TOKENS, 2 * HIDDEN),)),
    "rotate": (
        lambda qkv: rotate(qkv, ANGLE.cos(), ANGLE.sin(), HEADS),
        lambda qkv: rotate_textbook(qkv, ANGLE.cos(), ANGLE.sin()),
        (draw(TOKENS, HEADS * HEAD + 3),),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_values_equal_the_textbook_with_and_without_gradients(name: str) -> None:
    function, textbook, inputs = CASES[name]
    expected = textbook(*inputs)
    with torch.no_grad():
        torch.testing.assert_close(function(*inputs), expected)
    torch.testing.assert_close(function(*(x.clone().requires_grad_() for x in inputs)).detach(), expected)


@pytest.mark.parametrize("name", CASES)
def test_gradients_equal_finite_differences(name: str) -> None:
    function, _, inputs = CASES[name]
    assert torch.autograd.gradcheck(function, [x.clone().requires_grad_() for x in inputs])


def log_probs_textbook(logits: Tensor, tokens: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    spread = torch.distributions.Categorical(logits=logits / temperature)
    return spread.log_prob(tokens), spread.entropy()


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_token_log_probs_and_entropies_equal_a_categorical_distribution(temperature: float) -> None:
    logits, tokens = 3 * draw(TOKENS, HIDDEN), torch.tensor([0, 3, 3, 11, 7])
    ours = token_log_probs(logits, tokens, temperature)
    for mine, expected in zip(ours, log_probs_textbook(logits, tokens, temperature), strict=True):
        torch.testing.assert_close(mine, expected)
    assert torch.autograd.gradcheck(
        lambda x: token_log_probs(x, tokens, temperature, entropy_gradient=True), logits.requires_grad_()
    )


def test_entropies_carry_a_gradient_only_when_asked_to() -> None:
    logits = draw(TOKENS, HIDDEN).requires_grad_()
    chosen, entropy = token_log_probs(logits, torch.zeros(TOKENS, dtype=torch.long), 1.0)
    assert chosen.requires_grad
    assert not entropy.requires_grad
