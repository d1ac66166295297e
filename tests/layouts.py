"""The paper's data sets on their true layouts, filled with synthetic signals in their native rate and format."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import numpy as np

from recordings import write_edf

MUMTAZ_19 = "Fp1 F3 C3 P3 O1 F7 T3 T5 Fz Fp2 F4 C4 P4 O2 F8 T4 T6 Cz Pz".split()


def signal(seed: int, n_channels: int, n_times: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 20, (n_channels, n_times))


def fill_ds004504(layout: Path, root: Path, seconds: int | None) -> Path:
    """Cleaned derivatives as EEGLAB files at 500 Hz, channels in the data set's own order."""
    import mne

    shutil.copytree(layout, root)
    for number, sidecar in enumerate(sorted(root.glob("sub-*/eeg/*_eeg.json"))):
        subject = sidecar.name.split("_")[0]
        names = [row["name"] for row in _rows(sidecar.with_name(f"{subject}_task-eyesclosed_channels.tsv"))]
        length = seconds or int(json.loads(sidecar.read_text())["RecordingDuration"])
        raw = mne.io.RawArray(
            signal(number, len(names), length * 500) * 1e-6, mne.create_info(names, 500, "eeg"), verbose="ERROR"
        )
        path = root / "derivatives" / subject / "eeg" / f"{subject}_task-eyesclosed_eeg.set"
        path.parent.mkdir(parents=True)
        mne.export.export_raw(path, raw, verbose="ERROR")
    return root


def fill_mumtaz2017(listing: Path, root: Path, seconds: int | None, *, copies: bool = False) -> Path:
    """The flat folder of EDFs at 256 Hz; some have A2-A1 too, some 23A-23R and 24A-24R. TASK files are junk."""
    root.mkdir(parents=True)
    for number, line in enumerate(line for line in listing.read_text().splitlines() if line and line[0] != "#"):
        name, group, _, _, n_signals, sfreq, length = line.split("\t")
        extra = ["A2-A1", "23A-23R", "24A-24R"][: int(n_signals) - 19]
        labels = [f"EEG {site}-LE" for site in MUMTAZ_19] + [f"EEG {lead}" for lead in extra]
        n = (seconds or int(float(length))) * int(float(sfreq))
        seed = 10_000 if "S15 EO" in name and group == "H" else number  # the twice-uploaded recording
        known = {"MDD S34": "MDD S33", "H S30": "H S27"} if copies else {}  # one recording under two ids
        original = next(
            (root / name.replace(copy, kept) for copy, kept in known.items() if name.startswith(copy)), None
        )
        if original is not None:
            shutil.copy(original, root / name)
            continue
        write_edf(root / name, signal(seed, len(labels), n), float(sfreq), labels)
    for name in ("MDD S1 TASK.edf", "MDD S8 TASK.edf", "H S1 TASK.edf"):
        (root / name).write_bytes(b"opening this would fail")
    return root


def fill_ds002778(layout: Path, root: Path, seconds: int | None) -> Path:
    """BDFs at 512 Hz with EXG1-8 and Status; ses-off files are junk that must not be opened."""
    shutil.copytree(layout, root)
    for number, sidecar in enumerate(sorted(root.glob("sub-*/ses-*/eeg/*_eeg.json"))):
        path = sidecar.with_suffix(".bdf")
        if "ses-off" in path.name:
            path.write_bytes(b"opening this would fail")
            continue
        names = [row["name"] for row in _rows(Path(str(sidecar).replace("_eeg.json", "_channels.tsv")))]
        length = seconds or round(json.loads(sidecar.read_text())["RecordingDuration"])
        write_edf(path, signal(number, len(names), length * 512), 512, names)
    return root


TUAB_21 = "FP1 FP2 F3 F4 C3 C4 P3 P4 O1 O2 F7 F8 T3 T4 T5 T6 A1 A2 FZ CZ PZ".split()
TUAB_MORE = (
    ("train", "normal", "aaaaaaan_s002_t000"),  # a second session
    ("train", "normal", "aaaaaaay_s001_t000"),  # of train and eval
    ("eval", "normal", "aaaaaaay_s003_t001"),
    ("train", "normal", "aaaaaaaz_s001_t000"),  # of both classes
    ("train", "abnormal", "aaaaaaaz_s002_t000"),
)


def fill_tuab(root: Path, seconds: int = 2) -> Path:
    """TUH Abnormal: six people of each class in train, three in eval, and ``TUAB_MORE``; rates and references vary."""
    people = {"train": ("nopqrs", "abcdef"), "eval": ("tuv", "ghi")}
    files = [
        (part, label, f"aaaaaaa{letter}_s001_t000")
        for part, letters in people.items()
        for label, own in zip(("normal", "abnormal"), letters, strict=True)
        for letter in own
    ]
    for number, (part, label, stem) in enumerate([*files, *TUAB_MORE]):
        against, rate = ("REF", "LE")[number % 2], (250, 256, 512)[number % 3]
        names = [f"EEG {site}-{against}" for site in TUAB_21] + [f"EEG EKG1-{against}", "PHOTIC-REF"]
        path = root / "edf" / part / label / "01_tcp_ar" / f"{stem}.edf"
        write_edf(path, signal(number, len(names), seconds * rate), rate, names)
        with path.open("r+b") as stream:  # as the corpus states who was recorded
            stream.seek(8)
            stream.write(f"{stem[:8]} {'FM'[number % 2]} 01-JAN-1980 {stem[:8]} Age:{40 + number}".ljust(80).encode())
    return root


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8") as stream:
        return list(csv.DictReader(stream, delimiter="\t"))
