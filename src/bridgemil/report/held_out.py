"""A held-out person of finished runs: the model that did not see this person, and what it is to be read beside."""

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

MOST_WINDOWS = 60  # of each training person, for the patterns of a network and for band power
NEAR = 0.1  # probabilities this close count as "about this"


@dataclass(frozen=True)
class HeldOut:
    """One person and the run that held them out."""

    store: RunStore
    identity: str
    about: dict[str, Any]  # run.json
    cohort: Cohort
    person: Person
    others: list[str] = field(default_factory=list)  # in words: further runs that held this person out

    @property
    def title(self) -> str:
        """Which fold of what."""
        settings, split = Settings.model_validate(self.about["settings"]), self.about["split"] or {}
        of = f" of {split['k']}" if "k" in split else ""
        part = f", {_part(self.about)}" if _part(self.about) else ""
        return f"{settings.title}{part}, fold {self.about['fold']}{of}, seed {self.about['seed']}"

    @property
    def warnings(self) -> list[AuditWarning]:
        """The audit warnings of the cohort and split."""
        return self.store.warnings(self.about["cohort"]["hash"], (self.about["split"] or {}).get("hash", ""))

    @property
    def sentence(self) -> str:
        """What the model has and has not seen."""
        selected = Settings.model_validate(self.about["settings"]).selects
        more = f" and selected its epoch by {len(self.about['validation'])} more" if selected else ""
        learnt = f"it learnt from {len(self.about['train'])} other people{more}"
        return f"The model of {self.title} did not see {self.person.name}: {learnt}."

    def model(self, **how: Any) -> Model:
        """The fitted model; ``how`` as for ``bridgemil.models.load``."""
        return self.store.model(self.identity, **how)

    def background(self, model: Model) -> tuple[Floats | None, str]:
        """Features over which patterns are computed, and whose they are; None where features have no names.

        Of a baseline the training people's; of a network those of up to ``MOST_WINDOWS`` windows of each of them.
        """
        train = sorted(self.about["train"])
        cache = RunCache(self.store, self.identity, None, {}) if os.access(self.store.root, os.W_OK) else FitCache()
        if model.features is None:
            return None, ""
        rows = [features_of(cache, model.features, self.cohort, subject) for subject in train]
        if isinstance(model, BaselineModel):
            return np.stack(rows).astype(np.float64), f"the mean features of the {len(train)} training people"
        features = np.concatenate([values[_spaced(len(values))] for values in rows]).astype(np.float64)
        return features, f"{len(features):,} windows of the {len(train)} training people"

    def predictions(self) -> pd.DataFrame:
        """What runs of the same settings and seed said of everybody they held out."""
        import pandas as pd

        same = [
            identity
            for identity, about in _finished(self.store)
            if about["settings_hash"] == self.about["settings_hash"]
            and about["cohort"]["hash"] == self.about["cohort"]["hash"]
            and about["split"] == self.about["split"]
            and about["seed"] == self.about["seed"]
        ]
        return pd.concat([self.store.predictions(identity) for identity in same], ignore_index=True)


def find(
    store: RunStore,
    subject: str,
    *,
    method: str | None = None,
    run: str | None = None,
    cohort: str | Path | Cohort | None = None,
) -> HeldOut:
    """The run that held a person out.

    Parameters
    ----------
    store
        A folder of runs.
    subject
        Whom.
    method
        Needed where the folder holds several; without it, the only network is taken.
    run
        The run's identity, where all else is not enough.
    cohort
        The cohort, if it is no longer where the run found it.
    """
    if method is not None and JOIN in method:
        raise BadUse(
            f"method {method} is an ensemble: explain its members one by one (--method {method.split(JOIN)[0]})"
        )
    runs = _finished(store)
    if not runs:
        raise BadData(f"{store.root}: no finished run there; make some with `bridgemil evaluate`")
    chosen = [(identity, about) for identity, about in runs if subject in about["test"]]
    if run is None:  # a study's run on a part of the cohort is explained only if it is meant
        chosen = [pair for pair in chosen if not _part(pair[1])] or chosen
    if not chosen:
        known = sorted({name for _, about in runs for name in about["test"]})
        raise BadUse(
            f"no finished run held {subject!r} out; held out were {', '.join(known[:8])}{' …' * (len(known) > 8)}"
        )
    if run is not None:
        chosen = [(identity, about) for identity, about in chosen if identity.startswith(run)]
        if not chosen:
            raise BadUse(f"no finished run {run!r} held {subject} out")
    if method is not None:
        one_of(
            "method", method, sorted({about["settings"]["method"] for _, about in chosen}), " (what is in the folder)"
        )
        chosen = [(identity, about) for identity, about in chosen if about["settings"]["method"] == method]
    identity, about = _only(chosen, subject)
    others = [_title(other) for name, other in chosen if name != identity]
    opened = subset(_cohort(about, cohort, store.root), about.get("kept") or {})  # the windows that the run used
    record = opened.records[subject]
    recordings = list(zip(record.recordings, record.recording_windows, strict=True))
    person = Person(subject, opened.windows(subject), opened.window_starts(subject), recordings, record.label)
    return HeldOut(store, identity, about, opened, person, others)


def _finished(store: RunStore) -> list[tuple[str, dict[str, Any]]]:
    return [(identity, store.metadata(identity)) for identity in sorted(store.finished())]


def _only(chosen: Sequence[tuple[str, dict[str, Any]]], subject: str) -> tuple[str, dict[str, Any]]:
    """The one run that is meant: of the only experiment, or the only network's; the lowest seed."""
    networks = [pair for pair in chosen if pair[1]["settings"]["backbone"] is not None]
    chosen = networks or list(chosen)
    apart = {
        (about["settings_hash"], about["cohort"]["hash"], (about["split"] or {}).get("hash"), _part(about))
        for _, about in chosen
    }
    if len(apart) > 1:
        words = "; ".join(sorted(f"{_title(about)} (--run {identity[:8]})" for identity, about in chosen))
        raise BadUse(f"several runs held {subject} out; choose with --method or --run: {words}")
    return min(chosen, key=lambda pair: pair[1]["seed"])


def _title(about: dict[str, Any]) -> str:
    settings = Settings.model_validate(about["settings"])
    part = f", {_part(about)}" if _part(about) else ""
    return f"{settings.title}{part}, fold {about['fold']}, seed {about['seed']}"


def _part(about: dict[str, Any]) -> str:
    """What of the cohort a study's run used; empty where it is all."""
    return str((about["split"] or {}).get("part", ""))


def _cohort(about: dict[str, Any], given: str | Path | Cohort | None, root: Path) -> Cohort:
    where = about["cohort"]["path"]
    place = given if given is not None else cohort_place(where, root)
    if place is None:
        lost = f"the cohort is no longer at {where}" if where else "the cohort was in memory only"
        raise BadUse(f"{lost}; say where it is, --cohort FOLDER")
    cohort = place if isinstance(place, Cohort) else Cohort.open(place)
    if cohort.hash != about["cohort"]["hash"]:
        raise BadData(f"{cohort.path or 'the cohort'}: is not the cohort of this run, or has changed since")
    return cohort


def _spaced(n: int, most: int = MOST_WINDOWS) -> Any:
    return np.unique(np.linspace(0, n - 1, min(n, most)).round().astype(int))


@dataclass(frozen=True)
class Calibration:
    """Of the people who were given about this probability of a class, how many had it."""

    class_name: str
    low: float  # probabilities counted, from
    high: float  # to
    n: int  # people, this one left out
    had_it: int

    @property
    def sentence(self) -> str:
        """For people."""
        span = f"between {self.low:.0%} and {self.high:.0%}"
        if self.n < 5:
            return f"Only {self.n} other held-out people were given {span} for {self.class_name}: too few to say more."
        share = self.had_it / self.n
        return f"Of {self.n} other held-out people given {span} for {self.class_name}, {share:.0%} had it."


def calibration(predictions: pd.DataFrame, subject: str, class_name: str, p: float) -> Calibration:
    """How often a probability like this one was right among held-out people.

    Parameters
    ----------
    predictions
        Held-out predictions: subject, label, p_<class>….
    subject
        Who is left out of the count.
    class_name, p
        The class and its probability.
    """
    low, high = max(0.0, p - NEAR), min(1.0, p + NEAR)
    others = predictions[predictions["subject"] != subject]
    near = others[others[f"p_{class_name}"].between(low, high)]
    return Calibration(class_name, low, high, len(near), int((near["label"] == class_name).sum()))


def doubts(predictions: pd.DataFrame) -> list[str]:
    """What stands against believing a method at all, from its held-out predictions."""
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
    """Share of each band in the power, in percent, mean over electrodes and windows: one person beside many.

    Parameters
    ----------
    bands
        B names with their edges.
    person
        B.
    people
        Class name to people x B.
    quantiles
        Where people are not at hand, class name to the 5th, 25th, 50th, 75th and 95th percentile of them, 5 x B.
    counts
        Then, class name to number of people.
    """

    bands: Sequence[str]
    person: Floats
    people: dict[str, Floats]
    quantiles: dict[str, Floats] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)


def band_shares(bag: Any, sfreq: float, bands: Sequence[Band]) -> Floats:
    """Share of each band in a person's power, in percent, of up to ``MOST_WINDOWS`` windows (n x C x T, µV)."""
    windows = np.asarray(bag[_spaced(len(bag))])
    shares: Floats = 100 * window_band_power(windows, sfreq, bands).mean(axis=(0, 1))
    return shares


def bands_beside(cohort: Cohort, subjects: Sequence[str], bag: Any) -> BandShares:
    """One person's band power beside that of some of a cohort's subjects, by class."""
    held, _ = some_bands(CLINICAL_BANDS, cohort.signal)
    bands, sfreq = tuple(held.values()), cohort.sfreq
    people: dict[str, list[Floats]] = {name: [] for name in cohort.classes}
    for subject in subjects:
        people[cohort.records[subject].label].append(band_shares(cohort.windows(subject), sfreq, bands))
    names = [f"{name} {band_name(band)}" for name, band in held.items()]
    by_class = {name: np.array(rows) for name, rows in people.items() if rows}
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
