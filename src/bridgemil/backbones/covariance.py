"""Covariance: how strongly electrodes move together in each frequency band, as vectors that a linear layer can read.

The *front end* (``FrontEnd``) is fixed: it learns nothing and looks at one window at a time, in raw microvolts, so its
features are computed once per cohort. What learns (``Covariance``) is a batch norm and one linear layer. The
baseline ``tangent`` reads the same front end.

Windows are re-referenced to the average of the electrodes first, so that the features do not depend on the reference
that a recording was made with: subtracting any signal from all electrodes alike leaves them as they are. A covariance
with the recorded reference describes the reference as much as the brain, and does not carry over to another site. The
matrix then has rank C - 1. Its null direction (equal weights) and eigenvalue are the same in every window and add only
constants to the log-covariance once shrunk, which standardisation removes: no projection is needed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bridgemil.backbones.electrodes import check_windows, thin
from bridgemil.cohort.signal import REFERENCES, Band, Signal, band_name, bins, some_bands
from bridgemil.errors import BadData, BadUse, one_of
from bridgemil.parallel import torch_threads

BANDS: tuple[Band, ...] = ((1, 4), (4, 8), (8, 13), (13, 20), (20, 30), (30, 45))  # Hz
SHRINKAGE = 0.1  # share of the identity: one window gives few degrees of freedom, and references make matrices singular
VERSION = 2  # raised by hand when the features change
BLOCK = 512  # windows transformed at once, which bounds the memory
SMALLEST_SHARE = 1e-12  # of a band in an electrode's power; below lies rounding
ROUNDING = 1e-24  # a band with less than this share of a window's energy is rounding, not signal


class Feature(NamedTuple):
    """What one number of the front end is.

    ``kind`` is "covariance" (entry of a log-covariance, the off-diagonal ones times sqrt 2; ``first`` is ``second`` on
    the diagonal) or "power" (log relative band power of ``first``; ``second`` is the same electrode).
    """

    kind: str
    band: str
    first: str
    second: str


class FrontEnd(nn.Module):
    """Windows in microvolt, N x C x T, to features N x F: log-covariances of every band, then log relative band powers.

    Nothing is learnt, and no window looks at another. Multiplying a window by a constant changes nothing.

    Parameters
    ----------
    signal : Signal
        Of the windows. Its rates and filters decide which ``bands`` are held; the others stand in ``left_out`` with the
        reason. More than 32 channels are thinned to 32 (``bridgemil.backbones.electrodes.thin``): ``electrodes``.
    reference : {"average", "recorded"}
        ``average``: windows are re-referenced to the average of the electrodes used (one alone stays as it is).
    """

    def __init__(self, signal: Signal, reference: str = "average") -> None:
        super().__init__()
        one_of("reference", reference, REFERENCES)
        self.signal, self.reference = signal, reference
        held, self.left_out = some_bands({band_name(band): band for band in BANDS}, signal)
        self.bands = tuple(held.values())
        self._bins = [bins(band, signal) for band in self.bands]
        self.used = thin(signal.channels)
        self.electrodes = tuple(signal.channels[i] for i in self.used)
        n_used = len(self.used)
        self.pairs = n_used * (n_used + 1) // 2
        self.covariance = slice(0, len(self.bands) * self.pairs)
        self.power = slice(self.covariance.stop, self.covariance.stop + len(self.bands) * n_used)
        self.dim = self.power.stop
        self.register_buffer("_triangle", torch.triu_indices(n_used, n_used), persistent=False)

    @property
    def key(self) -> dict[str, Any]:
        """What decides the features of given windows, fit for JSON."""
        return {
            "front_end": "covariance",
            "version": VERSION,
            "n_channels": self.signal.n_channels,
            "used": list(self.used),
            "n_times": self.signal.n_times,
            "sfreq": self.signal.sfreq,
            "bands": [list(band) for band in self.bands],
            "reference": self.reference,
        }

    @property
    def names(self) -> list[Feature]:
        """What each feature is, in order."""
        e, names = self.electrodes, [band_name(band) for band in self.bands]
        pairs = [(e[i], e[j]) for i in range(len(e)) for j in range(i, len(e))]
        covariances = [Feature("covariance", band, first, second) for band in names for first, second in pairs]
        return covariances + [Feature("power", band, first, first) for band in names for first in e]

    def check(self, bag: NDArray[np.float32]) -> None:
        """Refuse a person's windows (n x C x T, microvolt) in which a channel is constant, or two are one."""
        whole = len(self.used) == self.signal.n_channels
        check_windows(bag if whole else bag[:, list(self.used)], self.electrodes, self.reference)

    @torch.no_grad()
    def forward(self, windows: Tensor) -> Tensor:
        """The features of windows (N x C x T, microvolt): N x F, float32."""
        expected = self.signal.n_channels, self.signal.n_times
        if windows.ndim != 3 or tuple(windows.shape[1:]) != expected:
            got = " x ".join(map(str, windows.shape))
            raise BadUse(f"the covariance front end is for windows of {expected[0]} x {expected[1]}, got {got}")
        features = torch.empty(len(windows), self.dim, device=windows.device)
        # Small eigenvalue problems are slower on several threads, busy ones 50-fold.
        on_cpu = windows.device.type == "cpu"
        with torch_threads(1) if on_cpu else nullcontext(), torch.autocast(windows.device.type, enabled=False):
            for first in range(0, len(windows), BLOCK):
                features[first : first + BLOCK] = self._block(windows[first : first + BLOCK], first)
        return features

    def _block(self, windows: Tensor, first: int) -> Tensor:
        used = list(self.used)
        x = (windows if len(used) == self.signal.n_channels else windows[:, used]).double()  # N x C x T
        if self.reference == "average" and len(used) > 1:
            x = x - x.mean(dim=1, keepdim=True)
        energy = x.square().sum(dim=2)  # N x C
        finite = energy.isfinite().all(dim=1)
        if not finite.all():
            raise BadData(f"window {first + int((~finite).nonzero()[0])} holds values that are not finite")
        taper = torch.hann_window(self.signal.n_times, dtype=x.dtype, device=x.device)
        spectrum = torch.fft.rfft((x - x.mean(dim=2, keepdim=True)) * taper)
        covariances, powers = [], []
        row, column = self._triangle  # type: ignore[misc]
        weight = torch.where(row == column, 1.0, math.sqrt(2)).to(x.dtype)
        for inside in self._bins:
            part = spectrum[..., inside.start : inside.stop]
            parts = torch.cat([part.real, part.imag], dim=2)  # its product with itself is the real cross-spectrum
            powers.append(parts.square().sum(dim=2))  # N x C
            covariances.append(_log_shrunk(parts, ROUNDING * energy.sum(dim=1))[:, row, column] * weight)
        return torch.cat([*covariances, _log_shares(torch.stack(powers, dim=1), ROUNDING * energy)], dim=1)


def _log_shrunk(parts: Tensor, nothing: Tensor) -> Tensor:
    """log(.9 S + .1 I) of S = Y Y' divided by its mean variance; parts is Y (N x C x 2 bins).

    A window without signal in the band (up to ``nothing``, N) has no covariance: it counts as the identity.
    """
    variance = parts.square().sum(dim=(1, 2)) / parts.shape[1]  # N
    empty = variance <= nothing
    scale = ((1 - SHRINKAGE) / variance.masked_fill(empty, 1.0)).sqrt()
    y = parts * scale[:, None, None]
    identity = torch.eye(y.shape[1], dtype=y.dtype, device=y.device)
    if y.shape[2] < y.shape[1]:  # few frequencies: the small matrix Y'Y has the same eigenvalues, the rest are zero
        values, vectors = torch.linalg.eigh(y.transpose(1, 2) @ y)
        values = values.clamp(min=1e-30)
        root = (torch.log1p(values / SHRINKAGE) / values).sqrt()
        side = (y @ vectors) * root[:, None]
        log = math.log(SHRINKAGE) * identity + side @ side.transpose(1, 2)
    else:
        values, vectors = torch.linalg.eigh(y @ y.transpose(1, 2))
        log = (vectors * (values.clamp(min=0) + SHRINKAGE).log()[:, None]) @ vectors.transpose(1, 2)
    return log.masked_fill(empty[:, None, None], 0.0)


def _log_shares(powers: Tensor, nothing: Tensor) -> Tensor:
    """Log share of each band in an electrode's power, N x (bands C); powers is N x bands x C.

    An electrode without signal in a window (up to ``nothing``, N x C) has equal shares.
    """
    total = powers.sum(dim=1)
    shares = powers / total.masked_fill(total <= nothing, 1.0)[:, None]
    shares = torch.where((total <= nothing)[:, None], 1 / powers.shape[1], shares)
    return shares.clamp(min=SMALLEST_SHARE).log().flatten(1)


class Covariance(nn.Module):
    """Raw windows in microvolt (N x C x T), or the front end's features of them (N x F), to N x ``embedding``.

    Give it raw windows: dividing each channel by its own deviation would take away what it looks at. The electrode
    names, ``channels``, decide how a montage of more than 32 is thinned; without them it is thinned evenly. The other
    arguments are those of ``Signal`` and of ``FrontEnd``.
    """

    def __init__(
        self,
        n_channels: int,
        n_times: int,
        sfreq: float = 200.0,
        native_sfreq: float | None = None,
        channels: Sequence[str] | None = None,
        low: float | None = None,
        high: float | None = None,
        notch: Sequence[float] = (),
        reference: str = "average",
        embedding: int = 64,
    ) -> None:
        super().__init__()
        if channels is not None and len(channels) != n_channels:
            raise BadUse(f"covariance was given {len(channels)} channel names for {n_channels} channels")
        names = tuple(channels or (f"channel {i + 1}" for i in range(n_channels)))
        signal = Signal(names, sfreq, n_times, native_sfreq, low, high, tuple(notch))
        self.front_end = FrontEnd(signal, reference)
        self.embedding_dim = embedding
        self.norm = nn.BatchNorm1d(self.front_end.dim, affine=False)
        self.linear = nn.Linear(self.front_end.dim, embedding)

    def forward(self, x: Tensor) -> Tensor:
        """Embed windows or their features."""
        features = self.front_end(x) if x.ndim == 3 else x
        return self.linear(self.norm(features.to(self.linear.weight.dtype)))
