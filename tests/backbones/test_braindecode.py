"""braindecode's models as backbones, where braindecode imports; its absence is explained where it does not."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn

from bridgemil import backbones
from bridgemil.errors import BadUse

try:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # theirs, not ours
        import braindecode.models  # noqa: F401
    FAILURE = None
except Exception as error:
    FAILURE = f"braindecode does not import here ({type(error).__name__}: {error})"

needs_braindecode = pytest.mark.skipif(FAILURE is not None, reason=str(FAILURE))


@pytest.mark.skipif(FAILURE is None, reason="braindecode imports here")
def test_without_braindecode_the_error_says_what_to_install() -> None:
    with pytest.raises(BadUse, match=r"needs the extra `pip install '\.\[braindecode\]'` and a torchaudio"):
        backbones.create("braindecode:EEGNet", 19, 200)


@needs_braindecode
@pytest.mark.parametrize("model", ["EEGNet", "ShallowFBCSPNet", "Deep4Net", "EEGConformer", "ATCNet"])
@pytest.mark.filterwarnings("ignore")
def test_any_model_gives_features(model: str) -> None:
    backbone = backbones.create(f"braindecode:{model}", 19, 400)
    out = backbone(torch.randn(3, 19, 400))
    assert out.shape == (3, backbone.embedding_dim)
    out.sum().backward()
    assert isinstance(backbones.create_head(f"braindecode:{model}", backbone.embedding_dim, 2), torch.nn.Linear)


def without_dropout(model: nn.Module) -> nn.Module:
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return model


def padded(conv: nn.Conv2d, left: int, right: int) -> nn.Module:
    """braindecode pads both sides alike and keeps one sample more; the method's padding gives T samples."""
    conv.padding = (0, 0)
    return nn.Sequential(nn.ZeroPad2d((left, right, 0, 0)), conv)


@needs_braindecode
@pytest.mark.filterwarnings("ignore")
def test_eegnet_is_braindecodes_with_our_settings() -> None:
    from braindecode.models import EEGNet

    torch.manual_seed(0)
    ours = without_dropout(backbones.create("eegnet", 19, 200))
    theirs = EEGNet(
        n_chans=19, n_outputs=2, n_times=200, conv_spatial_max_norm=1e9, batch_norm_momentum=0.1, batch_norm_eps=1e-5
    )
    names = {
        "conv_temporal": "temporal", "bnorm_temporal": "bn1", "conv_spatial.parametrizations": "spatial",
        "bnorm_1": "bn2", "conv_separable_depth": "depthwise", "conv_separable_point": "pointwise", "bnorm_2": "bn3",
    }  # fmt: skip
    state = theirs.state_dict()
    for key in state:
        for old, new in names.items():
            if key.startswith(f"{old}."):
                state[key] = ours.state_dict()[f"{new}.{key.removesuffix('.original').split('.')[-1]}"]
    theirs.load_state_dict(state)
    theirs.conv_temporal = padded(theirs.conv_temporal, 31, 32)
    theirs.conv_separable_depth = padded(theirs.conv_separable_depth, 7, 8)
    theirs.final_layer = nn.Flatten(1)
    x = torch.randn(16, 19, 200)
    for training in (True, False):
        torch.testing.assert_close(
            ours.train(training)(x), without_dropout(theirs).train(training)(x), atol=1e-5, rtol=1e-4
        )


@needs_braindecode
@pytest.mark.filterwarnings("ignore")
def test_conformer_is_braindecodes_with_our_settings() -> None:
    from braindecode.models import EEGConformer

    torch.manual_seed(0)
    ours = without_dropout(backbones.create("conformer", 19, 200, attention_scale="head"))  # as braindecode does
    theirs = without_dropout(EEGConformer(n_outputs=2, n_chans=19, n_times=200, num_layers=4, att_drop_prob=0.0))
    pairs = [
        ("patch_embedding.shallownet.0", "temporal"), ("patch_embedding.shallownet.1", "spatial"),
        ("patch_embedding.shallownet.2", "bn"), ("patch_embedding.projection.0", "project"),
    ]  # fmt: skip
    for i in range(4):
        parts = {
            "0.fn.0": "norm1", "0.fn.1.keys": "key", "0.fn.1.queries": "query", "0.fn.1.values": "value",
            "0.fn.1.projection": "out", "1.fn.0": "norm2", "1.fn.1.0": "expand", "1.fn.1.3": "contract",
        }  # fmt: skip
        pairs += [(f"transformer.{i}.{old}", f"blocks.{i}.{new}") for old, new in parts.items()]
    for old, new in pairs:
        theirs.get_submodule(old).load_state_dict(ours.get_submodule(new).state_dict())
    x = torch.randn(16, 19, 200)
    for training in (True, False):
        ours.train(training), theirs.train(training)
        tokens = theirs.transformer(theirs.patch_embedding(x[:, None]))
        torch.testing.assert_close(ours(x), tokens.flatten(1), atol=1e-4, rtol=1e-3)


@needs_braindecode
def test_unknown_models_are_named() -> None:
    with pytest.raises(BadUse, match=r"braindecode has no model 'Nonsense'; it has .*EEGNet"):
        backbones.create("braindecode:Nonsense", 19, 200)


@needs_braindecode
@pytest.mark.filterwarnings("ignore")
def test_the_rate_and_the_options_reach_a_model() -> None:
    backbone = backbones.create("braindecode:EEGNet", 19, 400, sfreq=128.0, F1=4)
    assert backbone.model.sfreq == 128.0
    assert backbones.fingerprint("braindecode:EEGNet", 19, 400, options={"F1": 4}) is not None
    with pytest.raises(BadUse, match=r"braindecode:EEGNet has no option f1; .*did you mean F1"):
        backbones.check("braindecode:EEGNet", {"f1": 4})
