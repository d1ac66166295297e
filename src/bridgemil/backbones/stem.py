"""The EEGNet-style stem without its large activations.

A stem of this kind is a temporal convolution, batch norm, and a depthwise convolution over all electrodes. Layer by
layer it holds N x F x C x T activations, of which the electrodes are summed away at once. All of it is linear but the
batch norm between, and that needs two numbers per filter, not the activations. With X the (N C) x T matrix of all rows,
padded, and w the K taps of a filter, the filter's outputs are sum_k w_k X[t + k], so that

    the outputs sum to        sum_k w_k c_k            with c_k  = sum over rows and t of X[t + k],
    their squares sum to      sum_kl w_k w_l R_kl      with R_kl = sum over rows and t of X[t + k] X[t + l],

where R is gathered from the T x T matrix X'X. So the electrodes are mixed first and only the few mixed rows are
filtered, by one product with the filters' Toeplitz matrices.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bridgemil.backbones.layers import BatchNorm, full_precision, update_running, window_blocks

BLOCK = 40  # samples that a product with a filter's matrix takes at once
LONGEST = 400  # samples up to which a product with T x T matrices beats a convolution


def toeplitz(kernels: Tensor, n_times: int, left: int) -> Tensor:
    """Matrices M with ``x @ M[f]`` = the correlation of x with kernel f, padded by ``left`` zeros before and to length.

    kernels: F x K.  Returns F x T x T.
    """
    first_tap, last_tap = max(0, left - n_times + 1), min(kernels.shape[1], left + n_times)
    kernels, left = kernels[:, first_tap:last_tap], left - first_tap  # taps further out only ever meet padding
    n_kernels, size = kernels.shape
    period = 2 * n_times
    # Entry (s, t) depends on t - s only: kernel tap k sits at t - s = left - k. Rows of one period, read with a step of
    # period - 1, shift by one each: a reshape builds the matrix, and its gradient is a plain sum.
    before, after = kernels[:, : left + 1].flip(1), kernels[:, left + 1 :].flip(1)
    first = torch.cat([before, kernels.new_zeros(n_kernels, period - size), after], dim=1)  # F x 2T
    rows = first[:, None].expand(-1, n_times, -1).reshape(n_kernels, -1)[:, : n_times * (period - 1)]
    return rows.view(n_kernels, n_times, period - 1)[:, :, :n_times].contiguous()


def temporal_then_spatial(x: Tensor, temporal: nn.Conv2d, norm: BatchNorm, spatial: nn.Conv2d) -> tuple[Tensor, Tensor]:
    """``spatial(norm(temporal(x)))`` of windows x (N x C x T) as (O x N x T, O): the outputs and what to add to them.

    The second part is the norm's shift seen through the spatial filters, one constant per output.
    """
    n_times = x.shape[-1]
    kernels = temporal.weight.flatten(1)  # F x K
    left = (kernels.shape[1] - 1) // 2
    with torch.autocast(x.device.type, enabled=False):  # statistics want full precision
        scale, shift = _norm_of_filtered(x.to(kernels.dtype), kernels, left, norm)
    mixing = spatial.weight.flatten(1)  # O x C, with O = F D
    depth = len(mixing) // len(kernels)
    scaled = (scale[:, None] * kernels).repeat_interleave(depth, dim=0)  # O x K
    if n_times > LONGEST:
        rows = F.pad(mixing @ x, (left, kernels.shape[1] - 1 - left))  # N x O x T + K - 1
        outputs = F.conv1d(rows, scaled[:, None], groups=len(scaled)).transpose(0, 1).contiguous()
    else:
        filters = toeplitz(scaled, n_times, left)  # O x T x T
        with torch.autocast(x.device.type, enabled=False):
            right = kernels.shape[1] - 1 - left
            outputs = _MixAndFilter.apply(x.to(mixing.dtype), mixing, filters.to(mixing.dtype), left, right)
    return outputs, shift.repeat_interleave(depth) * mixing.sum(dim=1)


class _MixAndFilter(torch.autograd.Function):
    """(mixing @ x) filtered, O x N x T. The mixed rows are made again for the gradient: cheaper than keeping them.

    A filter's matrix is zero but near its diagonal, so the products run over blocks of time and their neighbourhood;
    and over blocks of windows, so that what was mixed is filtered while it is in the cache.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, mixing: Tensor, filters: Tensor, left: int, right: int) -> Tensor:
        ctx.save_for_backward(x, mixing, filters)
        ctx.left, ctx.right = left, right
        outputs, (n, _, n_times) = len(mixing), x.shape
        out = x.new_empty(outputs, n, n_times)
        for part in window_blocks(x, outputs * n_times, n):
            mixed = _mix(x[part], mixing)
            for here, near in _blocks(n_times, left, right):
                out[:, part, here] = torch.bmm(mixed[:, :, near], filters[:, near, here])
        return out

    @staticmethod
    @full_precision
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, mixing, filters = ctx.saved_tensors
        outputs, (n, _, n_times) = len(mixing), x.shape
        grad_filters, grad_mixing = torch.zeros_like(filters), torch.zeros_like(mixing)
        grad_x = torch.empty_like(x) if ctx.needs_input_grad[0] else None
        for part in window_blocks(x, outputs * n_times, n):
            mixed, grad_out = _mix(x[part], mixing), grad[:, part]
            for here, near in _blocks(n_times, ctx.left, ctx.right):
                grad_filters[:, near, here] += torch.bmm(mixed[:, :, near].transpose(1, 2), grad_out[:, :, here])
            grad_mixed = mixed  # its values are not needed any more
            # Seen from an input, before and after change places.
            for here, near in _blocks(n_times, ctx.right, ctx.left):
                grad_mixed[:, :, here] = torch.bmm(grad_out[:, :, near], filters[:, here, near].transpose(1, 2))
            grad_mixed = grad_mixed.transpose(0, 1)  # n x O x T
            grad_mixing += torch.bmm(grad_mixed, x[part].transpose(1, 2)).sum(dim=0)
            if grad_x is not None:
                grad_x[part] = torch.matmul(mixing.T, grad_mixed)
        return grad_x, grad_mixing, grad_filters, None, None


def _blocks(n_times: int, before: int, after: int) -> list[tuple[slice, slice]]:
    """Blocks of time, each with the stretch that reaches ``before`` and ``after`` it."""
    starts = range(0, n_times, BLOCK)
    return [(slice(t, t + BLOCK), slice(max(0, t - before), t + BLOCK + after)) for t in starts]


def _mix(x: Tensor, mixing: Tensor) -> Tensor:
    """N x C x T -> O x N x T."""
    return torch.bmm(mixing.expand(len(x), -1, -1), x).transpose(0, 1)


def _norm_of_filtered(x: Tensor, kernels: Tensor, left: int, norm: BatchNorm) -> tuple[Tensor, Tensor]:
    """Scale and shift of a batch norm over x filtered by each kernel; updates the running statistics in training."""
    if norm.training:
        size, n_times = kernels.shape[1], x.shape[-1]
        rows, pad = x.reshape(-1, n_times), (left, size - 1 - left)
        sums = F.pad(rows.sum(dim=0), pad).unfold(0, n_times, 1).sum(dim=1)  # c: K
        products = F.pad(_products(rows, size), pad * 2)
        width = len(products)
        lagged = products.as_strided((n_times, size, size), (width + 1, width, 1)).sum(dim=0)  # R: K x K
        count = rows.numel()
        taps = kernels.double()
        mean = taps @ sums.double() / count
        variance = ((taps @ lagged.double()) * taps).sum(dim=1) / count - mean**2
        mean, variance = mean.to(kernels.dtype), variance.clamp_min(0).to(kernels.dtype)
        update_running(norm, mean, variance, count)
    else:
        # A copy is kept for the gradient: a training pass before that may move the buffer.
        mean, variance = norm.running_mean.clone(), norm.running_var
    scale = norm.weight * torch.rsqrt(variance + norm.eps)
    return scale, norm.bias - scale * mean


def _products(rows: Tensor, size: int) -> Tensor:
    """X'X (T x T) of rows X, for samples that two of ``size`` taps can meet; zero, or right, where they are further."""
    upper = rows.new_zeros(rows.shape[1], rows.shape[1])
    for here, near in _blocks(rows.shape[1], 0, size - 1):
        upper[here, near] = rows[:, here].T @ rows[:, near]
    return upper.triu() + upper.triu(1).T
