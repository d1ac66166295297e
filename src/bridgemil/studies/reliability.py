"""Does the diagnosis fit every window? (RQ2) Agreement of single windows with it, and training on some windows only.

First, a majority vote predicts each window of a held-out subject: how many agree with the subject's label? Then new
majority votes are trained on the K windows of each training subject with the highest (Top-K) or lowest (Bottom-K)
attention weight by bridgemil. Not in the paper: K random windows, since fewer windows may matter by themselves; and
nested weights. An attention weight ranks a subject's windows only if its model held the subject out. Plain weights come
from the cross-validation itself, as in the paper; nested ones from folds without the test subjects of the fold at hand.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.folds import Fold, FoldPlan
from bridgemil.engine.plan import Experiment
from bridgemil.errors import BadData, BadUse
from bridgemil.evaluation.metrics import bootstrap, chance
from bridgemil.evaluation.results import Results, compare_splits
from bridgemil.evaluation.statistics import LEVEL, Comparison
from bridgemil.report.figures import chance_line, class_look, intervals
from bridgemil.studies.context import StudyContext
from bridgemil.studies.evidence import Evidence
from bridgemil.studies.findings import Findings, comparison_columns, family, prose, score

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

TOP = (20, 50, 100, 200)
VOTE, GATED = "majority_vote", "bridgemil"
ADDITIVE = "additive"  # its contributions are compared with known evidence
INNER = "attention weights without the test fold"
RULES: dict[str, dict[str, Any]] = {  # distinguishable by marker and line, too
    "top": {"color": "#d55e00", "marker": "o", "linestyle": "-"},
    "random": {"color": "#7d8287", "marker": "D", "linestyle": ":"},
    "bottom": {"color": "#2f6f9f", "marker": "s", "linestyle": "--"},
}

Weights = Mapping[str, NDArray[np.float64]]  # by subject: the attention weight of each window


class Choice(NamedTuple):
    """Which training windows are used."""

    weights: str  # plain or nested attention weights; none where they play no part
    rule: str  # top, bottom, random or all
    k: int  # windows of each training subject; 0 for all

    @property
    def title(self) -> str:
        """As tables name it: ``top 20``."""
        return f"{self.rule} {self.k}" if self.k else self.rule

    @property
    def part(self) -> str:
        """As its runs are named; empty for all windows."""
        nested = ", nested attention weights" if self.weights == "nested" else ""
        return f"{self.title} windows{nested}" if self.k else ""


ALL = Choice("none", "all", 0)
Pair = tuple[Choice, Choice]


def perform(context: StudyContext) -> Findings:
    """Predict every window of held-out subjects, train on the chosen windows, and compare."""
    import pandas as pd

    sizes, nested = context.option("top", TOP), bool(context.option("nested", False))
    if not sizes or not all(isinstance(k, int) and k > 0 for k in sizes):
        raise BadUse(f"--top: expected whole numbers above zero, got {sizes!r}")
    chosen = choices(sorted(set(sizes)), nested)
    # The whole runs come first: a choice that leaves nothing out is one of them, and is then not run again.
    whole = context.run([*_whole(context), *(_inner(context) if nested else ())])
    planned, folds = list(_reduced(context, chosen, whole)), dict[tuple[str, Choice], list[Fold]]()
    for key, experiment in planned:
        folds.setdefault(key, []).extend(experiment.cv_folds())
    trained = context.run(planned)
    agreement = pd.concat(
        [
            _agreement(context.name(cohort), split, results)
            for cohort in context.cohorts
            for split, results in zip(context.splits(cohort), whole[cohort.hash, VOTE], strict=True)
        ],
        ignore_index=True,
    )
    subjects = agreement.groupby(["cohort", "subject", "label"], sort=False)["agreement"].mean().reset_index()
    rows, by_class, sentences = list[dict[str, Any]](), list[dict[str, Any]](), list[str]()
    for cohort in context.cohorts:
        name, mine = context.name(cohort), {choice: trained[cohort.hash, choice] for choice in chosen}
        against = _compared(
            mine, [choice for choice in chosen if any(fold.kept for fold in folds[cohort.hash, choice])]
        )
        own = subjects[subjects["cohort"] == name].set_index("label")["agreement"]
        by_class += [{"cohort": name, "label": label, **_summary(own[[label]].to_numpy())} for label in cohort.classes]
        for choice in chosen:
            row: dict[str, Any] = {
                "cohort": name,
                "gates": choice.weights,
                "windows": choice.title,
                "rule": choice.rule,
            }
            row |= {"k": choice.k or None} | score(mine[choice]) | comparison_columns(against.get((choice, ALL)))
            if context.truth is not None:
                row["true_evidence"] = evidence_share(folds[cohort.hash, choice], context.evidence)
            number = _published(context, cohort, choice)
            rows.append(row | ({} if number is None else {"paper": number}))
            if choice.rule == "top":
                found = [comparison for (one, _), comparison in against.items() if one == choice]
                sentences += prose("reliability_top", name=name, choice=choice, found=found, level=LEVEL)
    classes = pd.DataFrame(by_class)
    return Findings(
        f"Reliability of inherited labels: {context.setup}",
        [*_agreement_sentences(context, subjects, rows), *sentences],
        {"agreement_by_class": classes, "reliability": pd.DataFrame(rows).drop(columns=["rule", "k"])},
        {"reliability": _figure(context, subjects, classes, rows)}, {"agreement": agreement}, _notes(context, chosen),
        runs={key: results for key, results in whole.items() if not key[1].startswith(INNER)},
    )  # fmt: skip


# ------------------------------------------------------------------ which windows are kept


def choices(sizes: Sequence[int], nested: bool) -> list[Choice]:
    """Every choice that is trained, ``ALL`` first."""
    kinds = ("plain", "nested") if nested else ("plain",)
    ranked = [Choice(kind, rule, k) for kind in kinds for k in sizes for rule in ("top", "bottom")]
    return [ALL, *(Choice("none", "random", k) for k in sizes), *ranked]


def mean_weights(results: Results, cohort: Cohort) -> dict[str, NDArray[np.float64]]:
    """The attention weights of every held-out subject, mean over seeds; one per window, in the order of the windows."""
    table, title = results.windows, results.settings.title
    if "gate" not in table or table["gate"].isna().any():
        raise BadUse(f"{title} has no attention weights; windows cannot be ranked")
    mean = table.groupby(["subject", "window"], sort=True)["gate"].mean()
    weights = {str(subject): rows.droplevel(0) for subject, rows in mean.groupby(level=0)}
    for subject, rows in weights.items():
        n = cohort.records[subject].n_windows
        if rows.index.tolist() != list(range(n)):
            raise BadData(f"{subject}: has {n} windows, but the runs of {title} hold {len(rows)} attention weights")
    if all(rows.nunique() == 1 for rows in weights.values()):
        raise BadUse(f"{title} gives every window the same attention weight; windows cannot be ranked")
    return {subject: rows.to_numpy(dtype=np.float64) for subject, rows in weights.items()}


def inner_plan(split: FoldPlan, outer: Fold) -> FoldPlan:
    """The folds of a split without that of the outer fold's test subjects."""
    if split.k < 4:
        raise BadUse(
            f"--nested: {split.k} folds are too few; without the test fold 3 must remain, so use --folds 4 or more"
        )
    return FoldPlan(tuple(fold for fold in split.folds if set(fold) != set(outer.test)))


def inner_folds(outer: Fold, folds: Sequence[Fold]) -> list[Fold]:
    """Of the inner folds, those that hold out training subjects of the outer fold: no other weights are needed."""
    return [inner for inner in folds if not set(inner.test) & set(outer.validation)]


def reduced(
    cohort: Cohort, split_seed: int, choice: Choice, weights: Sequence[Weights], folds: Sequence[Fold]
) -> list[Fold]:
    """Folds whose training subjects keep K windows each; validation and test subjects keep all."""
    return [
        replace(fold, kept={s: rows for s in fold.train if (rows := _kept(cohort, split_seed, choice, mine, s))})
        for fold, mine in zip(folds, weights, strict=True)
    ]


def _kept(cohort: Cohort, split_seed: int, choice: Choice, weights: Weights, subject: str) -> tuple[int, ...]:
    """The windows that a subject keeps; () where it keeps all. Of equal weights the earlier window."""
    n = cohort.records[subject].n_windows
    if not choice.k or n <= choice.k:
        return ()
    if choice.rule == "random":  # drawn for each K, subject and split
        order = np.random.default_rng([choice.k, cohort.subjects.index(subject), split_seed]).permutation(n)
    else:
        order = np.argsort(-weights[subject] if choice.rule == "top" else weights[subject], kind="stable")
    return tuple(sorted(order[: choice.k].tolist()))


def evidence_share(folds: Sequence[Fold], known: Evidence) -> float | None:
    """The share of the kept training windows that hold evidence, mean over patients who have both kinds of windows."""
    shares: dict[str, list[float]] = {}
    for fold, subject in [(one, subject) for one in folds for subject in one.train if subject in known]:
        truth = known[subject]
        if 0 < truth.sum() < len(truth):
            kept = truth[list(fold.kept[subject])] if subject in fold.kept else truth
            shares.setdefault(subject, []).append(float(kept.mean()))
    return float(np.mean([np.mean(values) for values in shares.values()])) if shares else None


# ------------------------------------------------------------------ runs


def _whole(context: StudyContext) -> Iterator[tuple[tuple[str, str], Experiment]]:
    """The methods on whole splits."""
    for cohort in context.cohorts:
        for method in (VOTE, GATED, *([ADDITIVE] if context.truth is not None else [])):
            for split in context.splits(cohort):
                experiment = context.experiment(cohort, method, split)
                for member in experiment.settings.each if method == GATED else ():
                    if getattr(member.stage2, "aggregator", None) == "mean":
                        raise BadUse("stage2.aggregator=mean gives all windows the same weight and cannot rank them")
                yield (cohort.hash, method), experiment


def _inner(context: StudyContext) -> Iterator[tuple[tuple[str, str], Experiment]]:
    """Of every split the inner folds of each of its folds, in their order."""
    for cohort in context.cohorts:
        for number, split in enumerate(context.splits(cohort)):
            for outer in context.experiment(cohort, VOTE, split).cv_folds():
                inner, drawn = inner_plan(split, outer), partial(inner_folds, outer)
                made = context.experiment(cohort, GATED, inner, part=INNER, drawn=drawn)
                yield (cohort.hash, f"{INNER}, split {number}"), made


def _reduced(
    context: StudyContext, chosen: Sequence[Choice], whole: Mapping[tuple[str, str], list[Results]]
) -> Iterator[tuple[tuple[str, Choice], Experiment]]:
    """A majority vote for each choice of windows."""
    for cohort in context.cohorts:
        for number, split in enumerate(context.splits(cohort)):
            inner = whole.get((cohort.hash, f"{INNER}, split {number}"), [])
            weights: dict[str, list[Weights]] = {
                "none": [{}] * split.k,
                "plain": [mean_weights(whole[cohort.hash, GATED][number], cohort)] * split.k,
                "nested": [mean_weights(results, cohort) for results in inner],
            }
            for choice in chosen:
                drawn = partial(reduced, cohort, split.split_seed or 0, choice, weights[choice.weights])
                yield (cohort.hash, choice), context.experiment(cohort, VOTE, split, part=choice.part, drawn=drawn)


# ------------------------------------------------------------------ tables and sentences


def _agreement(cohort: str, split: FoldPlan, results: Results) -> pd.DataFrame:
    """One row per held-out subject and seed: the share of its windows that are predicted as its label."""
    import pandas as pd

    windows, columns = results.windows, [f"p_{name}" for name in results.classes]
    labels = results.predictions.drop_duplicates("subject").set_index("subject")["label"]
    predicted = np.asarray(results.classes)[windows[columns].to_numpy().argmax(axis=1)]
    agrees = windows[["subject", "seed"]].assign(agreement=predicted == windows["subject"].map(labels).to_numpy())
    each = agrees.groupby(["subject", "seed"], sort=True)["agreement"].agg(["mean", "size"]).reset_index()
    return pd.DataFrame({
        "cohort": cohort, "subject": each["subject"], "label": each["subject"].map(labels), "split": split.split_seed,
        "seed": each["seed"], "agreement": each["mean"].astype(float), "n_windows": each["size"],
    })  # fmt: skip


def _summary(shares: NDArray[np.float64]) -> dict[str, Any]:
    """Mean agreement of some subjects, with a 95 % interval over them; 0 to 1."""
    low, high = bootstrap(shares)
    return {
        "agreement": float(shares.mean()), "agreement95_low": low, "agreement95_high": high,
        "lowest": float(shares.min()), "highest": float(shares.max()), "subjects": len(shares),
        "most_windows_against": int((shares < 0.5).sum()),
    }  # fmt: skip


def _published(context: StudyContext, cohort: Cohort, choice: Choice) -> float | None:
    """The paper's accuracy in percent, which is of plain attention weights."""
    keys = (choice.rule, choice.k) if choice.k else (choice.rule,)
    number: Any = {} if choice.weights == "nested" else context.published(cohort, "reliability", *keys)
    return float(number) if number else None


def _compared(trained: Mapping[Choice, list[Results]], less: Iterable[Choice]) -> dict[Pair, Comparison]:
    """Each choice that leaves windows out against all, each Top-K against as many of the lowest and of random ones."""
    pairs = [(choice, ALL) for choice in less]
    for choice in [choice for choice, _ in pairs if choice.rule == "top"]:
        pairs += [(choice, choice._replace(rule="bottom")), (choice, Choice("none", "random", choice.k))]
    return family({(a, b): compare_splits(trained[a], trained[b], names=(a.title, b.title)) for a, b in pairs})


def _agreement_sentences(context: StudyContext, subjects: pd.DataFrame, rows: Sequence[dict[str, Any]]) -> list[str]:
    """Mean agreement; and where the vote is not better than chance, that agreement and Top-K are not informative."""
    sentences = []
    for cohort in context.cohorts:
        name = context.name(cohort)
        sentences += prose(
            "reliability_sentences", name=name, chance=100 * chance(cohort.labels)[0],
            shares=_summary(subjects.loc[subjects["cohort"] == name, "agreement"].to_numpy()),
            all_windows=next(row for row in rows if row["cohort"] == name and row["rule"] == "all"),
        )  # fmt: skip
    return sentences


def _notes(context: StudyContext, chosen: Sequence[Choice]) -> list[str]:
    ks = [split.k for cohort in context.cohorts for split in context.splits(cohort)]
    unranked = 1 + context.experiment(context.cohorts[0], VOTE).settings.selects
    n_seeds = len(context.protocol.seed_list)
    few = []
    for cohort in context.cohorts:
        counts = np.array([cohort.records[subject].n_windows for subject in cohort.subjects])
        few += [
            {"cohort": context.name(cohort), "k": k, "subjects": len(counts), "whole": int((counts <= k).sum()),
             "shared": int(((counts > k) & (counts < 2 * k)).sum())}
            for k in sorted({choice.k for choice in chosen if choice.k})
        ]  # fmt: skip
    return prose(
        "reliability_notes", nested=any(choice.weights == "nested" for choice in chosen), few=few,
        nested_runs=sum(k * (k - unranked) for k in ks) * n_seeds, plain_runs=sum(ks) * n_seeds,
    )  # fmt: skip


# ------------------------------------------------------------------ the figure


def _figure(context: StudyContext, subjects: pd.DataFrame, by_class: pd.DataFrame, rows: list[dict[str, Any]]) -> Any:
    """A row of panels per cohort: agreement, then accuracy against K for plain and nested attention weights."""
    kinds = [kind for kind in ("plain", "nested") if any(row["gates"] == kind for row in rows)]
    figure, panels = context.panels(1 + len(kinds), rows, width=4.9, height=4.4)
    for cohort, axes, mine in panels:
        name, level = context.name(cohort), 100 * chance(cohort.labels)[0]
        low, high = min(row["ci95_low"] for row in mine), max(row["ci95_high"] for row in mine)
        agreement, means = (table[table["cohort"] == name] for table in (subjects, by_class))
        _draw_agreement(axes[0], agreement, means, cohort.classes)
        axes[0].set_title(f"{name}: held-out subjects, majority vote", fontsize=10)
        for ax, kind in zip(axes[1:], kinds, strict=True):
            _draw_accuracy(ax, [row for row in mine if row["gates"] in ("none", kind)])
            chance_line(ax, level)
            ax.set_ylim(max(0.0, min(level, low) - 4), min(102.0, max(level, high) + 4))  # the same in all panels
            ax.set_title(f"{name}: {kind} attention weights", fontsize=10)
            _legend(ax, 3)
    return figure


def _draw_agreement(ax: Axes, subjects: pd.DataFrame, by_class: pd.DataFrame, classes: Sequence[str]) -> None:
    rng, ticks = np.random.default_rng(0), []
    for x, label in enumerate(classes):
        shares = 100 * subjects.loc[subjects["label"] == label, "agreement"].to_numpy()
        ticks.append(f"{label} (n = {len(shares)})")
        places = x - 0.08 + rng.uniform(-0.2, 0.2, len(shares))
        ax.scatter(places, shares, s=24, alpha=0.75, edgecolors="white", linewidths=0.5, **class_look(x))
    keys = ("agreement", "agreement95_low", "agreement95_high")
    rows: Any = (100 * by_class.set_index("label").loc[list(classes), list(keys)]).to_dict("records")
    intervals(
        ax, [x + 0.28 for x in range(len(classes))], rows, keys, color="black", marker="_", markersize=13, capsize=4,
        label="mean, 95 % over subjects",
    )  # fmt: skip
    ax.axhline(50, color="0.45", linewidth=1, linestyle="--", zorder=1, label="below: most windows disagree")
    ax.set_xticks(range(len(classes)), ticks)
    ax.set(xlim=(-0.5, len(classes) - 0.4), ylim=(-3, 103), ylabel="windows that agree with the subject's label (%)")
    _legend(ax, 2)


def _draw_accuracy(ax: Axes, rows: Sequence[dict[str, Any]]) -> None:
    sizes = sorted({row["k"] for row in rows if row["k"]})
    for number, (rule, style) in enumerate(RULES.items()):
        mine = sorted((row for row in rows if row["rule"] == rule), key=lambda row: int(row["k"]))
        intervals(
            ax, [sizes.index(row["k"]) + (number - 1) * 0.13 for row in mine], mine, markersize=6.5, elinewidth=1.5,
            capsize=3, label=f"{rule} K", zorder=3, **style,
        )  # fmt: skip
    everything = next(row for row in rows if row["rule"] == "all")
    ax.axhspan(everything["ci95_low"], everything["ci95_high"], color="0.9", zorder=0, label="all: 95 %")
    ax.axhline(everything["accuracy"], color="black", linewidth=1.4, linestyle="-.", zorder=2, label="all windows")
    ax.set_xticks(range(len(sizes)), [str(k) for k in sizes])
    ax.set(xlim=(-0.5, len(sizes) - 0.5), xlabel="K: training windows of each subject")
    ax.set_ylabel("accuracy of held-out subjects (%)")


def _legend(ax: Axes, columns: int) -> None:
    """Below the axes, where nothing is drawn."""
    ax.legend(frameon=False, fontsize=8, ncols=columns, loc="upper center", bbox_to_anchor=(0.5, -0.14))
