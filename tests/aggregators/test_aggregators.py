from __future__ import annotations

import math

import pytest
import torch

from bridgemil import aggregators
from bridgemil.aggregators.bags import sinusoid
from bridgemil.errors import BadUse

NAMES = ["attention", "additive", "conjunctive", "timemil", "softmax_attention", "mean"]


def bags(sizes: list[int], d: int = 20, seed: int = 0, padding: float = math.nan) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(seed)
    mask = torch.arange(max(sizes))[None] < torch.tensor(sizes)[:, None]
    embeddings = torch.randn(len(sizes), max(sizes), d)
    embeddings[~mask] = padding
    return embeddings, mask


def test_names() -> None:
    assert aggregators.names() == NAMES
    with pytest.raises(BadUse, match=r"aggregator must be one of attention, .*; got 'max'"):
        aggregators.create("max", 8, 2)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("d", [20, 21, 16])
def test_a_padded_minibatch_equals_its_bags_one_by_one(name: str, d: int) -> None:
    aggregator = aggregators.create(name, d, 3).eval()
    embeddings, mask = bags([7, 30, 1, 22], d)
    together = aggregator(embeddings, mask)
    assert together.logits.shape == (4, 3)
    assert together.gates.shape == mask.shape
    assert (together.gates[~mask] == 0).all()
    assert (together.gates >= 0).all()
    for i, n in enumerate(mask.sum(dim=1).tolist()):
        alone = aggregator(embeddings[i : i + 1, :n], torch.ones(1, n, dtype=torch.bool))
        torch.testing.assert_close(together.logits[i], alone.logits[0], rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(together.gates[i, :n], alone.gates[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_gradients_flow_to_every_parameter_and_not_into_padding(name: str) -> None:
    aggregator = aggregators.create(name, 20, 3)
    embeddings, mask = bags([5, 12, 9], padding=1e6)
    embeddings.requires_grad_()
    aggregator(embeddings, mask).logits.square().sum().backward()
    assert (embeddings.grad[~mask] == 0).all()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in aggregator.parameters())


@pytest.mark.parametrize("name", ["additive", "conjunctive"])
def test_contributions_sum_to_the_logits(name: str) -> None:
    out = aggregators.create(name, 20, 3)(*bags([5, 12, 9]))
    torch.testing.assert_close(out.contributions.sum(dim=1), out.logits)
    assert out.contributions.shape == (3, 12, 3)


@pytest.mark.parametrize("name", [n for n in NAMES if n not in ("additive", "conjunctive")])
def test_others_have_no_contributions(name: str) -> None:
    assert aggregators.create(name, 20, 3)(*bags([5, 12])).contributions is None


def test_formulas() -> None:
    embeddings, mask = bags([6], d=10)
    h = embeddings[0] + sinusoid(6, 10, embeddings)
    for name, formula in {
        "attention": lambda a, c: c((a * h).mean(dim=0)),
        "additive": lambda a, c: c(a * h).mean(dim=0),
        "conjunctive": lambda a, c: (a * c(h)).mean(dim=0),
    }.items():
        model = aggregators.create(name, 10, 2).eval()
        first, second = model.gate[0], model.gate[2]
        gate = torch.sigmoid(second(torch.tanh(first(h))))
        assert first.out_features == 8
        out = model(embeddings, mask)
        torch.testing.assert_close(out.gates[0], gate[:, 0])
        torch.testing.assert_close(out.logits[0], formula(gate, model.classifier))
    mean = aggregators.create("mean", 10, 2).eval()
    torch.testing.assert_close(mean(embeddings, mask).logits[0], mean.classifier(embeddings[0].mean(dim=0)))
    assert (mean(embeddings, mask).gates == 1).all()


@pytest.mark.parametrize("name", ["softmax_attention", "timemil"])
def test_weights_sum_to_one(name: str) -> None:
    out = aggregators.create(name, 20, 3)(*bags([5, 12, 9]))
    torch.testing.assert_close(out.gates.sum(dim=1), torch.ones(3))


@pytest.mark.parametrize("name", ["softmax_attention", "mean"])
def test_without_positions_the_order_does_not_matter(name: str) -> None:
    model = aggregators.create(name, 20, 3).eval()
    embeddings, mask = bags([9])
    torch.testing.assert_close(model(embeddings, mask).logits, model(embeddings.flip(1), mask).logits)


@pytest.mark.parametrize("name", NAMES)
def test_positions_can_be_left_out_of_those_that_add_a_sinusoid(name: str) -> None:
    if name not in aggregators.with_positions():
        with pytest.raises(BadUse, match=f"positions cannot be left out of {name}, only of attention, additive"):
            aggregators.create(name, 20, 3, positions=False)
        return
    torch.manual_seed(0)
    model = aggregators.create(name, 20, 3, positions=False).eval()
    torch.manual_seed(0)
    placed = aggregators.create(name, 20, 3).eval()
    embeddings, mask = bags([9])
    torch.testing.assert_close(model(embeddings, mask).logits, model(embeddings.flip(1), mask).logits)
    at_its_place = model(embeddings + sinusoid(9, 20, embeddings), mask).logits
    torch.testing.assert_close(at_its_place, placed(embeddings, mask).logits)


@pytest.mark.parametrize("name", NAMES)
def test_dropout_can_be_set(name: str) -> None:
    def rates(**options: float) -> set[float]:
        made = aggregators.create(name, 20, 3, **options)
        return {module.p for module in made.modules() if isinstance(module, torch.nn.Dropout)}

    assert rates() == {0.1}
    assert rates(dropout=0.4) == {0.4}


@pytest.mark.parametrize("name", ["attention", "timemil"])
def test_with_positions_it_does(name: str) -> None:
    model = aggregators.create(name, 20, 3).eval()
    embeddings, mask = bags([9])
    assert not torch.allclose(model(embeddings, mask).logits, model(embeddings.flip(1), mask).logits, atol=1e-4)


def test_positions_are_the_usual_sinusoid() -> None:
    table = sinusoid(50, 7, torch.zeros(1))
    for t in (0, 3, 49):
        for j in range(7):
            angle = t / 10_000 ** ((j - j % 2) / 7)
            assert table[t, j] == pytest.approx(math.cos(angle) if j % 2 else math.sin(angle), abs=1e-5)


@pytest.mark.parametrize(("d", "width", "heads"), [(96, 96, 8), (420, 420, 7), (910, 512, 8), (16, 16, 8), (80, 80, 8)])
def test_timemils_size(d: int, width: int, heads: int) -> None:
    model = aggregators.create("timemil", d, 2)
    assert model.project.out_features == width
    assert [block.heads for block in model.blocks] == [heads, heads]


def test_timemils_wavelets_are_three_mexican_hats() -> None:
    torch.manual_seed(1)
    positions = aggregators.create("timemil", 4, 2).positions[0]
    windows = torch.randn(1, 25, 4)
    expected = torch.zeros(1, 25, 4)
    scale = torch.nn.functional.softplus(positions.raw_scale) + 0.01
    for w in range(3):
        for j in range(4):
            for t in range(25):
                for k in range(-9, 10):
                    if 0 <= t + k < 25:
                        s = scale[w, j]
                        u = (k - positions.shift[w, j]) / s
                        psi = 2 / (3**0.5 * math.pi**0.25) * (1 - u**2) * torch.exp(-(u**2) / 2) / s.sqrt()
                        expected[0, t, j] += (psi * windows[0, t + k, j]).detach()
    torch.testing.assert_close(positions(windows), windows + positions.mix(expected), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_wrong_input_is_refused(name: str) -> None:
    model = aggregators.create(name, 20, 3)
    with pytest.raises(ValueError, match="a bag has no valid window"):
        model(torch.randn(2, 3, 20), torch.tensor([[True, True, True], [False, False, False]]))
    with pytest.raises(ValueError, match="Boolean mask"):
        model(torch.randn(2, 3, 20), torch.ones(2, 3))


def test_with_a_linear_classifier_attention_and_additive_are_one_function() -> None:
    """classifier(mean(a h)) = mean(classifier(a h)): what the paper's two columns differ in is not the model."""
    attention, additive = aggregators.create("attention", 6, 3).eval(), aggregators.create("additive", 6, 3).eval()
    additive.load_state_dict(attention.state_dict())
    x, mask = torch.randn(2, 5, 6), torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    torch.testing.assert_close(attention(x, mask).logits, additive(x, mask).logits)
