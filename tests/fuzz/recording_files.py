"""Mutated recordings of every common format, through ``prepare`` and through what ``predict`` reads with."""

from __future__ import annotations

import re
from pathlib import Path

import mne

from bridgemil.cohort.new_recording import find, read
from bridgemil.cohort.settings import PrepareSettings
from fuzz.kind import SECRET, Said, digest, prepared
from fuzz.mutations import (
    MEANING,
    NUMBERS,
    SAMPLES,
    STRUCTURE,
    WORDS,
    Change,
    Random,
    choose,
    cut,
    encoded,
    flipped,
    hole,
    lengthened,
    overwritten,
    replaced_by_no_file,
)
from recordings import MONTAGE, noise, write_edf

SECONDS, SFREQ = 12, 250
# What a field of EDF decides; the others must be noticed, or must not matter.
EDF_FIELDS = (("label", 16, MEANING), ("transducer", 80, STRUCTURE), ("unit", 8, MEANING), ("pmin", 8, MEANING),
              ("pmax", 8, MEANING), ("dmin", 8, MEANING), ("dmax", 8, MEANING), ("prefilter", 80, STRUCTURE),
              ("samples", 8, STRUCTURE), ("reserved", 32, STRUCTURE))  # fmt: skip
EDF_MAIN = (("version", 0, 8), ("patient", 8, 80), ("recording", 88, 80), ("date", 168, 8), ("time", 176, 8),
            ("header bytes", 184, 8), ("reserved", 192, 44), ("records", 236, 8), ("duration", 244, 8),
            ("signals", 252, 4))  # fmt: skip


class Recordings:
    """A recording of one format with another, whole one beside it, in a manifest."""

    ending = ".edf"
    files = (".edf",)

    def __init__(self, ending: str, files: tuple[str, ...]) -> None:
        self.name, self.ending, self.files = ending[1:], ending, files

    def build(self, folder: Path) -> None:
        """Two people."""
        data = noise(1, SECONDS, SFREQ)
        path = folder / f"x{self.ending}"
        if self.ending in (".edf", ".bdf"):
            write_edf(path, data, SFREQ, MONTAGE)
            content = bytearray(path.read_bytes())
            content[8:88] = f"X F 02-MAY-1951 {SECRET}".encode().ljust(80)
            path.write_bytes(content)
        else:
            info = mne.create_info(list(MONTAGE), SFREQ, "eeg")
            info["subject_info"] = {"last_name": SECRET}
            raw = mne.io.RawArray(data * 1e-6, info, verbose="ERROR")
            if self.ending == ".fif":
                raw.save(path, verbose="ERROR")
            else:
                mne.export.export_raw(path, raw, verbose="ERROR")
        write_edf(folder / "y.edf", noise(2, SECONDS, SFREQ), SFREQ, MONTAGE)
        (folder / "m.csv").write_text(f"subject,label,file\na,A,{path.name}\nb,B,y.edf\n")

    def damage(self, folder: Path, rng: Random) -> Change:
        """A file cut, lengthened, with a bit turned, or with another value in its header."""
        file = folder / f"x{choose(rng, self.files)}"
        if rng.random() < 0.06:
            return replaced_by_no_file(rng, file)
        content = file.read_bytes()
        if file.suffix in (".edf", ".bdf") and rng.random() < 0.6:
            changed, change = edf_header(rng, content)
        elif file.suffix in (".vhdr", ".vmrk") and rng.random() < 0.7:
            changed, change = brainvision_header(rng, content, file.suffix)
        else:
            changed, change = self._bytes(rng, content, file)
        file.write_bytes(changed)
        return Change(f"{file.name}: {change.what}", change.region)

    def _bytes(self, rng: Random, content: bytes, file: Path) -> tuple[bytes, Change]:
        kind = int(rng.integers(5))
        if kind < 3:
            changed, what = (cut, lengthened, hole)[kind](rng, content)
            whole_samples = file.suffix == ".eeg" or (file.suffix in (".vmrk", ".vhdr"))
            return changed, Change(what, MEANING if whole_samples else STRUCTURE)
        start = self._samples_start(content, file)
        where = (0, start) if start == len(content) or (start and rng.random() < 0.7) else (start, len(content))
        changed, place = (flipped if kind == 3 else overwritten)(rng, content, *where)
        return changed, Change(f"bytes changed at {place}", SAMPLES if place >= start else MEANING)

    def _samples_start(self, content: bytes, file: Path) -> int:
        """Where the samples begin, as far as the format has such a place."""
        if file.suffix in (".edf", ".bdf"):
            return 256 * (int(content[252:256]) + 1)
        if file.suffix in (".vhdr", ".vmrk"):
            return len(content)
        return 0 if file.suffix == ".eeg" else min(4000, len(content))

    def run(self, folder: Path, out: Path, number: int) -> Said:
        """By turns as ``prepare`` and as ``predict`` read it."""
        if number % 3:
            return prepared(folder / "m.csv", out)
        chosen = PrepareSettings(channels=MONTAGE)
        new = read(find([folder / f"x{self.ending}"])[0], chosen)
        return Said(digest(new.windows), [str(note) for note in new.notes])


def edf_header(rng: Random, content: bytes) -> tuple[bytes, Change]:
    """Another value in a field of an EDF or BDF header."""
    n, changed = int(content[252:256]), bytearray(content)
    if rng.random() < 0.45:
        name, start, width = choose(rng, EDF_MAIN)
        region = MEANING if name == "duration" else STRUCTURE
    else:
        place, start = int(rng.integers(len(EDF_FIELDS))), 256
        for _, width_before, _ in EDF_FIELDS[:place]:
            start += width_before * n
        name, width, region = EDF_FIELDS[place]
        start += width * int(rng.integers(n))
    value = encoded(choose(rng, (*NUMBERS, *WORDS, SECRET, str(int(rng.integers(-300, 300))), "249", "251", "500")))
    if name == "label" and value == encoded(SECRET):
        value = b"EYE"  # the names of channels are no secret: those left out are listed
    changed[start : start + width] = value[:width].ljust(width)
    return bytes(changed), Change(f"{name} is {value[:width]!r}", region)


def brainvision_header(rng: Random, content: bytes, ending: str) -> tuple[bytes, Change]:
    """Another value in a line of a BrainVision header."""
    lines = content.decode("utf-8").splitlines()
    fields = [i for i, line in enumerate(lines) if re.match(r"\w+=", line)]
    line = choose(rng, fields)
    key, _, value = lines[line].partition("=")
    parts = value.split(",")
    parts[int(rng.integers(len(parts)))] = choose(rng, (*NUMBERS, *WORDS, SECRET, "y.edf", "7", "5", "VECTORIZED"))
    lines[line] = f"{key}={','.join(parts)}"
    counted = key in ("NumberOfChannels", "DataPoints")
    region = STRUCTURE if counted and ending == ".vhdr" else MEANING
    return encoded("\n".join(lines) + "\n"), Change(f"{lines[line][:60]!r}", region)


RECORDINGS: tuple[Recordings, ...] = (
    Recordings(".edf", (".edf",)), Recordings(".bdf", (".bdf",)), Recordings(".set", (".set",)),
    Recordings(".fif", (".fif",)), Recordings(".vhdr", (".vhdr", ".vhdr", ".vmrk", ".eeg")),
)  # fmt: skip
