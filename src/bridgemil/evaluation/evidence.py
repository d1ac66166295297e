"""Do the gates find the evidence? On synthetic data the truth is known, window by window."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bridgemil.evaluation.metrics import bootstrap

if TYPE_CHECKING:
    import pandas as pd

Gates = Mapping[str, NDArray[Any]]  # of each held-out subject's windows
Truth = Mapping[str, NDArray[np.bool_]]  # which of each subject's windows hold evidence


@dataclass(frozen=True)
class EvidenceFound:
    """How well gates rank a held-out patient's evidence windows above the others: 1 always, 0.5 by chance."""

    subjects: pd.Series  # AUROC of each patient
    mean: float
    low: float  # 95 % bootstrap interval over patients
    high: float


def evidence_found(gates: Gates, truth: Truth) -> EvidenceFound:
    """AUROC of gates against true evidence, within each subject that has windows of both kinds."""
    import pandas as pd
    from sklearn.metrics import roc_auc_score

    found = {
        subject: float(roc_auc_score(truth[subject], own))
        for subject, own in gates.items()
        if subject in truth and 0 < truth[subject].sum() < len(truth[subject])
    }
    if not found:
        raise ValueError("no subject has both windows with evidence and windows without")
    values = np.array(list(found.values()))
    return EvidenceFound(pd.Series(found), float(values.mean()), *bootstrap(values))
