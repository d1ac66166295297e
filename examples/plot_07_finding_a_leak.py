"""
Finding a leak with the audit
=============================

Two subjects of a cohort are one person: somebody exported the same recording twice, scaled and cut differently. A
split by subject would put one
copy into training and the other into test data.
"""

import matplotlib.pyplot as plt
import numpy as np

import bridgemil
from bridgemil.audit import audit

rng = np.random.default_rng(3)
channels = ["Fp1", "Fp2", "C3", "C4", "P3", "P4", "O1", "O2"]


def recording(seconds: int = 40) -> np.ndarray:
    """Pink noise with an alpha rhythm, channels x time."""
    spectrum = np.fft.rfft(rng.standard_normal((len(channels), seconds * 200)))
    frequency = np.fft.rfftfreq(seconds * 200, 1 / 200)
    spectrum /= np.sqrt(np.maximum(frequency, 1))
    spectrum *= 1 + 4 * np.exp(-(((frequency - rng.normal(10, 0.7)) / 1.2) ** 2))
    signal = np.fft.irfft(spectrum)
    return 20 * signal / signal.std()


recordings = [recording() for _ in range(20)]
recordings[13] = 0.7 * np.roll(recordings[4], -700, axis=1) + 0.5 * rng.standard_normal(recordings[4].shape)
bags = [x.reshape(len(channels), -1, 200).transpose(1, 0, 2) for x in recordings]
labels = ["control", "patient"] * 10
subjects = [f"sub-{i:02d}" for i in range(1, 21)]
cohort = bridgemil.Cohort.from_arrays(bags, labels, subjects, sfreq=200, channels=channels, native_sfreq=200)

# %%
# The two recordings do not look alike: the second begins 3.5 s later and has another amplitude.

fig, axes = plt.subplots(2, 1, sharex=True, figsize=(7, 2.8), layout="constrained")
for ax, i in zip(axes, (4, 13), strict=True):
    ax.plot(np.arange(1600) / 200, recordings[i][-1, :1600], lw=0.6)
    ax.set(title=f"{subjects[i]} ({labels[i]}), O2", ylabel="µV", ylim=(-80, 80))
axes[-1].set_xlabel("time (s)")

# %%
# The audit
# ---------
# The copy is found although it is scaled, shifted and noisy.

report = audit(cohort)
for finding in report.findings:
    if finding.status in ("FAIL", "WARN"):
        print(finding.status, finding.name, "-", finding.message)
        print(*(f"    {line}" for line in finding.evidence), sep="\n")
        print("    remedy:", finding.fix)

# %%
# ``evaluate`` refuses such a cohort
# ----------------------------------

try:
    bridgemil.evaluate(cohort, "bandpower", folds=5, progress=False)
except bridgemil.errors.BridgeMILError as error:
    print(error)
