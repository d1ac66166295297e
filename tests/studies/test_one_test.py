"""The same pair of methods has the same p and the same sentence in evaluate, report, compare and study."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from bridgemil import cli, studies
from bridgemil.cohort.cohort import Cohort
from bridgemil.engine.evaluate import evaluate
from bridgemil.report.benchmark import build
from bridgemil.report.files import markdown
from bridgemil.report.pages.results import report_page
from bridgemil.runs import open_store
from contexts import QUICK, quick_context

VARIANT = "wo_variance_covariance"


def test_one_pair_one_p_one_sentence(
    cohort: Cohort, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    found = studies.study("ablation", quick_context(cohort, tmp_path, options={"variants": [VARIANT]}))
    runs = tmp_path / "runs"
    how = {"backbone": "eegnet", "recipe": "paper", "budget": "demo", "folds": 3, "out": runs, "progress": False}
    whole = evaluate(cohort, "bridgemil", **how, settings=QUICK)
    without = evaluate(cohort, VARIANT, **how, settings=QUICK, baselines=False)
    report = build(open_store(runs))
    reported = {frozenset((c.one, c.other)): c for several in report.comparisons.values() for c in several}
    page = report_page(report)

    pair = whole.compare(without)
    (sentence,) = [said for said in found.sentences if f", {VARIANT} (" in said]
    assert pair.sentence in sentence, "study"
    assert found.tables["ablation"].set_index("variant").loc[VARIANT, "p"] == pytest.approx(pair.p)
    ours = reported[frozenset(("bridgemil", VARIANT))]
    assert (ours.p, ours.sentence) == (pytest.approx(pair.p), pair.sentence), "report"
    assert pair.sentence in page

    words = ["bridgemil", "evaluate", cohort.path, "--method", "bridgemil", "--backbone", "eegnet", "--recipe", "paper"]
    words += ["--budget", "demo", "--folds", 3, "--out", runs]
    words += [word for key, value in QUICK.items() for word in ("--set", f"{key}={value}")]
    printed = []
    for more in ([], ["--json"]):
        monkeypatch.setattr(sys, "argv", [*map(str, words), *more])
        with pytest.raises(SystemExit) as end:
            cli.main()
        assert end.value.code == 0
        printed.append(capfd.readouterr().out)
    for name, baseline in json.loads(printed[1])["baselines"].items():
        pair, said = whole.compare(whole.baselines[name]), baseline["comparison"]
        assert (said["p"], said["sentence"]) == (pytest.approx(pair.p), pair.sentence), "evaluate --json"
        assert pair.sentence in " ".join(printed[0].split()), "evaluate"
        ours = reported[frozenset(("bridgemil", name))]
        assert (ours.p, ours.sentence) == (pytest.approx(pair.p), pair.sentence), "report"
    table = report.pairs.set_index(["one", "other"])
    assert table.loc[("bridgemil", "tangent"), "sentence"] == whole.compare(whole.baselines["tangent"]).sentence
    assert "max of sign-flip" in sentence
    assert "bridgemil - tangent" in markdown(report)
