"""The audit as a whole: its answers, its exit codes, refusing, remembering; and the statistics it rests on."""

from __future__ import annotations

import importlib
import json
import re
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np
import pytest

from bridgemil.audit import (
    CHECKS,
    AuditInput,
    AuditOptions,
    Finding,
    audit,
    fold_membership,
    guard,
    permutation,
    quick_findings,
    refuse,
    shortcuts,
    store_quick_audit,
)
from bridgemil.audit.findings import Audit
from bridgemil.audit.shortcuts import auroc
from bridgemil.audit.size import subjects_needed
from bridgemil.audit.traits import Trait
from bridgemil.bundle.training import train
from bridgemil.cohort.cohort import Cohort
from bridgemil.engine.benchmark import plan
from bridgemil.engine.evaluate import evaluate
from bridgemil.errors import BadData, BadUse, BridgeMILWarning
from bridgemil.evaluation.results import Results
from bridgemil.report.terminal import print_audit
from bridgemil.verify import verify
from command import bridgemil
from leaky import labelled, made, signals
from named_pipes import make_pipe

engine = importlib.import_module("bridgemil.engine.evaluate")  # the module, not the function of that name


def test_the_command_exits_1_on_a_fail_only_and_writes_a_page(tmp_path: Path) -> None:
    people = signals(12, seconds=6, n_channels=3)
    clean = made(people).save(tmp_path / "clean")
    people["sub-02"] = -people["sub-07"]
    leaky = made(people).save(tmp_path / "leaky")
    good = bridgemil("audit", clean.path, "--json")
    assert good.returncode == 0, good.stderr
    content = json.loads(good.stdout)
    assert content["passed"] is True
    assert content["counts"]["FAIL"] == 0
    bad = bridgemil("audit", leaky.path, "--html", tmp_path / "audit.html")
    assert bad.returncode == 1, bad.stderr
    assert re.match(r"1 FAIL  same_signal\n\d+ WARN  ", bad.stdout), "one line per level, the worst first"
    assert "FAIL same_signal:" in " ".join(bad.stdout.split())
    assert "sub-02 and sub-07" in bad.stdout
    page = (tmp_path / "audit.html").read_text()
    assert "sub-02 and sub-07" in page
    assert "Fix:" in page
    assert "<li>1 FAIL  same_signal</li>" in page
    assert "Content-Security-Policy" in page


def test_bad_use_is_said_in_a_sentence(tmp_path: Path) -> None:
    cohort = made(signals(6, seconds=4, n_channels=2))
    with pytest.raises(BadUse, match="no folder of runs"):
        audit(cohort, tmp_path)
    for wrong in ({"difference": 0}, {"permutations": 4}):
        with pytest.raises(BadUse, match=f"--{next(iter(wrong))}"):
            audit(tmp_path / "nowhere", **wrong)  # before anything is read
    with pytest.raises(BadUse, match="no column 'ward'"):
        audit(cohort, groups="ward")
    (tmp_path / "split.json").write_text("[1, 2]")
    with pytest.raises(BadData, match=r"split\.json: no split file"):
        audit(cohort, split=tmp_path / "split.json")


def test_a_split_file_is_read_as_evaluate_reads_it(tmp_path: Path) -> None:
    cohort = made(signals(6, seconds=4, n_channels=2))
    file = tmp_path / "split.json"
    folds = [cohort.subjects[:2], cohort.subjects[2:4], cohort.subjects[4:]]

    def looked() -> Finding:
        return fold_membership.check(AuditInput(cohort, None, AuditOptions(split=file)))[0]

    file.write_text(json.dumps({"folds": folds}), encoding="utf-8-sig")
    assert looked().status == "PASS"
    file.write_text(json.dumps({"folds": [*folds, cohort.subjects[:1]]}))
    assert looked().status == "FAIL"
    assert looked().evidence == ("split.json: a split may hold a subject once; in several places: sub-01",)
    for content in ("[" * 100_000, json.dumps({"folds": folds[:1]})):
        file.write_text(content)
        with pytest.raises((BadData, BadUse), match=r"split\.json"):
            looked()
    file.unlink()
    make_pipe(file)
    with pytest.raises(BadData, match="no split file"):
        looked()


def test_every_check_answers_and_every_finding_can_be_read_back() -> None:
    cohort = made(signals(10, seconds=6, n_channels=3))
    looked = audit(cohort)
    assert all(check.description for check in CHECKS)
    for finding in looked.findings:
        assert finding == Finding(**json.loads(json.dumps(finding.to_dict())))
        assert finding.message.endswith((".", ")"))
    assert {f.name for f in quick_findings(cohort)} <= {f.name for f in looked.findings}


def test_a_fail_is_refused_unless_its_risk_is_accepted_by_name() -> None:
    failed = [
        Finding("same_signal", "FAIL", "Two are one.", ("a and b",), "join them"),
        Finding("size", "WARN", "Few."),
    ]
    with pytest.raises(BadData, match="--accept-risk same_signal"):
        refuse(failed)
    assert refuse(failed, ["same_signal"]) == ["same_signal"]
    assert refuse(failed[1:], ["size"]) == [], "a WARN needs nobody's word"


def test_a_risk_that_is_not_there_is_a_warning_and_a_name_that_cannot_be_an_error() -> None:
    clean = {made(signals(6, seconds=4, n_channels=2)): []}
    for name in ("nonsense", "identity", "shortcut"):
        with pytest.raises(BadUse, match=f"{name}: no finding has that name"):
            guard(clean, accepted=[name])
    for name in ("same_signal", "shortcut_site", "groups_person", "stage1"):
        with pytest.warns(BridgeMILWarning, match=f"{name} is not needed"):
            (found,) = guard(clean, accepted=[name]).values()
        assert {warning["level"] for warning in found} <= {"WARN"}


def test_every_finding_has_a_name_that_can_be_accepted(tmp_path: Path) -> None:
    columns = {"person": [f"p{i // 2}" for i in range(12)], "site": ["ab"[i % 2] for i in range(12)]}
    looked = audit(made(signals(12, seconds=4, n_channels=2), ["x", "y"] * 6, columns=columns))
    possible = [name for check in CHECKS for name in check.findings or (check.name,)]
    assert looked.named("groups_person")
    assert [f.name for f in looked.findings if not any(fnmatchcase(f.name, p) for p in possible)] == []


def test_a_cohort_is_audited_once_for_a_folder_of_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cohort = made(signals(10, seconds=6, n_channels=3), columns={"age": list(range(10))})
    done = []
    monkeypatch.setattr("bridgemil.audit._AUDITED", {})
    monkeypatch.setattr("bridgemil.audit.quick_findings", lambda c: done.append(1) or quick_findings(c))
    told = list[str]()
    found = guard({cohort: []}, tmp_path, watch=told.append)
    assert [warning["check"] for warning in found[cohort.hash]] == ["size"], "5 subjects of a class are few"
    assert guard({cohort: []}, tmp_path, watch=told.append) == found
    assert told == ["the cohort"], "said once, when it is done"
    assert list(tmp_path.iterdir()) == [], "looking writes nothing"
    store_quick_audit(cohort, tmp_path)
    monkeypatch.setattr("bridgemil.audit._AUDITED", {})  # another process
    assert guard({cohort: []}, tmp_path) == found
    assert len(done) == 1
    guard({made(signals(10, seconds=6, n_channels=3), columns={"age": [3] * 10}): []}, tmp_path)
    assert len(done) == 2, "other columns are another cohort to the audit"
    for file in (tmp_path / "audits").rglob("record.json"):
        file.write_text("{")
    monkeypatch.setattr("bridgemil.audit._AUDITED", {})
    with pytest.raises(BadData, match=r"audits.*\.json: was changed"):
        guard({cohort: []}, tmp_path)


@pytest.mark.parametrize("on_disk", [False, True])
def test_shuffled_labels_are_at_chance(on_disk: bool, tmp_path: Path) -> None:
    cohort = made(signals(18, seconds=6, n_channels=3), labelled(18, ("a", "b", "c")))
    cohort = cohort.save(tmp_path / "cohort") if on_disk else cohort
    (finding,) = [f for f in audit(cohort, permute="bandpower", permutations=10).findings if f.name == "permutation"]
    assert finding.status == "PASS"
    assert finding.numbers["chance"] == pytest.approx(1 / 3)


def test_a_protocol_that_leaks_labels_is_above_chance_with_shuffled_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fit that is handed the test subjects too remembers them."""
    honest = permutation.fit

    def leaking(cohort, train, validation, settings, seed, cache):  # type: ignore[no-untyped-def]
        return honest(cohort, cohort.subjects, validation, settings, seed, cache=cache)

    monkeypatch.setattr(permutation, "fit", leaking)
    cohort = made(signals(18, seconds=6, n_channels=6))
    (finding,) = [f for f in audit(cohort, permute="bandpower", permutations=8).findings if f.name == "permutation"]
    assert finding.status == "FAIL"
    assert len(finding.evidence) == 2, "confirmed by further shuffles"


def test_the_permutation_is_judged_by_its_standard_error() -> None:
    rng = np.random.default_rng(0)
    assert permutation.judge(rng.normal(0.5, 0.05, 20), 2, "m").status == "PASS"
    assert permutation.judge(rng.normal(0.56, 0.05, 20), 2, "m").status == "FAIL"
    assert permutation.judge(rng.normal(0.45, 0.05, 20), 2, "m").status == "PASS"


def test_auroc_is_scikit_learns() -> None:
    from sklearn.metrics import roc_auc_score

    rng = np.random.default_rng(3)
    y = rng.integers(0, 3, 50)
    p = np.round(rng.dirichlet(np.ones(3), (4, 50)), 1)  # with ties
    areas = auroc(p, y)
    expected = [[roc_auc_score(y == k, p[s, :, k]) for k in range(3)] for s in range(4)]
    assert np.allclose(areas, expected)


def test_people_needed_is_mcnemars_number() -> None:
    assert subjects_needed(0.10, 0.25) == 194  # Connor 1987: 1.96 sqrt(.25) + .84 sqrt(.25 - .01), over .1, squared
    assert subjects_needed(0.05) > 4 * subjects_needed(0.11)


def test_the_leak_of_a_split_by_window_is_seen() -> None:
    """People are easy to recognise, and nothing tells their label: only a split by window can seem to."""
    rng = np.random.default_rng(1)
    people = signals(20, seconds=20, n_channels=4)
    for signal in people.values():
        signal *= rng.uniform(0.3, 3, (4, 1)).astype(np.float32)
    (finding,) = [f for f in audit(made(people)).findings if f.name == "fingerprint"]
    numbers = finding.numbers
    assert numbers["identification"] > 0.8
    assert numbers["by_window"]["nearest"] > 0.85
    assert numbers["by_subject"]["nearest"] < 0.7


def test_names_with_escape_codes_do_not_reach_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    print_audit(Audit("c", "", (Finding("folds", "WARN", "Subject \x1b[31m[red]\x07 is odd."),), 1.0))
    printed = capsys.readouterr().out
    assert "[red]" in printed
    assert all(line.isprintable() for line in printed.splitlines())


def _leaky(path: Path) -> Cohort:
    people = signals(12, seconds=6, n_channels=3)
    people["sub-02"] = people["sub-07"] * np.float32(2)
    return made(people).save(path)


def test_evaluate_refuses_a_leaky_cohort_and_writes_an_accepted_risk_into_every_result(tmp_path: Path) -> None:
    cohort = _leaky(tmp_path / "leaky")
    how = {"folds": 3, "out": tmp_path / "runs", "progress": False, "baselines": False}
    with pytest.raises(BadData, match="--accept-risk same_signal"):
        evaluate(cohort, "bandpower", **how)
    assert not (tmp_path / "runs").exists(), "nothing was run, and nothing of a refused cohort is kept"
    results = evaluate(cohort, "bandpower", accept_risk=["same_signal"], **how)
    assert [w["check"] for w in results.warnings if w["level"] == "FAIL"] == ["same_signal"]
    assert results.to_dict()["warnings"] == results.warnings
    assert "FAIL same_signal (accepted" in repr(results)
    assert list((tmp_path / "runs" / "audits").iterdir()), "the audit is kept for the next call"
    shown = bridgemil("report", tmp_path / "runs")
    assert "FAIL same_signal (accepted" in shown.stdout, shown.stdout + shown.stderr


def test_an_accepted_risk_is_one_of_results_whose_runs_were_finished_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Finished while the audit did not know the risk; accepted later; and not forgotten when it is not asked for."""
    cohort, runs = _leaky(tmp_path / "leaky"), tmp_path / "runs"
    how = {"folds": 3, "out": runs, "progress": False, "baselines": False}
    method = "bandpower+tangent"

    def known(*names: str) -> None:
        found = tuple({"check": name, "level": "FAIL", "message": f"{name} failed."} for name in names)
        monkeypatch.setattr(engine, "guard", lambda plans, *rest: {each.hash: found for each in plans})

    def checks(results: Results) -> list[str]:
        return [warning["check"] for warning in results.warnings]

    known()
    assert evaluate(cohort, method, **how).warnings == []
    times = {file: file.stat().st_mtime_ns for file in runs.rglob("run.json")}
    known("same_signal")
    assert checks(evaluate(cohort, method, **how)) == ["same_signal"]
    assert {file: file.stat().st_mtime_ns for file in runs.rglob("run.json")} == times, "nothing was run again"
    shown = bridgemil("report", runs)
    assert "FAIL same_signal (accepted" in shown.stdout, shown.stdout + shown.stderr
    known("shortcut_rate")
    assert checks(evaluate(cohort, method, **how)) == ["same_signal", "shortcut_rate"]
    known()
    later = evaluate(cohort, method, **how)
    assert checks(later) == ["same_signal", "shortcut_rate"], "what was accepted once stays with the results"
    assert all(member.warnings == later.warnings for member in later.members.values())
    assert evaluate(cohort, "bandpower", split_seed=1, **how).warnings == [], "another split is another matter"
    assert verify(runs, progress=False).findings == []


def test_the_quick_audit_says_so_where_progress_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cohort = made(signals(12, seconds=6, n_channels=3, seed=77)).save(tmp_path / "my.cohort")
    for words in (True, False):  # remembered the second time
        evaluate(cohort, "bandpower", folds=3, baselines=False, out=tmp_path / "runs")
        assert ("auditing my.cohort …\n" in capsys.readouterr().err) is words


def test_benchmark_and_train_refuse_a_leaky_cohort_too(tmp_path: Path) -> None:
    cohort = _leaky(tmp_path / "leaky")
    with pytest.raises(BadData, match="--accept-risk same_signal"):
        plan([cohort], ["bandpower"], folds=3, out=tmp_path / "runs")
    accepted = plan([cohort], ["bandpower"], folds=3, out=tmp_path / "runs", accept_risk=["same_signal"])
    assert accepted.warnings[0]["check"] == "same_signal"
    with pytest.raises(BadData, match="--accept-risk same_signal"):
        train(cohort, tmp_path / "model", "bandpower", folds=3, progress=False, baselines=False)
    trained = train(
        cohort, tmp_path / "model", "bandpower", folds=3, progress=False, baselines=False, accept_risk=["same_signal"]
    )
    assert trained.bundle.warnings[0]["check"] == "same_signal"
    assert "FAIL same_signal (accepted" in trained.bundle.card


def test_a_split_that_tears_a_person_apart_is_refused(tmp_path: Path) -> None:
    people = [f"p{i // 2}" for i in range(12)]
    cohort = made(signals(12, seconds=6, n_channels=3), ["a", "a", "b", "b"] * 3, columns={"person": people})
    how = {"folds": 3, "progress": False, "baselines": False}
    with pytest.raises(BadData, match="--accept-risk groups_person"):
        evaluate(cohort, "bandpower", **how)
    warnings = evaluate(cohort, "bandpower", groups="person", **how).warnings
    assert {warning["level"] for warning in warnings} <= {"WARN"}


def test_traits_that_say_nothing_are_called_shortcuts_no_more_often_than_stated() -> None:
    """The p-value takes the choice among learners into account: 5 % of null traits are below .05."""
    rng = np.random.default_rng(0)
    p = []
    for cohort in range(240):
        n = (16, 24, 40)[cohort % 3]
        y = np.array([0, 1] * (n // 2))
        values = rng.normal(size=n) if cohort % 2 else rng.integers(0, 3, n).astype(float)
        trait = Trait("x", "x", values, is_code=not cohort % 2, names=("0", "1", "2"))
        p.append(shortcuts.separation(trait, y, 2, shortcuts.stratified_folds(y, 5, rng), 99, rng)[2])
    assert 0.01 <= np.mean(np.array(p) <= 0.05) <= 0.085
    assert 0.4 <= np.mean(np.array(p) <= 0.5) <= 0.6
