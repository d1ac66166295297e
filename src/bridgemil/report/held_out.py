"""A held-out subject of finished runs: the model that was not trained on it, and the context of its prediction."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.signal import CLINICAL_BANDS, Band, band_name, some_bands, window_band_power
from bridgemil.cohort.subset import subset
from bridgemil.errors import BadData, BadUse, one_of
from bridgemil.methods import JOIN, Settings
from bridgemil.models import BaselineModel, FitCache, Model, features_of
from bridgemil.report.explanation import Person
from bridgemil.report.window_values import Floats
from bridgemil.runs import AuditWarning, RunCache, RunStore

if TYPE_CHECKING:
    import pandas as pd

MOST_WINDOWS = 60  # of each training subject, for the patterns of a network and for band power
NEAR = 0.1  # probabilities this close count as similar
FEW = 5  # subjects of similar probability, below which no frequency is reported
Metadata = dict[str, Any]  # run.json


@dataclass(frozen=True)
class HeldOut:
    """One subject and the run in which it was held out."""

    store: RunStore
    identity: str
    metadata: Metadata
    cohort: Cohort
    person: Person
    others: list[str] = field(default_factory=list)  # titles of further runs in which the subject was held out

    @property
    def title(self) -> str:
        """Method, fold and seed."""
        k = (self.metadata["split"] or {}).get("k")
        return _title(self.metadata, f" of {k}" if k else "")

    @property
    def warnings(self) -> list[AuditWarning]:
        """Audit warnings of the cohort and split."""
        return self.store.warnings(self.metadata["cohort"]["hash"], (self.metadata["split"] or {}).get("hash", ""))

    @property
    def sentence(self) -> str:
        """Which subjects the model was trained on."""
        settings = Settings.model_validate(self.metadata["settings"])
        selects, one_by_one = settings.selects, settings.bags == "recording" and len(self.person.recordings) > 1
        more = f"; {len(self.metadata['validation'])} further subjects selected its epoch" if selects else ""
        trained = f"trained on {len(self.metadata['train'])} other subjects{more}"
        note = " Its held-out probability is the mean over recordings; here they are one bag." if one_by_one else ""
        return f"{self.person.name} was held out from the model of {self.title}, which was {trained}.{note}"

    def model(self, **how: Any) -> Model:
        """The fitted model; ``how`` as for ``bridgemil.models.load``."""
        return self.store.model(self.identity, **how)

    def background(self, model: Model) -> tuple[Floats | None, str]:
        """Features (m, F) over which patterns are computed, and their description; None if features have no names.

        For a baseline the mean features of the training subjects; for a network those of up to ``MOST_WINDOWS``
        windows of each of them.
        """
        train = sorted(self.metadata["train"])
        cache = RunCache(self.store) if os.access(self.store.root, os.W_OK) else FitCache()
        if model.features is None:
            return None, ""
        rows = [features_of(cache, model.features, self.cohort, subject) for subject in train]
        if isinstance(model, BaselineModel):
            return np.stack(rows).astype(np.float64), f"the mean features of the {len(train)} training subjects"
        features = np.concatenate([values[_spaced(len(values))] for values in rows]).astype(np.float64)
        return features, f"{len(features):,} windows of the {len(train)} training subjects"

    def predictions(self) -> pd.DataFrame:
        """Held-out predictions of all runs with the same settings, cohort, split and seed."""
        import pandas as pd

        def key(metadata: Metadata) -> tuple[Any, ...]:
            return metadata["settings_hash"], metadata["cohort"]["hash"], metadata["split"], metadata["seed"]

        same = [identity for identity, other in _finished(self.store) if key(other) == key(self.metadata)]
        return pd.concat([self.store.predictions(identity) for identity in same], ignore_index=True)


def find(
    store: RunStore,
    subject: str,
    *,
    method: str | None = None,
    run: str | None = None,
    cohort: str | Path | Cohort | None = None,
) -> HeldOut:
    """The run in which a subject was held out.

    Parameters
    ----------
    store : RunStore
        A folder of runs.
    subject : str
        Id.
    method : str, optional
        Needed if the folder holds several; by default the only network.
    run : str, optional
        The beginning of the run's identity, if the method is not sufficient.
    cohort : path-like or Cohort, optional
        The cohort, if it has been moved since the run.

    Raises
    ------
    BadUse
        If no run or several runs match.
    BadData
        If there is no finished run, or the cohort is not that of the run.
    """
    if method is not None and JOIN in method:
        raise BadUse(
            f"method {method} is an ensemble: explain its members one by one (--method {method.split(JOIN)[0]})"
        )
    runs = _finished(store)
    if not runs:
        raise BadData(f"{store.root}: no finished run there; make some with `bridgemil evaluate`")
    chosen = [(identity, metadata) for identity, metadata in runs if subject in metadata["test"]]
    if run is None:  # a study's run on a part of the cohort is explained only if it is named
        chosen = [pair for pair in chosen if not _part(pair[1])] or chosen
    if not chosen:
        known = sorted({name for _, metadata in runs for name in metadata["test"]})
        some = f"{', '.join(known[:8])}{' …' * (len(known) > 8)}"
        raise BadUse(f"no finished run held {subject!r} out; held out were {some}")
    if run is not None:
        chosen = [(identity, metadata) for identity, metadata in chosen if identity.startswith(run)]
        if not chosen:
            raise BadUse(f"no finished run {run!r} held {subject} out")
    if method is not None:
        methods = sorted({metadata["settings"]["method"] for _, metadata in chosen})
        one_of("method", method, methods, " (what is in the folder)")
        chosen = [pair for pair in chosen if pair[1]["settings"]["method"] == method]
    identity, metadata = _only(chosen, subject)
    others = [_title(other) for name, other in chosen if name != identity]
    opened = subset(_cohort(metadata, cohort, store.root), metadata.get("kept") or {})  # the windows of the run
    record = opened.records[subject]
    recordings = list(zip(record.recordings, record.recording_windows, strict=True))
    person = Person(subject, opened.windows(subject), opened.window_starts(subject), recordings, record.label)
    return HeldOut(store, identity, metadata, opened, person, others)


def _finished(store: RunStore) -> list[tuple[str, Metadata]]:
    return [(identity, store.metadata(identity)) for identity in sorted(store.finished())]


def _only(chosen: Sequence[tuple[str, Metadata]], subject: str) -> tuple[str, Metadata]:
    """The run of the only experiment, or of the only network; the lowest seed."""
    chosen = [pair for pair in chosen if pair[1]["settings"]["backbone"] is not None] or list(chosen)
    experiments = {
        (m["settings_hash"], m["cohort"]["hash"], (m["split"] or {}).get("hash"), _part(m)) for _, m in chosen
    }
    if len(experiments) > 1:
        titles = "; ".join(sorted(f"{_title(metadata)} (--run {identity[:8]})" for identity, metadata in chosen))
        raise BadUse(f"several runs held {subject} out; choose with --method or --run: {titles}")
    return min(chosen, key=lambda pair: pair[1]["seed"])


def _title(metadata: Metadata, of: str = "") -> str:
    part = f", {_part(metadata)}" if _part(metadata) else ""
    title = Settings.model_validate(metadata["settings"]).title
    return f"{title}{part}, fold {metadata['fold']}{of}, seed {metadata['seed']}"


def _part(metadata: Metadata) -> str:
    """The part of the cohort that a study's run used; empty for the whole cohort."""
    return str((metadata["split"] or {}).get("part", ""))


def _cohort(metadata: Metadata, given: str | Path | Cohort | None, root: Path) -> Cohort:
    where = metadata["cohort"]["path"]
    place = given if given is not None else cohort_place(where, root)
    if place is None:
        lost = f"the cohort is no longer at {where}" if where else "the cohort was in memory only"
        raise BadUse(f"{lost}; state where it is, --cohort FOLDER")
    cohort = place if isinstance(place, Cohort) else Cohort.open(place)
    if cohort.hash != metadata["cohort"]["hash"]:
        raise BadData(f"{cohort.path or 'the cohort'}: is not the cohort of this run, or has changed since")
    return cohort


def _spaced(n: int, most: int = MOST_WINDOWS) -> Any:
    return np.unique(np.linspace(0, n - 1, min(n, most)).round().astype(int))


def observed_frequency(predictions: pd.DataFrame, subject: str, class_name: str, p: float) -> str:
    """Frequency of a class among held-out subjects with a similar predicted probability, as a sentence.

    Parameters
    ----------
    predictions : DataFrame
        Held-out predictions: subject, label, p_<class>….
    subject : str
        Excluded from the count.
    class_name, p
        The class and its predicted probability.
    """
    low, high = max(0.0, p - NEAR), min(1.0, p + NEAR)
    others = predictions[predictions["subject"] != subject]
    labels = others.loc[others[f"p_{class_name}"].between(low, high), "label"]
    whose = f"other held-out subjects with a predicted probability of {class_name} between {low:.0%} and {high:.0%}"
    if len(labels) < FEW:
        return f"Only {len(labels)} {whose}: too few for an observed frequency."
    return f"Observed frequency of {class_name} among {len(labels)} {whose}: {(labels == class_name).mean():.0%}."


def reliability_warnings(predictions: pd.DataFrame) -> list[str]:
    """Whether the held-out predictions of a method are not better than chance."""
    from bridgemil.evaluation.metrics import accuracy, accuracy_interval, chance

    low, high = accuracy_interval(predictions)
    level, _, _ = chance(predictions["label"].tolist())
    if low > level:
        return []
    return [
        f"This method is not better than chance: {accuracy(predictions):.0%} of "
        f"{predictions['subject'].nunique()} held-out subjects correctly classified (95 % {low:.0%} to {high:.0%}); "
        f"chance level {level:.0%}. An explanation of its predictions explains little."
    ]


@dataclass(frozen=True)
class BandShares:
    """Relative band power in percent, mean over electrodes and windows: one subject and the training subjects.

    Parameters
    ----------
    bands : sequence of str
        B names with their edges.
    subject : ndarray of shape (B,)
        Of the subject.
    by_class : dict of str to ndarray of shape (n_subjects, B)
        Of the training subjects, by class.
    quantiles : dict of str to ndarray of shape (5, B)
        If the training subjects are not available: their 5th, 25th, 50th, 75th and 95th percentile, by class.
    counts : dict of str to int
        Then, the number of training subjects by class.
    """

    bands: Sequence[str]
    subject: Floats
    by_class: dict[str, Floats]
    quantiles: dict[str, Floats] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)


def band_shares(bag: Any, sfreq: float, bands: Sequence[Band]) -> Floats:
    """Relative band power of a subject in percent, shape (B,), over up to ``MOST_WINDOWS`` windows (n, C, T) in µV."""
    windows = np.asarray(bag[_spaced(len(bag))])
    shares: Floats = 100 * window_band_power(windows, sfreq, bands).mean(axis=(0, 1))
    return shares


def compare_bands(cohort: Cohort, subjects: Sequence[str], bag: Any) -> BandShares:
    """Relative band power of one subject's windows and of some subjects of a cohort, by class."""
    held, _ = some_bands(CLINICAL_BANDS, cohort.signal)
    bands, sfreq = tuple(held.values()), cohort.sfreq
    rows: dict[str, list[Floats]] = {name: [] for name in cohort.classes}
    for subject in subjects:
        rows[cohort.records[subject].label].append(band_shares(cohort.windows(subject), sfreq, bands))
    names = [f"{name} {band_name(band)}" for name, band in held.items()]
    by_class = {name: np.array(own) for name, own in rows.items() if own}
    return BandShares(names, band_shares(bag, sfreq, bands), by_class)


def cohort_place(recorded: str, root: Path) -> Path | None:
    """The folder of a run's cohort, or None if it is not found; its hash tells whether it is the right one.

    Parameters
    ----------
    recorded : str
        The path given to the run: absolute, or relative to the working directory at that time.
    root : Path
        The folder of runs. The cohort is also found next to it, or next to its parent, if both were moved together.
    """
    if not recorded:
        return None
    beside = [folder / part for folder in root.absolute().parents[:2] for part in (recorded, Path(recorded).name)]
    return next((place for place in (Path(recorded), *beside) if place.is_dir()), None)
