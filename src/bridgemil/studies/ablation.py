"""Which part of bridgemil contributes what (Appendix E): each variant against the whole, on the same subjects.

Not in the paper: ``wo_stage1`` (Stage 2 from random weights) and ``random_encoder`` (an encoder that is never trained)
show whether Stage 1 contributes anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bridgemil import methods
from bridgemil.errors import one_of
from bridgemil.evaluation import metrics
from bridgemil.evaluation.results import compare_splits
from bridgemil.report.figures import chance_line, interval_rows
from bridgemil.studies.context import StudyContext
from bridgemil.studies.findings import Findings, comparison_columns, family, paper_columns, prose, score

WHOLE = "bridgemil"


def perform(context: StudyContext) -> Findings:
    """Run every variant on every split, and compare each with the whole."""
    import pandas as pd

    every = [WHOLE, *methods.ablations()]
    variants = list(dict.fromkeys([WHOLE, *context.option("variants", every)]))
    for name in variants:
        one_of("variant", name, every)
    found = context.run(
        ((cohort.hash, name), context.experiment(cohort, name, split))
        for cohort in context.cohorts
        for split in context.splits(cohort)
        for name in variants
    )
    rows, sentences = list[dict[str, Any]](), list[str]()
    for cohort in context.cohorts:
        title, published = context.name(cohort), context.published(cohort, "ablation")
        results = {name: found[cohort.hash, name] for name in variants}
        against = family({name: compare_splits(results[name], results[WHOLE]) for name in variants[1:]})
        rows += [
            {"cohort": title, "variant": name, **score(results[name]), **comparison_columns(against.get(name)),
             **paper_columns(published.get(name, ()))}
            for name in variants
        ]  # fmt: skip
        sentences += [
            f"{title}, {name} ({methods.ABLATIONS[name].description}): {comparison.corrected_sentence}"
            for name, comparison in against.items()
        ]
    return Findings(
        f"Ablation: {context.setup}", sentences, {"ablation": pd.DataFrame(rows)},
        {"ablation": _figure(context, rows, len(variants))}, runs=found,
        footnotes=prose("ablation_notes", variants=variants, paper=context.is_papers),
    )  # fmt: skip


def _figure(context: StudyContext, rows: Sequence[dict[str, Any]], n_variants: int) -> Any:
    """Accuracy on the left; on the right the paired difference of each variant to the whole."""
    figure, panels = context.panels(2, rows, width=5.2, height=1.3 + 0.4 * n_variants)
    for cohort, (left, right), mine in panels:
        names = [row["variant"] for row in mine]
        interval_rows(left, mine, names)
        chance_line(left, 100 * metrics.chance(cohort.labels)[0], vertical=True, named=True)
        left.set_xlabel("accuracy of held-out subjects (%), 95 % over subjects")
        left.set_title(f"{context.name(cohort)}: {context.setup}", fontsize=10, loc="left")
        right.axvline(0, color="0.3", linewidth=1)
        interval_rows(right, mine, names, ("gain", "gain95_low", "gain95_high"))
        right.set_yticklabels([])
        right.set_xlabel(f"difference to {WHOLE} in points, paired, 95 % over subjects")
    return figure
