"""What ``evaluate`` prints with its table: the comparison of the method with each baseline."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from bridgemil import methods
from bridgemil.errors import BadUse
from bridgemil.evaluation.clinical import ClinicalOptions
from bridgemil.evaluation.results import Results
from bridgemil.report.pages.charts import clinical_charts
from bridgemil.report.terminal import print_results


def made(method: str, right: list[int], seeds: int = 1) -> Results:
    """Results in which these subjects, of 30 in three folds, are told right."""
    rows = []
    for seed in range(seeds):
        for i in range(30):
            label = "ab"[i % 2]
            said = label if i in right else "ba"[i % 2]
            p = 0.9 if said == "a" else 0.1
            rows.append((seed, i % 3 + 1, f"s{i:02d}", label, said, p, 1 - p))
    columns = ["seed", "fold", "subject", "label", "predicted", "p_a", "p_b"]
    return Results(methods.settings(method), ["a", "b"], pd.DataFrame(rows, columns=columns), pd.DataFrame(), [], 1.0)


@pytest.mark.parametrize(
    ("right", "words"),
    [
        (range(30), "attention is more accurate than bandpower (+50.0 points"),
        (range(19), "No significant difference between attention and bandpower (+13.3 points"),  # by four subjects
        (range(15), "No significant difference between attention and bandpower (+0.0 points"),
        (range(14), "No significant difference between bandpower and attention (+3.3 points"),
        ([], "bandpower is more accurate than attention (+50.0 points"),
    ],
)
def test_the_sentence_says_what_is_shown(right: list[int], words: str, capsys: pytest.CaptureFixture) -> None:
    baseline, result = made("bandpower", list(range(15))), made("attention", list(right))
    sentence = result.compare(baseline).sentence
    assert sentence.startswith(words)
    assert "max of sign-flip and corrected resampled t-test" in sentence
    print_results([result], [baseline])
    out = " ".join(capsys.readouterr().out.split())
    assert sentence in out
    assert "intervals do not include retraining variance" in out
    assert "-0.0" not in sentence


def test_scores_that_need_both_classes_are_left_out_for_one(capsys: pytest.CaptureFixture) -> None:
    whole = made("tangent", list(range(20)))
    controls = whole.predictions[whole.predictions["label"] == "a"]
    options = ClinicalOptions(prevalence=0.1)
    one = replace(whole, predictions=controls.reset_index(drop=True), clinical_options=options)
    found = json.loads(json.dumps(one.to_dict(), allow_nan=False))
    assert found["accuracy"]["mean"] == pytest.approx(2 / 3)
    for name in ("balanced_accuracy", "macro_f1", "auroc", "mcc", "roc", "pr", "decision_curve"):
        assert found[name] is None, name
    assert found["sensitivity"]["value"] is None
    assert found["specificity"]["value"] == pytest.approx(2 / 3)
    assert found["at_prevalence"]["ppv"]["value"] is None
    print_results([one])
    assert "nan" not in capsys.readouterr().out.lower() + repr(one) + one._repr_html_().lower()
    assert clinical_charts({"tangent": one.clinical}) == []
    with pytest.raises(BadUse, match="needs subjects of two classes"):
        one.plot("roc")


def test_groups_are_said_to_be_taken_for_independent(capsys: pytest.CaptureFixture) -> None:
    print_results([replace(made("attention", [1]), split={"kind": "groups"})])
    assert "take them for independent" in " ".join(capsys.readouterr().out.split())
    print_results([made("attention", [1])])
    assert "independent" not in capsys.readouterr().out


def test_the_averaged_seeds_are_a_row_where_seeds_differ(capsys: pytest.CaptureFixture) -> None:
    steady = made("attention", list(range(20)), seeds=2)
    assert steady.steady
    print_results([steady])
    assert "seeds averaged" not in capsys.readouterr().out
    moved = steady.predictions.assign(p_a=np.linspace(0.2, 0.8, 60), p_b=np.linspace(0.8, 0.2, 60))
    print_results([replace(steady, predictions=moved)])
    out = capsys.readouterr().out
    assert "  seeds averaged" in out
    assert max(len(line.rstrip()) for line in out.splitlines()) <= 80
