"""One new recording, read, judged and cut by the same code and settings as a cohort's recordings were.

What a cohort would refuse is refused here too, in words for somebody who wants a prediction: a missing electrode, a
rate too low for the band, a unit that cannot be right, too few windows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bridgemil.cohort import channels, formats
from bridgemil.cohort.scan import RecordingScan, collected_warnings, open_raw, scan_recording
from bridgemil.cohort.segment import Segments, segment
from bridgemil.cohort.settings import PrepareSettings
from bridgemil.cohort.signal import Signal
from bridgemil.cohort.sources import Listing, Recording, SourceOptions, bids
from bridgemil.cohort.tables import read_json
from bridgemil.cohort.validate import FLAT_UV, ValidationReport, native_rate, validate
from bridgemil.errors import BadData, BadUse, Problem, plain
from bridgemil.settings import parse

MIN_WINDOWS = 10  # fewer are no person's EEG, unless a training person had fewer
BAND_SLACK = 0.9  # a stated filter may lie so much inside the band before it is worth a word
HEADERS_WITH_FILTERS = (".edf", ".bdf", ".vhdr", ".fif")  # formats that state theirs, and are opened without reading


@dataclass(frozen=True)
class NewRecording:
    """A recording as windows of the model's signal.

    Parameters
    ----------
    name
        As the user named it.
    path
        The file.
    windows : shape (n_windows, n_channels, n_times)
        In microvolts.
    starts : shape (n_windows,)
        Seconds from the recording's start.
    seconds
        Length of the recording.
    native_sfreq
        Rate it was sampled at, in Hz.
    sha256
        Of the file (or files).
    dropped
        Windows left out, by reason.
    notes
        What a reader of the prediction should know.
    stated_reference
        The reference electrodes, if a BIDS sidecar or, where it does not, the channels' names say them.
    """

    name: str
    path: Path
    windows: NDArray[np.float32]
    starts: NDArray[np.float64]
    seconds: float
    native_sfreq: float
    sha256: str
    dropped: Mapping[str, int]
    notes: tuple[str, ...] = ()
    stated_reference: str | None = None


def settings_for(signal: Signal, preparation: Mapping[str, Any], bad_channels: str | None = None) -> PrepareSettings:
    """The settings a new recording is cut by: the cohort's, with its channels by name.

    Parameters
    ----------
    signal
        What the model's windows are.
    preparation
        ``Cohort.preparation`` of the training cohort.
    bad_channels
        ``stop``, or ``interpolate``, in the place of what the cohort did with channels that are flat or marked bad.
    """
    if not preparation:
        raise BadUse(
            "the model was trained on arrays, and nobody wrote down how their recordings were prepared: it can be "
            "given windows in Python, not a recording"
        )
    if bad_channels not in (None, "stop", "interpolate"):
        raise BadUse(f"bad_channels must be stop or interpolate, got {bad_channels!r}")
    changes: dict[str, Any] = {"channels": signal.channels}
    return parse(
        PrepareSettings, dict(preparation) | changes | ({"bad_channels": bad_channels} if bad_channels else {})
    )


def find(paths: Sequence[str | Path]) -> list[Recording | Problem]:
    """The recordings that files and folders hold, with their BIDS sidecars; a problem for each that cannot be opened.

    Parameters
    ----------
    paths
        Files; BIDS folders (with sub-*/eeg or sub-*/ses-*/eeg); other folders, whose recordings are found by their
        endings.
    """
    recordings: list[Recording | Problem] = []
    for path in map(Path, paths):
        if not path.is_dir() or formats.is_recording(path):
            recordings.append(_with_sidecars(path))
            continue
        if any(path.glob("sub-*/eeg/")) or any(path.glob("sub-*/ses-*/eeg/")):
            recordings += _in_bids(path)
            continue
        files = sorted(path.rglob("*"))
        inside: list[Recording | Problem] = [_absent(file) for file in files if formats.is_missed(file)]
        inside += [_with_sidecars(file) for file in files if formats.is_recording(file) and file.exists()]
        if not inside:
            raise BadData(f"{path}: no recording in this folder; {formats.FORMATS_READ}")
        recordings += inside
    return recordings


def _in_bids(root: Path) -> list[Recording | Problem]:
    listing = Listing("bids", root)
    for path in bids.recordings(root, SourceOptions()):
        bids.add(listing, path)
    missed = [_absent(file) for file in sorted(root.glob("sub-*/**/eeg/*_eeg.*")) if formats.is_missed(file)]
    return [*missed, *listing.problems, *(_named(recording, str(recording.path)) for recording in listing.recordings)]


def _absent(file: Path) -> Problem:
    return Problem(formats.ABSENT, file=plain(str(file)))


def _with_sidecars(path: Path) -> Recording:
    """A single file; if it lies in a BIDS folder, with the sidecars that training would have read."""
    alone = Recording(plain(path.stem), path, plain(str(path)))
    if path.parent.name != "eeg" or re.fullmatch(r"sub-[^_]+(_.+)?_eeg", path.stem) is None or not path.exists():
        return alone
    import mne_bids

    listing = Listing("bids", path.parent)
    try:
        bids.add(listing, mne_bids.get_bids_path_from_fname(path, check=False, verbose="ERROR"))
    except (ValueError, RuntimeError):  # named like BIDS, but not in such a folder
        return alone
    return _named(listing.recordings[0], str(path)) if listing.recordings else alone


def _named(recording: Recording, name: str) -> Recording:
    sidecars = recording.channels_tsv, recording.events_tsv, recording.eeg_json
    return Recording(recording.subject, recording.path, plain(name), *sidecars)


def read(
    recording: Recording,
    signal: Signal,
    settings: PrepareSettings,
    min_windows: int = MIN_WINDOWS,
    highest: float = 0.0,
) -> NewRecording:
    """Read one recording and cut it as the cohort's were.

    Parameters
    ----------
    recording
        From ``find``.
    signal
        What the model's windows are.
    settings
        From ``settings_for``.
    min_windows
        A recording with fewer is refused.
    highest
        The end of the highest band that the training recordings hold, in Hz: one that holds less is refused.

    Raises
    ------
    BadData
        One sentence that names the file and all that is wrong with it.
    """
    if not recording.path.exists():
        absent = formats.ABSENT if formats.is_absent(recording.path) else "no such file"
        raise BadData(f"{recording.name}: {absent}")
    scan = scan_recording(recording)
    if scan.error:
        raise BadData(f"{recording.name}: {scan.error}")
    keep = [channels.key(name) for name in signal.channels]
    report = _judge(recording, scan, settings)
    wrong = [*_unit(scan, keep), *_rate(scan, keep, settings, highest)] or [
        problem.what for problem in report.problems if problem.subject is not None
    ]
    if wrong:
        raise BadData(f"{recording.name}: {'; '.join(wrong)}")
    piece = _cut(report, recording)
    if len(piece.windows) < min_windows:
        dropped = piece.n_dropped_marked + piece.n_dropped_amplitude
        lost = f" ({dropped} were marked bad or too loud)" if dropped else ""
        raise BadData(
            f"{recording.name}: too short: {scan.seconds:.1f} s give {len(piece.windows)} windows of "
            f"{settings.window_seconds:g} s{lost}; at least {min_windows} are needed"
        )
    prefix = f"{recording.subject}, {recording.name}: "
    notes = [note.removeprefix(prefix) for note in report.notes]
    return NewRecording(
        recording.name, recording.path, piece.windows, piece.starts, scan.seconds, native_rate(scan, keep),
        scan.sha256, {"marked bad": piece.n_dropped_marked, "too loud": piece.n_dropped_amplitude},
        (*notes, *_stated_filters(recording.path, settings), *_of_libraries([*scan.warnings, *piece.warnings])),
        _stated_reference(recording.eeg_json) or scan.reference or None,
    )  # fmt: skip


def _judge(recording: Recording, scan: RecordingScan, settings: PrepareSettings) -> ValidationReport:
    """As a cohort of this one recording. What concerns no subject (there is but one class) is no matter here."""
    listing = Listing("new", recording.path.parent, [recording], {recording.subject: ""})
    return validate(listing, [scan], settings.model_copy(update={"allow_low_rate": True}))  # see ``_rate``


def _cut(report: ValidationReport, recording: Recording) -> Segments:
    try:
        return segment(report.plans[0])
    except BadData as error:
        raise BadData(f"{recording.name}: {'; '.join(p.what for p in error.problems)}") from error


def _unit(scan: RecordingScan, keep: Sequence[str]) -> list[str]:
    """Whether no electrode varies: one may be flat, all of them are a wrong unit."""
    spread = [scan.std[channel] for channel in keep if channel in scan.std]
    if len(spread) < 2 or max(spread) >= FLAT_UV:
        return []
    return [
        f"all its electrodes vary by less than {FLAT_UV} µV (median {np.median(spread):.2g} µV): the unit in the file "
        "is probably wrong (volts written as microvolts are a factor of 1e6)"
    ]


def _rate(scan: RecordingScan, keep: Sequence[str], settings: PrepareSettings, highest: float) -> list[str]:
    """Whether it cannot be filtered as asked for, or lacks a part of what training recordings hold."""
    rate = native_rate(scan, keep)
    edges = [edge for edge in (settings.low, settings.high, *settings.notch) if edge is not None]
    filtered = 0.0 if settings.allow_low_rate else max(edges, default=0.0)
    if filtered < rate / 2 and highest <= rate / 2:
        return []
    top = max(filtered, highest)
    band = f"{settings.low or 0:g} to {top:g} Hz"
    return [
        f"sampled at {rate:g} Hz it holds nothing above {rate / 2:g} Hz, and the model was trained on {band}: it needs "
        f"a recording of more than {2 * top:g} Hz"
    ]


def _of_libraries(warnings: Sequence[str]) -> list[str]:
    """What reading and filtering warned of, each once; but for what is of names and dates, not of the signal."""
    spoken = [
        text for text in dict.fromkeys(warnings) if re.search("MNE naming|patient|measurement date", text) is None
    ]
    return [f"a warning from reading or filtering: {text}" for text in spoken]


def _stated_reference(eeg_json: Path | None) -> str | None:
    stated = read_json(eeg_json).get("EEGReference")  # ``scan_recording`` has refused what is no JSON
    return plain(stated) if isinstance(stated, str) and stated.strip().lower() not in ("", "n/a") else None


def _stated_filters(path: Path, settings: PrepareSettings) -> list[str]:
    """A word if the file says that it was filtered more narrowly than the model's band."""
    if path.suffix.lower() not in HEADERS_WITH_FILTERS:
        return []
    with collected_warnings([]):  # ``scan_recording`` has them
        info = open_raw(path).info
    low, high, notes = float(info["highpass"] or 0), float(info["lowpass"]), []
    if settings.high is not None and high < BAND_SLACK * min(settings.high, info["sfreq"] / 2):
        notes.append(f"the file says that it was low-pass filtered at {high:g} Hz; the model's band ends at "
                     f"{settings.high:g} Hz")  # fmt: skip
    if low > (settings.low or 0) / BAND_SLACK and low > 0:
        notes.append(f"the file says that it was high-pass filtered at {low:g} Hz; the model's band begins at "
                     f"{settings.low or 0:g} Hz")  # fmt: skip
    return notes
