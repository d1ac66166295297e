"""A user's own cleaning: functions Raw -> Raw, called with one recording at a time before channels and filters.

A function sees the samples, channels, positions, bad channels and annotations of one recording, and no name, path,
date or label. Files are imported again for every recording and the generators of random numbers start from the same
state, so the result does not depend on other recordings or on the order of work. The cleaned recording is kept as a FIF
file until it is segmented, which lets an interrupted ``prepare`` resume; what was changed is kept in the cohort.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import random
import sys
import warnings
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bridgemil import user_code
from bridgemil.cohort import channels, tables
from bridgemil.cohort.caps import Cap
from bridgemil.cohort.scan import RecordingScan, collected_warnings, open_raw, scan_recording
from bridgemil.cohort.settings import CleaningStep
from bridgemil.cohort.sources import Recording
from bridgemil.errors import BadData, BadUse, BridgeMILWarning, Exclude, plain
from bridgemil.storage.artifact import digest
from bridgemil.storage.files import new_folder, remove, write_json

if TYPE_CHECKING:
    from mne.io import BaseRaw

FOLDER = ".cleaned"  # in a cohort's: cleaned recordings that are not segmented yet, and scans of all
SIGNAL = "recording_raw.fif"
RIGHT = (
    "a cleaning is `def clean(raw: mne.io.BaseRaw) -> mne.io.BaseRaw | None`: one recording in, the same cleaned out"
)
TYPES = {
    "REF": "eeg", "VEOG": "eog", "HEOG": "eog", "TRIG": "stim", "EEG": "eeg", "EOG": "eog", "ECG": "ecg", "EMG": "emg",
}  # fmt: skip
# What is known of the cleaned recording.
SCANNED = "sfreq n_times spellings ambiguous other bad std level bad_spans warnings cleaning excluded".split()
COUNTED = {
    "dropped_channels": "channels dropped",
    "added_channels": "channels added",
    "changed_channels": "channels rebuilt",
    "marked_bad": "channels marked bad",
}


@dataclass(frozen=True)
class Cleaner:
    """Functions to call in this order."""

    addresses: tuple[str, ...]  # where they are, with absolute paths
    steps: tuple[CleaningStep, ...]

    @classmethod
    def of(cls, given: str | Sequence[str]) -> Cleaner | None:
        """The functions at these addresses; refuses what cannot be called with one recording. None for none."""
        listed = [given] if isinstance(given, str) else list(given)
        if stored := [CleaningStep.model_validate(one) for one in listed if not isinstance(one, str)]:
            raise _unnamed(stored)  # the settings of a model or a cohort, which hold no code
        addresses = tuple(map(user_code.absolute, listed))
        return cls(addresses, tuple(map(_step, addresses))) if addresses else None

    @classmethod
    def again(cls, steps: Sequence[CleaningStep], given: str | Sequence[str]) -> Cleaner | None:
        """The functions that a model's recordings were cleaned by, named again; others are refused."""
        cleaner, named = cls.of(given), ", ".join(step.address for step in steps)
        if steps and cleaner is None:
            raise _unnamed(steps)
        if cleaner is None:
            return None
        if not steps:
            raise BadUse("--clean: the training recordings were not cleaned by a function; leave it out")
        if [step.code for step in cleaner.steps] != [step.code for step in steps]:
            raise BadData(
                f"--clean {', '.join(cleaner.addresses)}: is not the code the training recordings were cleaned by "
                f"({named}), or has changed since"
            )
        for own, stored in zip(cleaner.steps, steps, strict=True):
            other = [f"{name} {own.packages.get(name, 'absent')}, in training {version}"
                     for name, version in stored.packages.items() if own.packages.get(name) != version]  # fmt: skip
            if other:
                warnings.warn(f"{own.address} uses {'; '.join(other)}", BridgeMILWarning, stacklevel=3)
        return cleaner

    def key(self, scan: RecordingScan) -> str:
        """Identifies the cleaned recording: the file, its sidecars as far as they are used, and the functions."""
        import mne

        seen = [scan.sha256, scan.spellings, scan.other, sorted(scan.bad), scan.bad_spans]
        return digest([mne.__version__, [step.model_dump() for step in self.steps], seen])[:32]


def _unnamed(steps: Sequence[CleaningStep]) -> BadUse:
    return BadUse(
        f"the training recordings were cleaned by {', '.join(step.address for step in steps)}, and a model contains no "
        f"code: name it again with its path, {' '.join(f'--clean {step.address}' for step in steps)}"
    )


def _step(address: str) -> CleaningStep:
    """What the function at an address is; refuses what cannot be called with one recording."""
    if not user_code.is_address(address):
        raise BadUse(f"--clean {address}: expected path/to/file.py:NAME or package.module:NAME")
    function = user_code.load(address)
    signature = inspect.signature(function)
    try:
        signature.bind(object())
    except TypeError:
        raise BadUse(f"{address} takes {signature}; {RIGHT}") from None
    recorded = ("mne", "numpy", "scipy")  # the cohort's record holds their versions anyway
    packages = {name: v for name, v in user_code.packages(address).items() if name not in recorded}
    return CleaningStep(address=Path(address).name, code=user_code.fingerprint(address), packages=packages)


def clean(
    recording: Recording, cleaner: Cleaner, folder: Path, cap: Cap | None = None, *, with_signal: bool = False
) -> RecordingScan:
    """Scan a recording, clean it, and scan the result, whose signal is left in ``folder``.

    What an earlier call did is not done again; with ``with_signal`` it is where the signal has been removed since. The
    result is of the cleaned recording, which ``scan.recording`` names; file, hash, person and date are those of the
    original. ``excluded`` if a function left it out, ``error`` if it cannot be read or a function failed.
    """
    scan = scan_recording(recording, cap)
    if scan.error is not None:
        return scan
    place = folder / cleaner.key(scan)
    record = place.with_suffix(".json")
    cleaned = replace(recording, path=place / SIGNAL, channels_tsv=None, events_tsv=None, eeg_json=None)
    if not record.is_file() or (with_signal and not place.is_dir()):
        with new_folder(place.absolute()) as partial:
            found = _clean(scan, cleaner, cap, replace(cleaned, path=partial / SIGNAL))
        if found.excluded or found.error:
            remove(place)
        if found.error:  # not kept: what the function lacked may be there next time
            return found
        write_json(record, {name: getattr(found, name) for name in SCANNED})
    known = json.loads(record.read_text("utf-8"))
    known["bad_spans"] = [tuple(span) for span in known["bad_spans"]]
    found = replace(scan, recording=cleaned, **known)
    found.rates = {c: min(scan.rates.get(c, found.sfreq), found.sfreq) for c in found.spellings}
    found.fingerprint = {c: values for c, values in scan.fingerprint.items() if c in found.std}
    return found


def tidy(folder: Path, scans: Iterable[RecordingScan]) -> None:
    """Remove the signals, and the scans that are not used any more."""
    used = {scan.recording.path.parent.with_suffix(".json") for scan in scans}
    for path in set(folder.iterdir()) - used:
        remove(path)


def _clean(scan: RecordingScan, cleaner: Cleaner, cap: Cap | None, cleaned: Recording) -> RecordingScan:
    """Call the functions and write the result, whose scan is returned."""
    import mne
    from threadpoolctl import threadpool_limits

    notes, reports = list[str](), list[dict[str, Any]]()
    quiet = contextlib.redirect_stdout(sys.stderr)  # standard output is for results
    with collected_warnings(notes), mne.use_log_level("ERROR"), quiet, threadpool_limits(1):
        raw = alone(scan, cap)
        for address, step in zip(cleaner.addresses, cleaner.steps, strict=True):
            before = _state(raw)
            try:
                raw = _call(address, step, raw)
            except Exclude as reason:
                why = f": {plain(str(reason))}" if str(reason) else ""
                return replace(scan, excluded=f"excluded by {step.address}{why}", cleaning=[{"by": step.address}])
            except BadUse:
                raise
            except Exception as error:  # the user's code may fail in any way
                return replace(scan, error=f"{step.address} failed: {user_code.describe_error(error)}")
            reports.append({"by": step.address} | _changes(before, _state(raw)))
        raw.save(cleaned.path, verbose="ERROR")
    found = scan_recording(cleaned, cap)
    found.cleaning = reports
    found.warnings = list(dict.fromkeys([*scan.warnings, *notes, *found.warnings]))
    return found


def alone(scan: RecordingScan, cap: Cap | None = None) -> BaseRaw:
    """The recording as a cleaning gets it: samples and channels, without any name, date or path.

    Electrodes have their 10-10 names, of a cap that MNE knows the cap's; and template positions unless the file holds
    positions.
    """
    import mne

    recording = scan.recording
    original = open_raw(recording.path)
    info = mne.create_info(original.ch_names, original.info["sfreq"], original.get_channel_types())
    raw = mne.io.RawArray(original.get_data(), info)
    with info._unlock():
        info["highpass"], info["lowpass"] = original.info["highpass"], original.info["lowpass"]
    marks = original.annotations
    raw.set_annotations(mne.Annotations(marks.onset - original.first_time, marks.duration, marks.description))
    raw.set_montage(original.get_montage(), on_missing="ignore")
    for onset, duration, text in tables.marked_events(recording.events_tsv):
        raw.annotations.append(onset, 0.0 if tables.is_boundary(text) else duration, text)
    keys = {name: channel for channel, name in scan.spellings.items() if channel not in scan.ambiguous}
    types, _ = tables.sidecar_channels(recording.channels_tsv, keys)
    kinds = {name: kind for name in raw.ch_names if (kind := types.get(keys.get(name, channels.key(name))))}
    raw.set_channel_types({n: TYPES.get(kind, "misc") for n, kind in kinds.items()}, on_unit_change="ignore")
    raw.info["bads"] = [scan.spellings[c] for c, why in scan.bad.items() if why == "marked bad"]
    template = None if cap is None else cap.template()
    if template is None:
        names = {name: channels.spelling(name) or c for name, c in keys.items() if channels.electrode(c)}
        raw.rename_channels({name: usual for name, usual in names.items() if usual not in raw.ch_names})
    if original.get_montage() is None:
        raw.set_montage(template or channels.template(), match_case=False, on_missing="ignore")
    return raw


def _call(address: str, step: CleaningStep, raw: BaseRaw) -> BaseRaw:
    """One function's result, whatever was called before it."""
    import mne

    function = user_code.load(address, anew=True)
    if user_code.fingerprint(address) != step.code:
        raise BadUse(f"{address}: has changed since the command was started; run it again")
    with _random_state(0):
        found = function(raw)
    if found is None:
        raise Exclude("it returned None (a function that cleans must return the recording)")
    if not isinstance(found, mne.io.BaseRaw):
        raise BadUse(f"{address} returned {type(found).__name__}; {RIGHT}")
    return found


@contextlib.contextmanager
def _random_state(seed: int) -> Iterator[None]:
    """Start the generators of Python and numpy that users rely on, and put them back."""
    kept, numbers = random.getstate(), np.random.get_state()  # noqa: NPY002 (MNE and scikit-learn use it)
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    try:
        yield
    finally:
        random.setstate(kept)
        np.random.set_state(numbers)  # noqa: NPY002


def _state(raw: BaseRaw) -> dict[str, Any]:
    """What a function may change, to be compared."""
    marks = defaultdict[str, list[float]](list)
    for text, duration in zip(raw.annotations.description, raw.annotations.duration, strict=True):
        marks[plain(text)].append(float(duration))
    names, data = [plain(name) for name in raw.ch_names], raw.get_data()
    eeg = [row.var() for row, kind in zip(data, raw.get_channel_types(), strict=True) if kind == "eeg"]
    raw.info["description"], note = None, raw.info["description"]
    return {
        "sums": {name: (len(row), zlib.crc32(row)) for name, row in zip(names, data, strict=True)},
        "power": float(np.mean(eeg or [0.0])),
        "bad": set(map(plain, raw.info["bads"])),
        "seconds": raw.n_times / raw.info["sfreq"],
        "marks": marks,
        "note": plain(str(note)) if note else "",
    }


def _changes(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """What a function changed, as the cohort's record has it; what it left alone is not named.

    ``changed_channels`` has those whose samples differ, as of interpolated ones, unless all do.
    """
    old, new = before["sums"], after["sums"]
    both = [name for name in new if name in old]
    changed = [name for name in both if old[name] != new[name]]
    content = {
        "dropped_channels": [name for name in old if name not in new],
        "added_channels": [name for name in new if name not in old],
        "changed_channels": changed if len(changed) < len(both) else [],
        "marked_bad": sorted(after["bad"] - before["bad"]),
        "seconds_removed": round(before["seconds"] - after["seconds"], 3),
        "annotations": {
            text: {"n": n, "seconds": round(sum(marks) - sum(before["marks"][text]), 3)}
            for text, marks in after["marks"].items()
            if (n := len(marks) - len(before["marks"][text])) > 0
        },
        "note": after["note"],
    }
    change = after["power"] / before["power"] - 1 if before["power"] else 0.0
    return {"variance_change": round(change, 4)} | {name: value for name, value in content.items() if value}


def summarise(settings: Mapping[str, Any], files: Sequence[Mapping[str, Any]]) -> list[str]:
    """What each function changed in all recordings together, one sentence per function, from a cohort's record."""
    lines = []
    for number, step in enumerate(settings.get("clean") or ()):
        own = [file["cleaning"][number] for file in files if file.get("cleaning")]
        parts = [f"{len(own)} recordings"]
        for name, what in COUNTED.items():
            if counts := [len(change[name]) for change in own if name in change]:
                parts.append(f"{sum(counts)} {what} in {len(counts)}")
        if seconds := [change["seconds_removed"] for change in own if "seconds_removed" in change]:
            parts.append(f"{sum(seconds):.0f} s removed from {len(seconds)}")
        marks = defaultdict[str, list[dict[str, Any]]](list)
        for change in own:
            for text, mark in change.get("annotations", {}).items():
                marks[text].append(mark)
        for text, each in sorted(marks.items()):
            n, total = sum(mark["n"] for mark in each), sum(mark["seconds"] for mark in each)
            parts.append(f"{n} {text} ({total:.0f} s) in {len(each)}")
        ratio = np.median([change["variance_change"] for change in own]) if own else 0.0
        parts.append(f"median change of the variance {ratio:+.0%}")
        lines.append(f"{CleaningStep(**step).title}: {', '.join(parts)}")
    return lines
