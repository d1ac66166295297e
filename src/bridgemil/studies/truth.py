"""Where the truth is known: how well what a method says of single windows finds those that hold the evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bridgemil.cohort.cohort import Cohort
from bridgemil.errors import BadUse, plain
from bridgemil.evaluation.metrics import bootstrap
from bridgemil.evaluation.results import Results
from bridgemil.storage.checksums import file_checksum
from bridgemil.studies.context import StudyContext

if TYPE_CHECKING:
    import pandas as pd

# What ranks windows: of a subject of class c, and what it is called.
GATE, CONTRIBUTION, VOTE = "gates", "contributions to the diagnosis", "agreement with the diagnosis"


def tables(context: StudyContext, results: Mapping[tuple[str, str], Sequence[Results]]) -> dict[str, pd.DataFrame]:
    """A table of what was found, where ``context.truth`` says where the evidence is; none elsewhere.

    Parameters
    ----------
    context
        With the folder ``bridgemil synth`` wrote.
    results
        By cohort hash and what it is called.
    """
    import pandas as pd

    if context.truth is None:
        return {}
    rows = []
    for cohort in context.cohorts:
        known = evidence(context, cohort)
        for (cohort_hash, name), several in results.items():
            if cohort_hash == cohort.hash:
                rows += [{"cohort": context.name(cohort), "what": name} | row for row in found(several, known)]
    return {"evidence_found": pd.DataFrame(rows)} if rows else {}


def evidence(context: StudyContext, cohort: Cohort) -> dict[str, NDArray[np.bool_]]:
    """Which windows of each patient hold evidence."""
    from bridgemil.cohort.synthetic import has_evidence_windows, patients, true_evidence

    assert context.truth is not None
    if len(context.cohorts) > 1:
        raise BadUse("--truth is of one cohort; study the others without it")
    if cohort.n_times != cohort.sfreq:
        raise BadUse("--truth is known of windows of one second; prepare the cohort with --window 1")
    try:
        known = has_evidence_windows(context.truth)
    except (OSError, LookupError, TypeError, ValueError) as error:
        raise BadUse(
            f"--truth {context.truth}: is no folder that `bridgemil synth` wrote ({plain(str(error))})"
        ) from None
    _same_files(context, cohort)
    if not known:
        raise BadUse(f"{context.truth}: its disease is a trait of the whole recording; no window holds more evidence")
    try:
        ill = patients(context.truth)
        return {s: true_evidence(context.truth, s, cohort.window_starts(s)) for s in cohort.subjects if s in ill}
    except (OSError, KeyError, ValueError) as error:
        raise BadUse(
            f"--truth {context.truth}: is no folder that `bridgemil synth` wrote for this cohort ({error})"
        ) from None


def _same_files(context: StudyContext, cohort: Cohort) -> None:
    """Refuse a folder whose recordings are not those that the cohort was made of."""
    assert context.truth is not None
    files = cohort.about["files"]
    if not files:
        raise BadUse("--truth needs a cohort that was prepared from the folder's recordings, not from arrays")
    for file in files:
        path = context.truth / file["file"]
        if not path.is_file() or path.stat().st_size != file["bytes"] or file_checksum(path) != file["sha256"]:
            raise BadUse(
                f"--truth {context.truth}: {cohort.path} was not made of its recordings ({file['file']} differs)"
            )


def found(results: Sequence[Results], known: Mapping[str, NDArray[np.bool_]]) -> list[dict[str, Any]]:
    """How well windows with evidence are ranked above those without: the mean over held-out patients who have both.

    AUROC, and precision at k, where k is how many windows of the person hold evidence.

    Parameters
    ----------
    results
        Of one method, on one or several splits.
    known
        By patient, which of all its windows hold evidence.
    """
    from sklearn.metrics import roc_auc_score

    values: dict[str, dict[str, list[tuple[float, float, float]]]] = {}
    for result in results:
        for (subject, *_), rows in _by_person(result):
            truth = known.get(str(subject), np.zeros(0, dtype=bool))
            truth = truth[rows["window"].to_numpy()] if len(truth) else truth
            if not 0 < truth.sum() < len(truth):
                continue
            label = result.predictions.loc[result.predictions["subject"] == subject, "label"].iloc[0]
            for kind, ranks in _rankings(rows, str(label)).items():
                k = int(truth.sum())
                top = np.argsort(-ranks, kind="stable")[:k]
                said = float(roc_auc_score(truth, ranks)), float(truth[top].mean()), float(truth.mean())
                values.setdefault(kind, {}).setdefault(str(subject), []).append(said)
    table = []
    for kind, people in values.items():
        each = np.array([np.mean(said, axis=0) for said in people.values()])
        low, high = bootstrap(each[:, 0])
        table.append({
            "ranked_by": kind, "auroc": float(each[:, 0].mean()), "auroc95_low": low, "auroc95_high": high,
            "precision_at_k": float(each[:, 1].mean()), "precision_by_chance": float(each[:, 2].mean()),
            "patients": len(each),
        })  # fmt: skip
    return table


def _by_person(result: Results) -> Any:
    windows = result.windows
    if windows.empty:
        return ()
    keys = [name for name in ("subject", "seed", "member") if name in windows]
    return windows.groupby(keys, sort=False)


def _rankings(rows: pd.DataFrame, label: str) -> dict[str, NDArray[np.float64]]:
    """What the method ranks a person's windows by."""
    kinds = {GATE: "gate", CONTRIBUTION: f"contribution_{label}", VOTE: f"p_{label}"}
    return {
        kind: rows[column].to_numpy(dtype=np.float64)
        for kind, column in kinds.items()
        if column in rows and rows[column].notna().all()
    }
