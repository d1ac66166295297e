"""A cohort: windows of every subject, memory-mapped, with what is needed to normalise, split and trace them.

On disk it is a folder:

    cohort.json          channels, rate, classes, settings, versions, source files, what was left out
    subjects.parquet     a row a subject: label, windows per recording, sums for normalisation, hash of the signal
    subjects/<id>/       windows.npy (float32, windows x channels x time, microvolt), starts.npy, record.json

A subject's folder appears in one rename, so an interrupted ``prepare`` never leaves half a subject. Opening a cohort
reads the first two files only.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bridgemil.cohort.writing import SUBJECTS, subject_folder, write_cohort, write_subject
from bridgemil.errors import BadData, BadUse

if TYPE_CHECKING:
    import pandas as pd

FORMAT = 1


@dataclass(frozen=True)
class SubjectRecord:
    """What is known of one subject without reading its signal."""

    subject: str
    label: str
    recordings: tuple[str, ...]  # names of the files, in the order of their windows
    recording_windows: tuple[int, ...]  # windows from each recording; the bag runs on across them
    sums: tuple[float, ...]  # per channel, over all windows and time
    centred_squares: tuple[float, ...]  # per channel: sum of (x - own mean)^2
    signal_hash: str

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> SubjectRecord:
        """A record from a row of subjects.parquet or a record.json."""
        values: dict[str, Any] = {}
        for key in cls.__dataclass_fields__:
            values[key] = tuple(row[key]) if isinstance(row[key], list) else row[key]
        return cls(**values)

    @property
    def n_windows(self) -> int:
        """Windows in the bag."""
        return sum(self.recording_windows)


def describe(
    subject: str, label: str, windows: NDArray[np.float32], recordings: Sequence[str], recording_windows: Sequence[int]
) -> SubjectRecord:
    """Compute a subject's record from its windows (n x channels x time)."""
    n, n_channels, n_times = windows.shape
    sums, squares = np.zeros(n_channels), np.zeros(n_channels)
    for channel in range(n_channels):
        values = windows[:, channel].astype(np.float64)
        sums[channel] = values.sum()
        squares[channel] = np.square(values - sums[channel] / max(n * n_times, 1)).sum()
    digest = hashlib.sha256(f"{windows.shape}".encode())
    digest.update(np.ascontiguousarray(windows).data)
    return SubjectRecord(
        subject, label, tuple(recordings), tuple(map(int, recording_windows)), tuple(sums.tolist()),
        tuple(squares.tolist()), digest.hexdigest(),
    )  # fmt: skip


class Cohort:
    """Prepared data of many subjects; make one with ``open``, ``from_arrays`` or ``bridgemil.prepare``."""

    def __init__(
        self,
        records: Sequence[SubjectRecord],
        about: Mapping[str, Any],
        columns: Mapping[str, Mapping[str, Any]],
        path: Path | None = None,
        arrays: Mapping[str, NDArray[np.float32]] | None = None,
    ) -> None:
        self.records = {record.subject: record for record in records}
        self.about: dict[str, Any] = dict(about)
        self.path = path
        self._columns = {subject: dict(values) for subject, values in columns.items()}
        self._arrays = arrays

    @classmethod
    def open(cls, path: str | Path) -> Cohort:
        """Open a prepared cohort; no signal is read until it is asked for."""
        import pyarrow.parquet as pq

        path = Path(path)
        about_file, table_file = path / "cohort.json", path / "subjects.parquet"
        if not about_file.is_file() or not table_file.is_file():
            unfinished = (path / SUBJECTS).is_dir()
            advice = "its preparation was not finished: run the same `bridgemil prepare` again" if unfinished else (
                "make one with `bridgemil prepare SOURCE OUT`"
            )  # fmt: skip
            raise BadData(f"{path}: no cohort there; {advice}")
        try:
            about = json.loads(about_file.read_text(encoding="utf-8"))
        except ValueError as error:
            raise BadData(f"{about_file}: is damaged ({error}); prepare the cohort again") from None
        if about.get("format") != FORMAT:
            raise BadData(f"{path}: cohort format {about.get('format')}, this version reads {FORMAT}; prepare it again")
        own = SubjectRecord.__dataclass_fields__
        records, columns = [], {}
        for row in pq.read_table(table_file).to_pylist():
            records.append(SubjectRecord.from_row(row))
            columns[row["subject"]] = {key: value for key, value in row.items() if key not in own}
        return cls(records, about, columns, path)

    @classmethod
    def from_arrays(
        cls,
        bags: Sequence[Any],
        labels: Sequence[Any],
        subjects: Sequence[str] | None = None,
        sfreq: float | None = None,
        channels: Sequence[str] | None = None,
        *,
        folds: int | None = None,
        burn_in: int = 10,
    ) -> Cohort:
        """Make a cohort in memory.

        Parameters
        ----------
        bags
            One entry a subject: an array (n_windows, n_channels, n_times) in microvolts, a list of such arrays (its
            recordings, in order), or ``mne.Epochs`` (converted to microvolts; rate and channels are taken from it).
        labels
            One diagnosis a subject.
        subjects
            One id a subject; ``subject-001`` and so on if left out.
        sfreq, channels
            Sampling rate and channel names; needed unless the bags are Epochs.
        folds, burn_in
            Defaults for ``evaluate``, as ``prepare`` writes them.
        """
        names = [f"subject-{i + 1:03d}" for i in range(len(bags))] if subjects is None else [str(s) for s in subjects]
        if not len(bags) == len(labels) == len(names) or not names:
            raise BadUse(f"{len(bags)} bags, {len(labels)} labels and {len(names)} subjects: one of each per subject")
        missing = [
            name for name, label in zip(names, labels, strict=True) if label is None or str(label) in ("", "nan")
        ]
        if missing:
            raise BadUse(f"no label for {', '.join(missing)}")
        if len(set(names)) < len(names):
            raise BadUse("a subject is named twice; give a person's recordings as a list of arrays in one bag")
        arrays, records = {}, []
        for name, label, bag in zip(names, labels, bags, strict=True):
            pieces, rate, electrodes = _pieces(name, bag)
            sfreq = rate if sfreq is None else sfreq
            channels = electrodes if channels is None else [str(channel) for channel in channels]
            if rate not in (None, sfreq) or electrodes not in (None, channels):
                raise BadUse(f"{name}: its rate or channels differ from those of the first subject or of the arguments")
            whole = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
            arrays[name] = whole
            files = [f"array {i + 1}" for i in range(len(pieces))]
            records.append(describe(name, str(label), whole, files, [len(piece) for piece in pieces]))
        seen: dict[str, str] = {}
        for record in records:
            twin = seen.setdefault(record.signal_hash, record.subject)
            if twin != record.subject:
                raise BadData(f"{record.subject} and {twin} have the same windows: one person cannot be two subjects")
        if sfreq is None or channels is None:
            raise BadUse("sfreq and channels are needed when the bags are plain arrays")
        shapes = {array.shape[1:] for array in arrays.values()}
        if len(shapes) > 1 or len(channels) != next(iter(shapes))[0]:
            raise BadUse(f"all windows need one shape of {len(channels)} channels x time; found {sorted(shapes)}")
        about = {
            "format": FORMAT, "source": "arrays", "channels": list(channels), "sfreq": float(sfreq),
            "n_times": next(iter(shapes))[1], "folds": folds or default_folds([str(label) for label in labels]),
            "burn_in": burn_in, "settings": {}, "left_out": [], "notes": [], "files": [],
        }  # fmt: skip
        return cls(records, about, {}, arrays=arrays)

    @property
    def subjects(self) -> list[str]:
        """Subject ids."""
        return list(self.records)

    @property
    def labels(self) -> list[str]:
        """The diagnosis of each subject, in the order of ``subjects``."""
        return [record.label for record in self.records.values()]

    @property
    def classes(self) -> list[str]:
        """The diagnoses, sorted; a class's index here is its number."""
        return sorted(set(self.labels))

    @property
    def y(self) -> NDArray[np.int64]:
        """The class number of each subject."""
        return np.array([self.classes.index(label) for label in self.labels], dtype=np.int64)

    @property
    def channels(self) -> list[str]:
        """Channel names, in the order of the windows' second axis."""
        return list(self.about["channels"])

    @property
    def sfreq(self) -> float:
        """Samples a second."""
        return float(self.about["sfreq"])

    @property
    def n_times(self) -> int:
        """Samples in a window."""
        return int(self.about["n_times"])

    @property
    def n_windows(self) -> int:
        """Windows of all subjects."""
        return sum(record.n_windows for record in self.records.values())

    @property
    def folds(self) -> int:
        """The cohort's default number of folds."""
        return int(self.about["folds"])

    @property
    def burn_in(self) -> int:
        """The cohort's default number of epochs before a checkpoint may be selected."""
        return int(self.about["burn_in"])

    def windows(self, subject: str) -> NDArray[np.float32]:
        """The bag of a subject: windows x channels x time in microvolts, memory-mapped and read-only on disk."""
        self._known(subject)
        if self._arrays is not None:
            return self._arrays[subject]
        return self._load(subject, "windows.npy", "r")

    def window_starts(self, subject: str) -> NDArray[np.float64]:
        """Where each window begins, in seconds from the start of its recording."""
        self._known(subject)
        if self._arrays is None:
            return self._load(subject, "starts.npy", None)
        lengths = self.records[subject].recording_windows
        return np.concatenate([np.arange(n) for n in lengths]) * self.n_times / self.sfreq

    def column(self, name: str) -> list[Any]:
        """A column of what else is known of the subjects (site, age), in the order of ``subjects``."""
        known = sorted({key for values in self._columns.values() for key in values})
        if name not in known:
            raise BadUse(f"the cohort has no column {name!r}; it has: {', '.join(known) or 'none'}")
        return [self._columns.get(subject, {}).get(name) for subject in self.subjects]

    @cached_property
    def table(self) -> pd.DataFrame:
        """A row a subject: id, label, number of windows and recordings, minutes, and the further columns."""
        import pandas as pd

        rows = [
            {"subject": r.subject, "label": r.label, "n_windows": r.n_windows, "n_recordings": len(r.recordings)}
            | self._columns.get(r.subject, {})
            for r in self.records.values()
        ]
        return pd.DataFrame(rows)

    def normalisation(self, subjects: Sequence[str]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mean and biased standard deviation per channel over all windows and time of these subjects.

        Merged from the stored per-subject sums: no signal is read, and no other subject can enter.
        """
        records = [self._known(subject) for subject in subjects]
        counts = np.array([record.n_windows * self.n_times for record in records], dtype=np.float64)
        sums = np.array([record.sums for record in records])  # subjects x channels
        mean = sums.sum(axis=0) / counts.sum()
        # Sum of squares about the common mean = about each own mean + what separates the means.
        between = counts[:, None] * (sums / counts[:, None] - mean) ** 2
        squares = np.array([record.centred_squares for record in records]) + between
        std = np.sqrt(squares.sum(axis=0) / counts.sum())
        constant = [
            name for name, value in zip(self.channels, std, strict=True) if value <= 1e-7 * (1 + abs(mean).max())
        ]
        if constant:
            raise BadData(f"channel {', '.join(constant)} is constant over the {len(records)} training subjects")
        return mean, std

    @cached_property
    def hash(self) -> str:
        """Identifies the data: channels, rate, subjects, labels, recording boundaries and every sample."""
        content = [self.channels, self.sfreq, self.n_times]
        content += [
            [r.subject, r.label, list(r.recording_windows), r.signal_hash]
            for r in sorted(self.records.values(), key=lambda r: r.subject)
        ]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()

    def save(self, path: str | Path) -> Cohort:
        """Write an in-memory cohort to a folder and open it there."""
        path = Path(path)
        if path.exists() and any(path.iterdir()):
            raise BadUse(f"{path}: exists and is not empty")
        for record in self.records.values():
            starts = self.window_starts(record.subject)
            write_subject(path, record.subject, self.windows(record.subject), starts, asdict(record))
        write_cohort(path, self.about | {"hash": self.hash}, self.rows())
        return Cohort.open(path)

    def rows(self) -> list[dict[str, Any]]:
        """The rows of subjects.parquet."""
        return [self._columns.get(r.subject, {}) | asdict(r) for r in self.records.values()]

    def _known(self, subject: str) -> SubjectRecord:
        if subject not in self.records:
            raise KeyError(f"no subject {subject!r} in the cohort; it has {', '.join(self.subjects[:5])} …")
        return self.records[subject]

    def _load(self, subject: str, name: str, mode: Any) -> NDArray[Any]:
        assert self.path is not None
        file = subject_folder(self.path, subject) / name
        try:
            array: NDArray[Any] = np.load(file, mmap_mode=mode)
        except (OSError, ValueError) as error:
            raise BadData(f"{file}: cannot be read ({error}); prepare the cohort again") from None
        return array

    def __len__(self) -> int:
        return len(self.records)

    def __repr__(self) -> str:
        where = self.path or "memory"
        return (
            f"<Cohort {where}: {len(self)} subjects, {self.n_windows} windows of {len(self.channels)} x {self.n_times}>"
        )


def default_folds(labels: Sequence[str]) -> int:
    """k = 10, or the size of the smallest class if that is smaller."""
    return min(10, *(labels.count(label) for label in set(labels)))


def _pieces(name: str, bag: Any) -> tuple[list[NDArray[np.float32]], float | None, list[str] | None]:
    """A bag's recordings as arrays, and the rate and channels if they are Epochs, which know them."""
    pieces, rate, electrodes = [], None, None
    for value in bag if isinstance(bag, (list, tuple)) else [bag]:
        if hasattr(value, "get_data") and hasattr(value, "info"):  # mne.Epochs: volts, and other channels than EEG
            if value.info["bads"]:
                raise BadUse(
                    f"{name}: its Epochs have bad channels {value.info['bads']}; drop or interpolate them first"
                )
            own = value.copy().pick("eeg")
            rate, electrodes = float(own.info["sfreq"]), list(own.ch_names)
            pieces.append(np.asarray(own.get_data(verbose="ERROR") * 1e6, dtype=np.float32))
        else:
            pieces.append(np.asarray(value, dtype=np.float32))
    for piece in pieces:
        if piece.ndim != 3 or 0 in piece.shape:
            raise BadUse(f"{name}: a bag is an array (n_windows, n_channels, n_times), got shape {piece.shape}")
        if not np.isfinite(piece).all():
            raise BadData(f"{name}: the windows contain NaN or infinite values")
    return pieces, rate, electrodes
