"""``validate``: external validation of a finished model, on labelled subjects that it has never seen.

Discrimination, sensitivity and specificity at the model's own threshold, calibration, out-of-distribution percentiles,
prediction sets and subgroups, beside the internal numbers of cross-validation. Who was among the training subjects is
recognised by hashes of the signals, and refused.
"""

from __future__ import annotations

import json
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bridgemil.bundle.bundle import Bundle
from bridgemil.bundle.conformal import summary
from bridgemil.bundle.novelty import OUTSIDE, WITHHELD
from bridgemil.bundle.prediction import assess, describe, features_of
from bridgemil.cohort.channels import key
from bridgemil.cohort.cleaning import Cleaner
from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.new_recording import settings_for
from bridgemil.cohort.pool import refuse_other_signals
from bridgemil.cohort.prepare import prepare
from bridgemil.cohort.tables import SEX
from bridgemil.errors import BadData, BadUse, BridgeMILWarning, some
from bridgemil.evaluation import metrics
from bridgemil.evaluation.calibration import calibration_error, calibration_line
from bridgemil.evaluation.clinical import ClinicalOptions, PerClassMetrics, TwoClassMetrics, clinical_metrics
from bridgemil.evaluation.diagnostic_accuracy import Proportion
from bridgemil.models import FitCache, predict_subject
from bridgemil.models.harmonisation import unknown_site
from bridgemil.parallel import each
from bridgemil.report.characteristics import FEW_OF_A_CLASS, Group, by_age, by_value
from bridgemil.report.tables import Sheet
from bridgemil.storage.artifact import is_artifact

if TYPE_CHECKING:
    import pandas as pd

LIMITS = (OUTSIDE, WITHHELD)
TITLES = {"balanced_accuracy": "balanced accuracy", "auroc": "AUROC"}


@dataclass(frozen=True)
class Validation:
    """The external validation of a model."""

    bundle: Bundle
    source: str  # what it was validated on
    # seed, fold (both 0), subject, label, predicted, p_<class>…, percentile, withheld, prediction_set (of classes)
    predictions: pd.DataFrame
    groups: list[Group]  # subjects by sex and age, where they are known
    left_out: list[dict[str, str]]  # what and why
    site_maps: list[str]  # where the model adjusts features per site, of which subjects as of which site

    @property
    def classes(self) -> list[str]:
        """The classes that occur among the subjects."""
        return [name for name in self.bundle.classes if name in set(self.predictions["label"])]

    @cached_property
    def two_classes(self) -> TwoClassMetrics | None:
        """Clinical metrics with curves; None unless there are two classes, and both occur."""
        found = self._clinical(self.predictions)
        return found if isinstance(found, TwoClassMetrics) and len(self.classes) == 2 else None

    def _clinical(self, rows: pd.DataFrame) -> TwoClassMetrics | PerClassMetrics:
        positive = self.bundle.metadata["performance"]["clinical"].get("positive")
        return clinical_metrics(rows, self.bundle.classes, ClinicalOptions(positive))

    @cached_property
    def measures(self) -> dict[str, Proportion]:
        """Accuracy, balanced accuracy, AUROC, sensitivity and specificity with 95 % intervals, as far as defined."""
        return self._measures(self.predictions)

    def _measures(self, rows: pd.DataFrame) -> dict[str, Proportion]:
        n, found = len(rows), dict[str, Proportion]()
        if not n:
            return found
        if set(rows["label"]) == set(self.bundle.classes):
            found["accuracy"] = _share(rows["predicted"] == rows["label"])
            values, ends = metrics.scores(rows, self.bundle.classes), metrics.score_intervals(rows, self.bundle.classes)
            found |= {name: Proportion(values[name], *ends[name], n) for name in TITLES}
        clinical = self._clinical(rows)
        if isinstance(clinical, TwoClassMetrics):
            own = {name: clinical.measures[name] for name in ("sensitivity", "specificity")}
        else:
            own = {f"{m}, {name}": value for name, part in clinical.classes.items() for m, value in part.items()}
        return found | {name: value for name, value in own.items() if value.n}

    @cached_property
    def without_withheld(self) -> dict[str, Proportion]:
        """The same measures of the subjects whose prediction is not withheld."""
        return self._measures(self.predictions[~self.predictions["withheld"]])

    @cached_property
    def calibration(self) -> dict[str, Any]:
        """Expected calibration error; of two classes that both occur also slope and intercept."""
        error = calibration_error(*metrics.labelled(self.predictions, self.bundle.classes))
        found: dict[str, Any] = {"error": error.for_json()}
        if self.two_classes is not None:
            found |= calibration_line(self.two_classes.p[0], self.two_classes.y)
        return found

    @cached_property
    def sets(self) -> dict[str, Any]:
        """Coverage of the prediction sets, by class, and their sizes; a withheld prediction excludes no class."""
        sets, labels = self.predictions["prediction_set"].tolist(), self.predictions["label"].to_numpy()
        return summary(sets, labels, self.classes, self.bundle.sets.coverage, _share)

    @cached_property
    def out_of_distribution(self) -> dict[str, Any]:
        """Median percentile, and shares above the limits of warnings and of withheld predictions."""
        percentile = self.predictions["percentile"]
        shares = {f"above_{limit:.0f}": _share(percentile > limit) for limit in LIMITS}
        return {"median": float(percentile.median()), **shares}

    @property
    def not_computed(self) -> list[str]:
        """What the classes among the subjects do not allow."""
        absent = ", ".join(name for name in self.bundle.classes if name not in self.classes)
        if not absent:
            return []
        return [
            f"There are no subjects of {absent}: AUROC, accuracy, calibration slope and intercept, decision curve and "
            f"the share of {absent} that is recognised cannot be computed."
        ]

    @property
    def table(self) -> Sheet:
        """The measures, beside those of internal cross-validation."""
        metadata, sets, found = self.bundle.metadata, self.sets, self.out_of_distribution
        performance, inside = metadata["performance"], metadata["prediction_sets"]["measured"]
        calibration = metadata["calibration"] | {"error": metadata["calibration"]["error"]["after"]}
        measured = _by_title(inside) if inside["stated"] == sets["stated"] else {}
        n, errors = self.predictions["withheld"].sum(), ("slope", "intercept", "error")
        values = [(TITLES.get(name, name), own, _internal(performance, name)) for name, own in self.measures.items()]
        if n:
            others = self.without_withheld.items()
            values += [(f"{TITLES.get(name, name)}, without {n} withheld", own, None) for name, own in others]
        own = [(name, self.calibration[name]) for name in errors if name in self.calibration]
        values += [(f"calibration {name}", value, calibration.get(name)) for name, value in own]
        values += [(title, value, measured.get(title)) for title, value in _by_title(sets).items()]
        rows = [[title, _text(value), _text(internal)] for title, value, internal in values]
        rows.append(["out of distribution: median", f"{found['median']:.0f}", "50"])
        for limit, title in zip(LIMITS, (f"above {OUTSIDE:.0f}", "withheld"), strict=True):
            expected = max(1 - limit / 100, 1 / (metadata["provenance"]["n_subjects"] + 1))  # of few, one is beyond all
            rows.append([f"out of distribution: {title}", _text(found[f"above_{limit:.0f}"]), f"{expected:.2f}"])
        title = f"{self.bundle.name}: external validation on {len(self.predictions)} subjects"
        columns, after = ["", "here (95 %)", "internal (95 %)"], [*self.not_computed, *self.site_maps]
        return Sheet(f"{title} ({self._counted(self.predictions)})", columns, rows, after=after)

    def _counted(self, rows: pd.DataFrame) -> str:
        counts = Counter(rows["label"])
        return ", ".join(f"{counts[name]} {name}" for name in self.classes)

    @cached_property
    def _by_group(self) -> dict[str, tuple[pd.DataFrame, dict[str, Proportion]]]:
        rows = {one.title: self.predictions[self.predictions["subject"].isin(one.subjects)] for one in self.groups}
        return {title: (own, self._measures(own)) for title, own in rows.items()}

    @property
    def subgroups(self) -> Sheet | None:
        """Measures by sex and age; None where they are not known."""
        names = [name for name in self.measures if "accuracy" not in name]
        rows = []
        for title, (own, measures) in self._by_group.items():
            counts = Counter(own["label"])
            few = min(counts[name] for name in self.bundle.classes) < FEW_OF_A_CLASS
            found = ["-" if few and name in TITLES else _text(measures.get(name)) or "-" for name in names]
            rows.append([title, self._counted(own), *found])
        columns = ["", "subjects", *(TITLES.get(name, name) for name in names)]
        return Sheet("By sex and age (95 %)", columns, rows) if rows else None

    def to_dict(self) -> dict[str, Any]:
        """As ``validate --json`` prints it."""
        metadata, counts = self.bundle.metadata, Counter(self.predictions["label"])
        two = None if self.two_classes is None else self.two_classes.to_dict()
        content = {
            "model": describe(self.bundle),
            "source": self.source,
            "n_subjects": len(self.predictions),
            "classes": {name: counts[name] for name in self.bundle.classes},
            **self.measures,
            "calibration": self.calibration,
            "prediction_sets": self.sets,
            "out_of_distribution": self.out_of_distribution,
            "without_withheld": self.without_withheld,
            "curves": two and {name: two[name] for name in ("roc", "pr", "decision_curve")},
            "subgroups": [{"group": title, **own} for title, (_, own) in self._by_group.items()],
            "internal": {name: metadata[name] for name in ("performance", "calibration", "prediction_sets")},
            "not_computed": self.not_computed,
            "left_out": self.left_out,
            "site_maps": self.site_maps,
            "subjects": self.predictions.drop(columns=["seed", "fold"]).to_dict("records"),
        }
        plain: dict[str, Any] = json.loads(json.dumps(content, default=Proportion.to_dict))
        return plain


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
        others = [subject for subject in cohort.subjects if subject not in labels]
        left_out += [{"what": subject, "why": "its label is none of the classes"} for subject in others]
        known = [who for who in labels if bundle.signals.holds(cohort.windows(who), bundle.signal)]
        if known and not exclude_known:
            used = f"{len(known)} of {len(labels)} subjects were used to train or adapt {bundle.name}"
            raise BadData(f"{source}: {used} ({some(known)}); --exclude-known leaves these out")
        left_out += [{"what": subject, "why": "was used to train or adapt the model"} for subject in known]
        subjects = [subject for subject in labels if subject not in known]
        if not subjects:
            raise BadData(f"{source}: no subject is left to validate on")
        rows = {row["subject"]: row for row in cohort.rows()}
        site_maps = _site_maps(bundle, [rows[subject] for subject in subjects])
        judge = partial(_row, bundle, cohort, labels, rows)
        table = pd.DataFrame([row for _, row in each(judge, subjects, jobs=1, label="predicting", show=progress)])
        groups = [g for g in [*by_value(cohort, SEX), *by_age(cohort)] if set(g.subjects) & set(subjects)]
    return Validation(bundle, str(source), table, groups, left_out, site_maps)


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
        labels, known = ", ".join(cohort.classes) or "missing", ", ".join(bundle.classes)
        how = f"map them with --classes LABEL={bundle.classes[0]},…"
        raise BadUse(f"the labels are {labels}, the classes of {bundle.name} {known}; {how}")
    pairs = zip(cohort.subjects, cohort.labels, strict=True)
    return {subject: mapping[label] for subject, label in pairs if label in mapping}


def _check_signal(bundle: Bundle, cohort: Cohort) -> None:
    """Refuse other electrodes, and recordings that hold less than the model's bands."""
    if list(map(key, cohort.channels)) != list(map(key, bundle.signal.channels)):
        names = ",".join(bundle.signal.channels)
        raise BadData(f"the electrodes of the cohort are not those of {bundle.name}; prepare with --channels {names}")
    rate, highest = cohort.native_sfreq, bundle.reference.highest
    if rate is not None and rate / 2 < highest:
        raise BadData(f"a recording was sampled at {rate:g} Hz; {bundle.name} was trained on up to {highest:g} Hz")


def _site_maps(bundle: Bundle, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """As which site's the features of the subjects with these columns are adjusted; unknown sites are refused."""
    known, column = bundle.model.sites, bundle.model.facts.settings.each[0].site_column
    if not known - {""}:
        return []
    stated = Counter(str(row.get(column, "")) for row in rows)
    others = [site for site in stated if site not in known]
    if others and "" not in known:
        raise BadData(unknown_site(known, *others))
    maps = Counter[str]()
    for site, n in stated.items():
        maps[f"training {column} {site}" if site in known - {""} else "the site that the model was adapted to"] += n
    return [f"Features of {n} subjects were adjusted as those of {whose}." for whose, n in maps.items()]


def _row(
    bundle: Bundle, cohort: Cohort, labels: Mapping[str, str], rows: Mapping[str, Mapping[str, Any]], subject: str
) -> dict[str, Any]:
    """The prediction of one subject, a row of ``Validation.predictions``."""
    prediction = predict_subject(bundle.model.for_subject(rows[subject]), cohort, subject, FitCache())
    found = assess(bundle, prediction, features_of(bundle, cohort.windows(subject)))
    return {
        "seed": 0, "fold": 0, "subject": subject, "label": labels[subject], "predicted": found.most_probable,
        **{f"p_{name}": p for name, p in found.by_class().items()},
        "percentile": found.percentile, "withheld": found.withheld, "prediction_set": found.prediction_set,
    }  # fmt: skip


def _share(hit: Any) -> Proportion:
    """Of a Boolean array or column, with its interval."""
    return Proportion.of(hit.sum(), len(hit))


def _by_title(sets: Mapping[str, Any]) -> dict[str, Any]:
    """Shares of prediction sets, as the table names them."""
    title = f"{100 * sets['stated']:g} % sets"
    by_class = {f"{title}: coverage, {name}": value for name, value in sets["by_class"].items()}
    sizes = {"one class": sets["one_class"], "several classes": sets["several"], "no class": sets["none"]}
    return {f"{title}: coverage": sets["coverage"], **by_class} | {f"{title}: {n}": share for n, share in sizes.items()}


def _text(found: Proportion | Mapping[str, Any] | float | None) -> str:
    """A value with its 95 % interval; empty for none, a dash where it is not defined."""
    if found is None or isinstance(found, float):
        return "" if found is None else f"{found:.3f}"
    content = found.to_dict() if isinstance(found, Proportion) else found
    if content["value"] is None:
        return "-"
    return f"{content['value']:.3f} ({content['ci95'][0]:.3f} to {content['ci95'][1]:.3f})"


def _internal(performance: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    """The same measure of cross-validation; of more than two classes ``sensitivity, CLASS``."""
    measure, comma, group = name.partition(", ")
    clinical = performance["clinical"]["per_class"][group] if comma else performance["clinical"]
    found: Mapping[str, Any] | None = performance.get(name) or clinical.get(measure)
    return found
