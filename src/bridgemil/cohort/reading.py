"""Reading one recording through MNE: what it contains (``look``), and the marks that make a stretch or channel bad."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bridgemil.cohort import channels, formats
from bridgemil.cohort.listing import Recording
from bridgemil.cohort.tables import read_table

if TYPE_CHECKING:
    from mne.io import BaseRaw

FINGERPRINT_PIECES = 16


@dataclass
class Facts:
    """What a first look at a recording shows. Per-channel values are keyed by channel (see ``channels.key``)."""

    recording: Recording
    error: str | None = None  # why the file cannot be read; nothing below is set then
    sha256: str = ""
    n_bytes: int = 0
    sfreq: float = 0.0
    n_times: int = 0
    spellings: dict[str, str] = field(default_factory=dict)  # channel -> its name in the file
    ambiguous: dict[str, list[str]] = field(default_factory=dict)  # channel -> several names in the file
    other: list[str] = field(default_factory=list)  # names in the file that are no EEG electrode
    bad: dict[str, str] = field(default_factory=dict)  # channel -> why it is bad
    rates: dict[str, float] = field(default_factory=dict)  # channel -> its own rate, where a file has several
    std: dict[str, float] = field(default_factory=dict)  # microvolt
    non_finite: dict[str, int] = field(default_factory=dict)
    fingerprint: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    bad_spans: list[tuple[float, float]] = field(default_factory=list)  # onset and duration in seconds
    warnings: list[str] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """The recording's length."""
        return self.n_times / self.sfreq if self.sfreq else 0.0


@contextmanager
def collected_warnings(into: list[str]) -> Iterator[None]:
    """Keep the readers' warnings for the record instead of printing them hundreds of times."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for warning in caught:
        text = " ".join(str(warning.message).split())
        if text not in into:
            into.append(text)


def open_raw(path: Path) -> BaseRaw:
    """Open any file MNE has a reader for, without loading its signal.

    Parameters
    ----------
    path
        The recording's file, or the folder of a format that is one.
    """
    import mne

    return mne.io.read_raw(path, preload=False, verbose="WARNING")


def look(recording: Recording) -> Facts:
    """Read a recording once and say what it holds.

    Parameters
    ----------
    recording
        The file and its sidecars.

    Returns
    -------
    Facts
        A file that cannot be read, or was cut short, has ``Facts.error``.
    """
    facts = Facts(recording)
    try:
        if recording.path.is_file() and recording.path.stat().st_size == 0:
            facts.error = "the file is empty (0 bytes)"
            return facts
        with collected_warnings(facts.warnings):
            raw = open_raw(recording.path)
            _read_facts(raw, facts)
        facts.n_bytes, facts.sha256 = _hash(_files(recording.path, raw))
    except Exception as error:  # any reader may fail in its own way: the message is the finding
        facts.error = f"unreadable: {type(error).__name__}: {' '.join(str(error).split())}"
        if recording.path.suffix.lower() not in formats.FORMATS:
            facts.error = f"unreadable: {recording.path.suffix or 'no ending'} is no known format; {formats.sentence()}"
        return facts
    truncated = [text for text in facts.warnings if "does not match the file size" in text]
    header = _edf_header(recording.path)
    short = truncated[0] if truncated else _cut_short(recording, raw)
    if short:
        facts.error = f"truncated: {short}"
    elif header is not None and header[0]:
        facts.error = "discontinuous (EDF+D): it has gaps that the reader closes; export it without gaps, or in pieces"
    elif facts.n_times == 0:
        facts.error = "zero length: the file holds no sample"
    return facts


def _read_facts(raw: BaseRaw, facts: Facts) -> None:
    facts.sfreq, facts.n_times = float(raw.info["sfreq"]), int(raw.n_times)
    types, marked_bad = _sidecar_channels(facts.recording.channels_tsv)
    for name, kind in zip(raw.ch_names, raw.get_channel_types(), strict=True):
        channel = channels.key(name)
        if kind in ("stim", "eog", "ecg", "emg") or types.get(channel, "EEG") not in ("EEG", "MISC", "REF"):
            facts.other.append(name)
        elif channel in facts.spellings:
            facts.ambiguous.setdefault(channel, [facts.spellings[channel]]).append(name)
        else:
            facts.spellings[channel] = name
            if channels.electrode(name) is None:
                facts.other.append(name)
    for channel, name in facts.spellings.items():
        if name in raw.info["bads"] or channel in marked_bad:
            facts.bad[channel] = "marked bad"
    facts.bad_spans = bad_spans(raw, facts.recording.events_tsv)
    header = _edf_header(facts.recording.path)
    rates = {channels.key(name): rate for name, rate in (header[1] if header else {}).items()}
    facts.rates = {channel: rates.get(channel, facts.sfreq) for channel in facts.spellings}
    if facts.n_times:
        _measure(raw, facts)


def _measure(raw: BaseRaw, facts: Facts) -> None:
    """Spread, missing values and fingerprint of every channel, read in 16 pieces of time."""
    names = list(facts.spellings.values())
    edges = np.linspace(0, facts.n_times, FINGERPRINT_PIECES + 1).astype(int)
    sums, squares, missing = (np.zeros(len(names)) for _ in range(3))
    pieces = np.zeros((len(names), FINGERPRINT_PIECES))
    origin = None
    for number, (start, stop) in enumerate(itertools.pairwise(edges)):
        if start == stop:
            continue
        signal = raw.get_data(picks=names, start=start, stop=stop) * 1e6  # channels x time
        finite = np.isfinite(signal)
        if not finite.all():
            missing += (~finite).sum(axis=1)
            signal[~finite] = 0.0
        origin = signal[:, :1].copy() if origin is None else origin  # offsets of millivolts must not drown the spread
        pieces[:, number] = np.abs(signal).mean(axis=1)
        signal -= origin
        sums += signal.sum(axis=1)
        squares += np.einsum("ct,ct->c", signal, signal)
    count = facts.n_times
    std = np.sqrt(np.maximum(squares / count - (sums / count) ** 2, 0))
    for row, channel in enumerate(facts.spellings):
        facts.std[channel] = float(std[row])
        facts.non_finite[channel] = int(missing[row])
        facts.fingerprint[channel] = pieces[row]


def bad_spans(raw: BaseRaw, events_tsv: Path | None) -> list[tuple[float, float]]:
    """Stretches marked BAD*, EDGE* or boundary.

    Parameters
    ----------
    raw
        The opened recording, with its annotations.
    events_tsv
        The BIDS sidecar that may mark more.

    Returns
    -------
    list of (onset, duration)
        In seconds, sorted. A boundary is the point where something was cut out: its duration, that of what is gone,
        becomes 0.
    """
    found = list(
        zip(raw.annotations.onset - raw.first_time, raw.annotations.duration, raw.annotations.description, strict=True)
    )
    for event in read_table(events_tsv)[1] if events_tsv is not None else ():
        kinds = [text for text in (event.get("trial_type", ""), event.get("value", "")) if is_bad_mark(text)]
        found += [(float(event["onset"]), float(event.get("duration") or 0), text) for text in kinds[:1]]
    spans = set()
    for onset, duration, text in found:
        if is_bad_mark(text):
            point = "boundary" in text.lower() or not np.isfinite(duration)
            spans.add((round(float(onset), 6), 0.0 if point else float(duration)))
    return sorted(spans)


def is_bad_mark(text: str) -> bool:
    """Whether an annotation says that the signal there is not to be trusted."""
    return text.strip().lower().startswith(("bad", "edge", "boundary"))


def _sidecar_channels(path: Path | None) -> tuple[dict[str, str], set[str]]:
    """Types and bad channels from a BIDS channels.tsv."""
    rows = read_table(path)[1] if path is not None else []
    types = {channels.key(row["name"]): row["type"].upper() for row in rows if row.get("type")}
    return types, {channels.key(row["name"]) for row in rows if row.get("status", "").lower() == "bad"}


def _files(path: Path, raw: BaseRaw) -> list[Path]:
    """Every file a recording was read from: formats keep samples beside the header, in parts or in a folder."""
    files: dict[Path, Path] = {}  # each once, however it was spelt
    for file in (path, path.with_suffix(".fdt"), *map(Path, filter(None, raw.filenames)), *path.rglob("*")):
        if file.is_file():
            files.setdefault(file.resolve(), file)
    return sorted(files.values(), key=lambda file: (file.name, file.resolve()))


def _hash(files: list[Path]) -> tuple[int, str]:
    digest, size = hashlib.sha256(), 0
    for file in files:
        with file.open("rb") as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
                size += len(block)
    return size, digest.hexdigest()


def _edf_header(path: Path) -> tuple[bool, dict[str, float]] | None:
    """Of an EDF or BDF file: whether it has gaps, and the rate of each signal (the reader shows one for all)."""
    if path.suffix.lower() not in (".edf", ".bdf"):
        return None
    with path.open("rb") as stream:
        main = stream.read(256)
        n = int(main[252:256])
        signals = stream.read(256 * n).decode("latin-1")
    labels = [signals[16 * i : 16 * (i + 1)].strip() for i in range(n)]
    samples = [int(signals[216 * n + 8 * i : 216 * n + 8 * (i + 1)]) for i in range(n)]
    seconds = float(main[244:252])
    return main[192:197] in (b"EDF+D", b"BDF+D"), {
        label: count / seconds for label, count in zip(labels, samples, strict=True) if seconds
    }


def _cut_short(recording: Recording, raw: BaseRaw) -> str | None:
    """Why a BrainVision recording, whose data file has no length of its own, must have been longer once."""
    if recording.path.suffix.lower() not in (".vhdr", ".ahdr"):
        return None
    width = {"short": 2, "int": 4, "single": 4}.get(getattr(raw, "orig_format", ""), 1)
    data = Path(raw.filenames[0])
    if data.is_file() and data.stat().st_size % (width * len(raw.ch_names)) != 0:
        return "its data file ends in the middle of a sample"
    stated = re.search(rb"^\s*DataPoints\s*=\s*(\d+)", recording.path.read_bytes(), re.MULTILINE | re.IGNORECASE)
    if stated and raw.n_times < int(stated[1]):
        return f"its header says {int(stated[1])} samples, its data file has {raw.n_times}"
    seconds = raw.n_times / raw.info["sfreq"]
    should = _stated_seconds(recording.eeg_json)
    slack = 1.0 if should.is_integer() else 0.1  # a whole number may have been rounded
    if seconds + slack < should:
        return f"its eeg.json says {should:g} s (RecordingDuration), its data file has {seconds:g} s"
    return None


def _stated_seconds(eeg_json: Path | None) -> float:
    """How long a recording is by its BIDS sidecar; 0 if that does not say."""
    try:
        return float(json.loads(eeg_json.read_text(encoding="utf-8"))["RecordingDuration"]) if eeg_json else 0.0
    except (KeyError, TypeError, ValueError):
        return 0.0
