"""
Do attention weights find the evidence?
=======================================

Real recordings do not tell which windows show the disease. Synthetic patients do: some of their windows contain
sharp waves. Attention weights of
held-out patients are compared with this truth.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.metrics import roc_auc_score

import bridgemil
from bridgemil.cohort.synthetic import SynthSettings, patients, synthesise, true_evidence

folder = Path(tempfile.mkdtemp())
recordings = synthesise(folder / "recordings", SynthSettings(subjects=24, seconds=60, evidence="burst"), progress=False)
cohort = bridgemil.prepare(recordings, folder / "cohort", label="group", progress=False)

# %%
# Training knows the diagnosis of each subject, not the times of the sharp waves.

results = bridgemil.evaluate(cohort, "attention", budget="demo", folds=3, baselines=False, progress=False)
results

# %%
# Attention weight and truth of one held-out patient
# --------------------------------------------------

held_out = patients(recordings)
truth = {s: true_evidence(recordings, s, cohort.window_starts(s)) for s in cohort.subjects if s in held_out}
weights = {s: rows["gate"].to_numpy() for s, rows in results.windows.groupby("subject")}
one = next(iter(truth))
fig, ax = plt.subplots(figsize=(7, 2.4), layout="constrained")
seconds = np.arange(len(truth[one]))
ax.bar(seconds, weights[one], width=0.9, color=np.where(truth[one], "tab:red", "lightgrey"))
ax.set(xlabel="window (s)", ylabel="attention weight", title=f"{one}; windows with sharp waves in red")

# %%
# Over all held-out patients
# --------------------------

areas = [roc_auc_score(truth[s], weights[s]) for s in truth]
print(f"AUROC of attention weights for windows with evidence: {np.mean(areas):.2f} (mean of {len(areas)} patients)")
