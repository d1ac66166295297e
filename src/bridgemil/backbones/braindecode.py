"""Any braindecode model as a backbone: what enters its final layer is the embedding."""

from __future__ import annotations

from typing import Any

from torch import nn

from bridgemil.backbones.tapped import Features, Tap, build, choose
from bridgemil.errors import BadUse

GIVEN = ["n_chans", "n_times", "n_outputs", "sfreq"]  # what a model is told about the windows; no options


def model(name: str) -> type[nn.Module]:
    """The class of a braindecode model.

    Raises
    ------
    BadUse
        If braindecode cannot be imported or has no such model.
    """
    try:
        from braindecode import models
    except Exception as error:  # its dependencies fail in several ways (a missing library is an OSError)
        raise BadUse(
            f"braindecode:{name} needs the extra `pip install '.[braindecode]'` and a torchaudio built for "
            f"your torch; importing braindecode failed with {type(error).__name__}: {error}"
        ) from error
    return choose(models, "braindecode", name)


def features(name: str, n_channels: int, n_times: int, sfreq: float, **options: Any) -> Features:
    """Build a braindecode model for windows of C x T at a rate in Hz, without its final layer (or layers).

    Raises
    ------
    BadUse
        If there is no such model, it cannot be built, or it has no final layer to take off.
    """
    built = build(model(name), f"braindecode:{name}", n_channels, n_times, sfreq, **options)
    final = getattr(built, "final_layer", None)
    if not isinstance(final, nn.Module):
        raise BadUse(f"braindecode:{name} has no final_layer, so its features cannot be told apart")
    several = isinstance(final, nn.ModuleList)
    taps = [Tap() for _ in range(len(final) if isinstance(final, nn.ModuleList) else 1)]
    built.final_layer = nn.ModuleList(taps) if several else taps[0]
    return Features(built, taps)
