"""How much a setting matters (Appendix F, or any setting): one setting at a time, the others at their defaults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bridgemil import methods
from bridgemil.cohort.cohort import Cohort
from bridgemil.errors import BadUse
from bridgemil.evaluation import metrics
from bridgemil.evaluation.results import Results, compare_splits
from bridgemil.evaluation.statistics import LEVEL, Comparison
from bridgemil.report.figures import chance_line, intervals, look
from bridgemil.studies.context import StudyContext
from bridgemil.studies.findings import Findings, comparison_columns, family, paper_columns, prose, score

VARIED: dict[str, list[Any]] = {
    "stage2.retention": [0, 1e-6, 1e-5, 1e-4, 1e-2],
    "stage1.subbag_size": [4, 8, 16],
    "stage1.subbag_pairs": [16, 64, 256],
}
RATIO, DEFAULTS, DEFAULT_VALUE = "retention_gradient_ratio", "defaults", "the default value"

Key = tuple[str, str, Any]  # cohort hash, setting and value; ("", None): everything at its default


def perform(context: StudyContext) -> Findings:
    """Run every value of every setting on every split, and compare each with the default."""
    import pandas as pd

    method = context.option("method", "bridgemil")
    vary = _values_to_try(context, method)
    changes: dict[tuple[str, Any], dict[str, Any]] = {("", None): {}}
    changes |= {(key, value): {key: value} for key, values in vary.items() for value in values}
    results = context.run(
        ((cohort.hash, *name), context.experiment(cohort, method, split, changes=change))
        for cohort in context.cohorts
        for split in context.splits(cohort)
        for name, change in changes.items()
    )
    rows, sentences = list[dict[str, Any]](), list[str]()
    for cohort in context.cohorts:
        default = results[cohort.hash, "", None]
        against = family({
            (of, key, value): compare_splits(found, default, names=(f"{key} = {_text(value)}", DEFAULT_VALUE))
            for (of, key, value), found in results.items()
            if of == cohort.hash and found[0].settings.hash != default[0].settings.hash
        })  # fmt: skip
        for key, values in vary.items():
            mine = _rows(context, cohort, key, values, results, against)
            significant = [c.corrected_sentence for k, c in against.items() if k[1] == key and c.p < LEVEL]
            sentences += prose(
                "sensitivity_sentences", name=f"{context.name(cohort)}, {key}", rows=mine, significant=significant,
                best=max(mine, key=lambda r: r["accuracy"]), worst=min(mine, key=lambda r: r["accuracy"]),
            )  # fmt: skip
            rows += mine
    return Findings(
        f"Sensitivity of {context.title(method)}", sentences, {"sensitivity": pd.DataFrame(rows)},
        {"sensitivity": _figure(context, list(vary), rows, look(method))},
        footnotes=prose("sensitivity_notes", changes=_other_changes(results)),
        runs={(cohort, f"{key} = {value}" if key else DEFAULTS): r for (cohort, key, value), r in results.items()},
    )  # fmt: skip


def _values_to_try(context: StudyContext, method: str) -> dict[str, list[Any]]:
    """The values of every setting, the default among them; what cannot vary is refused."""
    methods.check(method)
    members = context.experiment(context.cohorts[0], method).settings.each
    completed: dict[str, list[Any]] = {}
    for key, values in context.option("vary", VARIED).items():
        if not context.options.get("vary") and not methods.has_setting(method, key):
            raise BadUse(f"{method} has no setting {key}; name one that it has with --vary KEY=VALUE,VALUE")
        if key in methods.fixed(method):
            raise BadUse(f"{key} is what makes {method}; vary it of bridgemil")
        for value in values:
            if not isinstance(value, str | bool | int | float | None):
                raise BadUse(f"--vary {key}: {value!r} is no number, word, true, false or null")
        completed[key] = list(dict.fromkeys(values))
        default = next((value for member in members if (value := _flat(member).get(key)) is not None), None)
        if default is not None and default not in completed[key]:  # the reference is in the table
            # numbers by their size, then words, then none
            completed[key] = sorted([*completed[key], default], key=lambda v: (v is None, isinstance(v, str), v))
    return completed


def _flat(settings: methods.Settings) -> dict[str, Any]:
    return methods.flat(settings.model_dump(mode="json"))


def _other_changes(by_key: Mapping[Key, Sequence[Results]]) -> list[str]:
    """Settings that change with a value: `epochs` disables the minimum number of steps, an aggregator has its rates."""
    notes = []
    for (cohort, key, value), results in by_key.items():
        before, after = (_by_member(several[0].settings) for several in (by_key[cohort, "", None], results))
        others = [
            f"{name} from {_text(before.get(name))} to {_text(after.get(name))}"
            for name in dict.fromkeys((*before, *after))
            if name.rpartition(" ")[2] != key and before.get(name) != after.get(name)
        ]
        if key and others:
            notes.append(f"{key} = {_text(value)} also changes {', '.join(others)}.")
    return list(dict.fromkeys(notes))


def _by_member(settings: methods.Settings) -> dict[str, Any]:
    """Every setting by name; those of an ensemble's members with the member's name in front."""
    each = settings.each
    return {f"{one.method} {key}" if len(each) > 1 else key: v for one in each for key, v in _flat(one).items()}


def _text(value: Any) -> str:
    """A value as the user would write it."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def _rows(
    context: StudyContext, cohort: Cohort, key: str, values: Sequence[Any], results: Mapping[Key, list[Results]],
    against: Mapping[Key, Comparison],
) -> list[dict[str, Any]]:  # fmt: skip
    """One row per value; where none of them is the default, that comes first."""
    names: dict[str, Key] = {_text(value): (cohort.hash, key, value) for value in values}
    if all(name in against for name in names.values()):
        names = {DEFAULTS: (cohort.hash, "", None), **names}
    published, rows = context.published(cohort, "sensitivity", key), []
    for value, name in names.items():
        mine = results[name]
        # Retention's gradient relative to the classification gradient, median over epochs, folds and seeds
        ratios = [ratio for r in mine if RATIO in r.curves for ratio in r.curves[RATIO].dropna()]
        rows.append({
            "cohort": context.name(cohort), "setting": key, "value": value, "default": name not in against,
            **score(mine), **comparison_columns(against.get(name)),
            "gradient_ratio": float(np.median(ratios)) if ratios else None,
            **paper_columns(published.get(value, ()) if mine[0].settings.method == "bridgemil" else ()),
        })  # fmt: skip
    return rows


def _figure(context: StudyContext, keys: Sequence[str], rows: Sequence[dict[str, Any]], style: dict[str, Any]) -> Any:
    figure, panels = context.panels(len(keys), rows, width=4.4, height=3.6)
    for cohort, axes, of_cohort in panels:
        level = 100 * metrics.chance(cohort.labels)[0]
        for ax, key in zip(axes, keys, strict=True):
            mine = [row for row in of_cohort if row["setting"] == key]
            for is_default, fill in ((True, style["color"]), (False, "white")):
                at = [x for x, row in enumerate(mine) if row["default"] is is_default]
                intervals(ax, at, [mine[x] for x in at], markersize=8, markerfacecolor=fill, **style)
            for x, row in enumerate(mine if key == "stage2.retention" else ()):
                if row["gradient_ratio"] is not None:
                    ax.annotate(
                        f"gradient\n{row['gradient_ratio']:.0e}", (x, row["ci95_low"]), xytext=(0, -4), fontsize=7,
                        textcoords="offset points", ha="center", va="top", color="0.3",
                    )  # fmt: skip
            chance_line(ax, level, named=True)
            ax.set_xticks(range(len(mine)), [row["value"] for row in mine])
            low = min(level, *(row["ci95_low"] for row in mine))
            ax.set(xlim=(-0.6, len(mine) - 0.4), ylim=(max(0, low - 14), None), xlabel=key)
            ax.set_ylabel("accuracy of held-out subjects (%)")
            ax.set_title(f"{context.name(cohort)} (filled: the default value)", fontsize=9)
    return figure
