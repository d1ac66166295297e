"""braindecode's models as backbones, where braindecode imports; its absence is explained where it does not."""

from __future__ import annotations

import pytest
import torch

from bridgemil import backbones
from bridgemil.errors import BadUse

try:
    import braindecode.models  # noqa: F401

    FAILURE = None
except Exception as error:
    FAILURE = f"braindecode does not import here ({type(error).__name__}: {error})"

needs_braindecode = pytest.mark.skipif(FAILURE is not None, reason=str(FAILURE))


@pytest.mark.skipif(FAILURE is None, reason="braindecode imports here")
def test_without_braindecode_the_error_says_what_to_install() -> None:
    with pytest.raises(BadUse, match=r"needs the extra `pip install bridgemil\[braindecode\]` and a torchaudio"):
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


@needs_braindecode
def test_unknown_models_are_named() -> None:
    with pytest.raises(BadUse, match=r"braindecode has no model 'Nonsense'; it has .*EEGNet"):
        backbones.create("braindecode:Nonsense", 19, 200)
