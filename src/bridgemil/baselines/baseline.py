"""The interface of a baseline: settings, the feature vector of a subject, a classifier fitted on many of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict

from bridgemil.cohort.signal import Signal

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from bridgemil.backbones.covariance import Feature, FrontEnd
    from bridgemil.baselines.classifiers import Classifier


class Baseline(ABC):
    """Features of one subject at a time, and a classifier on the features of the training subjects.

    A subclass refuses signals that it cannot work on in ``__init__``, before any work. The first line of its docstring
    describes it where it is registered by a user; ``settings`` are an instance of its own ``Settings``.
    """

    name: ClassVar[str]
    weighs_classes: ClassVar[bool | None] = None  # whether each class has the same weight in the fit; None: not stated
    needs_rate: ClassVar[bool] = True  # whether the sampling rate of the windows must be known
    front_end: FrontEnd | None = None  # computes features of single windows, which networks share
    left_out: Mapping[str, str] = MappingProxyType({})  # bands that recordings or filters do not hold, with the reason

    class Settings(BaseModel):
        """A baseline's settings; every field has a default, unknown ones are refused."""

        model_config = ConfigDict(extra="forbid", frozen=True)

    class ReferenceSettings(Settings):
        """``reference``: windows are re-referenced to the average of the electrodes first, or used as recorded."""

        reference: Literal["average", "recorded"] = "average"

    def __init__(self, settings: Any, signal: Signal) -> None:
        self.settings = settings
        self.signal = signal

    @property
    def cross_validates(self) -> bool:
        """Whether ``fit`` divides its rows, so that recordings of one subject may not be rows of their own."""
        return False

    @property
    @abstractmethod
    def features_key(self) -> dict[str, Any]:
        """Everything that determines the features of given windows, as JSON: where it is equal, features are shared."""

    def features(self, bag: NDArray[np.float32]) -> NDArray[np.float64]:
        """The subject's feature vector, (n_features,), from its windows alone (n x C x T, microvolts)."""
        mean: NDArray[np.float64] = self.window_features(bag).mean(axis=0)
        return mean

    @property
    def feature_names(self) -> list[Feature] | None:
        """Electrodes and band of each feature; None where features have none, and explanations do not go into them."""
        return None

    def window_features(self, bag: NDArray[np.float32]) -> NDArray[Any]:
        """Features of each window, shape (n_windows, n_features), whose mean is ``features``.

        Needed where ``features`` is not overridden, and where ``feature_names`` is given without a ``front_end``.
        """
        raise NotImplementedError

    def together(self, rows: Sequence[NDArray[Any]]) -> Any:
        """The features of several subjects as ``fit`` takes them: (n_subjects, n_features)."""
        import numpy as np

        return np.stack(rows)

    @abstractmethod
    def fit(self, features: NDArray[np.float64], y: NDArray[np.int64], n_classes: int, seed: int) -> Classifier:
        """A classifier fitted on the features of the training subjects, (n_subjects, n_features), and class numbers y.

        One of the ``n_classes`` of the cohort without training subjects gets probability 0.
        """
