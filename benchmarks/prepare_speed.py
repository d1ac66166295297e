"""`prepare` with two jobs against a plain sequential MNE loop: 16 recordings of 15 minutes at 500 Hz, same windows.

Both sides alternate, once inside one process with everything imported, once as commands from a cold start. Before that,
filtering and resampling alone: one transform against MNE's two steps, on one recording in memory.
python benchmarks/prepare_speed.py [--quick]
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from edfio import Edf, EdfSignal

from bridgemil import Cohort, prepare
from bridgemil.cohort.channels import ADFTD_ORDER
from bridgemil.cohort.filters import Grid, filter_and_resample, kernel

COMMAND = [sys.executable, "-m", "bridgemil", "prepare"]


def plain_loop(root: Path, out: Path) -> None:
    """What a user would write."""
    import mne

    out.mkdir()
    for path in sorted(root.glob("sub-*/eeg/*.edf")):
        raw = mne.io.read_raw_edf(path, preload=True, verbose="ERROR")
        raw.filter(0.5, 45, verbose="ERROR")
        raw.resample(200, verbose="ERROR")
        data = raw.get_data() * 1e6
        n = data.shape[1] // 200
        windows = data[:, : n * 200].reshape(len(data), n, 200).transpose(1, 0, 2)
        np.save(out / f"{path.name.split('_')[0]}.npy", windows.astype(np.float32))


def write_recordings(root: Path, n: int, seconds: int) -> None:
    rows = ["participant_id\tgroup", *(f"sub-{i:02d}\t{'AB'[i % 2]}" for i in range(n))]
    root.mkdir()
    (root / "participants.tsv").write_text("\n".join(rows) + "\n")
    for i in range(n):
        rng = np.random.default_rng(i)
        signals = [
            EdfSignal(rng.normal(0, 20, seconds * 500), 500, label=name, physical_dimension="uV")
            for name in ADFTD_ORDER
        ]
        path = root / f"sub-{i:02d}/eeg/sub-{i:02d}_task-rest_eeg.edf"
        path.parent.mkdir(parents=True)
        Edf(signals).write(path)


def seconds_of(function: Callable[..., object], *arguments: object, **more: object) -> float:
    start = time.perf_counter()
    function(*arguments, **more)
    return time.perf_counter() - start


def one_transform(seconds: int, repeats: int) -> None:
    """Filtering and resampling alone, in one thread, at the rates of the paper's data sets and at a low one."""
    import mne

    for rate in (500, 512, 256, 95):
        n = seconds * rate
        signal = np.random.default_rng(0).normal(0, 2e-5, (len(ADFTD_ORDER), n))
        info = mne.create_info(list(ADFTD_ORDER), rate, "eeg")
        raw = mne.io.RawArray(signal, info, verbose="ERROR")
        steps: list[float] = []
        fused: list[float] = []
        for _ in range(repeats):
            theirs = raw.copy()
            start = time.perf_counter()
            theirs.filter(0.5, 45, verbose="ERROR").resample(200, verbose="ERROR")
            steps.append(time.perf_counter() - start)
            start = time.perf_counter()
            ours = filter_and_resample(signal, kernel(rate, 0.5, 45), Grid.plan(n, rate, 200), scale=1e6)
            fused.append(time.perf_counter() - start)
        worst = float(np.abs(ours - theirs.get_data() * 1e6).max())
        print(f"{rate} Hz: MNE's filter and resample {1000 * np.median(steps):.0f} ms, one transform ", end="")
        print(f"{1000 * np.median(fused):.0f} ms: {np.median(steps) / np.median(fused):.2f}x; ", end="")
        print(f"largest difference {worst:.1e} µV")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recordings", type=int, default=16)
    parser.add_argument("--seconds", type=int, default=900)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="a few seconds: does it still run?")
    parser.add_argument("--cold", nargs=2, metavar=("ROOT", "OUT"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.cold:  # the loop as a program of its own
        plain_loop(*map(Path, arguments.cold))
        return
    if arguments.quick:
        arguments.recordings, arguments.seconds, arguments.repeats = 4, 20, 1
    print(f"one recording of {arguments.seconds} s, {len(ADFTD_ORDER)} channels; median of {arguments.repeats} repeats")
    one_transform(arguments.seconds, arguments.repeats)
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        root = work / "bids"
        write_recordings(root, arguments.recordings, arguments.seconds)
        write_recordings(work / "small", 2, 20)
        plain_loop(work / "small", work / "warm")  # imports on both sides before any clock runs
        prepare(work / "small", work / "warm.cohort", label="group", jobs=1, progress=False)
        times: dict[str, list[float]] = {"loop": [], "ours": [], "cold loop": [], "cold ours": []}
        for i in range(arguments.repeats):
            a, b = work / f"loop{i}", work / f"cohort{i}"
            times["loop"].append(seconds_of(plain_loop, root, a))
            times["ours"].append(seconds_of(prepare, root, b, label="group", jobs=2, progress=False))
            cold = [sys.executable, __file__, "--cold", str(root), f"{a}-cold"]
            times["cold loop"].append(seconds_of(subprocess.run, cold, check=True))
            cold = [*COMMAND, str(root), f"{b}-cold", "--label", "group", "--jobs", "2"]
            times["cold ours"].append(seconds_of(subprocess.run, cold, check=True, capture_output=True))
        cohort = Cohort.open(work / "cohort0")
        worst = max(
            float(np.abs(cohort.windows(s) - np.load(work / "loop0" / f"{s}.npy")).max()) for s in cohort.subjects
        )
    middle = {name: float(np.median(values)) for name, values in times.items()}
    print(
        f"{arguments.recordings} recordings of {arguments.seconds} s at 500 Hz; median of {arguments.repeats} repeats"
    )
    print(f"plain MNE loop {middle['loop']:.1f} s, prepare with two jobs {middle['ours']:.1f} s: ", end="")
    print(f"{middle['loop'] / middle['ours']:.2f}x")
    print(f"as commands, start of Python and imports included: {middle['cold loop']:.1f} s and ", end="")
    print(f"{middle['cold ours']:.1f} s: {middle['cold loop'] / middle['cold ours']:.2f}x")
    print(f"largest difference {worst:.1e} µV; one float32 step at 50 µV is {np.spacing(np.float32(50)):.1e} µV")
    print(f"largest process {resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024:.0f} MB")


if __name__ == "__main__":
    main()
