"""The results of an experiment: held-out predictions of every subject, and one row that sums them up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from bridgemil.cohort.folds import FoldPlan
from bridgemil.errors import BadUse
from bridgemil.evaluation import display, metrics
from bridgemil.evaluation.clinical import ClinicalOptions, PerClassMetrics, TwoClassMetrics, clinical_metrics
from bridgemil.evaluation.sites import GROUP_SCORES, adjustment, associations, group_scores
from bridgemil.evaluation.statistics import Comparison, compare, corrected, counted
from bridgemil.evaluation.tuning import choice
from bridgemil.learning.settings import AlignmentSettings
from bridgemil.methods import Settings
from bridgemil.runs import AuditWarning, RunStore, merged, warning_text

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd

TOGETHER = -1  # stands for the seed where several are averaged
GROUPED = (
    "Subjects of one group are in one fold; intervals and tests take them for independent, and are too narrow where "
    "they are alike (one person twice, a family)."
)


@dataclass(frozen=True)
class Results:
    """What ``evaluate`` returns: n subjects, each held out once per seed; K classes."""

    settings: Settings
    classes: list[str]
    predictions: pd.DataFrame  # seed, fold, subject, label, predicted, p_<class>…
    curves: pd.DataFrame  # seed, fold, phase, epoch, loss, validation_accuracy, …; empty for a baseline
    runs: list[str]  # identities, in the store of ``out``
    seconds: float  # of computing, all runs together
    split: Mapping[str, Any] = field(default_factory=dict)  # kind, k, split_seed, hash, title
    baselines: Mapping[str, Results] = field(default_factory=dict)  # the simple baselines on the same folds
    members: Mapping[str, Results] = field(default_factory=dict)  # of an ensemble
    missing_baselines: Mapping[str, str] = field(default_factory=dict)  # name -> why it could not be evaluated
    warnings: list[AuditWarning] = field(default_factory=list)  # of the cohort's audit: check, level, message
    bands_left_out: Mapping[str, str] = field(default_factory=dict)  # frequency bands that are no features -> why
    tuning: list[dict[str, Any]] = field(default_factory=list)  # what each fold chose, and among which candidates
    clinical_options: ClinicalOptions = field(default_factory=ClinicalOptions)  # positive class, operating point, …
    rows: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # columns that features were adjusted for
    title: str = ""  # its name, where that is not the method's
    _windows: Callable[[], pd.DataFrame] | None = field(default=None, repr=False, compare=False)

    @property
    def name(self) -> str:
        """The method, as tables name it."""
        return self.title or self.settings.method

    @property
    def probabilities(self) -> list[str]:
        """The columns of predicted probabilities, one of each class."""
        return [f"p_{name}" for name in self.classes]

    @property
    def folds(self) -> int:
        """The number of folds."""
        return int(self.predictions["fold"].nunique())

    @property
    def seeds(self) -> int:
        """The number of seeds."""
        return int(self.predictions["seed"].nunique())

    @property
    def labels(self) -> list[str]:
        """The diagnosis of each subject."""
        return self.predictions.drop_duplicates("subject")["label"].tolist()

    @cached_property
    def windows(self) -> pd.DataFrame:
        """One row per window of every held-out subject: seed, fold, subject, window, second and its values.

        ``gate`` where the method has attention, ``contribution_<class>`` where windows add up to the logits,
        ``p_<class>`` of a majority vote. Empty for a baseline, which does not look at windows one by one.
        """
        import pandas as pd

        return pd.DataFrame() if self._windows is None else self._windows()

    @cached_property
    def summary(self) -> pd.DataFrame:
        """One row: accuracy pooled over subjects, its mean over folds, the other scores, intervals, settings.

        Means and standard deviations are over seeds.
        """
        import pandas as pd

        per_seed = [seed_rows for _, seed_rows in self.predictions.groupby("seed")]
        accuracy = [metrics.accuracy(seed_rows) for seed_rows in per_seed]
        fold_means = [metrics.fold_mean(seed_rows) for seed_rows in per_seed]
        scores = pd.DataFrame([metrics.scores(seed_rows, self.classes) for seed_rows in per_seed]).mean()
        low, high = metrics.accuracy_interval(self.predictions)
        level, chance_low, chance_high = metrics.chance(self.labels)
        row = {
            "method": self.settings.method,
            "backbone": self.settings.backbone,
            "recipe": None if self.settings.budget is None else self.settings.recipe,
            "budget": self.settings.budget,
            "subbag_pairs": subbag_pairs(self.settings),
            "accuracy": float(np.mean(accuracy)),
            "accuracy_std": float(np.std(accuracy)),
            "fold_mean": float(np.mean(fold_means)),
            "fold_mean_std": float(np.std(fold_means)),
            **scores.to_dict(),
            "ci95_low": low,
            "ci95_high": high,
            "chance": level,
            "chance95_low": chance_low,
            "chance95_high": chance_high,
            "n_subjects": len(self.labels),
            "folds": self.folds,
            "seeds": self.seeds,
            "seconds": self.seconds,
            "settings_hash": self.settings.hash,
        }
        return pd.DataFrame([row])

    @property
    def confusion(self) -> pd.DataFrame:
        """Subjects by diagnosis (rows) and prediction (columns), mean over seeds; K x K."""
        import pandas as pd

        counts = pd.crosstab(self.predictions["label"], self.predictions["predicted"])
        return counts.reindex(index=self.classes, columns=self.classes, fill_value=0) / self.seeds

    @cached_property
    def clinical(self) -> TwoClassMetrics | PerClassMetrics:
        """Sensitivity, specificity, predictive values and curves of two classes; of more, each against the rest.

        At the positive class, operating point and prevalence given to ``evaluate``.
        """
        return clinical_metrics(self.predictions, self.classes, self.clinical_options)

    @cached_property
    def groups(self) -> pd.DataFrame:
        """One row per group that was left out (``leave_out``), with intervals over its subjects; else empty.

        ``group, n, accuracy, balanced_accuracy, auroc`` and ``…_low``, ``…_high``. Balanced accuracy and AUROC of a
        group that lacks a class are not defined.
        """
        import pandas as pd

        rows = [
            {"group": name} | group_scores(own, self.classes)
            for fold, name in enumerate(self.split.get("names", ()), 1)
            if len(own := self.predictions[self.predictions["fold"] == fold])
        ]
        columns = [f"{score}{end}" for score in ("accuracy", *GROUP_SCORES) for end in ("", "_low", "_high")]
        return pd.DataFrame(rows, columns=["group", "n", *columns])

    @property
    def adjustment(self) -> str:
        """How features were adjusted for sites and covariates, as a sentence; empty where they were not."""
        return adjustment(self.settings, leaves_out=self.split.get("kind") == "leave_out")

    def covariates(self, before: Results | None) -> pd.DataFrame:
        """One row per covariate that features were adjusted for; else empty.

        ``covariate``; ``diagnosis``, the AUROC of the diagnosis by the covariate alone; ``score``, the concordance of
        held-out scores with it within the classes (.5: none); the same ``before`` the adjustment, if these results are
        given; each with ``…_low`` and ``…_high``.
        """
        import pandas as pd

        chosen, within = self.settings.each[0], self.split.get("kind") == "leave_out"
        what = self.rows, chosen.adjust, str(chosen.control), within
        own = pd.DataFrame(associations(self.predictions, *what))
        if before is None or own.empty:
            return own
        earlier = pd.DataFrame(associations(before.predictions, *what)).drop(columns=["covariate", "diagnosis"])
        return pd.concat([own, earlier.rename(columns=lambda name: name.replace("score", "before"))], axis=1)

    @property
    def unadjusted(self) -> Results | None:
        """The same method without adjustment for sites and covariates, on the same subjects, if it was evaluated."""
        return next((one for one in self.baselines.values() if one.settings == self.settings.unadjusted), None)

    @property
    def steady(self) -> bool:
        """Whether every seed says the same of every subject, as of most baselines."""
        by_subject = self.predictions.groupby("subject")[self.probabilities]
        return bool((by_subject.max() == by_subject.min()).to_numpy().all())

    @property
    def ensemble(self) -> Results:
        """The seeds together: each subject's probabilities averaged over seeds, as one seed (``TOGETHER``)."""
        if self.seeds == 1:
            return self
        averaged = _mean_probabilities([self.predictions], self.probabilities, self.classes, [1.0])
        return replace(self, predictions=averaged, baselines={}, _windows=None)

    def compare(self, other: Results) -> Comparison:
        """This method against another on the same subjects and folds, by the one test of the package.

        Both are results on the same split of one cohort. Seeds that both have are compared; a baseline that was run
        with one seed is compared with each of the other's.
        """
        return compare_splits([self], [other])

    @cached_property
    def comparisons(self) -> dict[str, Comparison]:
        """This method against each of its baselines; Holm-corrected for their number."""
        compared = [self.compare(baseline) for baseline in self.baselines.values()]
        return dict(zip(self.baselines, corrected(compared), strict=True))

    @property
    def _split_title(self) -> str:
        return str(self.split.get("title", f"{self.folds} folds"))

    @property
    def bands_sentence(self) -> str:
        """The frequency bands that are no features of the method, by reason; empty where there are none."""
        bands: dict[str, list[str]] = {}
        for band, why in self.bands_left_out.items():
            bands.setdefault(why, []).append(band)
        reasons = "; ".join(f"{', '.join(names)} ({why})" for why, names in bands.items())
        return f"Bands that are not held are no features of {self.name}: {reasons}." if reasons else ""

    to_dict = display.to_dict
    to_frame = display.to_frame
    plot = display.plot
    _repr_html_ = display.to_html

    def __repr__(self) -> str:
        row = self.summary.iloc[0]
        together = self.predictions["seed"].iloc[0] == TOGETHER
        seeds = "seeds averaged" if together else counted(self.seeds, "seed")
        scores = f", balanced {row['balanced_accuracy']:.3f}, AUROC {row['auroc']:.3f}" if row["auroc"] >= 0 else ""
        lines = [
            f"{self.settings.title}: accuracy {row['accuracy']:.1%} (95 % {row['ci95_low']:.1%} to "
            f"{row['ci95_high']:.1%}){scores}",
            f"  {row['n_subjects']} subjects of {', '.join(self.classes)}, each held out once: "
            f"{self._split_title}, {seeds}; chance {row['chance']:.1%}",
        ]
        more = [self.adjustment] if self.adjustment else []
        more += [warning_text(warning) for warning in self.warnings]
        more += [f"baseline {one.name}: {one.summary['accuracy'][0]:.1%}" for one in self.baselines.values()]
        return "\n".join([*lines, *(f"  {line}" for line in more)])


def compare_splits(
    one: Sequence[Results], other: Sequence[Results], *, names: tuple[str, str] | None = None
) -> Comparison:
    """Compare two methods on the same splits of one cohort: ``bridgemil.evaluation.statistics.compare``.

    ``names`` are those of the methods by default; results of one split and several seeds are one split.
    """
    import pandas as pd

    methods = (one[0].name, other[0].name)
    names = names or (methods if methods[0] != methods[1] else (f"{methods[0]} (1)", f"{methods[1]} (2)"))
    pairs = [_paired(*pair, names) for pair in zip(one, other, strict=True)]
    splits = [str(results.split.get("hash", i)) for i, results in enumerate(one)]
    mine, theirs = (
        pd.concat([table.assign(split=split) for split, table in zip(splits, tables, strict=True)])
        for tables in zip(*pairs, strict=True)
    )
    # A fold to test, and one to select an epoch on where one is selected.
    training = min(results.folds - (2 if results.settings.selects else 1) for results in (*one, *other))
    return compare(mine, theirs, names, test_to_train=1 / max(1, training))


def _paired(one: Results, other: Results, names: tuple[str, str]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The predictions of both for the seeds that both have; refused where folds or subjects differ."""
    tables = _for_each_seed(one, other), _for_each_seed(other, one)
    shared = set(tables[0]["seed"]) & set(tables[1]["seed"])
    if not shared:
        raise BadUse(f"{names[0]} and {names[1]} share no seed; run both with the same --seeds")
    mine, theirs = (table[table["seed"].isin(shared)] for table in tables)
    keys = ["seed", "fold", "subject"]
    if set(map(tuple, mine[keys].to_numpy())) != set(map(tuple, theirs[keys].to_numpy())):
        raise BadUse(
            f"{names[0]} and {names[1]} were not held out on the same folds ({one._split_title} and "
            f"{other._split_title}); only results on one split of one cohort can be compared"
        )
    return mine, theirs


def _for_each_seed(results: Results, beside: Results) -> pd.DataFrame:
    """Predictions; those of a baseline with one seed, once for each seed of the other results."""
    import pandas as pd

    if any(member.is_network for member in results.settings.each) or results.seeds > 1:
        return results.predictions
    return pd.concat([results.predictions.assign(seed=seed) for seed in beside.predictions["seed"].unique()])


def subbag_pairs(settings: Settings) -> int | None:
    """Pairs of sub-bags in a step, where sub-bags are aligned."""
    stages = (member.stage1 for member in settings.each)
    return next((one.subbag_pairs for one in stages if isinstance(one, AlignmentSettings) and one.subbag), None)


def averaged(members: list[Results], settings: Settings) -> Results:
    """An ensemble: the mean of its members' probabilities, weighted by ``Settings.weight``, seed by seed.

    Its windows are those of its members, each row with its ``member``.
    """
    import pandas as pd

    first, weights, tables = members[0], [member.settings.weight for member in members], []
    for seed in first.predictions["seed"].unique():
        parts = [member.predictions[member.predictions["seed"] == seed] for member in members]
        tables.append(_mean_probabilities(parts, first.probabilities, first.classes, weights).assign(seed=seed))

    def windows() -> pd.DataFrame:
        return _concat([member.windows.assign(member=member.name) for member in members if len(member.windows)])

    return replace(
        first,
        settings=settings,
        predictions=pd.concat(tables, ignore_index=True),
        curves=_concat([member.curves.assign(member=member.name) for member in members if len(member.curves)]),
        runs=[identity for member in members for identity in member.runs],
        seconds=sum(member.seconds for member in members),
        warnings=merged(*(member.warnings for member in members)),
        bands_left_out={band: why for member in members for band, why in member.bands_left_out.items()},
        members={member.name: member for member in members},
        tuning=[{"member": member.name} | row for member in members for row in member.tuning],
        _windows=windows,
    )


def _mean_probabilities(
    tables: list[pd.DataFrame], columns: list[str], classes: list[str], weights: list[float]
) -> pd.DataFrame:
    """Predictions whose probabilities are the mean over several tables of predictions, each with its weight."""
    import pandas as pd

    keys, rows = ["fold", "subject", "label"], []
    for table, weight in zip(tables, weights, strict=True):
        rows.append(table[keys].join(weight * table[columns]).assign(weight=weight))
    sums = pd.concat(rows, ignore_index=True).groupby(keys, sort=False)[[*columns, "weight"]].sum()
    mean = sums[columns].div(sums["weight"], axis=0).reset_index()
    mean.insert(3, "predicted", [classes[k] for k in mean[columns].to_numpy().argmax(axis=1)])
    mean.insert(0, "seed", TOGETHER)
    return mean


def gather(store: RunStore, identities: Sequence[str], settings: Settings, plan: FoldPlan) -> Results:
    """The results of an experiment's finished runs, given fold by fold for each seed.

    A run may belong to several splits, so its fold number is its place in ``identities``, not the one that it recorded.
    A study may have run other folds than those the plan tests. An audit warning of this cohort and split, from any
    call, is a warning of these results.
    """
    runs = [store.metadata(identity) for identity in identities]
    rounds = len(runs) // len({run["seed"] for run in runs})
    numbers = plan.numbers if rounds == len(plan.numbers) else range(1, rounds + 1)
    marks = [{"seed": run["seed"], "fold": numbers[place % len(numbers)]} for place, run in enumerate(runs)]

    def joined(name: str) -> pd.DataFrame:
        """One table of all runs, seed and fold in front."""
        tables = [store.table(identity, name).assign(**mark) for identity, mark in zip(identities, marks, strict=True)]
        return _concat([table[[*marks[0], *(c for c in table if c not in marks[0])]] for table in tables])

    cohort = runs[-1]["cohort"]
    return Results(
        settings, cohort["classes"], joined("predictions.parquet"), joined("curves.parquet"), list(identities),
        sum(float(run["seconds"]) for run in runs), plan.metadata | {"title": plan.title},
        warnings=store.warnings(cohort["hash"], plan.hash), bands_left_out=runs[-1].get("bands_left_out") or {},
        rows={subject: row for run in runs for subject, row in (run.get("rows") or {}).items()},
        tuning=[mark | choice(run["tuning"]) for mark, run in zip(marks, runs, strict=True) if "tuning" in run],
        _windows=partial(joined, "windows.parquet"),
    )  # fmt: skip


def _concat(tables: list[pd.DataFrame]) -> pd.DataFrame:
    import pandas as pd

    filled = [table for table in tables if len(table)]
    return pd.concat(filled, ignore_index=True) if filled else pd.DataFrame()
