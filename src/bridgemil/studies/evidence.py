"""How well a method ranks windows where it is known which of them hold evidence: on recordings of `bridgemil synth`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bridgemil.cohort.cohort import Cohort
from bridgemil.errors import BadUse, plain
from bridgemil.evaluation.metrics import bootstrap
from bridgemil.evaluation.results import Results
from bridgemil.storage.artifact import file_checksum

# What ranks the windows of a subject of class c.
ATTENTION, CONTRIBUTION, VOTE = "attention weights", "contributions to the diagnosis", "agreement with the diagnosis"
Evidence = Mapping[str, NDArray[np.bool_]]  # by patient: which of all its windows hold evidence


def known_evidence(truth: Path, cohort: Cohort) -> Evidence:
    """By patient which windows hold evidence, of a cohort made from the folder that ``bridgemil synth`` wrote."""
    from bridgemil.cohort.formats import Unusable
    from bridgemil.cohort.synthetic import has_evidence_windows, patients, true_evidence

    if cohort.n_times != cohort.sfreq:
        raise BadUse("--truth is known of windows of one second; prepare the cohort with --window 1")
    try:
        in_windows, ill = has_evidence_windows(truth), patients(truth)
    except (OSError, LookupError, TypeError, Unusable) as error:
        raise BadUse(f"--truth {truth}: is no folder that `bridgemil synth` wrote ({plain(str(error))})") from None
    if not cohort.metadata["files"]:
        raise BadUse("--truth needs a cohort that was prepared from the folder's recordings, not from arrays")
    for file in cohort.metadata["files"]:
        path = truth / file["file"]
        if not path.is_file() or path.stat().st_size != file["bytes"] or file_checksum(path) != file["sha256"]:
            raise BadUse(f"--truth {truth}: {cohort.path} was not made of its recordings ({file['file']} differs)")
    if not in_windows:
        raise BadUse(f"{truth}: its disease is a trait of the whole recording; no window holds more evidence")
    try:
        return {s: true_evidence(truth, s, cohort.window_starts(s)) for s in cohort.subjects if s in ill}
    except (OSError, KeyError, ValueError) as error:
        raise BadUse(f"--truth {truth}: does not hold the evidence of this cohort ({error})") from None


def evidence_found(results: Sequence[Results], known: Evidence) -> list[dict[str, Any]]:
    """AUROC and precision at k of windows with evidence: the mean over held-out patients who have both kinds.

    k is the number of the patient's windows that hold evidence. One row for each score that ranks windows; ``results``
    are of one method, on one or several splits.
    """
    from sklearn.metrics import roc_auc_score

    values: dict[str, dict[str, list[tuple[float, float, float]]]] = {}
    for result in results:
        labels: dict[str, str] = dict(result.predictions[["subject", "label"]].itertuples(index=False))
        # the windows of each subject, seed and member of an ensemble
        keys = [name for name in ("subject", "seed", "member") if name in result.windows]
        for key, rows in result.windows.groupby(keys, sort=False) if keys else ():
            subject = str(key[0])
            truth = known[subject][rows["window"].to_numpy()] if subject in known else np.zeros(0, dtype=bool)
            if not 0 < truth.sum() < len(truth):
                continue
            columns = {"gate": ATTENTION, f"contribution_{labels[subject]}": CONTRIBUTION, f"p_{labels[subject]}": VOTE}
            for column, kind in columns.items():
                if column in rows and rows[column].notna().all():
                    ranks = rows[column].to_numpy(dtype=np.float64)
                    top = np.argsort(-ranks, kind="stable")[: int(truth.sum())]
                    found = float(roc_auc_score(truth, ranks)), float(truth[top].mean()), float(truth.mean())
                    values.setdefault(kind, {}).setdefault(subject, []).append(found)
    table = []
    for kind in (kind for kind in (ATTENTION, CONTRIBUTION, VOTE) if kind in values):
        auroc, precision, chance = np.array([np.mean(found, axis=0) for found in values[kind].values()]).T
        low, high = bootstrap(auroc)
        table.append({
            "ranked_by": kind, "auroc": float(auroc.mean()), "auroc95_low": low, "auroc95_high": high,
            "precision_at_k": float(precision.mean()), "precision_by_chance": float(chance.mean()),
            "patients": len(auroc),
        })  # fmt: skip
    return table
