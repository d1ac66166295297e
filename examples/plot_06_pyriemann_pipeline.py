"""
A pyRiemann pipeline as a method
================================

Any scikit-learn classifier of subjects can be evaluated like a method of the package: on the same folds, with the same
baselines, audit and test.
"""

import tempfile
from importlib.resources import files
from pathlib import Path

import bridgemil

source = Path(str(files("bridgemil.recordings") / "adftd-60s"))
folder = Path(tempfile.mkdtemp())
cohort = bridgemil.prepare(source, folder / "my.cohort", label="Group", progress=False)

# %%
# A function in a file returns the estimator
# ------------------------------------------
# ``features`` says what X is: here one covariance matrix per subject, on the average reference.

(folder / "mine.py").write_text('''
from pyriemann.tangentspace import TangentSpace
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline


def riemann(C=1.0):
    """Tangent space at the mean of the training subjects, then logistic regression."""
    return make_pipeline(TangentSpace(), LogisticRegression(C=C, max_iter=5000))


riemann.features = "mean_covariance"
''')

# %%
# Evaluate
# --------
# From the command line: ``bridgemil evaluate my.cohort --method mine.py:riemann --set baseline.C=0.1``.

results = bridgemil.evaluate(
    cohort, f"{folder / 'mine.py'}:riemann", settings={"baseline.C": 0.1}, out=folder / "runs", progress=False
)
results.plot("forest")

# %%
# The comparison with each baseline is paired over subjects.

for comparison in results.comparisons.values():
    print(comparison.corrected_sentence)
