"""
Would more subjects help?
=========================

The study ``learning_curve`` trains on growing parts of the training subjects and extrapolates the expected gain.
"""

import tempfile
from importlib.resources import files
from pathlib import Path

import bridgemil

source = Path(str(files("bridgemil.recordings") / "adftd-60s"))
folder = Path(tempfile.mkdtemp())
cohort = bridgemil.prepare(source, folder / "cohort", label="Group", progress=False)

# %%
# From the command line: ``bridgemil study learning_curve my.cohort --out studies --method tangent --split-seeds 2``.

from bridgemil.studies import StudyContext, study

context = StudyContext((cohort,), folder / "studies", split_seeds=(0, 1), options={"method": "tangent"}, progress=False)
findings = study("learning_curve", context)
print(*findings.sentences, sep="\n")

# %%
# The study writes its tables, and its figures as PNG and SVG.

import matplotlib.pyplot as plt

fig, ax = plt.subplots(figsize=(7, 4.6), layout="constrained")
ax.imshow(plt.imread(folder / "studies" / "learning_curve" / "learning_curve.png"))
ax.axis("off")
