"""A user's scikit-learn pipeline as a method: fitted on one entry per training subject, inside the folds.

It is named by its address, ``path/to/file.py:NAME`` or ``package.module:NAME``: an estimator, or a function (or class)
that returns one. Its attribute ``features`` names the form of ``X``. What it learns stays in memory: only arrays are
stored, and an arbitrary estimator could be stored as a pickle alone.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import create_model

from bridgemil import user_code
from bridgemil.baselines.baseline import Baseline
from bridgemil.baselines.classifiers import Classifier, Floats
from bridgemil.cohort.signal import Signal, require_rate, rereferenced
from bridgemil.errors import BadUse, one_of

BLOCK = 512  # windows transformed at once, which bounds the memory
SHRINKAGE = 0.1  # towards the identity, as of the backbone covariance: with the average reference the rank is C - 1
VERSION = 1  # raised by hand when the arrays change
OFFERED = ("sfreq", "channels")  # what is passed to a function that has such a parameter
NEEDED = ("fit", "predict_proba", "get_params")
SHOWN = (
    "expected: def NAME(): return make_pipeline(TangentSpace(), LogisticRegression()), and below it "
    'NAME.features = "mean_covariance"'
)
NOT_STORED = (
    "{name} is your own pipeline and cannot be stored: models are arrays, never pickles, and an arbitrary estimator is "
    "not arrays; evaluate, benchmark and report work with it, for a model to keep choose another method"
)


def covariances(bag: NDArray[np.float32], reference: str = "average") -> NDArray[np.float64]:
    """Covariance between electrodes of each window, shrunk towards the identity times its mean variance.

    From n x C x T in microvolts, re-referenced first, to n x C x C, positive definite, in microvolts squared.
    """
    found = []
    for first in range(0, len(bag), BLOCK):
        x = rereferenced(np.asarray(bag[first : first + BLOCK], dtype=np.float64), reference)
        x = x - x.mean(axis=2, keepdims=True)
        matrices = x @ x.transpose(0, 2, 1) / (x.shape[2] - 1)
        variance = np.trace(matrices, axis1=1, axis2=2) / x.shape[1]
        identity = variance[:, None, None] * np.eye(x.shape[1])
        found.append((1 - SHRINKAGE) * matrices + SHRINKAGE * identity)
    return np.concatenate(found)


FORMS: Mapping[str, Callable[[NDArray[np.float32], str], NDArray[Any]]] = {
    "windows": rereferenced, "epochs": rereferenced, "covariances": covariances,
    "mean_covariance": lambda bag, reference: covariances(bag, reference).mean(axis=0),
}  # fmt: skip


class Pipeline(Baseline):
    """A scikit-learn pipeline of the user's own."""

    needs_rate = False
    address: ClassVar[str]
    target: ClassVar[Any]  # the estimator, or what returns one
    form: ClassVar[str]
    options: ClassVar[tuple[str, ...]]  # keyword arguments of the function, which are settings

    def __init__(self, settings: Any, signal: Signal) -> None:
        super().__init__(settings, signal)
        self.estimator = self._made()

    @property
    def cross_validates(self) -> bool:
        """Whether a step has a parameter ``cv``, like GridSearchCV: it divides the rows that it is fitted on."""
        return any(name.rpartition("__")[2] == "cv" for name in self.estimator.get_params(deep=True))

    @property
    def features_key(self) -> dict[str, Any]:
        """The form and the reference: pipelines of one form share their arrays, whatever they learn."""
        form = "windows" if self.form == "epochs" else self.form
        return {"pipeline": form, "version": VERSION, "reference": self.settings.reference}

    def features(self, bag: NDArray[np.float32]) -> NDArray[Any]:
        """The subject's entry of ``X``."""
        return FORMS[self.form](np.asarray(bag), self.settings.reference)

    def together(self, rows: Sequence[NDArray[Any]]) -> Any:
        """A list with one array per subject; of ``mean_covariance`` one array, n x C x C."""
        return np.stack(rows) if self.form == "mean_covariance" else list(rows)

    def fit(self, features: Any, y: NDArray[np.int64], n_classes: int, seed: int) -> Classifier:
        """A copy of the estimator, fitted; parameters ``random_state`` that are None are the seed."""
        from sklearn.base import clone

        from bridgemil.backbones.custom import random_state_kept

        estimator = clone(self.estimator)  # what one fold learns is in no other
        parameters = estimator.get_params(deep=True).items()
        unset = [name for name, value in parameters if name.rpartition("__")[2] == "random_state" and value is None]
        estimator.set_params(**dict.fromkeys(unset, seed))
        with random_state_kept():
            np.random.seed(seed)  # noqa: NPY002 (users may use it)
            self._called("fit", lambda: estimator.fit(features, y))
        return Fitted(self, estimator, np.unique(y), n_classes)

    def _made(self) -> Any:
        """The estimator, not fitted; refuses what is none."""
        made = self.target
        if _makes(made):
            offered = {name: getattr(self.signal, name) for name in OFFERED if name in _parameters(made)}
            if "sfreq" in offered:
                require_rate(f"method {self.address!r}", self.signal.sfreq)
            own = {name: getattr(self.settings, name) for name in self.options}
            made = self._called("the function", lambda: self.target(**offered, **own))
        missing = [name for name in NEEDED if not callable(getattr(made, name, None))]
        if missing:
            what = f"{type(made).__name__} without {', '.join(missing)}"
            raise BadUse(f"{self.address}: must be, or return, a scikit-learn classifier, got {what}; {SHOWN}")
        return made

    def _called(self, what: str, call: Callable[[], Any]) -> Any:
        """The result of user code; its error as one sentence."""
        try:
            return call()
        except Exception as error:
            told = f"{self.address}: {what} failed with {user_code.describe_error(error)}"
            raise BadUse(f"{told}; X has one entry per subject (features: {self.form}); {SHOWN}") from error


@dataclass(eq=False)
class Fitted(Classifier):
    """What a pipeline has learnt, in memory."""

    pipeline: Pipeline
    estimator: Any
    classes: NDArray[np.int64]  # with training subjects
    n_classes: int  # of the cohort
    kind: ClassVar[str] = "pipeline"

    def probabilities(self, features: Any) -> Floats:
        """The probability of each class for each subject; shape (n_subjects, n_classes)."""
        x, name = self.pipeline.together(list(features)), self.pipeline.address
        p = np.asarray(self.pipeline._called("predict_proba", lambda: self.estimator.predict_proba(x)), dtype=float)
        expected = (len(features), len(self.classes))
        if p.shape != expected or not np.isfinite(p).all() or not np.allclose(p.sum(axis=1), 1):
            wanted = f"{expected[0]} x {expected[1]} probabilities whose rows sum to 1"
            raise BadUse(f"{name}: predict_proba must give {wanted}, it gave an array of shape {p.shape}")
        every = np.zeros((len(p), self.n_classes))
        every[:, self.classes] = p
        return every

    def _subject(self, features: Floats) -> Floats:
        p: Floats = self.probabilities(features[None])[0]
        return p

    def tensors(self) -> dict[str, NDArray[Any]]:
        """Refused: an arbitrary estimator cannot be kept as arrays."""
        raise BadUse(NOT_STORED.format(name=self.pipeline.address))


def load(address: str) -> type[Pipeline]:
    """The baseline of a user's pipeline, whose settings are the function's keyword arguments."""
    target = user_code.find(address)
    parameters = _parameters(target) if _makes(target) else {}
    form = parameters["features"].default if "features" in parameters else getattr(target, "features", "windows")
    one_of(f"{address}: features", str(form), FORMS)
    own = {name: parameter for name, parameter in parameters.items() if name not in (*OFFERED, "features")}
    needed = [name for name, parameter in own.items() if parameter.default is parameter.empty]
    if needed:
        raise BadUse(f"{address}: is called without {', '.join(needed)}, give them defaults; {SHOWN}")
    fields: dict[str, Any] = {name: (Any, parameter.default) for name, parameter in own.items()}
    settings = create_model("Settings", __base__=Baseline.ReferenceSettings, **fields)
    content = {"name": address, "address": address, "target": staticmethod(target), "form": form}
    return type("Pipeline", (Pipeline,), content | {"options": tuple(own), "Settings": settings})


def _makes(target: Any) -> bool:
    """Whether it is called for an estimator, and is none itself."""
    return callable(target) and (inspect.isclass(target) or not hasattr(target, "get_params"))


def _parameters(target: Any) -> dict[str, inspect.Parameter]:
    starred = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    found = inspect.signature(target).parameters
    return {name: parameter for name, parameter in found.items() if parameter.kind not in starred}
