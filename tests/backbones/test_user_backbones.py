"""Backbones that users bring, by address or registered: what they are told, what is refused, what identifies them."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from bridgemil import backbones, user_code
from bridgemil.errors import BadUse

NET = """
import torch
from torch import nn
from sizes import WIDTH

class Net(nn.Module):
    def __init__(self, n_channels, n_times, sfreq, width=WIDTH, dropout=0.5):
        super().__init__()
        self.sfreq, self.noise = sfreq, torch.rand(1)
        self.layer = nn.Sequential(nn.Flatten(), nn.Dropout(dropout), nn.Linear(n_channels * n_times, width))

    def forward(self, x):
        return self.layer(x)

def broken(n_channels, n_times):
    raise ValueError("no such layer")

def narrow(n_channels):
    return nn.Flatten()

def not_a_network(n_channels, n_times):
    return 3

def any_option(n_channels, n_times, **options):
    return Net(n_channels, n_times, 1.0, **options)

SHARED = nn.Linear(200, 4)

def shares_a_layer(n_channels, n_times):
    return nn.Sequential(SHARED, nn.Flatten())
"""


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backbones, "BACKBONES", backbones.BACKBONES.copy())


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "net.py").write_text(NET)
    (tmp_path / "sizes.py").write_text("WIDTH = 8\n")
    return tmp_path / "net.py"


class Mean(nn.Module):
    def __init__(self, n_channels: int, n_times: int) -> None:
        super().__init__()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean(dim=2)


def linear(width: int) -> Any:
    return lambda c, t: nn.Sequential(nn.Flatten(), nn.Linear(c * t, width), nn.Linear(width, 4))


def test_an_address_is_created_with_its_options_and_the_rate(file: Path) -> None:
    name = f"{file}:Net"
    backbone = backbones.create(name, 3, 10, sfreq=128.0, width=5)
    assert backbone.embedding_dim == 5
    assert backbone.sfreq == 128.0
    assert backbone.training
    assert backbones.create(name, 3, 10).embedding_dim == 8
    assert backbones.create(f"{file}:any_option", 3, 10, width=6).embedding_dim == 6
    assert isinstance(backbones.create_head(name, 5, 2), nn.Linear)


def test_an_edited_file_gives_the_new_network(file: Path) -> None:
    name = f"{file}:Net"
    before = backbones.fingerprint(name, 3, 10)
    (file.parent / "sizes.py").write_text("WIDTH = 9\n")
    assert backbones.create(name, 3, 10).embedding_dim == 9
    helper_edited = backbones.fingerprint(name, 3, 10)
    file.write_text(NET.replace("dropout=0.5", "dropout=0.4"))  # the same shapes
    assert len({before, helper_edited, backbones.fingerprint(name, 3, 10)}) == 3


def test_a_worker_in_another_folder_makes_the_same(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(file.parent)
    name = user_code.absolute("net.py:Net")
    assert name == f"{file}:Net"
    assert [user_code.absolute(known) for known in backbones.names()] == backbones.names()
    assert user_code.absolute("braindecode:EEGNet") == "braindecode:EEGNet"
    code = f"from bridgemil import backbones; print(backbones.fingerprint({name!r}, 3, 10))"
    worker = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd="/")
    assert worker.stdout.strip() == backbones.fingerprint("net.py:Net", 3, 10)


@pytest.mark.filterwarnings("ignore:.*is not at the top level of a file")
def test_registered_again_a_name_stands_for_the_new_code() -> None:
    backbones.register("mine", linear(5))
    first = backbones.fingerprint("mine", 3, 10)
    assert backbones.fingerprint("mine", 3, 10) == first
    backbones.register("mine", linear(6))
    assert backbones.fingerprint("mine", 3, 10) != first


def test_registered_names() -> None:
    backbones.register("mean", Mean)
    assert "mean" in backbones.names()
    assert backbones.create("mean", 7, 50).embedding_dim == 7
    assert isinstance(backbones.create_head("mean", 7, 2), nn.Linear)
    for taken in (backbones.names()[0], "a:b"):
        with pytest.raises(BadUse, match="taken or has a colon"):
            backbones.register(taken, Mean)
    with pytest.raises(BadUse, match="must be a class or a function, got int"):
        backbones.register("three", 3)  # type: ignore[arg-type]


def test_built_ins_are_told_by_their_names() -> None:
    for name in backbones.names():
        assert backbones.fingerprint(name, 19, 200) is None


def random_states() -> Iterator[Any]:
    yield torch.get_rng_state().tolist()
    yield random.getstate()
    yield np.random.get_state()[1].tolist()  # noqa: NPY002


def test_the_random_state_is_left_alone(file: Path) -> None:
    before = list(random_states())
    backbones.fingerprint(f"{file}:Net", 3, 10)
    assert list(random_states()) == before


def test_a_network_that_was_given_before_is_refused(file: Path) -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(30, 4))
    backbones.register("same", lambda c, t: network)
    kept = [backbones.create("same", 3, 10), backbones.create(f"{file}:shares_a_layer", 3, 200)]
    for name, times in (("same", 10), (f"{file}:shares_a_layer", 200)):
        with pytest.raises(BadUse, match="gave before: what was learnt from some subjects would leak"):
            backbones.create(name, 3, times)
    assert len(kept) == 2
    backbones.register("around", lambda c, t: backbones.create(f"{file}:Net", c, t))
    assert backbones.create("around", 3, 10) is not backbones.create("around", 3, 10)


def test_the_trial_leaves_the_network_as_it_was() -> None:
    def frozen(c: int, t: int) -> nn.Module:
        network = nn.Sequential(nn.BatchNorm1d(c), nn.Flatten(), nn.BatchNorm1d(c * t))
        network[0].eval()
        return network

    backbones.register("frozen", frozen)
    network = backbones.create("frozen", 3, 10)
    assert [part.training for part in network] == [False, True, True]
    assert float(network[2].running_mean.abs().sum()) == 0


def test_unknown_options_are_refused_before_any_work(file: Path) -> None:
    with pytest.raises(BadUse, match=r"Net has no option widht; it has: width, dropout; did you mean width\?"):
        backbones.check(f"{file}:Net", {"widht": 3})
    with pytest.raises(BadUse, match="has no option sfreq"):
        backbones.check(f"{file}:Net", {"sfreq": 3})
    backbones.check(f"{file}:Net", {"width": 3})
    backbones.check(f"{file}:any_option", {"anything": 3})
    for name in backbones.names():
        backbones.check(name)
        with pytest.raises(BadUse, match=f"{name} has no option nonsense"):
            backbones.check(name, {"nonsense": 1})
        with pytest.raises(BadUse, match=f"{name} has no option nonsense"):
            backbones.create(name, 19, 200, nonsense=1)
    backbones.register("mean", Mean)
    with pytest.raises(BadUse, match="mean has no option width; it has: none"):
        backbones.check("mean", {"width": 3})


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("EEGNet", "did you mean eegnet?"),
        ("confromer", "did you mean conformer?"),
        ("net.py", "name the class or function in it too: net.py:NAME"),
        ("brandecode:EEGNet", "did you mean braindecode:EEGNet?"),
        ("nowhere/net.py:Net", "there is no file"),
        ("{file}:Nett", "did you mean Net?"),
        ("{file}:WIDTH", "must be a class or a function, it is int"),
    ],
)
def test_names_that_are_none(file: Path, name: str, sentence: str) -> None:
    for call in (backbones.check, lambda known: backbones.create(known, 3, 10)):
        with pytest.raises(BadUse) as caught:
            call(name.format(file=file))
        assert sentence in str(caught.value)


def test_networks_that_do_not_work(file: Path) -> None:
    with pytest.raises(
        BadUse, match=r"cannot be built for windows of 3 x 10: ValueError: no such layer \(.*net.py, line"
    ):
        backbones.create(f"{file}:broken", 3, 10)
    with pytest.raises(BadUse, match=r"must give a torch.nn.Module, it gave int"):
        backbones.create(f"{file}:not_a_network", 3, 10)
    with pytest.raises(
        BadUse, match=r"cannot be built for windows of 3 x 10: TypeError: narrow\(\) takes 1 positional"
    ):
        backbones.create(f"{file}:narrow", 3, 10)
    backbones.register("wrong", lambda c, t: nn.Identity())
    with pytest.raises(BadUse, match=r"must map 2 x 7 x 50 to 2 x d, it gave \(2, 7, 50\)"):
        backbones.create("wrong", 7, 50)
    backbones.register("too_wide", lambda c, t: nn.Linear(t + 1, 3))
    with pytest.raises(BadUse, match="'too_wide' cannot embed windows of 7 x 50: RuntimeError"):
        backbones.create("too_wide", 7, 50)


def test_electrode_names_are_given_to_a_parameter_without_default(tmp_path: Path) -> None:
    from bridgemil.cohort.signal import Signal

    source = "from torch import nn\n\ndef net(n_channels, n_times, *, channels):\n"
    source += "    net = nn.Flatten()\n    net.names = tuple(channels)\n    return net\n"
    (tmp_path / "net.py").write_text(source)
    name, signal = f"{tmp_path / 'net.py'}:net", Signal(("Cz", "Pz"), 100.0, 50)
    assert backbones.for_signal(name, signal, {}).names == ("Cz", "Pz")
    assert backbones.try_out(name, signal, {})
    with pytest.raises(BadUse, match="needs the electrode names"):
        backbones.create(name, 2, 50)
