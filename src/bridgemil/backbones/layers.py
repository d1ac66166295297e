"""Layers that the backbones share, written for few passes over memory; each equals the plain layers it names."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from bridgemil.errors import BadUse


def full_precision(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Run a backward pass outside autocast, whatever the caller's context; it is differentiable once."""

    @once_differentiable
    @functools.wraps(backward)
    def run(ctx: Any, grad: Tensor) -> Any:
        with torch.autocast(grad.device.type, enabled=False):
            return backward(ctx, grad)

    return run


CHANNELS_AT_ONCE = 4  # so that a stage finds in the cache what the one before left there


def at_least(name: str, n_times: int, times: int, n_channels: int = 1, channels: int = 1) -> None:
    """Refuse windows that leave a backbone no token or pooled sample."""
    if n_times < times or n_channels < channels:
        needs = f"{times} samples" if channels == 1 else f"{channels} channels x {times} samples"
        raise BadUse(f"{name} needs windows of at least {needs}, got {n_channels} x {n_times}")


class Dropout(nn.Dropout):
    """``nn.Dropout`` that draws eight masks from one random number where it can (CPU, p a multiple of 1/256)."""

    def forward(self, x: Tensor) -> Tensor:
        """Zero a share p of x and scale the rest, in training."""
        bound = self.p * 256
        if not self.training or self.p == 0 or x.device.type != "cpu" or bound != int(bound):
            return F.dropout(x, self.p, self.training)
        words = torch.empty(-(-x.numel() // 8), dtype=torch.int64).random_(-(2**63), None)
        keep = words.view(torch.uint8)[: x.numel()].view(x.shape) >= int(bound)
        dropped: Tensor = _Masked.apply(x, keep, 1 / (1 - self.p))
        return dropped


class _Masked(torch.autograd.Function):
    """``x * keep * scale``, remembering only a byte per value."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, keep: Tensor, scale: float) -> Tensor:
        ctx.save_for_backward(keep)
        ctx.scale = scale
        return keep.to(x.dtype).mul_(scale).mul_(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return ctx.saved_tensors[0].to(grad.dtype).mul_(ctx.scale).mul(grad), None, None


def running(norm: nn.BatchNorm1d | nn.BatchNorm2d) -> tuple[Tensor, Tensor, float]:
    """A batch norm's running mean and variance, and how fast they move."""
    mean, var, momentum = norm.running_mean, norm.running_var, norm.momentum
    if mean is None or var is None or momentum is None:
        raise TypeError("the backbones' batch norms keep running statistics with a momentum")
    return mean, var, momentum


def absorb(norm: nn.BatchNorm1d | nn.BatchNorm2d, shift: Tensor) -> Tensor:
    """The bias with which ``norm`` gives norm(u + shift) from u, for a shift of one constant per channel.

    In training the batch's mean takes the shift out of the output: it only enters the running mean, and its gradient is
    zero (zero, not none at all: none would also skip weight decay).
    """
    mean, var, momentum = running(norm)
    if not norm.training:
        return norm.bias + norm.weight * torch.rsqrt(var + norm.eps) * shift
    # Through .data: an earlier forward pass of the same step may hold the buffer, though training never reads it.
    mean.data += shift.detach() * (momentum / (1 - momentum))
    return norm.bias + 0 * shift


def norm_elu_pool(u: Tensor, norm: nn.BatchNorm2d, pool: int, shift: Tensor | None = None) -> Tensor:
    """``avg_pool(elu(norm(u + shift)), pool)`` of u (channels x N x T), channels first."""
    weight, bias = norm.weight, norm.bias if shift is None else absorb(norm, shift)
    mean, var, _ = running(norm)
    if norm.training:
        norm.num_batches_tracked.add_(1)  # type: ignore[union-attr]
    with torch.autocast(u.device.type, enabled=False):  # statistics want full precision
        u = u.to(weight.dtype)
        pooled: Tensor = _NormELUPool.apply(u, weight, bias, mean, var, norm, pool)
    return pooled


def _pooling(n_times: int, pool: int, like: Tensor) -> Tensor:
    """Average pooling as a matrix (T x T // pool): on the CPU a product is faster than strided sums, both ways."""
    windows = torch.arange(n_times, device=like.device) // pool
    return (windows[:, None] == torch.arange(n_times // pool, device=like.device)).to(like.dtype) / pool


class _NormELUPool(torch.autograd.Function):
    """Batch norm, ELU and average pooling, a few channels at a time; only the input is kept for the gradient."""

    @staticmethod
    def forward(
        ctx: Any, u: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, var: Tensor, norm: nn.BatchNorm2d, pool: int
    ) -> Tensor:
        channels, n, n_times = u.shape
        average = _pooling(n_times, pool, u)
        pooled = u.new_empty(channels, n, n_times // pool)
        moments: list[tuple[Tensor, Tensor]] = []
        for own in _parts(channels):
            flat = u[own].reshape(1, len(weight[own]), -1)
            out, *used = torch.native_batch_norm(
                flat, weight[own], bias[own], mean[own], var[own], norm.training, running(norm)[2], norm.eps
            )
            active = F.elu(out, inplace=True).view(-1, n_times)
            torch.matmul(active, average, out=pooled[own].view(-1, n_times // pool))
            moments.append((used[0], used[1]) if norm.training else (mean[own], torch.rsqrt(var[own] + norm.eps)))
        used_mean, used_invstd = (torch.cat(values) for values in zip(*moments, strict=True))
        ctx.save_for_backward(u, weight, bias, used_mean, used_invstd, average)
        ctx.training, ctx.eps = norm.training, norm.eps
        return pooled

    @staticmethod
    @full_precision
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        u, weight, bias, mean, invstd, average = ctx.saved_tensors
        scale = weight * invstd
        shift, var = bias - scale * mean, invstd**-2 - ctx.eps
        grad_u, grad_weight, grad_bias = torch.empty_like(u), torch.empty_like(weight), torch.empty_like(weight)
        for own in _parts(len(u)):
            spread = grad[own].reshape(-1, grad.shape[-1]).to(average.dtype) @ average.T
            active = torch.addcmul(shift[own, None, None], u[own], scale[own, None, None])
            active = F.elu(active, inplace=True).view(spread.shape)
            torch.ops.aten.elu_backward.grad_input(spread, 1.0, 1.0, 1.0, True, active, grad_input=spread)
            flat = u[own].view(1, len(weight[own]), -1)
            grads = torch.ops.aten.native_batch_norm_backward(
                spread.view(flat.shape), flat, weight[own], mean[own], var[own], mean[own], invstd[own],
                ctx.training, ctx.eps, [True] * 3,
            )  # fmt: skip
            grad_u[own], grad_weight[own], grad_bias[own] = grads[0].view(u[own].shape), grads[1], grads[2]
        return grad_u, grad_weight, grad_bias, None, None, None, None


def _parts(channels: int) -> list[slice]:
    return [slice(first, first + CHANNELS_AT_ONCE) for first in range(0, channels, CHANNELS_AT_ONCE)]


def attend(attention: nn.MultiheadAttention, x: Tensor, other: Tensor, dropout: nn.Module) -> Tensor:
    """``attention(x, other, other)`` of N x tokens x width, with one product for all projections of a side."""
    n, tokens, width = x.shape
    heads = attention.num_heads
    scale = torch.ones(3 * width, device=x.device, dtype=x.dtype)
    scale[:width] = (
        width // heads
    ) ** -0.5  # of the queries; a 3 x width vector is cheaper than the queries themselves
    weight, bias = attention.in_proj_weight * scale[:, None], attention.in_proj_bias * scale
    if x is other:
        q, k, v = F.linear(x, weight, bias).view(n, tokens, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
    else:
        q = F.linear(x, weight[:width], bias[:width]).view(n, tokens, heads, width // heads).transpose(1, 2)
        k, v = (
            F.linear(other, weight[width:], bias[width:])
            .view(n, other.shape[1], 2, heads, width // heads)
            .permute(2, 0, 3, 1, 4)
        )
    weights = dropout(torch.softmax(q @ k.transpose(-1, -2), dim=-1))
    out: Tensor = attention.out_proj((weights @ v).transpose(1, 2).reshape(n, tokens, width))
    return out


def gelu_grouped(x: Tensor, conv: nn.Conv1d) -> Tensor:
    """``conv(gelu(x))`` on the last axis of x, for a 1 x 1 convolution in groups: a block-diagonal product."""
    out: Tensor = _GELULinear.apply(x, torch.block_diag(*conv.weight[..., 0].chunk(conv.groups)))
    return out


class _GELULinear(torch.autograd.Function):
    """``linear(gelu(x), weight)`` that makes gelu(x) again for the gradient instead of keeping it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return F.linear(F.gelu(x), weight)

    @staticmethod
    @full_precision
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        grad, x = grad.to(weight.dtype), x.to(weight.dtype)
        grad_weight = grad.flatten(0, -2).T @ F.gelu(x).flatten(0, -2)
        return torch.ops.aten.gelu_backward(grad @ weight, x), grad_weight


def flat_norm(x: Tensor, norm: nn.BatchNorm1d) -> Tensor:
    """A batch norm over every axis but the last."""
    out: Tensor = norm(x.flatten(0, -2))
    return out.view(x.shape)
