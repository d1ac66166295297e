"""The losses against plain implementations with loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from bridgemil.pretraining import supcon_loss, vicreg_loss


def plain_vicreg(z1: np.ndarray, z2: np.ndarray, weights: tuple[float, float, float] = (25, 25, 1)) -> float:
    m, d = z1.shape
    inv = sum((z1[i, j] - z2[i, j]) ** 2 for i in range(m) for j in range(d)) / (m * d)
    var = cov = 0.0
    for z in (z1, z2):
        c = np.cov(z.T)
        for p in range(d):
            var += max(0.0, 1 - math.sqrt(c[p, p] + 1e-4)) / d
            cov += sum(c[p, q] ** 2 for q in range(d) if q != p) / d
    return weights[0] * inv + weights[1] * var + weights[2] * cov


def plain_supcon(z1: np.ndarray, z2: np.ndarray, labels: list[int], temperature: float = 0.07) -> float:
    z = np.concatenate([z1, z2])
    z = z / np.linalg.norm(z, axis=1, keepdims=True)
    both = [*labels, *labels]
    total = 0.0
    for i in range(len(z)):
        others = [a for a in range(len(z)) if a != i]
        denominator = sum(math.exp(z[i] @ z[a] / temperature) for a in others)
        positives = [a for a in others if both[a] == both[i]]
        total -= sum(math.log(math.exp(z[i] @ z[p] / temperature) / denominator) for p in positives) / len(positives)
    return total / len(z)


def test_vicreg_equals_the_plain_formula() -> None:
    rng = np.random.default_rng(0)
    z1, z2 = rng.normal(0, 0.6, (2, 12, 5))
    one, two = torch.tensor(z1), torch.tensor(z2)
    assert float(vicreg_loss(one, two)) == pytest.approx(plain_vicreg(z1, z2))
    weights = {"invariance": 2.0, "variance": 3.0, "covariance": 5.0}
    assert float(vicreg_loss(one, two, **weights)) == pytest.approx(plain_vicreg(z1, z2, (2, 3, 5)))


def test_a_collapsed_batch_costs_twice_099() -> None:
    z = torch.full((16, 8), 3.0)
    assert float(vicreg_loss(z, z, invariance=0, variance=1, covariance=0)) == pytest.approx(1.98)


def test_supcon_equals_the_plain_formula() -> None:
    rng = np.random.default_rng(1)
    z1, z2 = rng.normal(size=(2, 7, 4))
    labels = [0, 1, 0, 2, 1, 0, 0]
    loss = supcon_loss(torch.tensor(z1), torch.tensor(z2), torch.tensor(labels))
    assert float(loss) == pytest.approx(plain_supcon(z1, z2, labels))
    assert float(supcon_loss(torch.tensor(5 * z1), torch.tensor(z2), torch.tensor(labels))) == pytest.approx(
        float(loss)
    )


def test_gradients_are_finite_also_at_collapse() -> None:
    z = torch.zeros(8, 4, requires_grad=True)
    vicreg_loss(z, z + 0).backward()
    assert torch.isfinite(z.grad).all()
    z1 = torch.randn(8, 4, requires_grad=True)
    supcon_loss(z1, torch.randn(8, 4), torch.arange(8) % 2).backward()
    assert torch.isfinite(z1.grad).all()


def test_wrong_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="M >= 2"):
        vicreg_loss(torch.zeros(1, 4), torch.zeros(1, 4))
    with pytest.raises(ValueError, match="N labels"):
        supcon_loss(torch.zeros(3, 4), torch.zeros(3, 4), torch.zeros(2))
