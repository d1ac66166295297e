"""Frozen encoders: a network with weights of its own, whose embeddings are computed once per window and stored.

The encoder is a front end as that of ``covariance``: all folds, seeds and methods share its embeddings. It is no
submodule of what is trained, so that no optimiser, checkpoint or averaging of weights reaches it. What follows is batch
norm without affine parameters, as in linear probing of frozen features (He et al. 2022, masked autoencoders, section
A.1), and then the classifier or aggregator of the method.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from textwrap import shorten
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bridgemil import backbones
from bridgemil.backbones.custom import Features, random_state_kept
from bridgemil.cohort.signal import Signal
from bridgemil.errors import BadData, BadUse, NotFound
from bridgemil.learning.checkpoint import checksum, read_tensors
from bridgemil.user_code import short_name

WEIGHTS = "backbone_options.weights"  # the setting that names the file
ADVICE = "save the weights alone, torch.save(model.state_dict(), FILE)"
NESTED = ("state_dict", "model")  # entries of a checkpoint that hold the weights
BLOCK = 64  # windows embedded at once: foundation models need much memory for each
MOST_CHARACTERS = 150  # of PyTorch's list of missing, or of unexpected keys in a message
_IN_USE: WeakValueDictionary[str, nn.Module] = WeakValueDictionary()  # the models of all folds hold one encoder


class FrozenFrontEnd(nn.Module):
    """The encoder, N x C x T (microvolts) -> N x d, without gradient and in evaluation mode.

    ``code`` is what it is beyond its weights and options (``weights`` not among them): a name, or the fingerprint of
    user code.
    """

    encoder: nn.Module

    def __init__(self, encoder: nn.Module, code: str, signal: Signal, options: Mapping[str, Any]) -> None:
        super().__init__()
        self.register_buffer("_place", torch.empty(0), persistent=False)
        self.checksum = checksum(encoder.state_dict())
        self.key: dict[str, Any] = {
            "front_end": "frozen", "code": code, "weights": self.checksum, "options": dict(options),
            "channels": list(signal.channels), "n_times": signal.n_times, "sfreq": signal.sfreq,
        }  # fmt: skip
        shared = _IN_USE.setdefault(json.dumps(self.key, sort_keys=True), encoder.eval().requires_grad_(False))
        object.__setattr__(self, "encoder", shared)  # no submodule

    def check(self, bag: NDArray[np.float32]) -> None:
        """Every window is accepted."""

    @torch.no_grad()
    def forward(self, windows: Tensor) -> Tensor:
        """Embed windows, a block at a time."""
        encoder = self.encoder.to(windows.device)
        embeddings = torch.cat([encoder(block).float() for block in windows.split(BLOCK)])
        if not embeddings.isfinite().all():
            raise BadData("the frozen encoder gives embeddings that are not finite; check its weights and its scaling")
        return embeddings


class Frozen(nn.Module):
    """Windows N x C x T, or stored embeddings of them N x d, to standardised embeddings N x d."""

    def __init__(self, front_end: FrozenFrontEnd, embedding_dim: int) -> None:
        super().__init__()
        self.front_end, self.embedding_dim = front_end, embedding_dim
        self.norm = nn.BatchNorm1d(embedding_dim, affine=False)

    def forward(self, x: Tensor) -> Tensor:
        """Standardise embeddings."""
        return self.norm(self.front_end(x) if x.ndim == 3 else x)


def frozen_encoder(
    name: str,
    signal: Signal,
    options: Mapping[str, Any],
    code: str | None,
    weights: str | Path | Mapping[str, Tensor] | None,
) -> Frozen:
    """An encoder that is never trained: a backbone, with its options and the fingerprint of its code if it is a user's.

    ``weights`` are its weights or their file, None for one that gets them where it is made, or has none: that is made
    twice, and refused if its weights are random.
    """
    made = partial(backbones.for_signal, name, signal, options)
    with random_state_kept():
        encoder = made()
        if weights is None and checksum(encoder.state_dict()) != checksum(made().state_dict()):
            raise BadUse(
                f"--frozen never trains the encoder, and the weights of {short_name(name)} are random: give trained "
                f"ones, --set {WEIGHTS}=FILE (safetensors, or a torch checkpoint)"
            )
    if weights is not None:
        inner, source = encoder, "the stored weights"
        if not isinstance(weights, Mapping):
            source, weights = str(weights), read_weights(Path(weights))
            if isinstance(encoder, Features):  # a package's model, whose final layer is replaced
                inner = encoder.model
                weights = {key: value for key, value in weights.items() if not key.startswith("final_layer.")}
        try:
            inner.load_state_dict(weights)
        except RuntimeError as error:
            wrong = [shorten(line, MOST_CHARACTERS, placeholder=" …") for line in str(error).splitlines()[1:4]]
            raise BadData(f"{source}: are not those of {short_name(name)} ({' '.join(wrong)})") from None
    return Frozen(FrozenFrontEnd(encoder, code or name, signal, options), backbones.embedding_dim(encoder))


def read_weights(path: Path) -> dict[str, Tensor]:
    """The weights in a safetensors file or a torch checkpoint, of the latter also under ``state_dict`` or ``model``.

    A checkpoint is read with ``weights_only``: it cannot execute code.
    """
    if not path.is_file():
        raise NotFound(f"{WEIGHTS}: there is no file {path}")
    try:
        if path.suffix == ".safetensors":
            return read_tensors(path)
        content = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise BadData(f"{path}: cannot be read ({error.strerror or error})") from None
    except Exception as error:  # also pickle's, among them those of what weights_only refuses
        raise BadData(f"{path}: is damaged or holds more than weights ({type(error).__name__}); {ADVICE}") from None
    for key in NESTED:
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
    if not isinstance(content, Mapping) or not all(isinstance(value, Tensor) for value in content.values()):
        raise BadData(f"{path}: holds no weights by name; {ADVICE}")
    return dict(content)
