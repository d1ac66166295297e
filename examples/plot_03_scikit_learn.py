"""
Cross-validation and grid search with scikit-learn
==================================================

``BridgeMILClassifier`` follows scikit-learn's rules: a sample is a subject, so every split is a split of subjects.
"""

import tempfile
from importlib.resources import files
from pathlib import Path

from sklearn.metrics import RocCurveDisplay, balanced_accuracy_score, roc_auc_score
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_predict

import bridgemil

source = Path(str(files("bridgemil.recordings") / "adftd-60s"))
cohort = bridgemil.prepare(source, Path(tempfile.mkdtemp()) / "cohort", label="Group", progress=False)
X = [cohort.windows(subject) for subject in cohort.subjects]
y = cohort.labels
print(len(X), "subjects;", X[0].shape, "windows x channels x time")

# %%
# Cross-validation
# ----------------

folds = StratifiedKFold(5, shuffle=True, random_state=0)
classifier = bridgemil.BridgeMILClassifier("tangent", sfreq=cohort.sfreq)
p = cross_val_predict(classifier, X, y, cv=folds, method="predict_proba")
print(f"AUROC {roc_auc_score(y, p[:, 1]):.3f}")
RocCurveDisplay.from_predictions(y, p[:, 0], pos_label=cohort.classes[0], plot_chance_level=True)

# %%
# Grid search
# -----------
# The inner folds choose the classifier of ``bandpower`` on the training subjects only; the outer folds evaluate
# the choice. Choosing and
# reporting on the same folds would be selection on test data.

search = GridSearchCV(
    bridgemil.BridgeMILClassifier("bandpower", sfreq=cohort.sfreq),
    {"settings": [{"baseline.classifier": name} for name in ("logistic", "extra_trees")]},
    cv=StratifiedKFold(4, shuffle=True, random_state=0),
    scoring="balanced_accuracy",
)
predicted = cross_val_predict(search, X, y, cv=StratifiedKFold(3, shuffle=True, random_state=0))
print(f"balanced accuracy with a nested choice {balanced_accuracy_score(y, predicted):.3f}")
