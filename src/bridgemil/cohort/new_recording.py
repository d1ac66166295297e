"""One new recording, scanned, validated and segmented by the code and settings of the model's training cohort.

What a cohort would refuse is refused here too, in one sentence: a missing electrode, a sampling rate too low for the
band, an implausible unit, too few windows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bridgemil.cohort import channels, formats
from bridgemil.cohort.cleaning import Cleaner, clean
from bridgemil.cohort.scan import FLAT_UV, RecordingScan, collected_warnings, open_raw, scan_recording
from bridgemil.cohort.segment import segment
from bridgemil.cohort.settings import PrepareSettings
from bridgemil.cohort.signal import Signal
from bridgemil.cohort.sources import Listing, Recording, bids
from bridgemil.cohort.tables import natural_key
from bridgemil.cohort.validate import validate
from bridgemil.errors import BadData, BadUse, Problem, plain
from bridgemil.settings import parse

MIN_WINDOWS = 10  # unless a training recording had fewer
BAND_SLACK = 0.9  # a stated filter edge this much inside the band is not noted
HEADERS_WITH_FILTERS = (".edf", ".bdf", ".vhdr", ".fif")  # formats that state theirs, and are opened without reading


@dataclass(frozen=True)
class NewRecording:
    """A recording as windows of the model's signal."""

    name: str  # as the user named it
    path: Path
    windows: NDArray[np.float32]  # n_windows x n_channels x n_times, microvolt
    starts: NDArray[np.float64]  # n_windows: seconds from the recording's start
    seconds: float  # length of the recording
    native_sfreq: float  # rate it was sampled at, in Hz
    sha256: str  # of the file (or files)
    dropped: Mapping[str, int]  # windows left out, by reason
    notes: tuple[str, ...] = ()  # what a reader of the prediction should know
    stated_reference: str | None = None  # by the user, a BIDS sidecar or the channels' names


def settings_for(
    signal: Signal,
    preparation: Mapping[str, Any],
    bad_channels: str | None = None,
    recorded_reference: str | None = None,
    montage: str | None = None,
) -> PrepareSettings:
    """The settings for a new recording: those of the training cohort (``preparation``), with its channels by name.

    ``bad_channels`` (stop or interpolate) and ``montage`` (a cap) replace the cohort's; ``recorded_reference`` is the
    electrode that the new recording was made against, since the cohort's own does not count for it.
    """
    if not preparation:
        raise BadUse("the model was trained on arrays, not on recordings: give it windows in Python, not a recording")
    if bad_channels not in (None, "stop", "interpolate"):
        raise BadUse(f"bad_channels must be stop or interpolate, got {bad_channels!r}")
    changes: dict[str, Any] = {"channels": signal.channels, "recorded_reference": recorded_reference}
    changes |= {name: value for name, value in (("bad_channels", bad_channels), ("montage", montage)) if value}
    return parse(PrepareSettings, {**preparation, **changes})


def find(paths: Sequence[str | Path]) -> list[Recording | Problem]:
    """The recordings that files and folders (BIDS, or any other) hold, with their BIDS sidecars.

    A problem stands for each that cannot be opened.
    """
    recordings: list[Recording | Problem] = []
    for path in map(Path, paths):
        if not path.is_dir() or formats.is_recording(path):
            recordings.append(_with_sidecars(path))
            continue
        bids_files = [*path.glob("sub-*/eeg/*_eeg.*"), *path.glob("sub-*/ses-*/eeg/*_eeg.*")]
        inside: list[Recording | Problem] = []
        for file in sorted(bids_files or path.rglob("*"), key=lambda file: natural_key(str(file))):
            if formats.is_missed(file):
                inside.append(Problem(formats.ABSENT, file=plain(str(file))))
            elif formats.is_recording(file):
                inside.append(_with_sidecars(file))
        if not inside:
            raise BadData(f"{path}: no recording in this folder; {formats.FORMATS_READ}")
        recordings += inside
    return recordings


def _with_sidecars(path: Path) -> Recording | Problem:
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
    return replace(listing.recordings[0], name=plain(str(path))) if listing.recordings else listing.problems[0]


def read(
    recording: Recording,
    settings: PrepareSettings,
    min_windows: int = MIN_WINDOWS,
    highest: float = 0.0,
    cleaner: Cleaner | None = None,
) -> NewRecording:
    """Read one recording (from ``find``), clean it where the cohort's were, and segment it as the cohort's were.

    ``settings`` are from ``settings_for``, ``cleaner`` from ``Cleaner.again``. A recording with fewer windows than
    ``min_windows`` is refused, and one that does not hold ``highest``, the upper edge in Hz of the highest band that
    the training recordings hold. ``BadData`` names the file and all that is wrong with it in one sentence.
    """
    name, cap, keep = recording.name, settings.montage, [channels.key(channel) for channel in settings.channels or ()]
    if why := formats.missing(recording.path):
        raise BadData(f"{name}: {why}")
    cleaner = cleaner or Cleaner.again(settings.clean, ())  # refuses to leave out the cohort's cleaning
    with TemporaryDirectory() as folder:
        scan = scan_recording(recording, cap) if cleaner is None else clean(recording, cleaner, Path(folder), cap)
        if scan.error or scan.excluded:
            raise BadData(f"{name}: {scan.error or scan.excluded}")
        # As a cohort of this one recording. Its rate is checked by ``_rate``; what concerns no subject does not matter.
        listing = Listing("new", recording.path.parent, [scan.recording], {recording.subject: ""})
        _, plans = validate(listing, [scan], settings.model_copy(update={"allow_low_rate": True}))
        wrong = [*_unit(scan, keep), *_rate(scan, keep, settings, highest)]
        wrong = wrong or [problem.what for problem in listing.problems if problem.subject is not None]
        if wrong:
            raise BadData(f"{name}: {'; '.join(wrong)}")
        try:
            found = segment(plans[0])
        except BadData as error:
            raise BadData(f"{name}: {'; '.join(problem.what for problem in error.problems)}") from error
    dropped = {"marked bad": found.counts["dropped_marked_bad"], "too loud": found.counts["dropped_amplitude"]}
    if len(found.windows) < min_windows:
        lost = f" ({sum(dropped.values())} were marked bad or too loud)" if any(dropped.values()) else ""
        raise BadData(
            f"{name}: too short: {scan.seconds:.1f} s give {len(found.windows)} windows of "
            f"{settings.window_seconds:g} s{lost}; at least {min_windows} are needed"
        )
    prefix = f"{recording.subject}, {name}: "
    notes = [note.removeprefix(prefix) for note in listing.notes] + _stated_filters(recording.path, settings)
    for text in dict.fromkeys([*scan.warnings, *found.warnings]):  # names and dates do not concern the signal
        if re.search("MNE naming|patient|measurement date", text) is None:
            notes.append(f"a warning from reading or filtering: {text}")
    return NewRecording(
        name=name,
        path=recording.path,
        windows=found.windows,
        starts=found.starts,
        seconds=scan.seconds,
        native_sfreq=scan.native_rate(keep),
        sha256=scan.sha256,
        dropped=dropped,
        notes=tuple(notes),
        stated_reference=settings.recorded_reference or scan.stated_reference or scan.reference or None,
    )


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
    rate = scan.native_rate(keep)
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


def _stated_filters(path: Path, settings: PrepareSettings) -> list[str]:
    """A note if the file states that it was filtered to less than the model's band."""
    if path.suffix.lower() not in HEADERS_WITH_FILTERS:
        return []
    with collected_warnings([]):  # ``scan_recording`` has them
        info = open_raw(path).info
    low, high, notes = float(info["highpass"] or 0), float(info["lowpass"]), []
    said = "the file says that it was {}-pass filtered at {:g} Hz; the model's band {} at {:g} Hz"
    if settings.high is not None and high < BAND_SLACK * min(settings.high, info["sfreq"] / 2):
        notes.append(said.format("low", high, "ends", settings.high))
    if low > (settings.low or 0) / BAND_SLACK:
        notes.append(said.format("high", low, "begins", settings.low or 0))
    return notes
