"""The models of spd_learn as backbones: what enters their final linear layer is the embedding.

They look at covariances on their manifold; ``spd_learn:Green`` learns the wavelets before them too.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from bridgemil.backbones.tapped import Features, Tap, build, choose
from bridgemil.errors import BadUse

GIVEN = ["n_chans", "n_times", "n_outputs", "sfreq"]  # what a model is told about the windows; no options


def model(name: str) -> type[nn.Module]:
    """The class of an spd_learn model.

    Raises
    ------
    BadUse
        If spd_learn cannot be imported or has no such model.
    """
    try:
        from spd_learn import models
    except Exception as error:
        raise BadUse(
            f"spd_learn:{name} needs the extra `pip install '.[spd_learn]'`; importing spd_learn failed with "
            f"{type(error).__name__}: {error}"
        ) from error
    return choose(models, "spd_learn", name)


def features(name: str, n_channels: int, n_times: int, sfreq: float, **options: Any) -> Features:
    """Build an spd_learn model for windows of C x T at a rate in Hz, without its final linear layer.

    Raises
    ------
    BadUse
        If there is no such model, it cannot be built, or it has no linear layer to take off.
    """
    built = build(model(name), f"spd_learn:{name}", n_channels, n_times, sfreq, **options)
    linear = [place for place, layer in built.named_modules() if isinstance(layer, nn.Linear)]
    if not linear:
        raise BadUse(f"spd_learn:{name} has no linear layer, so its features cannot be told apart")
    around, _, last = linear[-1].rpartition(".")
    tap = Tap()
    setattr(built.get_submodule(around), last, tap)
    return Features(built, [tap])
