"""A scikit-learn-compatible classifier of bags, each the windows of one subject.

    clf = BridgeMILClassifier().fit(X, y)      # X: a list of arrays, windows x channels x time, or of mne.Epochs
    clf.predict_proba(X_new)

Every method, ensemble, backbone and recipe of ``bridgemil.evaluate`` serves here. Where a recipe selects a network's
epoch (``paper``), subjects that it does not train on do so, split off inside ``fit``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import methodcaller
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

from bridgemil import methods, models
from bridgemil.cohort.arrays import bags_of, warn_of_volts
from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.tables import is_missing
from bridgemil.errors import BadUse, some
from bridgemil.storage.artifact import Artifact, array_checksum, new_artifact
from bridgemil.storage.files import write_json

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from bridgemil.models import Prediction

Bag = NDArray[np.float32]
Places = NDArray[np.intp]
KIND = "classifier"
METADATA, MODEL = "estimator.json", "model"


class BridgeMILClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Subject-level classifier on bags of EEG windows, scikit-learn-compatible.

    ``X`` is a list of bags, one per subject: arrays (n_windows, n_channels, n_times) in microvolts, or ``mne.Epochs``,
    all with the same channels and length, with any number of windows. ``y`` holds one label per bag, of any type that
    sorts.

    The default is the paper's method on its smallest backbone, which has attention weights for every window
    (``gates``). ``bridgemil.evaluate`` has another default, ``BridgeMILClassifier("tangent+bridgemil", "covariance",
    sfreq=...)``, which needs the sampling rate. Recipe, budget and device have the same defaults in both.

    Parameters
    ----------
    method : str, default "bridgemil"
        One of ``bridgemil.methods.names()``, the address of your scikit-learn pipeline, or several joined by ``+``, the
        weighted mean of their probabilities.
    backbone : str, default "eegnet"
        One of ``bridgemil.backbones.names()``, or your own code; a baseline has no use for it.
    recipe, budget : str, optional
        How, and how long, a network is trained: ``bridgemil.methods.recipes()`` (by default ``ours``, or ``paper`` with
        the budget ``paper``), ``bridgemil.methods.budgets()``.
    seed : int, default 0
        Of weights, sampling, dropout and the validation split.
    sfreq : float, optional
        Sampling rate of the windows, in Hz. Taken from ``mne.Epochs``. For arrays it must be given where the method
        depends on it: ``bandpower``, ``tangent``, the backbones ``covariance``, ``braindecode:...`` and
        ``spd_learn:...``, and your own that takes ``sfreq``. The paper's backbones do not use it.
    channels : sequence of str, optional
        Electrode names. Taken from ``mne.Epochs``; for arrays ``E1`` and so on if left out.
    native_sfreq : float, optional
        The rate at which the signals were recorded, in Hz, if it is known.
    settings : dict, optional
        Changes to single settings: ``{"stage1.epochs": 5}``.
    validation : float, default 0.2
        Share of the subjects that selects a network's epoch instead of training it, with recipe ``paper``. Stratified;
        bags that are the same, or of one group, stay on one side. ``ours`` and baselines learn from everyone.
    device : str, default "auto"
        ``auto``, ``cpu`` or ``cuda``.

    Attributes
    ----------
    classes_ : ndarray, shape (K,)
        The labels, in their own order: 2 before 10.
    model_ : bridgemil.models.Model
        What was fitted.
    validation_ : ndarray
        The places in ``X`` of the bags that selected the epoch; empty where none was selected.
    """

    def __init__(
        self,
        method: str = "bridgemil",
        backbone: str = "eegnet",
        *,
        recipe: str | None = None,
        budget: str = methods.BUDGET,
        seed: int = 0,
        sfreq: float | None = None,
        channels: Sequence[str] | None = None,
        native_sfreq: float | None = None,
        settings: Mapping[str, Any] | None = None,
        validation: float = 0.2,
        device: str = "auto",
    ) -> None:
        self.method, self.backbone, self.recipe, self.budget, self.seed = method, backbone, recipe, budget, seed
        self.sfreq, self.channels, self.native_sfreq = sfreq, channels, native_sfreq
        self.settings, self.validation, self.device = settings, validation, device

    def fit(self, X: Sequence[Bag], y: Sequence[Any], groups: Sequence[Any] | None = None) -> Self:
        """Fit the classifier on a list of bags.

        Parameters
        ----------
        X : list of ndarray or of mne.Epochs, length n
            Bags, one per subject: arrays (n_windows, n_channels, n_times) in microvolts, or ``mne.Epochs``. A bag may
            be repeated (a bootstrap) and then has that weight.
        y : sequence, length n
            One label per bag.
        groups : sequence, length n, optional
            Bags of one group (a family, several bags of one person) are kept on one side of the validation split.

        Returns
        -------
        BridgeMILClassifier
            The fitted classifier.
        """
        from bridgemil.parallel import device_of

        if not 0 < self.validation < 1:
            raise BadUse(f"validation is a share of the subjects between 0 and 1, got {self.validation!r}")
        bags, rate, channels = self._windows(X)
        labels = _labels(y, len(bags))
        classes, codes = np.unique(labels, return_inverse=True)
        if len(classes) < 2:
            raise BadUse(f"y has one class only ({classes[0]!r}): there is nothing to tell apart")
        first: dict[str, int] = {}
        copies = np.array([first.setdefault(array_checksum(bag), place) for place, bag in enumerate(bags)])
        units = _units(copies, codes, groups)
        cohort = self._cohort(bags, copies, codes, rate, channels)
        chosen = methods.for_cohort(
            cohort, self.method, self.backbone, self.budget, dict(self.settings or {}), recipe=self.recipe
        )
        selecting = np.zeros(len(bags), dtype=bool)
        if chosen.selects:
            selecting = _validation(codes, units, self.validation, self.seed, classes)
        subjects = np.array(cohort.subjects)
        model = models.fit_whole(
            cohort, subjects[~selecting].tolist(), subjects[selecting].tolist(), chosen, int(self.seed),
            device=device_of(self.device),
        )  # fmt: skip
        for one in (model, *getattr(model, "members", {}).values()):  # the labels' own names, in the same order
            one.facts = replace(one.facts, classes=tuple(map(str, classes)))
        self.classes_, self.model_ = classes, model
        self.validation_ = np.flatnonzero(selecting)
        return self

    def predict(self, X: Sequence[Bag]) -> NDArray[Any]:
        """Predict the label of each bag.

        Parameters
        ----------
        X : list of ndarray or of mne.Epochs
            Bags, as for ``fit``.

        Returns
        -------
        ndarray of shape (n,)
        """
        predicted = [prediction.predicted for prediction in self._predictions(X)]
        labels: NDArray[Any] = self.classes_[np.array(predicted, dtype=np.intp)]
        return labels

    def predict_proba(self, X: Sequence[Bag]) -> NDArray[np.float64]:
        """Predict class probabilities, not calibrated.

        Parameters
        ----------
        X : list of ndarray or of mne.Epochs
            Bags, as for ``fit``.

        Returns
        -------
        ndarray of shape (n, K)
            In the order of ``classes_``.
        """
        rows = [prediction.probabilities for prediction in self._predictions(X)]
        return np.array(rows, dtype=np.float64).reshape(-1, len(self.classes_))

    def gates(self, X: Sequence[Bag]) -> list[NDArray[np.float32]]:
        """Attention weights of the windows: sigmoid gates in [0, 1], not a softmax.

        Parameters
        ----------
        X : list of ndarray or of mne.Epochs
            Bags, as for ``fit``.

        Returns
        -------
        list of ndarray of shape (n_windows,)
            One array per bag.
        """
        return [self._given(prediction.gates, "gates") for prediction in self._predictions(X)]

    def contributions(self, X: Sequence[Bag]) -> list[NDArray[np.float32]]:
        """Contribution of each window to each logit; for ``additive``, ``millet``, ``bandpower`` and ``tangent``.

        Parameters
        ----------
        X : list of ndarray or of mne.Epochs
            Bags, as for ``fit``.

        Returns
        -------
        list of ndarray of shape (n_windows, K)
            One array per bag; each sums to the logits of the bag, of a baseline to those minus their mean over classes.
        """
        return [self._given(prediction.contributions, "contributions") for prediction in self._predictions(X)]

    def embed(self, X: Sequence[Bag]) -> list[NDArray[np.float32]]:
        """Embeddings of the windows.

        Parameters
        ----------
        X : list of ndarray or of mne.Epochs
            Bags, as for ``fit``.

        Returns
        -------
        list of ndarray of shape (n_windows, d)
            One array per bag; for a baseline the features of the subject, (1, f).
        """
        return [self.model_.embed(bag) for bag in self._matching(X)]

    def plot_patterns(
        self, X: Sequence[Bag], label: Any = None, quantity: str | None = None, axes: Sequence[Axes] | None = None
    ) -> list[Axes]:
        """Scalp maps of the model's activation patterns (Haufe et al., 2014), one per frequency band.

        Parameters
        ----------
        X : list of ndarray or of mne.Epochs
            Bags, as for ``fit``; patterns are over the features of their windows.
        label : optional
            The class; by default the patient class of two.
        quantity : {"own", "coupling", "power"}, optional
            Log-variance, covariance with other electrodes, or log relative band power; by default the first that the
            model has.
        axes : sequence of matplotlib.axes.Axes, optional
            One per band; new ones by default.

        Returns
        -------
        list of matplotlib.axes.Axes
        """
        from bridgemil.report.explanation import plot_patterns

        bags, name = self._matching(X), None if label is None else str(label)
        return plot_patterns(self.model_, bags, None, name, quantity, axes)

    def save(self, path: str | Path) -> None:
        """Write the fitted classifier to a folder: JSON and safetensors, no executable content.

        Parameters
        ----------
        path : str or Path
            A folder. A classifier there is replaced; any other content is refused.
        """
        check_is_fitted(self, "model_")
        folder = Path(path)
        if folder.exists() and not (folder / METADATA).is_file() and (not folder.is_dir() or any(folder.iterdir())):
            raise BadUse(f"{folder}: exists and is no classifier; choose another place")
        dtype = "object" if self.classes_.dtype.kind == "O" else self.classes_.dtype.str
        labels = {"dtype": dtype, "values": self.classes_.tolist()}
        content = {"parameters": self.get_params(deep=False), "classes": labels, "validation": self.validation_}
        try:
            content = json.loads(json.dumps(content, default=methodcaller("tolist")))  # numpy's values too
        except (TypeError, AttributeError) as error:
            why = f"a parameter or label cannot be saved ({error}); use plain numbers, strings and lists"
            raise BadUse(why) from None
        with new_artifact(folder, KIND) as partial:
            self.model_.write(partial / MODEL)
            write_json(partial / METADATA, content)

    @classmethod
    def load(cls, path: str | Path, *, backbone: str | None = None) -> Self:
        """Read a classifier written by ``save``; its predictions are bit-identical.

        Parameters
        ----------
        path : str or Path
            Its folder.
        backbone : str, optional
            The address of the user-defined backbone, if it was trained with one.

        Returns
        -------
        BridgeMILClassifier
        """
        artifact = Artifact.open(Path(path), KIND, "save it again")
        content = artifact.json(METADATA)
        made = cls(**content["parameters"])
        made.classes_ = np.array(content["classes"]["values"], dtype=np.dtype(content["classes"]["dtype"]))
        made.validation_ = np.array(content["validation"], dtype=np.intp)
        made.model_ = models.read_model(artifact, f"{MODEL}/", backbone=backbone)
        return made

    def _windows(self, X: Any) -> tuple[list[Bag], float, list[str] | None]:
        """The bags, their sampling rate (NaN if it is not known) and their channels (None if not known)."""
        bags, rate, channels = bags_of(X)
        given = None if self.channels is None else [str(name) for name in self.channels]
        if None not in (rate, self.sfreq) and rate != self.sfreq:
            raise BadUse(f"sfreq is {self.sfreq} Hz, but the Epochs have {rate:g} Hz; leave it out, or resample them")
        if None not in (channels, given) and channels != given:
            raise BadUse("channels differs from the Epochs' own names or their order; leave it out")
        rate = self.sfreq if rate is None else rate
        return bags, math.nan if rate is None else float(rate), given if channels is None else channels

    def _cohort(
        self, bags: list[Bag], copies: Places, codes: Places, rate: float, channels: list[str] | None
    ) -> Cohort:
        """The bags as a cohort in memory; a bag that is there twice is two subjects of it.

        Class codes are written with leading zeros, so that a cohort's sorted names are in the labels' own order.
        """
        names = [f"E{i + 1}" for i in range(bags[0].shape[1])] if channels is None else channels
        subjects = [f"bag-{place:06d}" for place in range(len(bags))]
        distinct = np.unique(copies)
        made = Cohort.from_arrays(
            [bags[i] for i in distinct], [f"{codes[i]:04d}" for i in distinct], [subjects[i] for i in distinct],
            1.0 if math.isnan(rate) else rate, names, native_sfreq=self.native_sfreq,
        )  # fmt: skip
        records = [replace(made.records[subjects[i]], subject=name) for i, name in zip(copies, subjects, strict=True)]
        return Cohort(records, made.metadata | {"sfreq": rate}, {}, arrays=dict(zip(subjects, bags, strict=True)))

    def _predictions(self, X: Sequence[Bag]) -> list[Prediction]:
        return [self.model_.predict(bag) for bag in self._matching(X)]

    def _matching(self, X: Sequence[Bag]) -> list[Bag]:
        """The bags, which must be of the windows that the model takes."""
        check_is_fitted(self, "model_")
        bags, rate, channels = bags_of(X)
        signal = self.model_.facts.signal
        if rate is not None and not (math.isnan(signal.sfreq) or signal.sfreq == rate):
            raise BadUse(f"the model takes windows at {signal.sfreq:g} Hz, the Epochs have {rate:g} Hz; resample them")
        if channels is not None and "E1" not in signal.channels and tuple(channels) != signal.channels:
            raise BadUse(f"the model takes the channels {', '.join(signal.channels)} in this order; reorder the Epochs")
        for place, bag in enumerate(bags):
            if bag.shape[1:] != (signal.n_channels, signal.n_times):
                takes = f"{signal.n_channels} channels x {signal.n_times} samples"
                raise BadUse(f"X[{place}]: the model takes windows of {takes}, got {bag.shape[1]} x {bag.shape[2]}")
        warn_of_volts(bags)
        return bags

    def _given(self, values: NDArray[np.float32] | None, what: str) -> NDArray[np.float32]:
        if values is None:
            raise BadUse(f"{self.method} has no {what}")
        return values

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.three_d_array = True  # of each bag
        return tags


def _labels(y: Any, n: int) -> NDArray[Any]:
    if y is None:
        raise BadUse("this classifier requires y to be passed, but the target y is None")
    labels: NDArray[Any] = column_or_1d(y, warn=True)
    missing = [f"y[{place}]" for place, label in enumerate(np.asarray(y, dtype=object).ravel()) if is_missing(label)]
    if missing:
        raise BadUse(f"no label at {some(missing, 8)}: give every bag one, or leave it out")
    if len(labels) != n or not n:
        raise BadUse(f"X has {n} bags, y has {len(labels)} labels: one label per bag is needed, and at least two bags")
    check_classification_targets(labels)
    return labels


def _units(copies: Places, codes: Places, groups: Sequence[Any] | None) -> Places:
    """Which bags must stay together: the same windows, or the same group; a number for each bag.

    ``copies`` has of each bag the place of the first one that is equal.
    """
    for place in np.flatnonzero(codes[copies] != codes):
        same = f"X[{copies[place]}] and X[{place}] are the same bag"
        raise BadUse(f"{same} under two labels: one subject has one diagnosis")
    n = len(copies)
    together = np.zeros((n, n), dtype=bool)
    together[range(n), copies] = True
    if groups is not None:
        member = np.unique([str(group) for group in groups], return_inverse=True)[1]
        if len(member) != n:
            raise BadUse(f"X has {n} bags, groups has {len(member)} entries")
        together |= member[:, None] == member
    return connected_components(together, directed=False)[1].astype(np.intp)


def _validation(
    codes: NDArray[np.intp], units: NDArray[np.intp], share: float, seed: int, classes: NDArray[Any]
) -> NDArray[np.bool_]:
    """Who selects the epoch: about this share of the units of every class, at least one and never all."""
    of_class = [set(units[codes == k].tolist()) for k in range(len(classes))]
    few = [f"{name!r} has {len(n)}" for name, n in zip(classes.tolist(), of_class, strict=True) if len(n) < 2]
    if few:
        raise BadUse(
            f"too few subjects to select an epoch by some: class {', '.join(few)}; each needs 2 or more groups"
        )
    wanted = [min(max(1, round(share * len(members))), len(members) - 1) for members in of_class]
    drawn = np.random.default_rng(seed).permutation(np.unique(units)).tolist()
    drawn.sort(key=lambda unit: min(len(members) for members in of_class if unit in members))  # rare classes first
    taken: set[int] = set()
    for unit in drawn:
        if all(len(taken & members) < n for members, n in zip(of_class, wanted, strict=True) if unit in members):
            taken.add(unit)
    return np.isin(units, list(taken))
