"""What a model computes from each window of one subject, and its prediction without some of the windows.

Networks with an aggregator have attention weights, and where windows add up to the logits also contributions. With a
linear classifier attention is additive too, so that it has contributions as well; and so has a baseline whose features
are the mean over windows. Where features have names (the covariance front end, band power), ``weights`` are the linear
weights of each class on the bag's mean features; for a network, the gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bridgemil.models import BaselineModel, EnsembleModel, Model, NetworkModel
from bridgemil.models.features import Bag, LazyBag

if TYPE_CHECKING:
    from bridgemil.backbones.covariance import Feature

Floats = NDArray[np.float64]
Index = NDArray[np.int64]
Weights = list[tuple[slice, Floats]]


@dataclass(frozen=True)
class WindowValues:
    """A model applied to n windows of one subject; K classes, F features."""

    probabilities: Callable[[Index], Floats]  # indices of windows -> (K,), computed from these windows alone
    gates: Floats | None = None  # attention weights, (n,)
    contributions: Floats | None = None  # (n, K), sum to the logits (with several classifiers, to the mean of theirs)
    window_probabilities: Floats | None = None  # of a window classifier, (n, K)
    # (n, F), where features have names, after harmonisation; may be shared by models, so never changed
    features: NDArray[np.floating[Any]] | None = None
    names: Sequence[Feature] = ()  # of the features
    # The parts of the features that one classifier uses, each with its weights (K, size of the part) on the logit of a
    # class minus the mean of the others'.
    weights: Callable[[], Weights] = list

    def predicted(self, p: Floats) -> int:
        """The predicted class: the most probable one; of a window classifier, the one with most votes.

        Ties are decided by the mean probability, as in ``bridgemil.learning.networks.vote``.
        """
        if self.window_probabilities is None:
            return int(p.argmax())
        votes = np.bincount(self.window_probabilities.argmax(axis=1), minlength=len(p))
        return int(np.where(votes == votes.max(), p, -1).argmax())


def leaves(model: Model) -> list[Model]:
    """The networks and baselines of a model: an ensemble's members, else itself."""
    if not isinstance(model, EnsembleModel):
        return [model]
    return [leaf for member in model.members.values() for leaf in leaves(member)]


def against_others(values: Floats) -> Floats:
    """Each class minus the mean of the others, along the last axis (K)."""
    n_classes = values.shape[-1]
    apart: Floats = (values * n_classes - values.sum(axis=-1, keepdims=True)) / (n_classes - 1)
    return apart


def read(model: Model, bag: Bag) -> WindowValues:
    """Apply a network or baseline to the windows of a subject (n, C, T) in microvolts; they are encoded once.

    Models that are given one ``LazyBag`` share the features of a front end.
    """
    model.check(bag)
    if isinstance(model, NetworkModel):
        return _network(model, LazyBag.of(bag))
    assert isinstance(model, BaselineModel)
    return _baseline(model, LazyBag.of(bag))


def mean(members: Sequence[WindowValues], weights: Sequence[float]) -> WindowValues:
    """Models that are averaged with these weights; attention weights are the mean over the models that have them.

    Features and weights are not combined: models may have different features.
    """
    if len(members) == 1:
        return members[0]
    arrays: dict[str, Any] = {}
    for name in ("gates", "contributions", "window_probabilities"):
        values = [getattr(member, name) for member in members]
        own = [(value, weight) for value, weight in zip(values, weights, strict=True) if value is not None]
        if own and (name == "gates" or len(own) == len(members)):
            arrays[name] = np.average([value for value, _ in own], axis=0, weights=[weight for _, weight in own])

    def probabilities(keep: Index) -> Floats:
        p: Floats = np.average([member.probabilities(keep) for member in members], axis=0, weights=weights)
        return p

    return WindowValues(probabilities, **arrays)


def _network(model: NetworkModel, bag: LazyBag) -> WindowValues:
    import torch

    from bridgemil.learning.networks import BagModel, in_blocks

    network: Any = model.network.eval()
    features, names = None, ()
    if model.features is None:
        embeddings = torch.from_numpy(model.embed(bag.read())).to(model.device)
    else:
        features, names = model.adjusted(bag.features(model.features)), getattr(network.encoder.front_end, "names", ())
        embeddings = in_blocks(network.encoder, torch.from_numpy(features), model.device)

    def logits(embeddings: Any) -> Any:
        if isinstance(network, BagModel):
            return network.aggregate(embeddings, [len(embeddings)]).logits[0]
        return network.head(embeddings).mean(dim=0)

    def weights() -> Weights:
        """Change of each class's logit with the features of all windows."""
        if features is None or not names:
            return []
        x = torch.from_numpy(features).to(model.device)
        gradients = torch.autograd.functional.jacobian(lambda x: logits(network.encoder(x)), x)  # K x n x F
        rows = gradients.sum(dim=1, dtype=torch.float64).cpu().numpy()
        return [(slice(0, features.shape[1]), against_others(rows.T).T)]

    def masked(keep: Index) -> Floats:
        """Other windows are masked, so that each window keeps its position in the bag."""
        mask = torch.zeros(1, len(embeddings), dtype=torch.bool)
        mask[0, torch.from_numpy(keep)] = True
        with torch.no_grad():
            output = network.aggregator(embeddings[None], mask.to(embeddings.device))
        p: Floats = output.logits[0].double().softmax(dim=0).cpu().numpy()
        return p

    common: dict[str, Any] = {"features": features, "names": names, "weights": weights}
    if isinstance(network, BagModel):
        gates, contributions = _attention(network, embeddings)
        return WindowValues(masked, gates, contributions, **common)
    with torch.no_grad():
        p: Floats = network.head(embeddings).double().softmax(dim=1).cpu().numpy()
    return WindowValues(lambda keep: p[keep].mean(axis=0), window_probabilities=p, **common)


def _attention(network: Any, embeddings: Any) -> tuple[Floats, Floats | None]:
    """Attention weights (n,) and contributions (n, K), None where windows do not add up to the logits."""
    import torch

    from bridgemil.aggregators.gated import Attention

    with torch.no_grad():
        output = network.aggregate(embeddings, [len(embeddings)])
        parts = output.contributions
        if isinstance(network.aggregator, Attention):  # classifier(mean(a h)) is mean(classifier(a h))
            mask = torch.ones(1, len(embeddings), dtype=torch.bool, device=embeddings.device)
            h, gates = network.aggregator.gated(embeddings[None], mask)
            parts = network.aggregator.classifier(gates.unsqueeze(-1) * h) / len(embeddings)
    return output.gates[0].double().cpu().numpy(), None if parts is None else parts[0].double().cpu().numpy()


def linear(model: BaselineModel) -> WindowValues:
    """A baseline with its weights alone, which do not depend on the windows."""

    def weights() -> Weights:
        """Of each regression, per unit of the raw feature."""
        found = []
        for part, fitted in model.classifier.regressions():
            rows = np.zeros((fitted.n_classes, len(fitted.mean)))
            rows[fitted.classes] = fitted.coefficients / fitted.scale
            found.append((part, against_others(rows.T).T))
        return found

    names = model.baseline.feature_names or []
    return WindowValues(lambda keep: np.zeros(0), names=names, weights=weights if names else list)


def _baseline(model: BaselineModel, bag: LazyBag) -> WindowValues:
    """A classifier on features that are, where they have names, the mean over windows."""
    if model.window_features is None or not model.baseline.feature_names:
        return WindowValues(lambda keep: model.predict(bag.read()[keep]).probabilities)
    features = model.adjusted(bag.features(model.window_features))

    def probabilities(keep: Index) -> Floats:
        p: Floats = model.classifier.probabilities(features[keep].mean(axis=0, dtype=np.float64)[None])[0]
        return p

    contributions = model.classifier.contributions(features)
    return replace(linear(model), probabilities=probabilities, contributions=contributions, features=features)
