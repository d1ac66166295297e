"""Cohorts of one class or without labels: prepared with a warning, inspected and audited, not trained on."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from bridgemil import Cohort, evaluate, prepare
from bridgemil.audit import audit
from bridgemil.bundle.training import train
from bridgemil.errors import BadData, BadUse, BridgeMILWarning
from bridgemil.report.figures import draw_cohort
from bridgemil.report.terminal import print_summary, summary


def prepared(kind: str, bids: Path, out: Path) -> Cohort:
    """Six controls, or six subjects without labels, from a BIDS folder or a manifest."""
    table = bids / "participants.tsv"
    table.write_text(table.read_text().replace("\tA\t", "\tC\t"))
    how: dict[str, object] = {"label": "Group"} if kind == "one class" else {"unlabelled": True}
    source = bids
    if kind == "no table":
        table.unlink()
    elif kind == "manifest":
        source = bids / "list.csv"
        with source.open("w", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow(("subject", "file", "site"))
            files = sorted(bids.glob("sub-*/eeg/*.edf"))
            writer.writerows((f"P{i}", file.relative_to(bids), "lab") for i, file in enumerate(files))
    with pytest.warns(BridgeMILWarning, match="`evaluate` and `train` need at least two classes"):
        return prepare(source, out, jobs=1, progress=False, **how)


@pytest.mark.parametrize("kind", ["one class", "no labels", "no table", "manifest"])
def test_it_is_prepared_inspected_and_audited_but_not_trained_on(
    kind: str, bids: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cohort = prepared(kind, bids, tmp_path / "c")
    has_labels = kind == "one class"
    assert cohort.labels == ["C" if has_labels else ""] * 6
    assert cohort.classes == (["C"] if has_labels else [])
    assert set(cohort.y) == {0 if has_labels else -1}
    note = "one class only (C)" if has_labels else "no labels"
    assert any(line.startswith(note) for line in cohort.metadata["notes"])

    draw_cohort(cohort, tmp_path / "picture.png", show=False)
    print_summary(cohort)
    assert ("\n C " if has_labels else "\n no label ") in capsys.readouterr().out
    assert summary(cohort)["classes"] == {"C" if has_labels else "": {"subjects": 6, "windows": cohort.n_windows}}

    findings = {finding.name: finding for finding in audit(cohort).findings}
    for name in ("shortcuts", "balance", "fingerprint", "permutation"):
        assert (findings[name].status, findings[name].message) == ("SKIP", f"Needs two classes, the cohort has {note}.")
    assert findings["same_signal"].status == "PASS"

    for work in (
        lambda: evaluate(cohort, "bandpower", progress=False),
        lambda: train(cohort, tmp_path / "model", "bandpower", progress=False),
    ):
        with pytest.raises(BadData, match=r"at least two classes are needed: prepare it together with"):
            work()


def test_no_labels_are_asked_for_plainly(bids: Path, tmp_path: Path) -> None:
    with pytest.raises(BadUse, match=r"--label COLUMN is needed \(or --unlabelled\)"):
        prepare(bids, tmp_path / "c", progress=False)
    for more in ({"label": "Group"}, {"classes": ["A"]}):
        with pytest.raises(BadUse, match="leave --label and --classes out"):
            prepare(bids, tmp_path / "c", unlabelled=True, progress=False, **more)
    with pytest.raises(BadUse, match="--unlabelled does not go with --preset"):
        prepare(bids, tmp_path / "c", unlabelled=True, preset="adftd", progress=False)
