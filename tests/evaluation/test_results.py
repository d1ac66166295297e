"""Results a user can hold: windows, comparisons, averaged seeds, and what they print."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bridgemil.engine.evaluate import evaluate
from bridgemil.errors import BadUse
from bridgemil.evaluation.results import TOGETHER, Results
from bridgemil.runs import warning_text
from people import people

COHORT = people(9, windows=3, classes=("a", "b"))
HOW = {"backbone": "eegnet", "recipe": "paper", "budget": "demo", "folds": 3, "progress": False}
QUICK = {"stage2.epochs": 2, "stage2.burn_in": 0}


@pytest.fixture(scope="module")
def attention() -> Results:
    return evaluate(COHORT, "attention", seeds=2, **HOW, settings=QUICK)


@pytest.fixture(scope="module")
def ensemble() -> Results:
    return evaluate(COHORT, "tangent+attention", seeds=2, **HOW, settings=QUICK)


def check_windows(results: Results, windows: pd.DataFrame) -> None:
    """A row for each window of each held-out subject, once per seed."""
    assert list(windows.columns[:5]) == ["seed", "fold", "subject", "window", "second"]
    for (_, subject), rows in windows.groupby(["seed", "subject"]):
        assert rows["window"].tolist() == list(range(len(COHORT.windows(subject))))
        assert rows["second"].tolist() == pytest.approx(COHORT.window_starts(subject).tolist())
    held_out = results.predictions[["seed", "fold", "subject"]].drop_duplicates()
    assert len(windows[["seed", "fold", "subject"]].drop_duplicates().merge(held_out)) == len(held_out)


def test_windows_are_there_though_nothing_was_kept(attention: Results) -> None:
    check_windows(attention, attention.windows)
    assert attention.windows["gate"].between(0, 1).all()
    assert attention.windows.columns[5:].tolist() == ["gate"]


@pytest.mark.parametrize(
    ("method", "columns"),
    [
        ("additive", ["gate", "contribution_a", "contribution_b"]),
        ("majority_vote", ["p_a", "p_b"]),
        ("bandpower", ["contribution_a", "contribution_b"]),
    ],
)
def test_what_is_said_of_a_window_is_the_methods(tmp_path: Path, method: str, columns: list[str]) -> None:
    settings = {} if method == "bandpower" else QUICK
    results = evaluate(COHORT, method, out=tmp_path, **HOW, settings=settings, baselines=False)
    check_windows(results, results.windows)
    assert results.windows.columns[5:].tolist() == columns
    if method == "majority_vote":
        assert results.windows[columns].sum(axis=1).to_numpy() == pytest.approx(1)
    else:  # the contributions of a subject's windows add up to its logits
        logits = results.windows.groupby("subject")[["contribution_a", "contribution_b"]].sum()
        p = np.exp(logits).div(np.exp(logits).sum(axis=1), axis=0)["contribution_a"]
        said = results.predictions.set_index("subject")["p_a"]
        assert p.reindex(said.index).to_numpy() == pytest.approx(said.to_numpy(), abs=1e-4)


def test_an_ensembles_windows_are_its_members(ensemble: Results) -> None:
    for name, columns in (("tangent", ["contribution_a", "contribution_b"]), ("attention", ["gate"])):
        windows = ensemble.windows[ensemble.windows["member"] == name]
        check_windows(ensemble, windows)
        assert windows[columns].notna().all(axis=None)
    assert list(ensemble.members) == ["tangent", "attention"]


def test_an_ensemble_is_the_weighted_mean_of_its_members_seed_by_seed(ensemble: Results, attention: Results) -> None:
    keys = ["seed", "subject"]
    tangent, network = (member.predictions.set_index(keys)["p_a"].sort_index() for member in ensemble.members.values())
    mean = (3 * tangent + network) / 4  # a baseline weighs three networks
    said = ensemble.predictions.set_index(keys)["p_a"].sort_index()
    assert said.to_numpy() == pytest.approx(mean.to_numpy())
    alone = attention.predictions.set_index(keys)["p_a"].sort_index()
    member = ensemble.members["attention"].predictions.set_index(keys)["p_a"].sort_index()
    assert member.equals(alone), "a member is run as it would be alone"


def test_seeds_together_are_the_mean_probability(attention: Results) -> None:
    together = attention.ensemble
    assert set(together.predictions["seed"]) == {TOGETHER}
    mean = attention.predictions.groupby("subject")[["p_a", "p_b"]].mean()
    rows = together.predictions.set_index("subject")
    assert rows["p_a"].to_numpy() == pytest.approx(mean["p_a"].reindex(rows.index).to_numpy())
    assert (rows["predicted"] == np.where(rows["p_a"] >= rows["p_b"], "a", "b")).all()
    assert together.summary["accuracy_std"][0] == 0
    assert together.windows.empty
    single = evaluate(COHORT, "bandpower", **HOW, baselines=False)
    assert single.ensemble is single


def test_a_baseline_is_steady_and_a_network_is_not(attention: Results) -> None:
    assert evaluate(COHORT, "tangent", seeds=2, **HOW, baselines=False).steady
    assert not attention.steady


def test_a_method_is_compared_with_its_baseline_on_all_its_seeds(attention: Results) -> None:
    baseline = attention.baselines["bandpower"]
    assert baseline.seeds == 1
    compared = attention.compare(baseline)
    assert (compared.one, compared.other, compared.seeds) == ("attention", "bandpower", 2)
    expected = attention.summary["accuracy"][0] - baseline.summary["accuracy"][0]
    assert compared.difference == pytest.approx(expected)
    back = baseline.compare(attention)
    assert back.difference == pytest.approx(-expected)
    assert back.p == pytest.approx(compared.p)
    assert attention.ensemble.compare(baseline).seeds == 1


def test_a_method_compared_with_itself_shows_nothing(attention: Results) -> None:
    compared = attention.compare(attention)
    assert (compared.difference, compared.p) == (0, 1)
    assert compared.low == -compared.high < 0
    words = "No significant difference between attention (1) and attention (2) (+0.0 points"
    assert compared.sentence.startswith(words)


def test_what_cannot_be_compared_is_refused_in_a_sentence(attention: Results) -> None:
    elsewhere = evaluate(COHORT, "bandpower", budget="demo", folds=4, progress=False, baselines=False)
    with pytest.raises(BadUse, match=r"not held out on the same folds \(3 folds.* and 4 folds"):
        attention.compare(elsewhere)
    later = evaluate(COHORT, "attention", seeds=[5], **HOW, settings=QUICK, baselines=False)
    with pytest.raises(BadUse, match="share no seed"):
        attention.compare(later)


def test_results_say_what_they_are(attention: Results, ensemble: Results) -> None:
    first, second, *rest = repr(attention).splitlines()
    accuracy = attention.summary["accuracy"][0]
    assert first.startswith(f"attention, eegnet: accuracy {accuracy:.1%} (95 % ")
    assert "AUROC" in first
    assert "9 subjects of a, b, each held out once: 3 folds, split seed 0, 2 seeds" in second
    warnings = [f"  {warning_text(warning)}" for warning in attention.warnings]
    assert rest[: len(warnings)] == warnings
    assert [line.split()[1] for line in rest[len(warnings) :]] == ["bandpower:", "tangent:"]
    assert "seeds averaged" in repr(attention.ensemble)
    assert repr(ensemble).startswith("tangent+attention, eegnet: ")
