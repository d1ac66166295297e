"""
Your own cleaning
=================

``prepare --clean file.py:NAME`` applies a function of yours to each recording before it is filtered. It gets one
``mne.io.Raw`` at a time, without label or subject, so it cannot leak. Its code is part of the cohort's identity.
"""

import tempfile
from importlib.resources import files
from pathlib import Path

import matplotlib.pyplot as plt

import bridgemil

source = Path(str(files("bridgemil.recordings") / "adftd-60s"))
folder = Path(tempfile.mkdtemp())

# %%
# A function in a file
# --------------------
# This one annotates seconds with more than 150 µV at a frontal electrode as bad, and excludes recordings with many of
# them.

(folder / "tidy.py").write_text('''
import bridgemil


def blinks(raw):
    """Mark seconds with large frontal deflections as bad."""
    frontal = raw.get_data(["Fp1", "Fp2"])
    per_second = int(raw.info["sfreq"])
    n = frontal.shape[1] // per_second
    peaks = frontal[:, : n * per_second].reshape(2, n, per_second)
    large = (peaks.max(axis=2) - peaks.min(axis=2)).max(axis=0) > 150e-6
    if large.mean() > 0.5:
        raise bridgemil.Exclude("more than half of the seconds have large frontal deflections")
    for second in large.nonzero()[0]:
        raw.annotations.append(second, 1, "BAD_blink")
    return raw
''')

# %%
# Prepare with and without it
# ---------------------------

how = {"label": "Group", "progress": False}
plain = bridgemil.prepare(source, folder / "plain.cohort", **how)
clean = bridgemil.prepare(source, folder / "clean.cohort", clean=[f"{folder / 'tidy.py'}:blinks"], **how)
print(f"{plain.n_windows} windows of {len(plain)} subjects; with cleaning {clean.n_windows} of {len(clean)}")

# %%
# What was excluded, and why, is part of the record.

for item in clean.metadata["left_out"][:5]:
    print(item["what"], "-", item["why"])

# %%
# Spectra before and after
# ------------------------

fig, axes = plt.subplots(1, 2, figsize=(10, 3.6), sharey=True, layout="constrained")
plain.plot(axes[0])
clean.plot(axes[1])
axes[0].set_title("as recorded")
axes[1].set_title("blinks excluded")
