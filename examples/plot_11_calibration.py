"""
Calibration and operating points
================================

A probability is useful if it can be believed, and a screening test needs a threshold for its purpose.
"""

import tempfile
from importlib.resources import files
from pathlib import Path

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
# Predicted probability of the predicted class, and how often it is correct, in groups of at least 15 subjects.

results.plot("calibration")

# %%
# ``bridgemil train`` fits a calibration on these held-out predictions, and applies it only if it lowers both log
# loss and calibration error.
#
# Operating points
# ----------------
# For screening, few patients may be missed. The threshold of each fold is chosen on the other folds.

screening = bridgemil.evaluate(cohort, "tangent", operating_point="sensitivity=.9", prevalence=0.1, **how)
screening.clinical.table[["measure", "prevalence", "value", "ci95_low", "ci95_high"]].round(2)
