"""scikit-learn and pyRiemann pipelines as methods.

    bridgemil evaluate my.cohort --method examples/own/pipelines.py:mdm

Needs pyRiemann (``pip install pyriemann``). Each function returns an estimator; ``features`` names what X is.
"""

import numpy as np
from pyriemann.classification import MDM
from pyriemann.tangentspace import TangentSpace
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

BANDS = ((1, 4), (4, 8), (8, 13), (13, 20), (20, 30), (30, 45))  # Hz


def mdm():
    """Minimum distance to the Riemannian mean of each class (Barachant et al., 2012)."""
    return MDM(metric="riemann")


def tangent_space(C=1.0):
    """Tangent space at the Riemannian mean of the training subjects, then logistic regression."""
    return make_pipeline(TangentSpace(), StandardScaler(), LogisticRegression(C=C, max_iter=5000))


def tangent_space_tuned():
    """The same; C is chosen by cross-validation within the training subjects of each fold."""
    grid = {"logisticregression__C": [1e-4, 1e-3, 1e-2, 0.1, 1.0]}
    return GridSearchCV(tangent_space(), grid, scoring="neg_log_loss", cv=5)


mdm.features = tangent_space.features = tangent_space_tuned.features = "mean_covariance"


class TangentSpaces(TransformerMixin, BaseEstimator):
    """n_subjects x n_bands x C x C to the tangent vectors of all bands, side by side."""

    def fit(self, X, y=None):
        """One tangent space per band, at the mean of the training subjects."""
        self.spaces_ = [TangentSpace().fit(X[:, band]) for band in range(X.shape[1])]
        return self

    def transform(self, X):
        """n_subjects x (n_bands C (C + 1) / 2)."""
        return np.hstack([space.transform(X[:, band]) for band, space in enumerate(self.spaces_)])


def filter_bank(sfreq, C=1e-3):
    """Covariances of six frequency bands, each in its tangent space, then logistic regression."""

    def covariances(X):
        return np.stack([band_covariances(windows, sfreq) for windows in X])

    return make_pipeline(
        FunctionTransformer(covariances), TangentSpaces(), StandardScaler(), LogisticRegression(C=C, max_iter=5000)
    )


filter_bank.features = "windows"


def band_covariances(windows, sfreq):
    """Mean covariance of a subject's windows (n x C x T) in each band, shrunk: n_bands x C x C."""
    n_times, n_channels = windows.shape[2], windows.shape[1]
    spectrum = np.fft.rfft(windows * np.hanning(n_times))
    frequency = np.fft.rfftfreq(n_times, 1 / sfreq)
    found = []
    for low, high in BANDS:
        part = spectrum[..., (frequency >= low) & (frequency < high)]
        matrix = np.einsum("nct,ndt->cd", part, part.conj()).real
        matrix /= np.trace(matrix) / n_channels
        found.append(0.9 * matrix + 0.1 * np.eye(n_channels))
    return np.stack(found)
