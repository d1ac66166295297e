"""``validate``: external validation of a finished model, on labelled subjects that it has never seen.

Discrimination, sensitivity and specificity at the model's own threshold, calibration, out-of-distribution percentiles,
prediction sets and subgroups, beside the internal numbers of cross-validation. Who was among the training subjects is
recognised by hashes of the signals, and refused.
"""

from __future__ import annotations

import math
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bridgemil.bundle.bundle import Bundle
from bridgemil.bundle.novelty import OUTSIDE, WITHHELD
from bridgemil.bundle.prediction import Assessment, assess, describe, features_of
from bridgemil.cohort.channels import key
from bridgemil.cohort.cleaning import Cleaner
from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.new_recording import settings_for
from bridgemil.cohort.pool import refuse_other_signals
from bridgemil.cohort.prepare import prepare
from bridgemil.cohort.tables import SEX
from bridgemil.errors import BadData, BadUse, BridgeMILWarning
from bridgemil.evaluation import metrics
from bridgemil.evaluation.calibration import calibration_error, calibration_line
from bridgemil.evaluation.clinical import ClinicalOptions, PerClassMetrics, TwoClassMetrics, clinical_metrics
from bridgemil.evaluation.diagnostic_accuracy import Proportion
from bridgemil.models import FitCache
from bridgemil.models.model import predict_subject
from bridgemil.parallel import each
from bridgemil.report.characteristics import FEW_OF_A_CLASS, Group, by_age, by_value
from bridgemil.report.tables import Sheet
from bridgemil.storage.artifact import is_artifact

if TYPE_CHECKING:
    import pandas as pd

MOST_NAMED = 5
TITLES = {"balanced_accuracy": "balanced accuracy", "auroc": "AUROC"}


@dataclass(frozen=True)
class Validation:
    """The external validation of a model.

    Parameters
    ----------
    bundle : Bundle
        The model.
    source : str
        What it was validated on.
    predictions : DataFrame
        seed, fold (both 0), subject, label, predicted (the most probable class), p_<class>…, percentile, withheld,
        prediction_set (tuples of classes).
    groups : list of Group
        Subjects by sex and age, where they are known.
    left_out : list of dict
        ``what`` and ``why``.
    """

    bundle: Bundle
    source: str
    predictions: pd.DataFrame
    groups: list[Group]
    left_out: list[dict[str, str]]

    @property
    def classes(self) -> list[str]:
        """The classes that occur among the subjects."""
        return [name for name in self.bundle.classes if name in set(self.predictions["label"])]

    @cached_property
    def clinical(self) -> TwoClassMetrics | PerClassMetrics:
        """Clinical metrics; of a class that does not occur they are not defined."""
        named = self.bundle.metadata["performance"]["clinical"].get("positive")
        return clinical_metrics(self.predictions, self.bundle.classes, ClinicalOptions(named))

    @cached_property
    def two_classes(self) -> TwoClassMetrics | None:
        """Clinical metrics with curves; None unless there are two classes, and both occur."""
        found = self.clinical
        return found if isinstance(found, TwoClassMetrics) and len(self.classes) == 2 else None

    @cached_property
    def measures(self) -> dict[str, Proportion]:
        """Accuracy, balanced accuracy, AUROC, sensitivity and specificity with 95 % intervals, as far as defined."""
        return self._measures(self.predictions)

    @cached_property
    def calibration(self) -> dict[str, Any]:
        """Expected calibration error; of two classes that both occur also slope and intercept."""
        y = self.predictions["label"].map(self.bundle.classes.index).to_numpy(dtype=np.int64)
        p = self.predictions[[f"p_{name}" for name in self.bundle.classes]].to_numpy(dtype=float)
        found: dict[str, Any] = {"error": calibration_error(p, y).for_json()}
        if self.two_classes is not None:
            found |= calibration_line(self.two_classes.p[0], self.two_classes.y)
        return found

    @cached_property
    def sets(self) -> dict[str, Any]:
        """Coverage of the prediction sets, by class, and their sizes; a withheld prediction excludes no class."""
        rows = self.predictions
        hit = np.array([label in found for label, found in zip(rows["label"], rows["prediction_set"], strict=True)])
        size = rows["prediction_set"].map(len).to_numpy()
        shares = {"one_class": size == 1, "several": size > 1, "none": size == 0}
        return {
            "stated": self.bundle.sets.coverage,
            "coverage": Proportion.of(hit.sum(), len(hit)),
            "by_class": {name: Proportion.of(*_count(hit, rows["label"] == name)) for name in self.classes},
            **{name: float(own.mean()) for name, own in shares.items()},
        }

    @cached_property
    def out_of_distribution(self) -> dict[str, Any]:
        """Median percentile, and shares above the limits of warnings and of withheld predictions."""
        percentile = self.predictions["percentile"].to_numpy()
        shares = {f"above_{limit:.0f}": Proportion.of((percentile > limit).sum(), len(percentile)) for limit in LIMITS}
        return {"median": float(np.median(percentile)), **shares}

    @property
    def not_computed(self) -> list[str]:
        """What the classes among the subjects do not allow."""
        absent = [name for name in self.bundle.classes if name not in self.classes]
        if not absent:
            return []
        return [
            f"There are no subjects of {', '.join(absent)}: AUROC, accuracy, calibration slope and intercept, decision "
            f"curve and the share of {', '.join(absent)} that is recognised cannot be computed."
        ]

    def _of(self, group: Group) -> pd.DataFrame:
        return self.predictions[self.predictions["subject"].isin(group.subjects)]

    def _measures(self, rows: pd.DataFrame) -> dict[str, Proportion]:
        n, found = len(rows), dict[str, Proportion]()
        if not n:
            return {}
        if set(rows["label"]) == set(self.bundle.classes):
            found["accuracy"] = Proportion.of((rows["predicted"] == rows["label"]).sum(), n)
            values, ends = metrics.scores(rows, self.bundle.classes), metrics.score_intervals(rows, self.bundle.classes)
            found |= {name: Proportion(values[name], *ends[name], n) for name in TITLES}
        options = self.clinical.options if isinstance(self.clinical, TwoClassMetrics) else None
        clinical = clinical_metrics(rows, self.bundle.classes, options)
        if isinstance(clinical, TwoClassMetrics):
            own = {name: clinical.measures[name] for name in ("sensitivity", "specificity")}
        else:
            own = {f"{m}, {name}": value for name, part in clinical.classes.items() for m, value in part.items()}
        return found | {name: value for name, value in own.items() if value.n}

    @property
    def table(self) -> Sheet:
        """The measures, beside those of internal cross-validation."""
        inner = partial(_internal, self.bundle.metadata["performance"])
        rows = [[TITLES.get(name, name), _shown(value), inner(name)] for name, value in self.measures.items()]
        withheld = self.predictions["withheld"]
        if withheld.any():
            rest = self._measures(self.predictions[~withheld])
            rows += [
                [f"{TITLES.get(name, name)}, without {withheld.sum()} withheld", _shown(value), ""]
                for name, value in rest.items()
            ]
        internal = self.bundle.metadata["calibration"]
        for name in ("slope", "intercept"):
            if name in self.calibration:
                rows.append([f"calibration {name}", _ends(self.calibration[name]), _ends(internal.get(name))])
        rows.append(["calibration error", _ends(self.calibration["error"]), _ends(internal["error"]["after"])])
        stated, inside = f"{100 * self.sets['stated']:g} %", self.bundle.metadata["prediction_sets"]["measured"]
        same = inside["stated"] == self.sets["stated"]
        for name, value in {"": self.sets["coverage"], **self.sets["by_class"]}.items():
            share = inside["by_class"].get(name, inside["coverage"])
            title = f"{stated} sets: coverage" + (f", {name}" if name else "")
            rows.append([title, _shown(value), f"{share:.3f}" if same else ""])
        for name, title in {"one_class": "one class", "several": "several classes", "none": "no class"}.items():
            rows.append([f"{stated} sets: {title}", f"{self.sets[name]:.3f}", f"{inside[name]:.3f}" if same else ""])
        found = self.out_of_distribution
        rows.append(["out of distribution: median", f"{found['median']:.0f}", "50"])
        for limit in LIMITS:
            title = "withheld" if limit == WITHHELD else f"above {limit:.0f}"
            rows.append(
                [f"out of distribution: {title}", _shown(found[f"above_{limit:.0f}"]), f"{1 - limit / 100:.2f}"]
            )
        counts = Counter(self.predictions["label"])
        n = ", ".join(f"{counts[name]} {name}" for name in self.classes)
        title = f"{self.bundle.name}: external validation on {len(self.predictions)} subjects ({n})"
        return Sheet(title, ["", "here (95 %)", "internal (95 %)"], rows, after=self.not_computed)

    @property
    def subgroups(self) -> Sheet | None:
        """Measures by sex and age; None where they are not known."""
        names = [name for name in self.measures if "accuracy" not in name]
        rows = []
        for group in self.groups:
            own = self._of(group)
            counts, found = Counter(own["label"]), self._measures(own)
            few = min(counts[name] for name in self.bundle.classes) < FEW_OF_A_CLASS
            found = {name: value for name, value in found.items() if not (few and name in TITLES)}
            n = ", ".join(f"{counts[name]} {name}" for name in self.classes)
            rows.append([group.title, n, *(_shown(found[name]) if name in found else "-" for name in names)])
        return (
            Sheet("By sex and age (95 %)", ["", "subjects", *(TITLES.get(name, name) for name in names)], rows)
            if rows
            else None
        )

    def to_dict(self) -> dict[str, Any]:
        """As ``validate --json`` prints it."""
        metadata, counts = self.bundle.metadata, Counter(self.predictions["label"])
        curves = None
        if self.two_classes is not None:
            content = self.two_classes.to_dict()
            curves = {name: content[name] for name in ("roc", "pr", "decision_curve")}
        columns = [name for name in self.predictions if name not in ("seed", "fold")]
        subgroups = [{"group": group.title} | _plain(self._measures(self._of(group))) for group in self.groups]
        return {
            "model": describe(self.bundle),
            "source": self.source,
            "n_subjects": len(self.predictions),
            "classes": {name: counts[name] for name in self.bundle.classes},
            **_plain(self.measures),
            "calibration": self.calibration,
            "prediction_sets": _plain(self.sets),
            "out_of_distribution": _plain(self.out_of_distribution),
            "without_withheld": _plain(self._measures(self.predictions[~self.predictions["withheld"]])),
            "curves": curves,
            "subgroups": subgroups,
            "internal": {name: metadata[name] for name in ("performance", "calibration", "prediction_sets")},
            "not_computed": self.not_computed,
            "left_out": self.left_out,
            "subjects": self.predictions[columns].to_dict("records"),
        }


LIMITS = (OUTSIDE, WITHHELD)


def validate(
    bundle: Bundle,
    source: str | Path,
    *,
    label: str | None = None,
    classes: Mapping[str, str] | None = None,
    coverage: float | None = None,
    exclude_known: bool = False,
    skip_bad: bool = False,
    clean: str | Sequence[str] = (),
    progress: bool = True,
) -> Validation:
    """Validate a model on labelled subjects that it has never seen.

    Parameters
    ----------
    bundle : Bundle
        From ``bridgemil.bundle.load``.
    source : str or Path
        A cohort that was prepared as the model's training recordings; or recordings to be prepared so: a BIDS folder, a
        manifest.
    label : str, optional
        Column with the diagnosis, for recordings.
    classes : dict of str, optional
        Label to class of the model; subjects with other labels are left out and listed.
    coverage : float, optional
        Of the prediction sets, above 0 and below 1; by default .9.
    exclude_known : bool, default False
        Leave out, and list, whoever was among the training subjects. By default they are an error.
    skip_bad : bool, default False
        Leave out, and list, recordings that cannot be used.
    clean : str or sequence of str, optional
        Addresses of the functions that the training recordings were cleaned by, for recordings.
    progress : bool, default True
        Whether to draw progress bars on standard error.

    Returns
    -------
    Validation

    Raises
    ------
    BadData
        If the signal of a training subject is among them.
    """
    import pandas as pd

    bundle = bundle if coverage is None else replace(bundle, sets=bundle.sets.at(coverage))
    how: dict[str, Any] = {"classes": classes, "skip_bad": skip_bad, "clean": clean, "progress": progress}
    with _opened(bundle, Path(source), label, how) as (cohort, mapping):
        labels = _labels(bundle, cohort, mapping)
        _check_signal(bundle, cohort)
        left_out = [dict(item) for item in cohort.metadata["left_out"]]
        left_out += [{"what": text, "why": "cannot be used"} for text in cohort.metadata.get("skipped", ())]
        why = "its label is none of the classes"
        left_out += [{"what": subject, "why": why} for subject in cohort.subjects if subject not in labels]
        known = [who for who in labels if bundle.signals.holds(cohort.windows(who), bundle.signal)]
        if known and not exclude_known:
            named = ", ".join(known[:MOST_NAMED]) + (" …" if len(known) > MOST_NAMED else "")
            raise BadData(
                f"{source}: {len(known)} of {len(labels)} subjects were used to train or adapt {bundle.name} "
                f"({named}); a validation needs others (--exclude-known leaves these out)"
            )
        left_out += [{"what": subject, "why": "was used to train or adapt the model"} for subject in known]
        subjects = [subject for subject in labels if subject not in known]
        if not subjects:
            raise BadData(f"{source}: no subject is left to validate on")
        rows = {row["subject"]: row for row in cohort.rows()}
        judge = partial(_assessed, bundle, cohort, rows)
        table = [
            _row(bundle, subject, labels[subject], found)
            for subject, found in each(judge, subjects, jobs=1, label="predicting", show=progress)
        ]
        groups = [g for g in [*by_value(cohort, SEX), *by_age(cohort)] if set(g.subjects) & set(subjects)]
    return Validation(bundle, str(source), pd.DataFrame(table), groups, left_out)


@contextmanager
def _opened(
    bundle: Bundle, source: Path, label: str | None, how: dict[str, Any]
) -> Iterator[tuple[Cohort, Mapping[str, str] | None]]:
    """The cohort, or recordings prepared as the model's in a temporary folder; and classes still to be renamed."""
    facts = bundle.model.facts
    if source.is_dir() and is_artifact(source):
        if label is not None:
            raise BadUse("--label is for recordings; a prepared cohort has its labels (--classes renames them)")
        cohort = Cohort.open(source)
        refuse_other_signals([(bundle.name, facts), (str(source), cohort)], "a model and the cohort it is validated on")
        yield cohort, how["classes"]
        return
    settings = settings_for(bundle.signal, facts.preparation)
    Cleaner.again(settings.clean, how["clean"])
    with tempfile.TemporaryDirectory(prefix="bridgemil-") as folder, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "one class only", BridgeMILWarning)
        out, chosen = Path(folder) / "cohort", settings.model_dump(exclude={"clean"})
        yield prepare(source, out, label=label, **how, **chosen), None


def _labels(bundle: Bundle, cohort: Cohort, classes: Mapping[str, str] | None) -> dict[str, str]:
    """The class of each subject that is validated on."""
    mapping = dict(classes) if classes is not None else {name: name for name in cohort.classes}
    wrong = sorted(set(mapping.values()) - set(bundle.classes))
    if wrong or not mapping:
        raise BadUse(
            f"the labels are {', '.join(cohort.classes) or 'missing'}, the classes of {bundle.name} "
            f"{', '.join(bundle.classes)}; map them with --classes LABEL={bundle.classes[0]},…"
        )
    pairs = zip(cohort.subjects, cohort.labels, strict=True)
    return {subject: mapping[label] for subject, label in pairs if label in mapping}


def _check_signal(bundle: Bundle, cohort: Cohort) -> None:
    """Refuse other electrodes, and recordings that hold less than the model's bands."""
    own, wanted = [key(name) for name in cohort.channels], [key(name) for name in bundle.signal.channels]
    if own != wanted:
        names = ",".join(bundle.signal.channels)
        raise BadData(
            f"the electrodes of the cohort are not those of {bundle.name}; prepare it with --channels {names}"
        )
    highest = max((end for _, end in bundle.reference.bands.values()), default=0.0)
    if cohort.native_sfreq is not None and cohort.native_sfreq / 2 < highest:
        raise BadData(
            f"a recording was sampled at {cohort.native_sfreq:g} Hz and holds nothing above "
            f"{cohort.native_sfreq / 2:g} Hz; {bundle.name} was trained on up to {highest:g} Hz"
        )


def _assessed(bundle: Bundle, cohort: Cohort, rows: Mapping[str, Mapping[str, Any]], subject: str) -> Assessment:
    bag = cohort.windows(subject)
    prediction = predict_subject(bundle.model.for_subject(rows[subject]), cohort, subject, FitCache())
    return assess(bundle, prediction, features_of(bundle, bag), len(bag))


def _row(bundle: Bundle, subject: str, label: str, found: Assessment) -> dict[str, Any]:
    p = found.probabilities
    return {
        "seed": 0, "fold": 0, "subject": subject, "label": label, "predicted": bundle.classes[int(p.argmax())],
        **{f"p_{name}": float(value) for name, value in zip(bundle.classes, p, strict=True)},
        "percentile": found.percentile, "withheld": found.percentile > WITHHELD, "prediction_set": found.prediction_set,
    }  # fmt: skip


def _count(hit: NDArray[np.bool_], rows: Any) -> tuple[float, float]:
    own = np.asarray(rows)
    return float(hit[own].sum()), float(own.sum())


def _shown(found: Proportion) -> str:
    return "-" if math.isnan(found.value) else f"{found.value:.3f} ({found.low:.3f} to {found.high:.3f})"


def _ends(found: Mapping[str, Any] | None) -> str:
    """A value with ``ci95`` as text; empty for none."""
    if found is None or found["value"] is None:
        return ""
    return f"{found['value']:.3f} ({found['ci95'][0]:.3f} to {found['ci95'][1]:.3f})"


def _internal(performance: Mapping[str, Any], name: str) -> str:
    """The same measure of cross-validation; of more than two classes ``sensitivity, CLASS``."""
    measure, comma, group = name.partition(", ")
    clinical = performance["clinical"]["per_class"][group] if comma else performance["clinical"]
    return _ends(performance.get(name) or clinical.get(measure))


def _plain(found: Mapping[str, Any]) -> dict[str, Any]:
    """Proportions as JSON has them."""
    plain = {name: value.to_dict() for name, value in found.items() if isinstance(value, Proportion)}
    nested = {name: _plain(value) for name, value in found.items() if isinstance(value, Mapping)}
    return {**found, **plain, **nested}
