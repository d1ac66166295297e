"""One model and the windows of one person, encoded once: what each window says, and what is said without some of them.

Networks with an aggregator have gates, and where windows add up to the logits also contributions. With a linear
classifier attention is additive too, so its contributions are had as well. A baseline whose features are the mean over
windows adds up in the same way. Where features have names (the covariance front end, band power), ``weights`` are the
linear weights of each class on the bag's mean features: of a network, the gradient.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bridgemil.models import BaselineModel, EnsembleModel, Features, Model, NetworkModel
from bridgemil.models.model import Remember

if TYPE_CHECKING:
    from bridgemil.backbones.covariance import Feature

Floats = NDArray[np.float64]
Index = NDArray[np.int64]
BLOCK = 512  # windows looked at together: hours of EEG are not copied as a whole


class Reading(ABC):
    """A model and n windows of one person; K classes, F features.

    Attributes
    ----------
    gates
        n, or None.
    contributions
        n x K, or None; they sum to the logits (of several classifiers, to the mean of their logits).
    window_probabilities
        n x K, or None.
    features
        n x F, or None where they have no names; one array for all models that read the same, so it is never changed.
    names
        What each feature is.
    """

    gates: Floats | None = None
    contributions: Floats | None = None
    window_probabilities: Floats | None = None
    features: NDArray[np.floating[Any]] | None = None
    names: list[Feature]

    @abstractmethod
    def probabilities(self, keep: Index) -> Floats:
        """The class probabilities (K) from these windows alone."""

    def predicted(self, probabilities: Floats) -> int:
        """The class that is said of all windows: the likeliest."""
        return int(probabilities.argmax())

    def weights(self) -> list[tuple[slice, Floats]]:
        """Parts of the features that one classifier reads, each with its weights (K x size of the part).

        A class's weights are of its logit less the mean of the others'.
        """
        return []


def leaves(model: Model) -> list[Model]:
    """The networks and baselines that a model consists of: an ensemble's members, else itself."""
    if not isinstance(model, EnsembleModel):
        return [model]
    return [leaf for member in model.members.values() for leaf in leaves(member)]


def read(model: Model, bag: NDArray[np.float32], remember: Remember | None = None) -> Reading:
    """Encode a person's windows once.

    Parameters
    ----------
    model
        Network or baseline.
    bag
        n windows x channels x time, microvolts.
    remember
        Where several models read for this one person find the front end's features.
    """
    from bridgemil.learning.networks import BagModel

    model._check(bag)
    if isinstance(model, NetworkModel):
        kind = _BagReading if isinstance(model.network, BagModel) else _VoteReading
        return kind(model, bag, remember)
    assert isinstance(model, BaselineModel)
    return _BaselineReading(model, bag, remember)


def against_others(values: Floats) -> Floats:
    """Each class less the mean of the others, along the last axis (K)."""
    n_classes = values.shape[-1]
    apart: Floats = (values * n_classes - values.sum(axis=-1, keepdims=True)) / (n_classes - 1)
    return apart


class _NetworkReading(Reading):
    """What the two kinds of networks share: features, embeddings and gradients."""

    def __init__(self, model: NetworkModel, bag: NDArray[np.float32], remember: Remember | None) -> None:
        import torch

        from bridgemil.learning.networks import in_blocks

        self.model, self.names = model, []
        encoder: Any = model.network.encoder
        if model.features is None:
            self.embeddings = torch.from_numpy(model.embed(bag)).to(model.device)
            return
        raw = model.features.of_bag(bag, remember)
        self.features, self.names = raw, encoder.front_end.names
        self.embeddings = in_blocks(encoder, torch.from_numpy(raw), model.device)

    def weights(self) -> list[tuple[slice, Floats]]:
        """How each class's logit would change if the features of all windows changed together."""
        import torch

        if self.features is None:
            return []
        self.model.network.eval()
        x = torch.from_numpy(self.features).to(self.model.device).detach().requires_grad_()
        encoder: Any = self.model.network.encoder
        logits = self._logits(encoder(x))
        rows = [
            torch.autograd.grad(logits[k], x, retain_graph=True)[0].sum(dim=0, dtype=torch.float64).cpu().numpy()
            for k in range(len(logits))
        ]
        return [(slice(0, self.features.shape[1]), against_others(np.stack(rows).T).T)]

    def _logits(self, embeddings: Any) -> Any:
        raise NotImplementedError


class _BagReading(_NetworkReading):
    """An encoder and an aggregator."""

    def __init__(self, model: NetworkModel, bag: NDArray[np.float32], remember: Remember | None) -> None:
        import torch

        from bridgemil.aggregators.gated import Attention
        from bridgemil.learning.networks import BagModel

        super().__init__(model, bag, remember)
        assert isinstance(model.network, BagModel)
        self.network = model.network.eval()
        with torch.no_grad():
            output = self.network.aggregate(self.embeddings, [len(self.embeddings)])
            self.gates = output.gates[0].double().cpu().numpy()
            parts: Any = output.contributions
            aggregator: Any = self.network.aggregator
            if isinstance(aggregator, Attention):  # classifier(mean(a h)) is mean(classifier(a h))
                mask = torch.ones(1, len(self.embeddings), dtype=torch.bool, device=self.embeddings.device)
                h, gates = aggregator.gated(self.embeddings[None], mask)
                parts = aggregator.classifier(gates.unsqueeze(-1) * h) / len(self.embeddings)
        self.contributions = None if parts is None else parts[0].double().cpu().numpy()

    def probabilities(self, keep: Index) -> Floats:
        """The aggregator's; the others are masked, so that each window keeps its place in the bag."""
        import torch

        mask = torch.zeros(1, len(self.embeddings), dtype=torch.bool)
        mask[0, torch.from_numpy(keep)] = True
        with torch.no_grad():
            output = self.network.aggregator(self.embeddings[None], mask.to(self.embeddings.device))
        p: Floats = output.logits[0].double().softmax(dim=0).cpu().numpy()
        return p

    def _logits(self, embeddings: Any) -> Any:
        return self.network.aggregate(embeddings, [len(embeddings)]).logits[0]


class _VoteReading(_NetworkReading):
    """An encoder and its window classifier."""

    def __init__(self, model: NetworkModel, bag: NDArray[np.float32], remember: Remember | None) -> None:
        import torch

        from bridgemil.learning.networks import WindowModel

        super().__init__(model, bag, remember)
        assert isinstance(model.network, WindowModel)
        self.network = model.network.eval()
        with torch.no_grad():
            logits = self.network.head(self.embeddings)
        p: Floats = logits.double().softmax(dim=1).cpu().numpy()
        self.window_probabilities = p

    def probabilities(self, keep: Index) -> Floats:
        """The mean of the windows'."""
        assert self.window_probabilities is not None
        mean: Floats = self.window_probabilities[keep].mean(axis=0)
        return mean

    def predicted(self, probabilities: Floats) -> int:
        """Most votes win, as in ``bridgemil.learning.networks.vote``."""
        assert self.window_probabilities is not None
        votes = np.bincount(self.window_probabilities.argmax(axis=1), minlength=len(probabilities))
        return int(np.where(votes == votes.max(), probabilities, -1).argmax())

    def _logits(self, embeddings: Any) -> Any:
        return self.network.head(embeddings).mean(dim=0)


class _BaselineReading(Reading):
    """A classifier on features that are, where they have names, the mean over windows."""

    def __init__(self, model: BaselineModel, bag: NDArray[np.float32], remember: Remember | None) -> None:
        baseline = model.baseline
        self.model, self.bag, self.names = model, bag, baseline.feature_names or []
        if self.names:
            front_end = baseline.front_end
            self.features = (
                Features.of_front_end(front_end).of_bag(bag, remember) if front_end else baseline.window_features(bag)
            )
            self.contributions = self._contributions(self.features)

    def _contributions(self, features: NDArray[np.floating[Any]]) -> Floats | None:
        """n x K: a logit is linear in the mean over windows, so each window has a share in it."""
        members = self._linear()
        if not members:
            return None
        total = np.zeros((len(features), members[0][1].n_classes))
        for part, fitted in members:
            for first in range(0, len(features), BLOCK):
                rows = slice(first, first + BLOCK)
                x = (features[rows, part] - fitted.mean) / fitted.scale
                total[rows, fitted.classes] += x @ fitted.coefficients.T + fitted.intercept
        return total / (len(members) * len(features))

    def _linear(self) -> list[tuple[slice, Any]]:
        """The logistic regressions, each with the features it reads; none if there is another classifier."""
        from bridgemil.baselines.classifiers import Average, Logistic

        classifier = self.model.classifier
        if isinstance(classifier, Logistic):
            return [(slice(0, classifier.n_features), classifier)]
        if isinstance(classifier, Average) and all(isinstance(member, Logistic) for member in classifier.members):
            parts = zip(classifier.slices, classifier.members, strict=True)
            return [(slice(first, last), member) for (first, last), member in parts]
        return []

    def weights(self) -> list[tuple[slice, Floats]]:
        """Of each regression, per unit of the raw feature."""
        found = []
        for part, fitted in self._linear() if self.features is not None else []:
            rows = np.zeros((fitted.n_classes, len(fitted.mean)))
            rows[fitted.classes] = fitted.coefficients / fitted.scale
            found.append((part, against_others(rows.T).T))
        return found

    def probabilities(self, keep: Index) -> Floats:
        """The classifier's, of the features of these windows."""
        if self.features is None:
            return self.model.predict(self.bag[keep]).probabilities
        p: Floats = self.model.classifier.probabilities(self.features[keep].mean(axis=0, dtype=np.float64)[None])[0]
        return p
