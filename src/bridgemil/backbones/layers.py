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


BatchNorm = Any  # an ``nn.BatchNorm1d`` or 2d with running statistics, which torch types as optional
BLOCK_BYTES = 2**21  # of activations worked on at once on a CPU: they stay in the cache from one operation to the next
GPU_BLOCK_BYTES = 2**28  # on a GPU, where fewer and larger steps are faster: what temporaries may take


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
        return _Masked.apply(x, keep, 1 / (1 - self.p))


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


def absorb(norm: BatchNorm, shift: Tensor) -> Tensor:
    """The bias with which ``norm`` gives norm(u + shift) from u, for a shift of one constant per channel.

    In training the batch's mean takes the shift out of the output: it only enters the running mean, and its gradient is
    zero (zero, not none at all: none would also skip weight decay).
    """
    if not norm.training:
        return norm.bias + norm.weight * torch.rsqrt(norm.running_var + norm.eps) * shift
    # Through .data: an earlier forward pass of the same step may hold the buffer, though training never reads it.
    norm.running_mean.data += shift.detach() * (norm.momentum / (1 - norm.momentum))
    return norm.bias + 0 * shift


def window_blocks(like: Tensor, n_values: int, n_windows: int) -> list[slice]:
    """Slices of windows, each of at most ``BLOCK_BYTES`` where a window has ``n_values`` as ``like`` holds them."""
    most = BLOCK_BYTES if like.device.type == "cpu" else GPU_BLOCK_BYTES
    at_once = max(1, most // (n_values * like.element_size()))
    return [slice(first, first + at_once) for first in range(0, n_windows, at_once)]


@torch.no_grad()
def update_running(norm: BatchNorm, mean: Tensor, variance: Tensor, count: int) -> None:
    """Move a batch norm's running statistics as PyTorch does: variance biased inside, unbiased in the record."""
    norm.num_batches_tracked.add_(1)
    # Through .data: an earlier forward pass of the same step may hold the buffers, though training never reads them.
    norm.running_mean.data.lerp_(mean.to(norm.running_mean.dtype), norm.momentum)
    unbiased = variance * (count / max(1, count - 1))
    norm.running_var.data.lerp_(unbiased.to(norm.running_var.dtype), norm.momentum)


def norm_elu_pool(u: Tensor, norm: BatchNorm, pool: int, shift: Tensor | None = None) -> Tensor:
    """``avg_pool(elu(norm(u + shift)), pool)`` of u (channels x N x T), channels first."""
    weight, bias = norm.weight, norm.bias if shift is None else absorb(norm, shift)
    with torch.autocast(u.device.type, enabled=False):  # statistics want full precision
        u = u.to(weight.dtype)
        if norm.training:
            mean, variance = _moments(u)
            update_running(norm, mean, variance, u[0].numel())
        else:
            # A copy is kept for the gradient: a training pass before that may move the buffer.
            mean, variance = norm.running_mean.clone(), norm.running_var
        invstd = torch.rsqrt(variance + norm.eps)
        return _NormELUPool.apply(u, weight, bias, mean, invstd, norm.training, pool)


@torch.no_grad()
def _moments(u: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and biased variance of each channel of u (channels x N x T), put together from those of its blocks."""
    counts, means, squares = [], [], []
    for part in window_blocks(u, len(u) * u.shape[2], u.shape[1]):
        block = u[:, part]
        counts.append(block[0].numel())
        means.append(block.mean(dim=(1, 2)))
        squares.append((block - means[-1][:, None, None]).square_().sum(dim=(1, 2)))
    share = u.new_tensor(counts, dtype=torch.float64)[:, None] / max(1, sum(counts))
    block_means = torch.stack(means).double()  # blocks x channels
    mean = (share * block_means).sum(dim=0)
    between = (share * (block_means - mean).square()).sum(dim=0)
    variance = torch.stack(squares).double().sum(dim=0) / max(1, sum(counts)) + between
    return mean.to(u.dtype), variance.to(u.dtype)


def _pooling(length: int, pool: int, like: Tensor) -> Tensor:
    """Average pooling as a matrix (length x length // pool): on the CPU a product is faster than strided sums."""
    windows = torch.arange(length, device=like.device) // pool
    return (windows[:, None] == torch.arange(length // pool, device=like.device)).to(like.dtype) / pool


class _NormELUPool(torch.autograd.Function):
    """Batch norm, ELU and average pooling, a block of windows at a time; only the input is kept for the gradient."""

    @staticmethod
    def forward(
        ctx: Any, u: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, invstd: Tensor, training: bool, pool: int
    ) -> Tensor:
        channels, n, n_times = u.shape
        ctx.save_for_backward(u, weight, bias, mean, invstd)
        ctx.training, ctx.pool = training, pool
        average = _pooling(pool if n_times % pool == 0 else n_times, pool, u)
        pooled = u.new_empty(channels, n, n_times // pool)
        for part in window_blocks(u, channels * n_times, n):
            _, normed = _normed(u[:, part], weight, bias, mean, invstd)
            active = F.elu(normed, inplace=True).reshape(-1, len(average))
            pooled[:, part] = (active @ average).view(channels, -1, pooled.shape[2])
        return pooled

    @staticmethod
    @full_precision
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        u, weight, bias, mean, invstd = ctx.saved_tensors
        channels, n, n_times = u.shape
        fits = n_times % (10 * ctx.pool) == 0  # ten pooled samples at a time: the fastest product that was measured
        spreading = _pooling(10 * ctx.pool if fits else n_times, ctx.pool, u).T.contiguous()
        grad_u, blocks = torch.empty_like(u), window_blocks(u, channels * n_times, n)
        sums, products = [weight.new_zeros(channels)], [weight.new_zeros(channels)]
        for part in blocks:
            centred, slope = _normed(u[:, part], weight, bias, mean, invstd)
            slope.clamp_(max=0).exp_()  # of the ELU
            spread = grad[:, part].to(u.dtype).reshape(-1, len(spreading)) @ spreading
            grad_u[:, part] = slope.mul_(spread.view(slope.shape))
            sums.append(slope.sum(dim=(1, 2)))
            products.append(centred.mul_(slope).sum(dim=(1, 2)))
        grad_bias, product = (torch.stack(values).double().sum(dim=0) for values in (sums, products))
        grad_weight = product * invstd
        scale = (weight * invstd)[:, None, None]
        # In training the mean and the deviation are functions of u too.
        level = (grad_bias / (n * n_times)).to(u.dtype)[:, None, None]
        slant = (product * invstd.double().square() / (n * n_times)).to(u.dtype)[:, None, None]
        for part in blocks:
            block = grad_u[:, part]
            if ctx.training:
                block -= torch.sub(u[:, part], mean[:, None, None]).mul_(slant).add_(level)
            block *= scale
        return grad_u, grad_weight.to(u.dtype), grad_bias.to(u.dtype), None, None, None, None


def _normed(u: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, invstd: Tensor) -> tuple[Tensor, Tensor]:
    """u (channels x n x T) less its mean, and batch-normed."""
    centred = u - mean[:, None, None]
    return centred, (centred * (weight * invstd)[:, None, None]).add_(bias[:, None, None])


def attend(attention: nn.MultiheadAttention, x: Tensor, other: Tensor, dropout: nn.Module) -> Tensor:
    """``attention(x, other, other)`` of N x tokens x width, with one product for all projections of a side."""
    n, tokens, width = x.shape
    heads = attention.num_heads
    scale = torch.ones(3 * width, device=x.device, dtype=x.dtype)
    scale[:width] = (width // heads) ** -0.5  # of the queries; a vector is cheaper than the queries themselves
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
    return attention.out_proj((weights @ v).transpose(1, 2).reshape(n, tokens, width))


def gelu_grouped(x: Tensor, conv: nn.Conv1d) -> Tensor:
    """``conv(gelu(x))`` on the last axis of x, for a 1 x 1 convolution in groups: a block-diagonal product."""
    return _GELULinear.apply(x, torch.block_diag(*conv.weight[..., 0].chunk(conv.groups)))


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
