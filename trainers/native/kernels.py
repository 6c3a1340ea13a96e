"""Differentiable pieces of a policy, their gradients written out to pass over memory less often.

On a CPU a small model is bound by memory traffic, not by matrix products. Each function is tested against its
textbook form and by finite differences.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

NORM_EPSILON = 1e-6


class _RMSNorm(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        inverse = _inverse_norm(x)
        normed = x * inverse
        ctx.save_for_backward(normed, inverse, weight)
        return normed * weight

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        (gradient,) = gradients
        normed, inverse, weight = ctx.saved_tensors
        product = gradient * normed
        along = (product @ weight).div_(-weight.shape[0])[:, None]
        gradient_x = (gradient * weight).addcmul_(normed, along).mul_(inverse)
        return gradient_x, product.sum(0)


class _SwiGLU(Function):
    @staticmethod
    def forward(ctx: Any, gate_up: Tensor) -> Tensor:
        gate, up = gate_up.chunk(2, -1)
        sigmoid = torch.sigmoid(gate)
        silu = gate * sigmoid
        ctx.save_for_backward(up, sigmoid, silu)
        return silu * up

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (gradient,) = gradients
        up, sigmoid, silu = ctx.saved_tensors
        width = up.shape[-1]
        out = gradient.new_empty(gradient.shape[0], 2 * width)
        # d silu / d gate = sigmoid + silu (1 - sigmoid)
        slope = torch.addcmul(sigmoid, silu, sigmoid, value=-1).add_(silu)
        torch.mul(slope.mul_(up), gradient, out=out[:, :width])
        torch.mul(silu, gradient, out=out[:, width:])
        return out


class _Rotate(Function):
    @staticmethod
    def forward(ctx: Any, qkv: Tensor, cos: Tensor, sin: Tensor, heads: int) -> Tensor:
        ctx.save_for_backward(cos, sin)
        ctx.heads = heads
        return _turn(qkv, cos, sin, heads)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        cos, sin = ctx.saved_tensors
        return _turn(gradients[0], cos, -sin, ctx.heads), None, None, None


class _TokenLogProbs(Function):
    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, tokens: Tensor, row: Tensor, entropy_gradient: bool
    ) -> tuple[Tensor, Tensor]:
        log_p = torch.log_softmax(logits, -1)
        p = log_p.exp()
        entropy = torch.linalg.vecdot(p, log_p).neg_()
        place = row * logits.shape[1] + tokens
        chosen = log_p.reshape(-1)[place]
        if entropy_gradient:
            ctx.save_for_backward(p, row, place, log_p, entropy)
        else:
            ctx.save_for_backward(p, row, place)
        entropies = entropy[row]
        if not entropy_gradient:
            ctx.mark_non_differentiable(entropies)
        return chosen, entropies

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        p, row, place, *of_entropy = ctx.saved_tensors
        # d log p_c / d logits = onehot(c) - p
        out = p * -p.new_zeros(len(p)).index_add_(0, row, gradients[0])[:, None]
        out.view(-1).index_add_(0, place, gradients[0])
        if of_entropy:
            # d H / d logits = -p (log p + H)
            log_p, entropy = of_entropy
            weight = p.new_zeros(len(p)).index_add_(0, row, gradients[1])
            out.addcmul_(p, (log_p + entropy[:, None]).mul_(-weight[:, None]))
        return out, None, None, None


def _turn(qkv: Tensor, cos: Tensor, sin: Tensor, heads: int) -> Tensor:
    half = cos.shape[-1]
    turned = qkv.clone(memory_format=torch.contiguous_format)
    columns = heads * 2 * half
    first, second = qkv[:, :columns].view(-1, heads, 2, half).unbind(2)
    out_first, out_second = turned[:, :columns].view(-1, heads, 2, half).unbind(2)
    torch.mul(first, cos, out=out_first)
    out_first.addcmul_(second, sin, value=-1)
    torch.mul(second, cos, out=out_second)
    out_second.addcmul_(first, sin)
    return turned


def _inverse_norm(x: Tensor) -> Tensor:
    square: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True).square_()
    inverse: Tensor = square.div_(x.shape[-1]).add_(NORM_EPSILON).rsqrt_()
    return inverse


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    """x / sqrt(mean(x^2) + epsilon) * weight; x: (tokens, hidden), weight: (hidden,)."""
    if not torch.is_grad_enabled():
        return (x * _inverse_norm(x)).mul_(weight)
    return _RMSNorm.apply(x, weight)  # type: ignore[no-any-return,no-untyped-call]


def swiglu(gate_up: Tensor) -> Tensor:
    """silu(gate) * up; gate_up: (tokens, 2 x width), the gate first. Returns (tokens, width)."""
    if not torch.is_grad_enabled():
        gate, up = gate_up.chunk(2, -1)
        return torch.nn.functional.silu(gate).mul_(up)
    return _SwiGLU.apply(gate_up)  # type: ignore[no-any-return,no-untyped-call]


def rotate(qkv: Tensor, cos: Tensor, sin: Tensor, heads: int) -> Tensor:
    """Rotary position embedding of the first `heads` heads' columns; the columns after them are copied.

    qkv: (tokens, columns) with heads side by side, each as two halves; cos, sin: (tokens, 1, half).
    """
    if not torch.is_grad_enabled():
        return _turn(qkv, cos, sin, heads)
    return _Rotate.apply(qkv, cos, sin, heads)  # type: ignore[no-any-return,no-untyped-call]


def token_log_probs(
    logits: Tensor,
    tokens: Tensor,
    temperature: float,
    row: Tensor | None = None,
    *,
    entropy_gradient: bool = False,
) -> tuple[Tensor, Tensor]:
    """Log-probs of the tokens and entropies (nats) of their distributions, in one pass; both (n,).

    logits: (m, vocabulary), divided by the temperature here; tokens: (n,) long; row: (n,) long, the row of
    logits that each token was drawn from, without which they correspond. Entropies carry a gradient only when
    asked to.
    """
    if temperature != 1:
        logits = logits / temperature
    if row is None:
        row = torch.arange(len(tokens), device=tokens.device)
    return _TokenLogProbs.apply(  # type: ignore[no-any-return,no-untyped-call]
        logits, tokens, row, entropy_gradient
    )
