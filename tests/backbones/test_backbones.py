"""The shipped backbones against the plain layer-by-layer definitions."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest
import torch
from torch import nn

from bridgemil import backbones
from bridgemil.backbones import layers
from bridgemil.backbones.layers import Dropout
from bridgemil.backbones.stem import toeplitz
from bridgemil.errors import BadUse, BridgeMILError
from reference_backbones import REFERENCES

TABLE = {  # name: (embedding, encoder parameters) for 19 and for 32 channels
    "eegnet": ((96, 1_408), (96, 1_616)),
    "conformer": ((280, 112_080), (280, 132_880)),
    "lcadnet": ((420, 2_010), (910, 2_010)),
    "dsainet": ((80, 74_225), (80, 74_641)),
    "mtdnet": ((16, 20_128), (16, 27_200)),
}
NAMES = backbones.names()
SMALLEST = {"eegnet": (1, 32), "conformer": (1, 99), "lcadnet": (8, 65), "dsainet": (1, 32), "mtdnet": (1, 10)}


def without_dropout(model: nn.Module) -> nn.Module:
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        elif isinstance(module, nn.MultiheadAttention):
            module.dropout = 0.0
    return model


def pair(name: str, n_channels: int, n_times: int, dtype: torch.dtype = torch.float32) -> tuple[nn.Module, nn.Module]:
    """The plain model with random weights, and ours with the same ones."""
    torch.manual_seed(0)
    plain = REFERENCES[name](n_channels, n_times).to(dtype)
    with torch.no_grad():
        for parameter in plain.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
        for buffer in plain.buffers():
            if buffer.is_floating_point():
                buffer += 0.2 * torch.rand_like(buffer)
    ours = backbones.create(name, n_channels, n_times).to(dtype)
    ours.load_state_dict(plain.state_dict())
    return without_dropout(plain), without_dropout(ours)


@pytest.mark.parametrize("name", TABLE)
def test_sizes_are_the_methods(name: str) -> None:
    for n_channels, (embedding, parameters) in zip((19, 32), TABLE[name], strict=True):
        backbone = backbones.create(name, n_channels, 200)
        assert backbone.embedding_dim == embedding
        assert backbone(torch.randn(3, n_channels, 200)).shape == (3, embedding)
        assert sum(p.numel() for p in backbone.parameters()) == parameters


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("size", [(19, 200), (32, 200), (11, 137), (8, 450)])
@pytest.mark.parametrize("name", TABLE)
def test_equal_to_the_plain_layers_to_double_precision(
    name: str, size: tuple[int, int], training: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outputs, every gradient, the gradient of the input, running statistics; twice, so that statistics add up."""
    monkeypatch.setattr(layers, "BLOCK_BYTES", 4 * 8 * 16 * 200)  # a few windows: blocks are put together, one short
    plain, ours = pair(name, *size, dtype=torch.float64)
    for seed in (1, 2):
        torch.manual_seed(seed)
        x = torch.randn(9, *size, dtype=torch.float64) * 1.7 + 0.2
        weights = None
        inputs = [x.clone().requires_grad_(), x.clone().requires_grad_()]
        outputs = []
        for model, own in zip((plain, ours), inputs, strict=True):
            model.train(training).zero_grad()
            out = model(own)
            weights = torch.randn_like(out) if weights is None else weights
            out.backward(weights)
            outputs.append(out)
        torch.testing.assert_close(outputs[1], outputs[0], rtol=0, atol=1e-11)
        torch.testing.assert_close(inputs[1].grad, inputs[0].grad, rtol=1e-8, atol=1e-10)
        for (key, theirs), mine in zip(plain.named_parameters(), ours.parameters(), strict=True):
            assert mine.grad is not None, key
            torch.testing.assert_close(
                mine.grad, theirs.grad, rtol=1e-8, atol=1e-8, msg=lambda m, key=key: f"{key}: {m}"
            )
        for (key, theirs), mine in zip(plain.named_buffers(), ours.buffers(), strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-11, atol=1e-11, msg=lambda m, key=key: f"{key}: {m}")


@pytest.mark.parametrize("name", TABLE)
def test_several_passes_before_one_gradient(name: str) -> None:
    plain, ours = pair(name, 11, 137, dtype=torch.float64)
    x, y = torch.randn(2, 8, 11, 137, dtype=torch.float64)
    for model in (plain, ours):
        (model(x) * model(y)).sum().backward()
    for theirs, mine in zip(plain.parameters(), ours.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-8, atol=1e-8)
    for theirs, mine in zip(plain.buffers(), ours.buffers(), strict=True):
        torch.testing.assert_close(mine, theirs)


def test_a_training_pass_does_not_change_the_gradient_of_an_earlier_pass() -> None:
    _, ours = pair("eegnet", 11, 137, dtype=torch.float64)
    x, y = torch.randn(2, 8, 11, 137, dtype=torch.float64)
    gradients = []
    for between in (lambda: None, lambda: ours.train()(y)):
        ours.zero_grad()
        out = ours.eval()(x).square().sum()
        between()
        out.backward()
        gradients.append([p.grad.clone() for p in ours.parameters() if p.grad is not None])
    for alone, after in zip(*gradients, strict=True):
        torch.testing.assert_close(after, alone)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", TABLE)
def test_equal_to_the_plain_layers_to_single_precision(name: str, training: bool) -> None:
    plain, ours = pair(name, 19, 200)
    x = torch.randn(64, 19, 200)
    theirs, mine = plain.train(training)(x), ours.train(training)(x)
    torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=2e-5)
    weights = torch.randn_like(theirs)
    theirs.backward(weights)
    mine.backward(weights)
    largest = max(float(p.grad.abs().max()) for p in plain.parameters())
    for (key, a), b in zip(plain.named_parameters(), ours.parameters(), strict=True):
        scale = max(float(a.grad.abs().max()), 1e-2 * largest)  # where algebra says zero, plain layers give noise
        assert float((a.grad - b.grad).abs().max()) <= 1e-3 * scale, key
    for a, b in zip(plain.buffers(), ours.buffers(), strict=True):
        torch.testing.assert_close(b, a, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", TABLE)
def test_state_dicts_are_exchanged_both_ways(name: str) -> None:
    plain, ours = pair(name, 19, 200)
    fresh = REFERENCES[name](19, 200)
    fresh.load_state_dict(ours.state_dict())
    x = torch.randn(2, 19, 200)
    torch.testing.assert_close(fresh.eval()(x), plain.eval()(x))


@pytest.mark.parametrize("name", TABLE)
def test_the_shortest_windows_work_and_shorter_ones_are_refused(name: str) -> None:
    n_channels, n_times = SMALLEST[name]
    backbone = backbones.create(name, n_channels, n_times)
    assert backbone(torch.randn(4, n_channels, n_times)).shape == (4, backbone.embedding_dim)
    with pytest.raises(BadUse, match=f"{name} needs windows of at least .*{n_times} samples"):
        backbones.create(name, n_channels, n_times - 1)
    if n_channels > 1:
        with pytest.raises(BadUse, match=f"at least {n_channels} channels"):
            backbones.create(name, n_channels - 1, n_times)


@pytest.mark.parametrize("name", NAMES)
def test_every_window_is_embedded_or_refused_in_a_sentence(name: str) -> None:
    for n_channels, n_times in ((1, 1), (1, 31), (3, 64), (8, 98), (70, 200)):
        try:
            backbone = backbones.create(name, n_channels, n_times).eval()
        except BridgeMILError:
            continue
        assert backbone(torch.randn(2, n_channels, n_times)).shape == (2, backbones.embedding_dim(backbone))


@pytest.mark.parametrize("name", NAMES)
def test_autocast_trains(name: str) -> None:
    torch.manual_seed(0)
    ours = without_dropout(backbones.create(name, 19, 200))
    x = torch.randn(32, 19, 200)
    exact = ours.eval()(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough = ours(x)
        ours.train()(x).float().sum().backward()
    assert torch.isfinite(rough).all()
    assert float(((rough - exact).norm() / exact.norm()).detach()) < 0.15
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in ours.parameters())


@pytest.mark.parametrize("name", NAMES)
def test_same_seed_same_step_to_the_bit(name: str) -> None:
    def step() -> torch.Tensor:
        torch.manual_seed(3)
        backbone = backbones.create(name, 19, 200)
        out = backbone(torch.randn(16, 19, 200))
        out.square().mean().backward()
        return torch.cat([p.grad.flatten() for p in backbone.parameters()])

    assert torch.equal(step(), step())


def test_options() -> None:
    x = torch.randn(4, 19, 200)
    width, head = (backbones.create("conformer", 19, 200, attention_scale=scale) for scale in ("width", "head"))
    head.load_state_dict(width.state_dict())
    assert not torch.allclose(width.eval()(x), head.eval()(x))
    plain = REFERENCES["mtdnet"](19, 200, lstm_layout="reference").eval()
    ours = backbones.create("mtdnet", 19, 200, lstm_layout="reference").eval()
    ours.load_state_dict(plain.state_dict())
    torch.testing.assert_close(ours(x), plain(x))
    limited = backbones.create("eegnet", 19, 200, max_norm=1.0)
    with torch.no_grad():
        limited.spatial.weight *= 100
    limited.train()(x)
    (limited(x) * limited(x)).sum().backward()
    assert float(limited.spatial.weight.detach().flatten(1).norm(dim=1).max()) <= 1.0001
    for name, option in (("mtdnet", {"lstm_layout": "Reference"}), ("conformer", {"attention_scale": "x"})):
        with pytest.raises(BadUse, match="must be '"):
            backbones.create(name, 19, 200, **option)


@pytest.mark.parametrize("name", NAMES)
def test_an_empty_batch_gives_no_embedding(name: str) -> None:
    backbone = backbones.create(name, 19, 200).eval()
    assert backbone(torch.zeros(0, 19, 200)).shape == (0, backbone.embedding_dim)


def test_names_are_reached_from_the_package() -> None:
    code = (
        "import bridgemil as b\n"
        "print(b.backbones.names()[0], b.aggregators.names()[0], b.pretraining.vicreg_loss.__name__)"
    )
    answer = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert answer.stdout.split() == ["eegnet", "attention", "vicreg_loss"]


def test_a_concentrated_filter_on_offset_windows_gives_no_nan() -> None:
    backbone = backbones.create("eegnet", 3, 200)
    with torch.no_grad():
        backbone.temporal.weight.zero_()
        backbone.temporal.weight[..., 31] = 1
    assert torch.isfinite(backbone(torch.randn(16, 3, 200) + 1e5)).all()
    assert (backbone.bn1.running_var >= 0).all()


@pytest.mark.parametrize(
    ("size", "left", "n_times"), [(64, 31, 200), (16, 7, 50), (15, 7, 6), (3, 1, 6), (64, 31, 32), (1, 0, 5)]
)
def test_toeplitz_is_a_padded_convolution(size: int, left: int, n_times: int) -> None:
    kernels, x = torch.randn(3, size, dtype=torch.float64), torch.randn(4, n_times, dtype=torch.float64)
    padded = nn.functional.pad(x, (left, size - 1 - left))
    expected = nn.functional.conv1d(padded[:, None], kernels[:, None]).transpose(0, 1)
    torch.testing.assert_close(x @ toeplitz(kernels, n_times, left), expected)


@pytest.mark.parametrize("p", [0.25, 0.1, 0.5])
def test_dropout_drops_its_share_and_keeps_the_mean(p: float) -> None:
    torch.manual_seed(0)
    layer, x = Dropout(p), torch.ones(1001, 997, requires_grad=True)
    out = layer(x)
    out.sum().backward()
    dropped = float((out == 0).float().mean())
    assert abs(dropped - p) < 5 * math.sqrt(p * (1 - p) / x.numel())
    assert out.detach().unique().tolist() == [0.0, pytest.approx(1 / (1 - p))]
    assert torch.equal(x.grad, out.detach())
    assert torch.equal(layer.eval()(x), x)


HEADS = {
    "eegnet": 96 * 3 + 3,
    "conformer": 280 * 256 + 256 + 256 * 32 + 32 + 32 * 3 + 3,
    "lcadnet": 420 * 50 + 50 + 50 * 80 + 80 + 80 * 3 + 3,
    "dsainet": 80 * 3 + 3,
    "mtdnet": 16 * 16 + 16 + 2 * 16 + 16 * 3 + 3,
}


@pytest.mark.parametrize("name", NAMES)
def test_heads(name: str) -> None:
    d = backbones.embedding_dim(backbones.create(name, 19, 200))
    head = backbones.create_head(name, d, 3)
    assert head(torch.randn(5, d)).shape == (5, 3)
    if name in HEADS:
        assert sum(p.numel() for p in head.parameters()) == HEADS[name]


def test_names_and_unknown_ones() -> None:
    assert set(REFERENCES) == set(TABLE) == set(SMALLEST) == set(HEADS) <= set(NAMES)
    for make in (lambda: backbones.create("resnet", 19, 200), lambda: backbones.create_head("resnet", 8, 2)):
        with pytest.raises(BadUse, match=r"backbone must be one of eegnet, conformer, .*, got 'resnet'"):
            make()
