"""A cohort whose bags are single recordings (``bags=recording``): eyes open and eyes closed of one person are two.

Subjects stay the unit of folds, predictions and scores: the bags of a person are on the same side of every split, and
the person's probability is the mean over them. Only fitting and predicting see this view.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bridgemil.cohort.cohort import Cohort
from bridgemil.storage.artifact import digest


class RecordingBags(Cohort):
    """Every recording as a bag of its own, named ``SUBJECT/NUMBER``; nothing is copied.

    Parameters
    ----------
    whole
        The cohort. A subject with one recording keeps its name.
    subjects
        Of whom to make bags; all by default.
    """

    def __init__(self, whole: Cohort, subjects: Sequence[str] | None = None) -> None:
        self.whole = whole
        self._place: dict[str, tuple[str, slice]] = {}
        records = []
        for subject in whole.subjects if subjects is None else subjects:
            record = whole.records[subject]
            ends = np.cumsum(record.recording_windows).tolist()
            for number, (n, end) in enumerate(zip(record.recording_windows, ends, strict=True), 1):
                if n == 0:  # all of its windows were dropped
                    continue
                name = subject if n == record.n_windows else f"{subject}/{number}"
                self._place[name] = subject, slice(end - n, end)
                own = record.recordings[number - 1 : number] if record.recordings else ()
                signal = record.signal_hash if n == record.n_windows else digest([record.signal_hash, end - n, end])
                records.append(
                    replace(record, subject=name, recordings=own, recording_windows=(n,), signal_hash=signal)
                )
        super().__init__(records, whole.metadata, {}, whole.path)

    def of(self, subjects: Iterable[str]) -> tuple[str, ...]:
        """The bags of these subjects."""
        chosen = set(subjects)
        return tuple(name for name, (subject, _) in self._place.items() if subject in chosen)

    def person(self, name: str) -> str:
        """The subject of a bag."""
        return self._place[name][0]

    def spread(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Values of subjects as values of their bags."""
        return {name: values[subject] for name, (subject, _) in self._place.items() if subject in values}

    def windows(self, subject: str) -> NDArray[np.float32]:
        """The windows of a bag, n x C x T in microvolts."""
        return self.part(subject, self.whole.windows(self.person(subject)))

    def window_starts(self, subject: str) -> NDArray[np.float64]:
        """The start of each window in seconds from the start of the recording."""
        return self.part(subject, self.whole.window_starts(self.person(subject)))

    def part(self, name: str, values: NDArray[Any]) -> NDArray[Any]:
        """Of an array with a row for each of the subject's windows, the rows of this bag."""
        return values[self._place[name][1]]

    def normalisation(self, subjects: Sequence[str]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mean and standard deviation per channel over all windows of the bags' subjects."""
        return self.whole.normalisation(list(dict.fromkeys(map(self.person, subjects))))
