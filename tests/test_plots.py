"""Figures on given axes, tables of results, and what notebooks show."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib import colors

import bridgemil
from bridgemil.errors import BadUse
from bridgemil.evaluation.display import KINDS
from bridgemil.evaluation.results import Results


@pytest.fixture(scope="module")
def results() -> Results:
    rng = np.random.default_rng(0)
    labels = ["control", "<patient>"] * 10
    bags = [rng.normal(0, 20, (12, 3, 200)) for _ in labels]
    for bag, label in zip(bags, labels, strict=True):
        bag[:, 1] *= 1.5 if label == "<patient>" else 1
    cohort = bridgemil.Cohort.from_arrays(bags, labels, sfreq=200, channels=["Fz", "Cz", "Pz"], native_sfreq=200)
    return bridgemil.evaluate(cohort, "tangent", folds=4, progress=False)


@pytest.fixture
def ax() -> Iterator[plt.Axes]:
    figure, axes = plt.subplots()
    yield axes
    plt.close(figure)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_draws_on_the_given_axes(kind: str, results: Results, ax: plt.Axes) -> None:
    assert results.plot(kind, ax) is ax
    assert ax.has_data()


def test_the_forest_has_the_intervals_of_the_table(results: Results, ax: plt.Axes) -> None:
    table = results.to_frame()
    assert table["role"].tolist() == ["method", "baseline"]
    assert table["method"].tolist() == ["tangent", "bandpower"]
    results.plot("forest", ax)
    (segments,) = [bar.get_segments() for bar in ax.collections if hasattr(bar, "get_segments")]
    assert np.allclose([segment[:, 0] for segment in segments], table[["ci95_low", "ci95_high"]])


def test_the_confusion_matrix_has_its_counts(results: Results, ax: plt.Axes) -> None:
    results.plot("confusion", ax)
    assert [float(text.get_text()) for text in ax.texts] == results.confusion.to_numpy().ravel().tolist()
    dark = ax.images[0].cmap(1.0)
    assert colors.to_rgba("white") != dark


def test_an_unknown_kind_is_refused(results: Results) -> None:
    with pytest.raises(BadUse, match="roc"):
        results.plot("rocs")


def test_notebooks_show_scores_warnings_and_comparisons_escaped(results: Results) -> None:
    page = results._repr_html_()
    assert "<td>tangent</td>" in page
    assert "<td>bandpower (baseline)</td>" in page
    assert "<td>baseline</td>" not in page
    assert "WARN size" in page
    assert "<patient>" not in page
    sentence = next(iter(results.comparisons.values()))._repr_html_()
    assert sentence.startswith("<p>")


def test_a_cohort_draws_its_spectra(ax: plt.Axes) -> None:
    bags = [np.random.default_rng(i).normal(0, 20, (5, 2, 200)) for i in range(4)]
    cohort = bridgemil.Cohort.from_arrays(bags, ["a", "b"] * 2, sfreq=200, channels=["Cz", "Pz"])
    frequencies, density = cohort.spectra()
    assert density.shape == (4, len(frequencies))
    assert density.mean() == pytest.approx(2 * 400 / 200, rel=0.1), "white noise of 400 µV² up to 100 Hz"
    assert cohort.plot(ax) is ax
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["a (2)", "b (2)"]
    assert "<td>2</td>" in cohort._repr_html_()


def test_a_model_draws_the_patterns_of_the_page(tmp_path: Path) -> None:
    rng, channels = np.random.default_rng(0), ["Fz", "Cz", "Pz", "O1", "O2", "T7", "T8"]
    bags = [rng.normal(0, 20, (6, len(channels), 200)) for _ in range(12)]
    for bag in bags[::2]:
        bag[:, 2] *= 2  # Pz of patients
    labels = ["patient", "control"] * 6
    fitted = bridgemil.BridgeMILClassifier("tangent", sfreq=200, channels=channels).fit(bags, labels)
    axes = fitted.plot_patterns(bags, "patient", "own")
    assert all(ax.images for ax in axes)
    assert "Hz" in axes[0].get_title()
    assert fitted.plot_patterns(bags, "patient", "own", axes) == axes
    with pytest.raises(BadUse, match=f"{len(axes)} bands .* got 1 axes"):
        fitted.plot_patterns(bags, axes=axes[:1])
    plt.close("all")
    cohort = bridgemil.Cohort.from_arrays(bags, labels, sfreq=200, channels=channels, native_sfreq=200)
    how = {"folds": 3, "baselines": False, "progress": False}
    bridgemil.bundle.train(cohort.save(tmp_path / "cohort"), tmp_path / "model", "tangent", **how)
    model = bridgemil.bundle.load(tmp_path / "model")
    patient, control = (model.plot_patterns(class_name=name)[0].images[0].get_array() for name in (None, "control"))
    assert np.allclose(patient, -control), "the patient class by default; the control's pattern is its opposite"
    plt.close("all")
