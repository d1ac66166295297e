"""Scanning one recording through MNE before anything is written: what it holds, and what is bad in it.

Of the person and the date that a header names, a cohort keeps numbers only: which recordings name the same person
("identity 3"), and how many days after the earliest one each was made. No name, code, date, or hash of one is written
anywhere, so nothing can be looked up or guessed.
"""

from __future__ import annotations

import glob
import hashlib
import itertools
import math
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bridgemil.cohort import channels, formats, tables
from bridgemil.cohort.caps import Cap
from bridgemil.cohort.formats import EDF, EdfSignal, Unusable, read_edf
from bridgemil.cohort.sources import Recording
from bridgemil.errors import Problem, plain
from bridgemil.parallel import machine_memory

if TYPE_CHECKING:
    from mne.io import BaseRaw

PIECES = 16  # a recording is read in so many
FINGERPRINT_SAMPLES = 256  # of each channel, evenly spread
FLAT_UV = 0.1  # a channel whose standard deviation over the recording is below this is flat
LEVEL_SECONDS = 4  # of each piece, for ``RecordingScan.level``
# What readers and filters warn of, as far as it repeats nothing of the header (others are not repeated).
KNOWN_WARNINGS = re.compile(
    r"Loading an EDF with mixed sampling frequencies|Scaling factor will not be defined|Physical range is not defined"
    r"|Channels contain different (high|low)pass filters|Invalid patient information|Invalid measurement date"
    r"|Highpass cutoff frequency [\d.]+ is greater than lowpass cutoff frequency [\d.]+"
    r"|Number of records from the header does not match the file size|Unsupported physical dimension"
    r"|No info on DataPoints found|No coordinate information found|Online software filter detected"
    r"|Could not inspect \.set file variables|Unknown types found, setting as type EEG|Channel names are not unique"
    r"|The data contains 'boundary' events|At least one event has a sample index of -1"
    r"|\d+ events have an onset that is NaN|(Limited|Omitted) \d+ annotation\(s\)|does not conform to MNE naming"
    r"|FIF raw buffer could not be read, acquisition error likely: \d+ samples set to zero"
    r"|filter_length \(\d+\) is longer than the signal \(\d+\), distortion is likely|MarkerFile .{0,9}not found"
)
# What stands in a header that names nobody.
FILLERS = set(
    "x xx xxx xxxx unknown anonymous anonymized anonymised anonym anonymize anonymise mne_anonymize anon deidentified "
    "removed redacted hidden n/a na nan none null nil no name noname code id patient subject subj test dummy default "
    "undefined startdate".split()
)
SEX = {"m", "f", "male", "female"}
# Dates that programs write where the date is unknown or hidden.
NO_DAYS = {date(1985, 1, 1), date(1970, 1, 1), date(1900, 1, 1), date(1901, 1, 1), date(1999, 1, 1), date(2000, 1, 1)}
LEAST_CODE = 6  # characters of a code that can name a person
DAY = re.compile(r"\d{1,2}[-./][a-z]{3}[-./]\d{2,4}|\d{1,4}[-./]\d{1,2}[-./]\d{1,4}")


@dataclass
class RecordingScan:
    """What a scan of a recording shows. Per-channel values are keyed by channel (see ``channels.key``)."""

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
    level: dict[str, float] = field(default_factory=dict)  # microvolt: its spread without drift and mains
    fingerprint: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    bad_spans: list[tuple[float, float]] = field(default_factory=list)  # onset and duration in seconds
    warnings: list[str] = field(default_factory=list)
    n_channels: int = 0  # in the file, of whatever kind
    reference: str = ""  # as the channels' names say it: LE
    stated_reference: str | None = None  # as the BIDS sidecar states it (EEGReference)
    zero: str | None = None  # the electrode that is itself the reference, a channel of zeros
    identity: str | None = None  # a hash of whom the header names; never written (see ``header_records``)
    day: int | None = None  # when it was made; never written as such
    cleaning: list[dict[str, Any]] = field(default_factory=list)  # what each function changed (``cohort.cleaning``)
    excluded: str | None = None  # why a function left the recording out

    @property
    def seconds(self) -> float:
        """The recording's length."""
        return self.n_times / self.sfreq if self.sfreq else 0.0

    @property
    def amplitude(self) -> float:
        """The median level of its good electrodes, in microvolts; 0 if it has none."""
        levels = [level for c, level in self.level.items() if c not in self.bad and channels.electrode(c)]
        return float(np.median(levels)) if levels else 0.0

    def native_rate(self, keep: Iterable[str]) -> float:
        """The lowest rate, in Hz, at which one of these channels was recorded: a file may hold signals of several."""
        return min((self.rates.get(channel, self.sfreq) for channel in keep), default=self.sfreq)

    def problem(self, what: str) -> Problem:
        """A problem of this recording."""
        return Problem(what, self.recording.subject, self.recording.name)


@contextmanager
def collected_warnings(into: list[str]) -> Iterator[None]:
    """Collect the readers' warnings for the cohort's record instead of printing them."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for warning in caught:
        known = KNOWN_WARNINGS.search(" ".join(str(warning.message).split()))
        kind = warning.category.__name__
        text = known[0] if known else f"a warning that is not repeated here, for it may quote the header ({kind})"
        if text not in into:
            into.append(text)


def open_raw(path: Path, needed: Sequence[str] = ()) -> BaseRaw:
    """Open a file with MNE's reader, without loading its signal.

    If the ``needed`` channels of an EDF or BDF file have a lower rate than others, only they are opened: MNE would
    resample them, record by record, to the highest rate.
    """
    import mne

    raw = mne.io.read_raw(path, preload=False, verbose="WARNING")
    if not needed or path.suffix.lower() not in EDF:
        return raw
    rates = {name: signal.rate for name, signal in zip(raw.ch_names, read_edf(path), strict=True)}
    if min(rates[name] for name in needed) >= raw.info["sfreq"] * (1 - 1e-9):
        return raw
    return mne.io.read_raw(path, include=list(needed), exclude_after_unique=True, preload=False, verbose="WARNING")


def scan_recording(recording: Recording, cap: Cap | None = None) -> RecordingScan:
    """Read a recording once; a file that cannot be read, or is truncated, has ``RecordingScan.error``."""
    scan = RecordingScan(recording)
    try:
        _scan(scan, cap)
    except Unusable as problem:
        scan.error = str(problem)
    except FileNotFoundError:
        beside = recording.path.parent.glob(f"{glob.escape(recording.path.stem)}.*")
        gone = next(filter(formats.is_absent, beside), None)
        missing = "a file that belongs to it (named in its header, or of the same name) is missing"
        scan.error = f"unreadable: {missing if gone is None else f'{plain(gone.name)}: {formats.ABSENT}'}"
    except Exception as error:  # any reader may fail in its own way; its message may repeat the header's text
        scan.error = formats.trouble(recording.path, error)
    return scan


def _scan(scan: RecordingScan, cap: Cap | None) -> None:
    path = scan.recording.path
    formats.refuse_irregular(path)
    if path.is_file() and path.stat().st_size == 0:
        raise Unusable("the file is empty (0 bytes)")
    edf_signals = read_edf(path) if path.suffix.lower() in EDF else None
    if path.suffix.lower() == ".fif":
        formats.check_fif(path)
    with collected_warnings(scan.warnings):
        raw = open_raw(path)
        _check_raw(raw, scan.recording)
        _read_header(raw, scan, edf_signals, cap)
    if any("samples set to zero" in text for text in scan.warnings):
        raise Unusable("unreadable: a part of its samples cannot be read, and the reader put zeros there")
    if scan.n_times == 0:
        raise Unusable("zero length: the file holds no sample")
    digest, files = hashlib.sha256(), _files(path, raw)
    for file in files:
        with file.open("rb") as stream:
            hashlib.file_digest(stream, lambda: digest)
    scan.n_bytes, scan.sha256 = sum(file.stat().st_size for file in files), digest.hexdigest()


def _check_raw(raw: BaseRaw, recording: Recording) -> None:
    """Refuse what cannot be, before its samples are read."""
    sfreq, n_times = float(raw.info["sfreq"]), int(raw.n_times)
    if not 0 < sfreq <= formats.MOST_HZ:
        raise Unusable(f"unreadable: a sampling rate of {sfreq:g} Hz, by its header, cannot be")
    duration = tables.read_json(recording.eeg_json).get("RecordingDuration")
    stated = 0.0 if tables.is_missing(duration) else formats.finite(duration)  # seconds
    if stated is None or stated < 0:
        raise Unusable("RecordingDuration in its eeg.json is not a number of seconds")
    if recording.path.suffix.lower() in formats.EEGLAB:
        formats.check_fdt(Path(raw.filenames[0] or recording.path), n_times, len(raw.ch_names))
    if recording.path.suffix.lower() in formats.BRAINVISION:
        width = {"short": 2, "int": 4, "single": 4}.get(getattr(raw, "orig_format", ""), 1)
        formats.check_brainvision(recording.path, Path(raw.filenames[0]), n_times, width * len(raw.ch_names))
        slack = 1.0 if stated.is_integer() else 0.1  # a whole number may have been rounded
        if n_times / sfreq + slack < stated:
            what = f"its eeg.json says {stated:g} s (RecordingDuration), its data file has {n_times / sfreq:g} s"
            raise Unusable(f"truncated: {what}")
    needed = 8 * n_times * len(raw.ch_names)
    if needed > (machine_memory() or math.inf):
        raise Unusable(f"too large: its header promises {needed / 1e9:,.0f} GB of samples, more than the memory here")


def _read_header(raw: BaseRaw, scan: RecordingScan, edf: list[EdfSignal] | None, cap: Cap | None) -> None:
    scan.sfreq, scan.n_times, scan.n_channels = float(raw.info["sfreq"]), int(raw.n_times), len(raw.ch_names)
    scan.identity, scan.day = identity_hash(scan.recording.path, raw), recording_day(raw)
    keys = {name: channels.key(name) for name in raw.ch_names} if cap is None else cap.keys(raw.ch_names)
    types, marked_bad = tables.sidecar_channels(scan.recording.channels_tsv, keys)
    for name, kind in zip(raw.ch_names, raw.get_channel_types(), strict=True):
        channel = keys[name]
        if kind in ("stim", "eog", "ecg", "emg") or types.get(channel, "EEG") not in ("EEG", "MISC", "REF"):
            scan.other.append(name)
        elif channel in scan.spellings:
            scan.ambiguous.setdefault(channel, [scan.spellings[channel]]).append(name)
        else:
            scan.spellings[channel] = name
            if channels.electrode(channel) is None:
                scan.other.append(name)
    scan.reference = channels.reference(scan.spellings.values())
    stated = tables.read_json(scan.recording.eeg_json).get("EEGReference")
    scan.stated_reference = plain(stated) if isinstance(stated, str) and not tables.is_missing(stated) else None
    signals = dict(zip(raw.ch_names, edf, strict=True)) if edf is not None else {}
    for channel, name in scan.spellings.items():
        if name in raw.info["bads"] or channel in marked_bad:
            scan.bad[channel] = "marked bad"
        if name in signals and signals[name].bad is not None:
            scan.bad[channel] = str(signals[name].bad)
        scan.rates[channel] = signals[name].rate if name in signals else scan.sfreq
    scan.bad_spans = _bad_spans(raw, scan.recording.events_tsv)
    if scan.n_times:
        _measure(raw, scan)


def _measure(raw: BaseRaw, scan: RecordingScan) -> None:
    """Spread, missing values and fingerprint of every channel, read in pieces of time."""
    names = list(scan.spellings.values())
    edges = np.unique(np.linspace(0, scan.n_times, PIECES + 1).astype(int))
    sums, squares, missing = (np.zeros(len(names)) for _ in range(3))
    places = np.linspace(0, scan.n_times - 1, FINGERPRINT_SAMPLES).astype(int)
    samples, levels, origin = [], [], None
    for start, stop in itertools.pairwise(edges):
        signal = raw.get_data(picks=names, start=start, stop=stop) * 1e6  # channels x time
        lost = ~np.isfinite(signal)
        missing += lost.sum(axis=1)
        signal[lost] = 0.0
        origin = signal[:, :1].copy() if origin is None else origin  # offsets of millivolts must not drown the spread
        samples.append(signal[:, places[(places >= start) & (places < stop)] - start])
        signal -= origin
        with np.errstate(over="ignore", invalid="ignore"):  # what is no number any more is refused as too loud
            levels.append(_levels(signal, scan.sfreq))
            sums += signal.sum(axis=1)
            squares += np.einsum("ct,ct->c", signal, signal)
    with np.errstate(over="ignore", invalid="ignore"):
        std = np.sqrt(np.maximum(squares / scan.n_times - (sums / scan.n_times) ** 2, 0))
        level = np.median(np.concatenate(levels, axis=1), axis=1)
    scan.std = dict(zip(scan.spellings, std.tolist(), strict=True))
    scan.level = dict(zip(scan.spellings, level.tolist(), strict=True))
    scan.fingerprint = dict(zip(scan.spellings, np.concatenate(samples, axis=1), strict=True))
    for row, channel in enumerate(scan.spellings):
        if missing[row]:
            scan.bad.setdefault(channel, f"has {missing[row]:.0f} NaN or infinite samples")
        elif std[row] < FLAT_UV:
            scan.bad.setdefault(channel, f"is flat (standard deviation {std[row]:.3g} µV, flat is under {FLAT_UV} µV)")


def _levels(signal: NDArray[np.float64], sfreq: float) -> NDArray[np.float64]:
    """The spread about a line within each of the first seconds (channels x seconds): drift and mains hardly count."""
    n = signal.shape[1]
    width = min(n, max(1, round(sfreq / 50)))  # samples of a fiftieth of a second, which are averaged
    per_second = min(50, n // width)
    seconds = min(LEVEL_SECONDS, n // (width * per_second))
    shape = len(signal), seconds, per_second, width
    values = signal[:, : seconds * per_second * width].reshape(shape).mean(axis=3)
    time = np.arange(per_second) - (per_second - 1) / 2
    values -= (values @ time / max(time @ time, 1))[..., None] * time
    return np.asarray(values.std(axis=2))


def _bad_spans(raw: BaseRaw, events_tsv: Path | None) -> list[tuple[float, float]]:
    """Onset and duration, in seconds, of stretches marked BAD*, EDGE*, boundary or (not at the beginning) New Segment.

    From the annotations and the BIDS events. The duration of a boundary, that of what was removed, becomes 0.
    """
    notes, spans = raw.annotations, set()
    marks = [*zip(notes.onset - raw.first_time, notes.duration, notes.description, strict=True)]
    for onset, duration, text in [*marks, *tables.marked_events(events_tsv)]:
        begins = text.strip().lower().startswith(tables.NEW_SEGMENT) and onset <= 0
        if tables.is_bad_mark(text) and not begins:
            duration = 0.0 if tables.is_boundary(text) else duration
            if not (np.isfinite(onset) and np.isfinite(duration) and duration >= 0):
                raise Unusable("an annotation marks a bad stretch without an onset and a duration that can be")
            spans.add((round(float(onset), 6), float(duration)))
    return sorted(spans)


def _files(path: Path, raw: BaseRaw) -> list[Path]:
    """Every file a recording was read from: formats keep samples beside the header, in parts or in a folder."""
    files: dict[Path, Path] = {}  # each once, however it was spelt
    for file in (path, path.with_suffix(".fdt"), *map(Path, filter(None, raw.filenames)), *path.rglob("*")):
        if file.is_file():
            files.setdefault(file.resolve(), file)
    return sorted(files.values(), key=lambda file: (file.name, file.resolve()))


def identity_hash(path: Path, raw: BaseRaw) -> str | None:
    """A hash of the person that the header names, to compare recordings by; it stays in memory.

    None where the header is empty, holds fillers ("X X X X"), no more than sex and birthday, or a short code without a
    birthday ("S1"), which two groups may both have used.
    """
    if path.suffix.lower() in EDF:
        text = formats.patient(path)
    else:
        person = raw.info["subject_info"] or {}
        parts = [person.get(key) for key in ("his_id", "last_name", "first_name", "middle_name", "birthday")]
        text = " ".join("-".join(map(str, p)) if isinstance(p, tuple) else str(p) for p in parts if p is not None)
    words = [word for word in re.split(r"[\s\0]+", text.casefold()) if not _says_nothing(word)]
    names = [word for word in words if not DAY.fullmatch(word) and word not in SEX]
    born = any(DAY.fullmatch(word) for word in words)
    if not names or (not born and len("".join(names)) < LEAST_CODE):
        return None
    return hashlib.sha256(" ".join(words).encode()).hexdigest()


def _says_nothing(word: str) -> bool:
    bare = word.strip("_-.,;:()[]*?/")
    return not bare or bare in FILLERS or not bare.strip("0x") or set(re.split("[_^.-]", bare)) <= FILLERS


def recording_day(raw: BaseRaw) -> int | None:
    """The day a recording began, as ``datetime.date.toordinal``; None where the header does not state it."""
    begun = raw.info["meas_date"]
    return begun.date().toordinal() if isinstance(begun, datetime) and begun.date() not in NO_DAYS else None


def header_records(scans: Sequence[RecordingScan]) -> dict[str, dict[str, Any]]:
    """What a cohort keeps of the headers of its recordings, by the recording's name.

    ``n_channels`` of the file; ``identity``, a number that recordings of one person share; ``day``, days after the
    cohort's earliest recording, None where it is not stated; ``reference``, by the channels' names.
    """
    people = list(dict.fromkeys(scan.identity for scan in scans if scan.identity is not None))
    first = min((scan.day for scan in scans if scan.day is not None), default=0)
    return {
        scan.recording.name: {
            "n_channels": scan.n_channels,
            "identity": None if scan.identity is None else people.index(scan.identity) + 1,
            "day": None if scan.day is None else scan.day - first,
        }
        | ({"reference": scan.reference} if scan.reference else {})
        for scan in scans
    }
