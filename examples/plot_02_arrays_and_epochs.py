"""
Arrays and mne.Epochs
=====================

Data that are segmented already need no files.
"""

# %%
# Arrays
# ------
# One array of windows x channels x time per subject, in microvolts. Here two classes of 12 simulated subjects
# differ in one channel.

import mne
import numpy as np

import bridgemil

rng = np.random.default_rng(0)
channels, sfreq = ["Fz", "Cz", "Pz", "Oz"], 200
labels = ["control", "patient"] * 12
bags = [20 * rng.standard_normal((30, 4, 200)) for _ in labels]
for bag, label in zip(bags, labels, strict=True):
    bag[:, 1] *= 1.3 if label == "patient" else 1

cohort = bridgemil.Cohort.from_arrays(bags, labels, sfreq=sfreq, channels=channels, native_sfreq=sfreq)
cohort

# %%
# The cohort is in memory; ``cohort.save("my.cohort")`` writes it.

results = bridgemil.evaluate(cohort, "tangent", folds=4, progress=False)
results.plot()
results

# %%
# mne.Epochs
# ----------
# Epochs state their rate and channels. They are converted to microvolts.

info = mne.create_info(channels, sfreq, "eeg")
epochs = [mne.EpochsArray(bag * 1e-6, info, verbose=False) for bag in bags]
bridgemil.Cohort.from_arrays(epochs, labels)

# %%
# A classifier with scikit-learn's interface takes both.

classifier = bridgemil.BridgeMILClassifier("bandpower").fit(epochs[:16], labels[:16])
classifier.predict_proba(epochs[16:]).round(2)
