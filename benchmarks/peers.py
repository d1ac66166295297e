"""bridgemil beside what a user would otherwise run, in one process run: docs/benchmarks.md is written by this script.

Both sides alternate; a row has the median of each side, and of the ratio its median and range over the rounds.

    python benchmarks/peers.py --write docs/benchmarks.md     # a quarter of an hour on two idle cores
    python benchmarks/peers.py --quick
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import torch

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "backbones"), str(ROOT / "benchmarks")]
import backbones_speed  # noqa: E402
import fold_speed  # noqa: E402
import prepare_speed  # noqa: E402
from pyriemann.geometry.base import logm  # noqa: E402
from test_covariance import eeg  # noqa: E402

from bridgemil import methods, prepare  # noqa: E402
from bridgemil.backbones.covariance import BANDS, FrontEnd  # noqa: E402
from bridgemil.cohort.channels import ADFTD_ORDER  # noqa: E402
from bridgemil.cohort.signal import Signal  # noqa: E402

Call = Callable[[], object]
HEAD = """# Benchmarks

`python benchmarks/peers.py --write docs/benchmarks.md`, {rounds} rounds on {cores}
cores; both sides alternate in one run. Seconds are medians; the ratio has its range over the rounds.
Times depend on the machine, ratios less so.
`prepare` also validates every file, computes checksums and starts two processes, which costs more than it saves on 16
recordings.

"""


def seconds(call: Call) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def pair(what: str, peer: str, theirs: Call, ours: Call, rounds: int) -> dict[str, object]:
    """One row: both sides once without a clock, then alternately."""
    theirs(), ours()
    times = np.array([(seconds(theirs), seconds(ours)) for _ in range(rounds)])
    ratio = times[:, 0] / times[:, 1]
    row = {"what": what, "compared with": peer, "s, theirs": times[:, 0], "s, ours": times[:, 1]}
    shown = {name: f"{np.median(value):.3g}" for name, value in row.items() if isinstance(value, np.ndarray)}
    row |= shown | {"times as fast": f"{np.median(ratio):.1f} ({ratio.min():.1f} to {ratio.max():.1f})"}
    print("; ".join(f"{name}: {value}" for name, value in row.items()), flush=True)
    return row


def command(*words: str) -> Call:
    return lambda: subprocess.run([sys.executable, *words], check=True, capture_output=True)


def with_pyriemann(windows: np.ndarray) -> np.ndarray:
    """Log-covariances and band powers of all windows at once, with numpy and pyRiemann's matrix logarithm."""
    x = windows.astype(np.float64)
    x -= x.mean(axis=1, keepdims=True)
    spectrum = np.fft.rfft((x - x.mean(axis=2, keepdims=True)) * np.hanning(x.shape[2] + 1)[:-1])
    frequency, parts, powers = np.fft.rfftfreq(x.shape[2], 1 / 200), [], []
    for low, high in BANDS:
        band = spectrum[:, :, (frequency >= low) & (frequency < high)]
        cross = np.einsum("nct,ndt->ncd", band, band.conj()).real
        power = np.einsum("ncc->nc", cross)
        logs = logm(0.9 * cross / power.mean(axis=1)[:, None, None] + 0.1 * np.eye(x.shape[1]))
        first, second = np.triu_indices(x.shape[1])
        parts.append(logs[:, first, second] * np.where(first == second, 1, np.sqrt(2)))
        powers.append(power)
    shares = np.log(powers / np.sum(powers, axis=0)).transpose(1, 0, 2)
    return np.concatenate([*parts, shares.reshape(len(x), -1)], axis=1)


def rows(folder: Path, rounds: int, quick: bool) -> list[dict[str, object]]:
    found = []
    n, length = (2, 20) if quick else (16, 300)
    prepare_speed.write_recordings(folder / "bids", n, length)
    outputs = iter(range(10_000))
    found.append(
        pair(
            f"prepare {n} recordings of {length} s, 19 channels at 500 Hz, two jobs",
            "a loop over MNE's read, filter, resample",
            lambda: prepare_speed.plain_loop(folder / "bids", folder / f"loop{next(outputs)}"),
            lambda: prepare(folder / "bids", folder / f"{next(outputs)}.cohort", label="group", jobs=2, progress=False),
            rounds,
        )
    )  # fmt: skip
    windows = eeg(50 if quick else 300, 19)
    front_end = FrontEnd(Signal(ADFTD_ORDER, 200.0, 200))
    np.testing.assert_allclose(front_end(torch.from_numpy(windows)).numpy(), with_pyriemann(windows), atol=1e-4)
    found.append(
        pair(
            f"covariance features of {len(windows)} windows, one thread", "numpy and pyRiemann, all windows at once",
            lambda: with_pyriemann(windows), lambda: front_end(torch.from_numpy(windows)), rounds,
        )
    )  # fmt: skip
    x = torch.randn(64 if quick else 512, 19, 200)
    for name in ("eegnet",) if quick else backbones_speed.WANTED:
        sides = [backbones_speed.build(side, name) for side in ("plain", "ours")]
        theirs, ours = (lambda model=model: backbones_speed.step(model, x) for model in sides)
        found.append(
            pair(f"{name}: training step of {len(x)} windows", "the same layers in plain PyTorch", theirs, ours, rounds)
        )
    if not quick:
        data = fold_speed.windows(20, 60)
        settings = methods.settings("bridgemil", "eegnet", "demo", recipe="paper")
        theirs, ours = (lambda side=side: fold_speed.fold(side, data, settings) for side in ("plain", "ours"))
        what = "one fold of BridgeMIL on EEGNet, both stages, budget demo"
        found.append(pair(what, "the same loop with plain layers", theirs, ours, 1))
    found.append(
        pair("import bridgemil", "import mne", command("-c", "import mne"), command("-c", "import bridgemil"), rounds)
    )
    help_ = command("-m", "bridgemil", "--help")
    found.append(pair("bridgemil --help", "import torch", command("-c", "import torch"), help_, rounds))
    recording = next((ROOT / "src" / "bridgemil" / "recordings").rglob("*.edf"))
    libraries = command("-c", "import mne, torch, pandas, scipy.signal")
    predicted = command("-m", "bridgemil", "predict", "alzheimer", str(recording))
    found.append(
        pair(
            "predict one minute with twenty models, from file to text",
            "importing the libraries alone",
            libraries,
            predicted,
            rounds,
        )
    )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--write", type=Path)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(2)
    with tempfile.TemporaryDirectory() as folder:
        table = pd.DataFrame(rows(Path(folder), 1 if given.quick else given.rounds, given.quick))
    if given.write:
        head = HEAD.format(rounds=given.rounds, cores=torch.get_num_threads())
        lines = [list(table.columns), ["---"] * len(table.columns), *table.to_numpy().tolist()]
        given.write.write_text(head + "".join(f"| {' | '.join(line)} |\n" for line in lines))


if __name__ == "__main__":
    main()
