"""
Explaining one prediction
=========================

Which windows, electrodes and frequency bands does a prediction depend on? For methods that are linear in the mean
of window features the answer is
exact: every window has a contribution to the score, and contributions sum to it.
"""

import tempfile
from importlib.resources import files
from pathlib import Path

import matplotlib.pyplot as plt

import bridgemil

source = Path(str(files("bridgemil.recordings") / "adftd-60s"))
folder = Path(tempfile.mkdtemp())
classes = {"A": "Alzheimer", "C": "healthy"}
cohort = bridgemil.prepare(source, folder / "cohort", label="Group", classes=classes, progress=False)
results = bridgemil.evaluate(cohort, "tangent", out=folder / "runs", baselines=False, progress=False)

# %%
# The held-out patient with the highest probability

patients = results.predictions.query("label == 'Alzheimer'").sort_values("p_Alzheimer")
one = patients.iloc[-1]
print(f"{one['subject']}: probability of Alzheimer's disease {one['p_Alzheimer']:.2f}")

# %%
# Windows
# -------

windows = results.windows.query("subject == @one['subject']")
fig, ax = plt.subplots(figsize=(7, 2.4), layout="constrained")
ax.bar(windows["second"], windows["contribution_Alzheimer"], width=0.9)
ax.axhline(0, color="grey", lw=1)
ax.set(xlabel="time (s)", ylabel="contribution to the score")

# %%
# Electrodes and bands
# --------------------
# Patterns after Haufe et al. (2014): how each feature covaries with the score over the training subjects.
# ``bridgemil explain RUNS --subject ID`` writes the same as a page.

import subprocess
import sys

command = ["explain", str(folder / "runs"), "--subject", one["subject"], "--csv", str(folder / "tables")]
print(subprocess.run([sys.executable, "-m", "bridgemil", *command], capture_output=True, text=True, check=True).stdout)
