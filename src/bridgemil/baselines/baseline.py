"""What every baseline is: settings, the feature vector of a subject, a classifier fitted on many of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel, ConfigDict

from bridgemil.cohort.signal import Signal

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from bridgemil.baselines.classifiers import Classifier


class Baseline(ABC):
    """Features of one subject at a time, and a classifier on the features of the training subjects.

    A subclass that cannot work on such a signal refuses in ``__init__``, before any work.

    Parameters
    ----------
    settings
        An instance of the class's own ``Settings``.
    signal
        What is known of the windows.
    """

    name: ClassVar[str]
    about: ClassVar[str]
    weighs_classes: ClassVar[bool | None] = None  # whether each class weighs the same in the fit; None: not said
    left_out: Mapping[str, str] = MappingProxyType(
        {}
    )  # bands that the recordings or their filters do not hold, each with the reason

    class Settings(BaseModel):
        """A baseline's settings; every field has a default, unknown ones are refused."""

        model_config = ConfigDict(extra="forbid", frozen=True)

    def __init__(self, settings: Any, signal: Signal) -> None:
        self.settings = settings
        self.signal = signal

    @property
    @abstractmethod
    def features_key(self) -> dict[str, Any]:
        """What decides the features of given windows, fit for JSON: where it is equal, features may be shared."""

    @abstractmethod
    def features(self, bag: NDArray[np.float32]) -> NDArray[np.float64]:
        """The subject's feature vector (f), made from this subject alone.

        Parameters
        ----------
        bag
            All windows of the subject, windows x channels x time, in microvolt.
        """

    @abstractmethod
    def fit(self, features: NDArray[np.float64], y: NDArray[np.int64], n_classes: int, seed: int) -> Classifier:
        """A classifier fitted on the training subjects.

        Parameters
        ----------
        features
            Subjects x f.
        y
            The class number of each subject.
        n_classes
            Classes in the cohort; one that no training subject has gets probability 0.
        seed
            Decides what is random in the fit.
        """
