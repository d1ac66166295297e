"""A held-out subject of finished runs: the model that was not trained on it, and the context of its prediction."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.signal import CLINICAL_BANDS, Band, band_name, evenly, rereferenced, some_bands, window_band_power
from bridgemil.cohort.views import subset
from bridgemil.errors import BadData, BadUse, one_of
from bridgemil.methods import JOIN, Settings, changed_from_budget
from bridgemil.models import BaselineModel, FitCache, Model, features_of
from bridgemil.report.explanation import Person
from bridgemil.report.templating import macro
from bridgemil.report.window_values import Floats
from bridgemil.runs import AuditWarning, RunCache, RunStore, latest

if TYPE_CHECKING:
    import pandas as pd

MOST_WINDOWS = 60  # of each training subject, for the patterns of a network and for band power
NEAR = 0.1  # probabilities this close count as similar
FEW = 5  # subjects of similar probability, below which no frequency is reported
Metadata = dict[str, Any]  # run.json
TEXTS = "explain.txt.j2"


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
        one_by_one = settings.bags == "recording" and len(self.person.recordings) > 1
        return macro(TEXTS, "held_out")(self.person.name, self.title, self.metadata, settings.selects, one_by_one)

    def model(self, **how: Any) -> Model:
        """The fitted model, for this subject; ``how`` as for ``bridgemil.models.load``."""
        return self.store.model(self.identity, **how).for_subject(self._row(self.person.name))

    def _row(self, subject: str) -> Metadata:
        """The columns of a subject that the model adjusts features for."""
        return dict(self.metadata.get("rows", {}).get(subject, {}))

    def background(self, model: Model) -> tuple[Floats | None, str]:
        """Features (m, F) of the training subjects, over which patterns are computed, and their description.

        For a network those of up to ``MOST_WINDOWS`` windows of each; None if features have no names.
        """
        if model.features is None:
            return None, ""
        train = sorted(self.metadata["train"])
        cache = RunCache(self.store) if os.access(self.store.root, os.W_OK) else FitCache()
        rows = [
            model.for_subject(self._row(subject)).adjusted(features_of(cache, model.features, self.cohort, subject))
            for subject in train
        ]
        if isinstance(model, BaselineModel):
            return np.stack(rows).astype(np.float64), f"the mean features of the {len(train)} training subjects"
        features = np.concatenate([values[evenly(len(values), MOST_WINDOWS)] for values in rows]).astype(np.float64)
        return features, f"{len(features):,} windows of the {len(train)} training subjects"

    def bands(self, settings: Settings) -> BandShares:
        """Relative band power of the subject and of the model's training subjects, in the model's reference."""
        return compare_bands(self.cohort, self.metadata["train"], self.person.bag, reference_of(settings))

    def predictions(self) -> pd.DataFrame:
        """Held-out predictions of all runs with the same settings, cohort, split and seed."""
        import pandas as pd

        def key(metadata: Metadata) -> tuple[Any, ...]:
            return metadata["settings_hash"], metadata["cohort"]["hash"], metadata["split"], metadata["seed"]

        same = {
            identity: other for identity, other in _finished(self.store).items() if key(other) == key(self.metadata)
        }
        return pd.concat([self.store.predictions(identity) for identity in latest(same)], ignore_index=True)


def find(
    store: RunStore,
    subject: str,
    *,
    method: str | None = None,
    run: str | None = None,
    cohort: str | Path | Cohort | None = None,
) -> HeldOut:
    """The run in which a subject was held out; ``BadUse`` if none or several match.

    ``method`` is needed if the folder holds several (by default the only network), the beginning of the run's identity
    if that is not sufficient; ``cohort`` if it has been moved since the run.
    """
    if method is not None and JOIN in method:
        raise BadUse(
            f"method {method} is an ensemble: explain its members one by one (--method {method.split(JOIN)[0]})"
        )
    runs = _finished(store)
    if not runs:
        raise BadData(f"{store.root}: no finished run there; make some with `bridgemil evaluate`")
    chosen = {identity: metadata for identity, metadata in runs.items() if subject in metadata["test"]}
    if not chosen:
        known = sorted({name for metadata in runs.values() for name in metadata["test"]})
        some = f"{', '.join(known[:8])}{' …' * (len(known) > 8)}"
        raise BadUse(f"no finished run held {subject!r} out; held out were {some}")
    if run is None:  # a study's run on a part of the cohort is explained only if it is named
        chosen = {identity: metadata for identity, metadata in latest(chosen).items() if not _part(metadata)} or chosen
        # Pipelines of the user's own are not stored: they are named only if there is nothing else.
        own = {identity for identity, metadata in chosen.items() if metadata["settings"].get("address")}
        chosen = {identity: metadata for identity, metadata in chosen.items() if identity not in own} or chosen
    else:
        chosen = {identity: metadata for identity, metadata in chosen.items() if identity.startswith(run)}
        if not chosen:
            raise BadUse(f"no finished run {run!r} held {subject} out")
    if method is not None:
        one_of("method", method, sorted({_method(m) for m in chosen.values()}), " (what can be explained here)")
        chosen = {identity: metadata for identity, metadata in chosen.items() if _method(metadata) == method}
    identity = _only(chosen, subject)
    others = [_title(other) for name, other in chosen.items() if name != identity]
    metadata = chosen[identity]
    opened = subset(cohort_of(metadata["cohort"], store.root, cohort), metadata.get("kept") or {})  # the run's windows
    record = opened.records[subject]
    recordings = list(zip(record.recordings, record.recording_windows, strict=True))
    person = Person(subject, opened.windows(subject), opened.window_starts(subject), recordings, record.label)
    return HeldOut(store, identity, metadata, opened, person, others)


def _finished(store: RunStore) -> dict[str, Metadata]:
    return {identity: store.metadata(identity) for identity in sorted(store.finished())}


def _method(metadata: Metadata) -> str:
    return str(metadata["settings"]["method"])


def _only(chosen: Mapping[str, Metadata], subject: str) -> str:
    """The run of the only experiment, or of the only network; the lowest seed."""
    chosen = {i: m for i, m in chosen.items() if m["settings"]["backbone"] is not None} or chosen
    ordered = sorted(chosen, key=lambda identity: int(chosen[identity]["seed"]))
    experiments: dict[tuple[Any, ...], str] = {}  # the first run of each
    for i in ordered:
        m = chosen[i]
        key = m["settings_hash"], m["cohort"]["hash"], (m["split"] or {}).get("hash"), _part(m)
        experiments.setdefault(key, i)
    if len(experiments) > 1:
        facts = {i: _facts(chosen[i]) for i in experiments.values()}
        differ = [k for k in dict.fromkeys(chain(*facts.values())) if len({f.get(k) for f in facts.values()}) > 1]
        titles = [
            ", ".join([_title(chosen[i]), *(f"{k} {f[k]}" for k in differ if k in f)]) + f" (--run {i[:8]})"
            for i, f in facts.items()
        ]
        raise BadUse(f"several runs held {subject} out; choose with --method or --run: {'; '.join(sorted(titles))}")
    return ordered[0]


def _facts(metadata: Metadata) -> dict[str, str]:
    """What may distinguish experiments of one method and backbone."""
    settings, split = Settings.model_validate(metadata["settings"]), metadata["split"] or {}
    facts = {"budget": settings.budget, "recipe": settings.budget and settings.recipe} | changed_from_budget(settings)
    facts |= {"split": str(split.get("hash"))[:8], "cohort": metadata["cohort"]["path"]}
    return {name: str(value) for name, value in facts.items() if value}


def _title(metadata: Metadata, of: str = "") -> str:
    part = f", {_part(metadata)}" if _part(metadata) else ""
    title = Settings.model_validate(metadata["settings"]).title
    return f"{title}{part}, fold {metadata['fold']}{of}, seed {metadata['seed']}"


def _part(metadata: Metadata) -> str:
    """The part of the cohort that a study's run used; empty for the whole cohort."""
    return str((metadata["split"] or {}).get("part", ""))


def cohort_of(recorded: Mapping[str, Any], root: Path, given: str | Path | Cohort | None = None) -> Cohort:
    """The cohort that runs in ``root`` recorded in run.json, or the one given; refused if it is another."""
    where = recorded["path"]
    place = given if given is not None else cohort_place(where, root)
    if place is None:
        lost = f"{where} is no longer at its recorded path" if where else "was in memory only and is not stored"
        raise BadUse(f"the cohort {lost} (state where it is: --cohort FOLDER)")
    cohort = place if isinstance(place, Cohort) else Cohort.open(place)
    if cohort.hash != recorded["hash"]:
        raise BadData(f"the cohort {cohort.path or ''} has changed since the runs (the right one: --cohort FOLDER)")
    return cohort


def cohort_place(recorded: str, root: Path) -> Path | None:
    """The folder of a cohort by the path that was given to the run, absolute or relative; None if it is not there.

    It is also found next to the folder of runs, or next to its parent, if both were moved together.
    """
    beside = [folder / part for folder in root.absolute().parents[:2] for part in (recorded, Path(recorded).name)]
    return next((place for place in (Path(recorded), *beside) if recorded and place.is_dir()), None)


def observed_frequency(predictions: pd.DataFrame, subject: str, class_name: str, p: float) -> str:
    """Frequency of a class among other held-out subjects with a similar predicted probability, as a sentence."""
    low, high = max(0.0, p - NEAR), min(1.0, p + NEAR)
    others = predictions[predictions["subject"] != subject]
    labels = others.loc[others[f"p_{class_name}"].between(low, high), "label"]
    share = (labels == class_name).mean() if len(labels) >= FEW else None
    return macro(TEXTS, "observed_frequency")(class_name, len(labels), share, low, high)


def reliability_warnings(predictions: pd.DataFrame) -> list[str]:
    """Whether the held-out predictions of a method are not better than chance."""
    from bridgemil.evaluation.metrics import accuracy, accuracy_interval, chance

    low, high = accuracy_interval(predictions)
    level, _, _ = chance(predictions["label"].tolist())
    n = predictions["subject"].nunique()
    return [] if low > level else [macro(TEXTS, "not_better_than_chance")(accuracy(predictions), n, low, high, level)]


@dataclass(frozen=True)
class BandShares:
    """Relative band power in percent, mean over electrodes and windows: one subject and the training subjects."""

    bands: Sequence[str]  # B names with their edges
    subject: Floats  # (B,)
    by_class: dict[str, Floats]  # of the training subjects, (n_subjects, B), by class
    # If the training subjects are not available: their 5th, 25th, 50th, 75th and 95th percentile, (5, B), by class, and
    # their number.
    quantiles: dict[str, Floats] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)


def reference_of(settings: Settings) -> str:
    """The reference in which a model sees the EEG: ``average`` or ``recorded``."""
    return "average" if settings.reference_free else "recorded"


def band_shares(
    bag: Any, sfreq: float, bands: Iterable[Band], reference: str = "recorded", most: int = MOST_WINDOWS
) -> Floats:
    """Relative band power of a subject in percent, shape (C, B), over up to ``most`` windows (n, C, T) in µV."""
    windows = rereferenced(np.asarray(bag[evenly(len(bag), most)]), reference)
    shares: Floats = 100 * window_band_power(windows, sfreq, bands).mean(axis=0)
    return shares


def compare_bands(cohort: Cohort, subjects: Sequence[str], bag: Any, reference: str = "recorded") -> BandShares:
    """Relative band power of one subject's windows and of some subjects of a cohort, by class."""
    held, _ = some_bands(CLINICAL_BANDS, cohort.signal)
    rows: dict[str, list[Floats]] = {}
    for subject in subjects:
        shares = band_shares(cohort.windows(subject), cohort.sfreq, held.values(), reference)
        rows.setdefault(cohort.records[subject].label, []).append(shares.mean(axis=0))
    own = band_shares(bag, cohort.sfreq, held.values(), reference).mean(axis=0)
    by_class = {name: np.array(rows[name]) for name in cohort.classes if name in rows}
    return BandShares([f"{name} {band_name(band)}" for name, band in held.items()], own, by_class)
