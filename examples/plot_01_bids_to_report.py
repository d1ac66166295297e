"""
From a BIDS folder to a report
==============================

A folder in BIDS with a diagnosis in ``participants.tsv`` becomes a cohort, is evaluated and reported. The same
steps from the
command line: ``bridgemil prepare``, ``audit``, ``evaluate``, ``report``.
"""

# %%
# The folder
# ----------
# The package contains one: 19 electrodes, one minute per subject, patients with Alzheimer's disease (A) and
# healthy controls (C).

import tempfile
from importlib.resources import files
from pathlib import Path

import bridgemil

source = Path(str(files("bridgemil.recordings") / "adftd-60s"))
folder = Path(tempfile.mkdtemp())
print(*(source / "participants.tsv").read_text().splitlines()[:4], sep="\n")

# %%
# A cohort
# --------
# Every file is validated, filtered, resampled and segmented into windows of one second.

cohort = bridgemil.prepare(
    source, folder / "my.cohort", label="Group", classes={"A": "Alzheimer", "C": "healthy"}, progress=False
)
cohort

# %%
# Spectra by class

cohort.plot()

# %%
# The windows of a subject are an array in microvolts: windows x channels x time.

cohort.windows(cohort.subjects[0]).shape

# %%
# Cross-validation over subjects
# ------------------------------
# ``tangent`` takes seconds; the default method, ``tangent+bridgemil``, takes minutes. The second baseline is
# evaluated on the same folds.

results = bridgemil.evaluate(cohort, "tangent", out=folder / "runs", progress=False)
results

# %%
# Audit warnings and comparisons stay with the scores. Every held-out subject has its probabilities:

results.predictions.head()

# %%
# Is the difference to the other baseline significant?

print(results.compare(results.baselines["bandpower"]).sentence)

# %%
# A picture
# ---------
# Probabilities of all held-out subjects by diagnosis.

results.plot("subjects")

# %%
# ``bridgemil report runs --html`` writes a page with intervals, comparisons, confusion matrices, calibration and
# a methods section.
