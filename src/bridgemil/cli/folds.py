"""``bridgemil folds``: the subject-level split of a cohort, shown and saved."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from bridgemil.cli import options


def run(
    cohort: options.CohortFolder,
    out: Annotated[Path | None, typer.Option(help="Split file to write, for --split.")] = None,
    folds: options.Folds = None,
    split_seed: options.SplitSeed = 0,
    groups: options.Groups = None,
    test: Annotated[str | None, typer.Option(help="COLUMN=VALUE of the subjects that are the test set.")] = None,
    scheme: Annotated[str, typer.Option(help="array_split (the paper's) or sklearn.")] = "array_split",
) -> Any:
    """Assign the subjects of a cohort to folds, stratified by class; a subject is in one fold only.

    Example: `bridgemil folds adftd.cohort --out split.json`

    Example: `bridgemil folds tuab.cohort --test part=eval --out official.json`
    """
    from bridgemil.cohort.cohort import Cohort
    from bridgemil.cohort.folds import FoldPlan, SubjectKFold
    from bridgemil.errors import BadUse, one_of

    one_of("--scheme", scheme, ("array_split", "sklearn"))
    opened = Cohort.open(cohort)
    k = opened.folds if folds is None else folds
    splitter = SubjectKFold(k, split_seed, "sklearn" if scheme == "sklearn" else "array_split")
    if test is None:
        plan = splitter.plan(opened.subjects, opened.labels, opened.column(groups) if groups else None, groups)
    else:
        column, _, value = test.partition("=")
        tested = [s for s, own in zip(opened.subjects, opened.column(column), strict=True) if str(own) == value]
        if not tested or groups or scheme != "array_split":
            raise BadUse(f"--test {test}: " + ("no subject has that value" if not tested else "it decides the folds"))
        plan = FoldPlan.with_test_set(opened.subjects, opened.labels, tested, k, split_seed)
    if out is not None:
        plan.save(out)
    labels = dict(zip(opened.subjects, opened.labels, strict=True))
    for number, fold in enumerate(plan.folds, 1):
        diagnoses = [labels[subject] for subject in fold]
        counts = ", ".join(f"{diagnoses.count(name)} {name}" for name in opened.classes)
        name = f"fold {number}" if test is None else ("test", "validation", "training")[number - 1]
        typer.echo(f"{name}: {len(fold):3d} subjects ({counts or 'no labels'})  {' '.join(fold)}")
    if test:
        roles = "Where an epoch is selected (recipe paper) it is on the validation subjects; otherwise they train too."
    else:
        roles = (
            "Each fold is the test set once. Where an epoch is selected (recipe paper) the next fold is the validation "
            "set and the others train; recipe ours and the baselines train on all other folds."
        )
    typer.echo(f"\n{roles}")
    if out is not None:
        typer.echo(f"Split: {out}")
    return plan.for_json()
