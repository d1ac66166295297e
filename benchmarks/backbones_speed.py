"""The shipped backbones against the plain layers: speed and peak memory of a training step, in one run.

512 windows of 19 x 200, forward and backward, two threads. Speed: both sides alternate, median of the repeats. Memory:
a fresh process each, the rise of its largest resident size over the value before the first forward pass.
Where braindecode imports, its EEGNet and EEGConformer stand beside them.   python benchmarks/backbones_speed.py
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch

from bridgemil import backbones

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))
from reference_backbones import REFERENCES  # noqa: E402

WANTED = {
    "eegnet": (6, 10, 1 / 4),
    "conformer": (4, 8, 1 / 2),
    "dsainet": (4, 6, 1 / 4),
    "lcadnet": (2, 4, 1),
    "mtdnet": (1, 1.5, 1),
}
PEERS = {"eegnet": "EEGNet", "conformer": "EEGConformer"}


def build(side: str, name: str) -> torch.nn.Module:
    torch.manual_seed(0)
    if side == "ours":
        return backbones.create(name, 19, 200)
    return REFERENCES[name](19, 200) if side == "plain" else backbones.create(f"braindecode:{PEERS[name]}", 19, 200)


def step(model: torch.nn.Module, x: torch.Tensor) -> float:
    start = time.perf_counter()
    model(x).square().mean().backward()
    return time.perf_counter() - start


def peak_megabytes(side: str, name: str, n: int, repeats: int) -> float:
    """What a training step adds to a fresh process, in megabytes."""
    command = [sys.executable, __file__, "--measure", side, name, "--windows", str(n)]
    runs = [subprocess.run(command, check=True, capture_output=True, text=True).stdout for _ in range(repeats)]
    return float(np.median([float(text) for text in runs]))


def measure(side: str, name: str, n: int) -> None:
    model, x = build(side, name), torch.randn(n, 19, 200)
    torch.randn(64, 64) @ torch.randn(64, 64)  # the libraries' own buffers are not the model's
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    step(model, x)
    print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--windows", type=int, default=512)
    parser.add_argument("--quick", action="store_true", help="a few seconds: does it still run?")
    parser.add_argument("--measure", nargs=2, metavar=("SIDE", "NAME"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(2)
    if arguments.measure:
        measure(*arguments.measure, arguments.windows)
        return
    wanted, measured = WANTED, 3
    if arguments.quick:
        wanted, measured = {"eegnet": WANTED["eegnet"], "mtdnet": WANTED["mtdnet"]}, 1
        arguments.repeats, arguments.windows = 1, 64
    # First, while this process is small: a child's largest size starts from its parent's.
    peaks = {
        name: {side: peak_megabytes(side, name, arguments.windows, measured) for side in ("plain", "ours")}
        for name in wanted
    }
    try:
        backbones.create("braindecode:EEGNet", 19, 200)
        peers = True
    except Exception as error:
        peers = False
        print(f"without braindecode: {str(error).splitlines()[0][-120:]}\n")
    print(f"{'':10} {'plain':>8} {'ours':>8} {'faster':>7}  must / aim   memory: plain   ours   ratio  must")
    for name, (must, aim, memory) in wanted.items():
        sides = ["plain", "ours", *(["peer"] if peers and name in PEERS else [])]
        models = {side: build(side, name) for side in sides}
        x = torch.randn(arguments.windows, 19, 200)
        for model in models.values():
            step(model, x)
        times = {side: [] for side in sides}
        for _ in range(arguments.repeats):
            for side, model in models.items():
                times[side].append(step(model, x))
        plain, ours = (1000 * float(np.median(times[side])) for side in ("plain", "ours"))
        peak = peaks[name]
        ratio = peak["ours"] / peak["plain"] if peak["plain"] else float("nan")  # a small step may fit what is there
        print(f"{name:10} {plain:6.0f}ms {ours:6.0f}ms {plain / ours:6.1f}x  {must:g}x / {aim:g}x", end="")
        print(f"{'':5} {peak['plain']:8.0f} MB {peak['ours']:5.0f} MB  {ratio:5.2f}  {memory:.2f}")
        if "peer" in times:
            peer = 1000 * float(np.median(times["peer"]))
            print(f"{'':10} braindecode's {PEERS[name]}: {peer:.0f} ms, ours {peer / ours:.1f}x as fast")


if __name__ == "__main__":
    main()
