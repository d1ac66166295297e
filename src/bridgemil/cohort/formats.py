"""The file formats of recordings, and what a file's header states, checked against the file before a reader uses it.

Nothing here repeats a header's text: a field for a number may hold a name.
"""

from __future__ import annotations

import glob
import math
import os
import re
import struct
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bridgemil.errors import plain

# MNE reads a few more (its readers are tried on any file that is named); these are the ones looked for in folders.
FORMATS = {
    ".edf": "EDF", ".bdf": "BDF", ".gdf": "GDF", ".vhdr": "BrainVision", ".set": "EEGLAB", ".fif": "FIF", ".mff": "EGI",
    ".cnt": "Neuroscan or ANT", ".cdt": "Curry", ".lay": "Persyst", ".nedf": "Neuroelectrics", ".nxe": "eXimia",
    ".eeg": "Nihon Kohden",
}  # fmt: skip
FORMATS_READ = "formats that are read: " + ", ".join(f"{name} ({ending})" for ending, name in FORMATS.items())
ABSENT = "its content is not here (a broken link; `datalad get` or `git annex get` fetches it)"
IRREGULAR = "is no regular file but a pipe, a device or a socket"
EDF, BRAINVISION, EEGLAB = (".edf", ".bdf"), (".vhdr", ".ahdr"), (".set",)
ANNOTATIONS = ("EDF Annotations", "BDF Annotations")
MOST_HZ = 1e6  # no recorder is faster
# Fields of one signal and their bytes; they stand one after the other, each for all signals.
_FIELDS = {"label": 16, "transducer": 80, "unit": 8, "physical minimum": 8, "physical maximum": 8, "digital minimum": 8,
           "digital maximum": 8, "prefilter": 80, "samples per record": 8}  # fmt: skip


class Unusable(Exception):
    """Why a recording or one of its side files cannot be used; the message repeats nothing of a header."""


def finite(value: Any) -> float | None:
    """A value of a header or a side file as a number; None if it is none."""
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def is_recording(path: Path) -> bool:
    """Whether an existing file (or folder, .mff) is by its name a recording; hidden files and samples are not."""
    return _is_named_so(path) and (path.is_dir() if path.suffix.lower() == ".mff" else path.is_file())


def is_missed(path: Path) -> bool:
    """Whether a file is by its name a recording, and its content was not fetched."""
    return _is_named_so(path) and is_absent(path)


def _is_named_so(path: Path) -> bool:
    headers = (path.with_suffix(ending) for ending in (".vhdr", ".VHDR"))
    is_samples = path.suffix.lower() == ".eeg" and any(map(os.path.lexists, headers))
    return path.suffix.lower() in FORMATS and not is_samples and not path.name.startswith(".")


def is_absent(path: Path) -> bool:
    """Whether a file is a link to content that is not there, as git-annex leaves them."""
    return os.path.lexists(path) and not os.path.exists(path)  # noqa: PTH110 (which raises no error)


def is_irregular(path: Path) -> bool:
    """Whether something is there that is neither a file nor a folder; links are followed."""
    return os.path.exists(path) and not (path.is_file() or path.is_dir())  # noqa: PTH110


def missing(path: Path) -> str:
    """Why a recording that is named cannot be opened: it is not there, or its content was not fetched; '' if it can."""
    return ABSENT if is_absent(path) else "" if os.path.lexists(path) else "no such file"


def refuse_irregular(path: Path) -> None:
    """Refuse a pipe, a device or a socket in the place of any file of the recording: opening it may never return."""
    beside = path.parent.glob(f"{glob.escape(path.stem)}[.-]*")
    for file in (path, *beside, *(path.rglob("*") if path.is_dir() else ())):
        if is_irregular(file):
            raise Unusable(("" if file == path else f"{file.name}, which belongs to it, ") + IRREGULAR)
    header = path.read_bytes() if path.suffix.lower() in BRAINVISION and path.is_file() else b""
    for match in re.finditer(rb"^\s*(?:Data|Marker)File\s*=\s*([^\r\n]+)", header, re.M | re.I):
        if is_irregular(path.parent / match[1].decode("utf-8", "replace").strip().replace("$b", path.stem)):
            raise Unusable(f"a file that its header names {IRREGULAR}")


def patient(path: Path) -> str:
    """Whom the header of an EDF or BDF file names."""
    with path.open("rb") as stream:
        return stream.read(88)[8:].decode("latin-1")


class EdfSignal(NamedTuple):
    """One signal of an EDF or BDF file: its rate in Hz, and why its values cannot be trusted, if so."""

    rate: float
    bad: str | None


def read_edf(path: Path) -> list[EdfSignal]:
    """The signals of an EDF or BDF file but for annotations; ``Unusable`` if header and size contradict each other.

    MNE would guess then, and return another signal. It would close gaps too, which are refused.
    """
    bdf = path.suffix.lower() == ".bdf"
    size = path.stat().st_size
    with path.open("rb") as stream:
        main = stream.read(256)
        if main[:8] != (b"\xffBIOSEMI" if bdf else b"0       "):
            raise Unusable(f"unreadable: it does not begin as a {'BDF' if bdf else 'EDF'} file does")
        n = _whole(main[252:256], "number of signals")
        if not (n >= 1 and size >= 256 * (n + 1) == _whole(main[184:192], "header's length")):
            raise Unusable("unreadable: the header's length contradicts its number of signals, or the file's size")
        fields = {name: [stream.read(width) for _ in range(n)] for name, width in _FIELDS.items()}
    seconds = _number(main[244:252], "duration of a record")
    if seconds <= 0:
        raise Unusable("unreadable: its header says that a record lasts 0 s (or less), so its rate is not known")
    samples = [_whole(text, "samples per record") for text in fields["samples per record"]]
    if min(samples) < 1 or max(samples) / seconds > MOST_HZ:
        raise Unusable("unreadable: its header says a number of samples per record that cannot be")
    width = 3 if bdf else 2
    n_records = _whole(main[236:244], "number of records")
    n_bytes, record_bytes = size - 256 * (n + 1), width * sum(samples)
    stated = f"its header says {n_records} records of {record_bytes} bytes, it has {n_bytes} bytes of samples"
    if n_records < 0 or n_bytes < n_records * record_bytes:
        raise Unusable(f"truncated: {stated}")
    if n_bytes > n_records * record_bytes:
        raise Unusable(f"its size contradicts its header: {stated}; export it again")
    labels = [text.strip().decode("latin-1") for text in fields["label"]]
    if main[192:197] in (b"EDF+D", b"BDF+D"):
        onsets = _record_onsets(path, n_records, [width * count for count in samples], labels)
        slack = seconds / max(samples) / 2
        if len(onsets) < n_records or any(abs(at - onsets[0] - i * seconds) > slack for i, at in enumerate(onsets)):
            raise Unusable(
                "discontinuous (EDF+D): it has gaps that the reader closes, or does not say where its records begin; "
                "export it without gaps, or in pieces"
            )
    bad = [_bad_scale(fields, i, 8 * width) for i in range(n)]
    return [EdfSignal(samples[i] / seconds, bad[i]) for i in range(n) if labels[i] not in ANNOTATIONS]


def _record_onsets(path: Path, n_records: int, widths: list[int], labels: list[str]) -> list[float]:
    """Where the records of an EDF+D file begin, in seconds; fewer if one does not say. ``widths`` are in bytes."""
    at = next((i for i, label in enumerate(labels) if label in ANNOTATIONS), None)
    if at is None or not n_records:
        return []
    records = np.memmap(path, np.uint8, "r", 256 * (len(labels) + 1), (n_records, sum(widths)))
    texts = records[:, sum(widths[:at]) : sum(widths[: at + 1])]
    stated = [re.match(rb"([+-]\d+(?:\.\d*)?)\x14\x14", text.tobytes()) for text in texts]
    return [float(one[1]) for one in stated if one]


def _bad_scale(fields: dict[str, list[bytes]], i: int, bits: int) -> str | None:
    """Why a signal's samples cannot be turned into microvolts."""
    try:
        ends = ("physical minimum", "physical maximum", "digital minimum", "digital maximum")
        low, high, least, most = (_number(fields[end][i], end) for end in ends)
    except Unusable:
        return "has a range in the header that is no number"
    if least >= most:
        return "has a digital minimum in the header that is not below its maximum"
    if low == high:
        return "has a physical minimum in the header that equals its maximum"
    if max(-least, most) > 2 ** (bits - 1):
        return f"has a digital range in the header that {bits} bits cannot hold"
    return None


def _whole(text: bytes, what: str) -> int:
    match = re.fullmatch(rb"\s*([+-]?\d+)\s*", text.partition(b"\0")[0])
    if match is None:
        raise Unusable(f"unreadable: its header has no whole number for the {what}")
    return int(match[1])


def _number(text: bytes, what: str) -> float:
    value = None if b"_" in text else finite(text.partition(b"\0")[0].replace(b",", b"."))
    if value is None:
        raise Unusable(f"unreadable: its header has no number for the {what}")
    return value


def check_fif(path: Path) -> None:
    """Follow the tags of a FIF file to its end, or raise ``Unusable``; MNE would use what comes before the damage."""
    size, place, seen = path.stat().st_size, 0, -1
    with path.open("rb") as stream:
        while place != size:
            sound = seen < place <= size - 16  # backwards would be a circle
            stream.seek(place if sound else 0)
            _, _, length, following = struct.unpack(">iiii", stream.read(16).ljust(16))
            end = place + 16 + length
            if not sound or not 0 <= length <= size - place - 16 or (following < 0 and end != size):
                raise Unusable("unreadable: it is truncated or damaged, its parts do not follow each other to its end")
            seen, place = place, following if following > 0 else end


def check_fdt(data: Path, n_times: int, n_channels: int) -> None:
    """Refuse an EEGLAB data file (.fdt) of another size than its .set states."""
    size, expected = data.stat().st_size if data.is_file() else 0, 4 * n_times * n_channels
    if data.suffix.lower() == ".fdt" and data.is_file() and size != expected:
        what = "truncated" if size < expected else "its size contradicts its header"
        stated = f"its .set says {n_channels} channels of {n_times} samples of 4 bytes"
        raise Unusable(f"{what}: {stated}, its .fdt has {size} bytes")


def trouble(path: Path, error: Exception) -> str:
    """Why a reader failed on a file, without the reader's own words, which may repeat the header's text."""
    ending = path.suffix.lower()
    reader = FORMATS.get(ending)
    if reader is None:
        return f"unreadable: {plain(path.suffix) or 'no ending'} is no known format; {FORMATS_READ}"
    if isinstance(error, TypeError) and ending in EEGLAB and "number of trials" in str(error):
        return "it holds epochs, not a continuous recording; save it as continuous data (or see Cohort.from_arrays)"
    if ending in EEGLAB and not isinstance(error, OSError):  # else it cannot be opened here either
        with path.open("rb") as stream:
            if stream.read(10) == b"MATLAB 7.3":
                return "it was saved as MATLAB v7.3, which is not read; save it as v7 or earlier"
    if needed := re.search(r"^ *pip install ([\w-]+)$", str(error), re.MULTILINE):  # as MNE words it
        return f"the reader of {reader} needs another package: pip install {needed[1]}"
    return f"unreadable: the reader of {reader} gave up ({type(error).__name__}): damaged, or not {reader}"


def check_brainvision(path: Path, data: Path, n_times: int, sample_bytes: int) -> None:
    """Refuse a BrainVision recording that must have been longer than the reader's ``n_times``."""
    if data.is_file() and data.stat().st_size % sample_bytes != 0:
        raise Unusable("truncated: its data file ends in the middle of a sample")
    stated = re.search(rb"^\s*DataPoints\s*=\s*(\d{1,18})\s*$", path.read_bytes(), re.MULTILINE | re.IGNORECASE)
    if stated and n_times < int(stated[1]):
        raise Unusable(f"truncated: its header says {int(stated[1])} samples, its data file has {n_times}")
