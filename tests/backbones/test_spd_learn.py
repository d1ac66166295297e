"""spd_learn's models as backbones, where spd_learn imports; its absence is explained where it does not."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from bridgemil import backbones
from bridgemil.errors import BadUse

try:
    import spd_learn.models

    FAILURE = None
    MODELS = spd_learn.models.__all__
except Exception as error:
    FAILURE = f"spd_learn does not import here ({type(error).__name__}: {error})"
    MODELS = ["Green"]

needs_spd_learn = pytest.mark.skipif(FAILURE is not None, reason=str(FAILURE))
OPTIONS = {"SPDNet": {"subspacedim": 6}, "PhaseSPDNet": {"subspacedim": 6}}  # they ask for it
WITHOUT = {"TensorCSPNet": "cannot embed windows"}  # filter banks, not signals


@pytest.mark.skipif(FAILURE is None, reason="spd_learn imports here")
def test_without_spd_learn_the_error_says_what_to_install() -> None:
    for call in (lambda name: backbones.create(name, 19, 200), backbones.check):
        with pytest.raises(BadUse, match=r"spd_learn:Green needs the extra `pip install '\.\[spd_learn\]'`"):
            call("spd_learn:Green")


@needs_spd_learn
@pytest.mark.parametrize("model", MODELS)
def test_every_model_gives_features_or_says_why_not(model: str) -> None:
    name, options = f"spd_learn:{model}", OPTIONS.get(model, {})
    if model in WITHOUT:
        with pytest.raises(BadUse, match=WITHOUT[model]):
            backbones.create(name, 19, 200)
        return
    backbone = backbones.create(name, 19, 200, **options)
    out = backbone(torch.randn(5, 19, 200))
    assert out.shape == (5, backbone.embedding_dim)
    out.sum().backward()
    assert any(p.grad is not None and p.grad.abs().sum() > 0 for p in backbone.parameters())
    assert backbones.fingerprint(name, 19, 200, options=options) != backbones.fingerprint(
        name, 18, 200, options=options
    )


@needs_spd_learn
def test_green_with_its_final_layer_is_green() -> None:
    from spd_learn.models import Green

    torch.manual_seed(0)
    whole = Green(n_outputs=2, n_chans=19, sfreq=128, hidden_dim=(16,)).eval()
    torch.manual_seed(0)
    ours = backbones.create("spd_learn:Green", 19, 200, sfreq=128, hidden_dim=[16]).eval()
    assert ours.embedding_dim == 16
    final = whole.head[-1]
    assert isinstance(final, nn.Linear)
    x = torch.randn(4, 19, 200)
    torch.testing.assert_close(final(ours(x)), whole(x))


@needs_spd_learn
def test_the_rate_reaches_green() -> None:
    slow, fast = (backbones.create("spd_learn:Green", 19, 200, sfreq=rate).state_dict() for rate in (100.0, 200.0))
    key = "model.conv_layers.0.tt"  # half a second of samples
    assert (len(slow[key]), len(fast[key])) == (50, 100)


@needs_spd_learn
def test_unknown_models_and_options_are_named() -> None:
    with pytest.raises(BadUse, match=r"spd_learn has no model 'Gren'; it has .*Green.*; did you mean Green\?"):
        backbones.check("spd_learn:Gren")
    with pytest.raises(BadUse, match=r"spd_learn:Green has no option hiden_dim; .*did you mean hidden_dim\?"):
        backbones.check("spd_learn:Green", {"hiden_dim": (4,)})
    with pytest.raises(BadUse, match="has no option n_chans"):
        backbones.check("spd_learn:Green", {"n_chans": 4})
