"""
Calibration and operating points
================================

A probability is useful if it can be believed, and a screening test needs a threshold for its purpose.
"""

import tempfile
from importlib.resources import files
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import bridgemil

source = Path(str(files("bridgemil.recordings") / "adftd-60s"))
folder = Path(tempfile.mkdtemp())
classes = {"A": "Alzheimer", "C": "healthy"}
cohort = bridgemil.prepare(source, folder / "cohort", label="Group", classes=classes, progress=False)
how = {"out": folder / "runs", "baselines": False, "progress": False}
results = bridgemil.evaluate(cohort, "tangent", **how)

# %%
# Calibration
# -----------
# Held-out predictions in five groups of equal size: predicted probability and observed frequency.

rows = results.predictions.sort_values("p_Alzheimer")
groups = [rows.iloc[chosen] for chosen in np.array_split(np.arange(len(rows)), 5)]
predicted = [group["p_Alzheimer"].mean() for group in groups]
observed = [(group["label"] == "Alzheimer").mean() for group in groups]
fig, ax = plt.subplots(figsize=(3.6, 3.6), layout="constrained")
ax.plot([0, 1], [0, 1], color="grey", lw=1)
ax.plot(predicted, observed, "o-")
ax.set(xlabel="predicted probability", ylabel="observed frequency", aspect="equal")

# %%
# ``bridgemil train`` fits a calibration on these held-out predictions, and applies it only if it lowers both log
# loss and calibration error.
#
# Operating points
# ----------------
# For screening, few patients may be missed. The threshold of each fold is chosen on the other folds.

screening = bridgemil.evaluate(cohort, "tangent", operating_point="sensitivity=.9", prevalence=0.1, **how)
screening.clinical.table[["measure", "prevalence", "value", "ci95_low", "ci95_high"]].round(2)
