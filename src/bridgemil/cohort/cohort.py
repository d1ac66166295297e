"""A cohort: windows of every subject, memory-mapped, with what is needed to normalise, split and trace them.

On disk it is a folder:

    cohort.json          channels, rate, classes, settings, versions, source files, what was left out
    subjects.parquet     one row per subject: label, windows per recording, sums for normalisation, hash of the signal
    subjects/<id>/       windows.npy (float32, windows x channels x time, microvolt), starts.npy, record.json

    manifest.json        checksums; each subject's folder has its own

A subject's folder appears in one rename, so an interrupted ``prepare`` never leaves half a subject. Opening a cohort
reads the manifest and the first two files only; a subject's signal is compared with its checksum when it is first read.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bridgemil import plots
from bridgemil.cohort import folder
from bridgemil.cohort.channels import key
from bridgemil.cohort.folder import SubjectRecord
from bridgemil.cohort.signal import Signal, evenly
from bridgemil.errors import BadData, BadUse
from bridgemil.storage.artifact import Artifact, digest
from bridgemil.storage.files import new_folder

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


class Cohort:
    """Prepared data of many subjects; make one with ``open``, ``from_arrays`` or ``bridgemil.prepare``."""

    def __init__(
        self,
        records: Sequence[SubjectRecord],
        metadata: Mapping[str, Any],
        columns: Mapping[str, Mapping[str, Any]],
        arrays: Mapping[str, NDArray[np.float32]] | None = None,
        path: Path | None = None,
    ) -> None:
        self.records = {record.subject: record for record in records}
        self.metadata: dict[str, Any] = dict(metadata)  # the content of cohort.json
        self.path = path  # None in memory
        self._columns = {subject: dict(values) for subject, values in columns.items()}  # what else is known: site, age
        self._arrays = arrays  # bags (n_windows, n_channels, n_times) in microvolts, of a cohort in memory
        self._artifact: Artifact | None = None
        self._subjects: dict[str, Artifact] = {}

    @classmethod
    def open(cls, path: str | Path) -> Cohort:
        """Open a prepared cohort; signals are read on first use.

        Parameters
        ----------
        path : str or Path
            The folder written by ``prepare`` or ``save``.

        Returns
        -------
        Cohort
        """
        artifact = folder.open_cohort(Path(path))
        records, columns = folder.read_subjects(artifact)
        cohort = cls(records, artifact.json(folder.METADATA), columns, path=Path(path))
        cohort._artifact = artifact
        return cohort

    @classmethod
    def from_arrays(
        cls,
        bags: Sequence[Any],
        labels: Sequence[Any],
        subjects: Sequence[str] | None = None,
        sfreq: float | None = None,
        channels: Sequence[str] | None = None,
        *,
        columns: Mapping[str, Sequence[Any]] | None = None,
        native_sfreq: float | None = None,
        folds: int | None = None,
        burn_in: int = 10,
    ) -> Cohort:
        """Make a cohort in memory.

        Parameters
        ----------
        bags : sequence
            One entry per subject: an array (n_windows, n_channels, n_times) in microvolts, a list of such arrays (its
            recordings, in order), or ``mne.Epochs`` (converted to microvolts; rate and channels are taken from it).
            A warning says so if arrays look like volts.
        labels : sequence
            One diagnosis per subject.
        subjects : sequence of str, optional
            One id per subject; ``subject-001`` and so on if left out.
        sfreq, channels : float or sequence of str
            Sampling rate in Hz and channel names; needed unless the bags are Epochs.
        columns : dict of sequences, optional
            What else is known of the subjects, one value per subject: ``{"site": [...], "age": [...]}``. ``groups`` of
            ``evaluate`` names one of them.
        native_sfreq : float, optional
            The rate in Hz at which the signals were recorded (the lowest, if there were several), if it is known.
        folds, burn_in : int, optional
            Defaults for ``evaluate``, as ``prepare`` writes them.

        Returns
        -------
        Cohort
            In memory.
        """
        from bridgemil.cohort.arrays import by_subject, read_bags, subject_ids

        names = subject_ids(bags, labels, subjects)
        further = by_subject(columns or {}, names)
        for what, given in (("sfreq", sfreq), ("native_sfreq", native_sfreq)):
            if given is not None and not 0 < given < np.inf:
                raise BadUse(f"{what} is a rate in Hz, got {given}")
        records, arrays, rate, electrodes = read_bags(bags, names, labels, sfreq, channels)
        metadata = {
            "source": "arrays", "channels": electrodes, "sfreq": rate, "n_times": arrays[names[0]].shape[2],
            "native_sfreq": None if native_sfreq is None else float(native_sfreq), "burn_in": burn_in,
            "folds": folds or folder.default_folds([*map(str, labels)]),
            "settings": {}, "left_out": [], "notes": [], "files": [],
        }  # fmt: skip
        return cls(records, metadata, further, arrays)

    @property
    def subjects(self) -> list[str]:
        """Subject ids."""
        return list(self.records)

    @property
    def labels(self) -> list[str]:
        """The diagnosis of each subject, in the order of ``subjects``; '' in a cohort without labels."""
        return [record.label for record in self.records.values()]

    @property
    def classes(self) -> list[str]:
        """The diagnoses, sorted; a class's index here is its number."""
        return sorted(set(self.labels) - {""})

    @property
    def y(self) -> NDArray[np.int64]:
        """The class number of each subject; -1 in a cohort without labels."""
        classes = self.classes
        return np.array([classes.index(label) if label else -1 for label in self.labels], dtype=np.int64)

    @property
    def channels(self) -> list[str]:
        """Channel names, in the order of the windows' second axis."""
        return list(self.metadata["channels"])

    @property
    def sfreq(self) -> float:
        """Samples a second."""
        return float(self.metadata["sfreq"])

    @property
    def native_sfreq(self) -> float | None:
        """The lowest rate in Hz at which a recording was made; None for arrays that do not say.

        What lies above half of it is not in the signal, whatever ``sfreq`` is.
        """
        rates = [float(file["native_sfreq"]) for file in self.metadata["files"]]
        return min(rates) if rates else self.metadata.get("native_sfreq")

    @property
    def signal(self) -> Signal:
        """What all its windows have in common."""
        filters = self.metadata["settings"]
        edges = filters.get("low"), filters.get("high"), tuple(map(float, filters.get("notch") or ()))
        return Signal(tuple(self.channels), self.sfreq, self.n_times, self.native_sfreq, *edges)

    @property
    def preparation(self) -> dict[str, Any]:
        """The settings it was prepared by (``PrepareSettings``, as in cohort.json); empty for arrays."""
        return copy.deepcopy(dict(self.metadata["settings"]))

    @property
    def n_times(self) -> int:
        """Samples in a window."""
        return int(self.metadata["n_times"])

    @property
    def n_windows(self) -> int:
        """Windows of all subjects."""
        return sum(record.n_windows for record in self.records.values())

    @property
    def folds(self) -> int:
        """The cohort's default number of folds."""
        return int(self.metadata["folds"])

    @property
    def burn_in(self) -> int:
        """The cohort's default number of epochs before a checkpoint may be selected."""
        return int(self.metadata["burn_in"])

    def windows(self, subject: str) -> NDArray[np.float32]:
        """Windows of a subject.

        Parameters
        ----------
        subject : str
            Its id.

        Returns
        -------
        ndarray of shape (n_windows, n_channels, n_times)
            Microvolts; memory-mapped and read-only if the cohort is on disk.
        """
        self._known(subject)
        return self._array(subject, folder.WINDOWS) if self._arrays is None else self._arrays[subject]

    def window_starts(self, subject: str) -> NDArray[np.float64]:
        """Start of each window.

        Parameters
        ----------
        subject : str
            Its id.

        Returns
        -------
        ndarray of shape (n_windows,)
            Seconds from the start of the window's recording.
        """
        lengths = self._known(subject).recording_windows
        if self._arrays is None:
            return np.array(self._array(subject, folder.STARTS))
        return np.concatenate([np.arange(n) for n in lengths]) * self.n_times / self.sfreq

    def stretches(self, subject: str) -> list[int]:
        """Numbers of consecutive windows: a stretch ends with a recording, and where windows were left out."""
        starts, ends = self.window_starts(subject), np.cumsum(self.records[subject].recording_windows)
        step = max(1, round(self.n_times * (1 - self.metadata["settings"].get("overlap", 0.0)))) / self.sfreq
        gaps = 1 + np.flatnonzero(np.diff(starts) > step + 0.5 / self.sfreq)
        lengths: list[int] = np.diff(np.unique([0, *gaps, *ends])).tolist()
        return lengths

    def window_numbers(self, subject: str) -> NDArray[np.int64]:
        """The number of each window among all windows of the subject: 0, 1, 2 …, unless this is a subset."""
        return np.arange(self._known(subject).n_windows)

    def column(self, name: str) -> list[Any]:
        """A column of participants.tsv, of the manifest or of ``from_arrays``.

        Parameters
        ----------
        name : str
            Such as ``site`` or ``age``.

        Returns
        -------
        list
            One value per subject, in the order of ``subjects``; None where it is missing.
        """
        known = sorted({key for values in self._columns.values() for key in values})
        if name not in known:
            raise BadUse(f"the cohort has no column {name!r}; it has: {', '.join(known) or 'none'}")
        return [self._columns.get(subject, {}).get(name) for subject in self.subjects]

    @cached_property
    def table(self) -> pd.DataFrame:
        """One row per subject: id, label, number of windows and of recordings, and the columns with other names."""
        import pandas as pd

        rows = []
        for r in self.records.values():
            own = {"subject": r.subject, "label": r.label, "n_windows": r.n_windows, "n_recordings": len(r.recordings)}
            rows.append(own | self._columns.get(r.subject, {}) | own)
        return pd.DataFrame(rows)

    def normalisation(self, subjects: Sequence[str]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mean and biased standard deviation per channel over all windows and samples of these subjects.

        Computed from the stored sums of each subject: no signal is read, and no other subject can enter.

        Parameters
        ----------
        subjects : sequence of str
            Ids of the training subjects.

        Returns
        -------
        mean, std : ndarray of shape (n_channels,)
            In microvolts.
        """
        records = [self._sums(subject) for subject in subjects]
        counts = np.array([record.n_windows * self.n_times for record in records], dtype=np.float64)
        sums = np.array([record.sums for record in records])  # subjects x channels
        mean = sums.sum(axis=0) / counts.sum()
        # Sum of squares about the common mean = about each own mean + what separates the means.
        between = counts[:, None] * (sums / counts[:, None] - mean) ** 2
        squares = np.array([record.centred_squares for record in records]) + between
        std = np.sqrt(squares.sum(axis=0) / counts.sum())
        references = {file.get("reference_electrode") for file in self.metadata.get("files") or ()}
        std[[name in references and value == 0 for name, value in zip(map(key, self.channels), std, strict=True)]] = 1
        smallest = 1e-7 * (1 + abs(mean).max())
        if constant := [name for name, value in zip(self.channels, std, strict=True) if value <= smallest]:
            raise BadData(f"channel {', '.join(constant)} is constant over the {len(records)} training subjects")
        return mean, std

    @cached_property
    def hash(self) -> str:
        """Identifies the data: channels, rate, subjects, labels, recording boundaries, every sample, cleaning code.

        Also the native rate of arrays where it is another: it decides which bands are features.
        """
        cleaned = [["clean", step["code"]] for step in self.metadata["settings"].get("clean") or ()]
        if self.metadata["source"] == "arrays" and (self.native_sfreq or self.sfreq) < self.sfreq:
            cleaned.append(["native_sfreq", self.native_sfreq])
        ordered = sorted(self.records.values(), key=lambda r: r.subject)
        data = [[r.subject, r.label, list(r.recording_windows), r.signal_hash] for r in ordered]
        return digest([self.channels, self.sfreq, self.n_times, *cleaned, *data])

    def save(self, path: str | Path) -> Cohort:
        """Write a cohort in memory to a folder and open it there.

        Parameters
        ----------
        path : str or Path
            A folder that does not exist or is empty.

        Returns
        -------
        Cohort
            Opened from ``path``.
        """
        path = Path(path)
        if path.exists() and any(path.iterdir()):
            raise BadUse(f"{path}: exists and is not empty")
        with new_folder(path.absolute()) as partial:
            for subject, record in self.records.items():
                folder.write_subject(partial, asdict(record), self.windows(subject), self.window_starts(subject))
            folder.write_cohort(partial, self.metadata | {"hash": self.hash}, self.rows())
        return Cohort.open(path)

    def rows(self) -> list[dict[str, Any]]:
        """The rows of subjects.parquet."""
        return [self._columns.get(r.subject, {}) | asdict(r) for r in self.records.values()]

    def spectra(self, most: int = 200) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mean power spectral density of every subject over channels and up to ``most`` windows.

        Parameters
        ----------
        most : int, default 200
            Windows per subject, evenly spread.

        Returns
        -------
        frequencies : ndarray of shape (F,)
            In Hz, above 0 and up to the low-pass.
        density : ndarray of shape (subjects, F)
            In µV²/Hz.
        """
        from scipy.signal import periodogram

        means = []
        for subject in self.subjects:
            bag = self.windows(subject)
            frequencies, density = periodogram(bag[evenly(len(bag), most)], self.sfreq, window="hann", axis=-1)
            means.append(density.mean(axis=(0, 1)))
        inside = (frequencies > 0) & (frequencies <= (self.signal.high or self.sfreq / 2))
        return frequencies[inside], np.array(means, dtype=np.float64)[:, inside]

    def plot(self, ax: Axes | None = None) -> Axes:
        """Power spectra by class: median and quartiles over subjects.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            New ones by default.

        Returns
        -------
        matplotlib.axes.Axes
        """
        frequencies, density = self.spectra()
        labels = np.array(self.labels)
        return plots.spectra(frequencies, {name: density[labels == name] for name in self.classes or [""]}, ax)

    def _repr_html_(self) -> str:
        by_class = self.table.groupby("label")["n_windows"].agg(["count", "sum", "min", "max"]).reset_index()
        table = by_class.set_axis(["class", "subjects", "windows", "fewest", "most per subject"], axis=1)
        size = f"{len(self.channels)} channels x {self.n_times} samples at {self.sfreq:g} Hz"
        title = f"Cohort {self.path.name if self.path else 'in memory'}"
        return plots.html(title, table, [size, " ".join(self.channels)])

    def _known(self, subject: str) -> SubjectRecord:
        if subject not in self.records:
            raise KeyError(f"no subject {subject!r} in the cohort; it has {', '.join(self.subjects[:5])} …")
        return self.records[subject]

    def _sums(self, subject: str) -> SubjectRecord:
        """A record that has the subject's sums."""
        return self._known(subject)

    def _array(self, subject: str, name: str) -> NDArray[Any]:
        """One of the files of a subject on disk."""
        if subject not in self._subjects:
            assert self._artifact is not None
            self._subjects[subject] = folder.open_subject(self._artifact, subject)
        return self._subjects[subject].array(name)

    def __len__(self) -> int:
        return len(self.records)

    def __repr__(self) -> str:
        windows = f"{self.n_windows} windows of {len(self.channels)} x {self.n_times}"
        return f"<Cohort {self.path or 'memory'}: {len(self)} subjects, {windows}>"
