"""The study `reliability`: agreement as counted by hand, the windows that stay, gates that saw no test subject."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest

from bridgemil import studies
from bridgemil.cohort.folds import Fold, FoldPlan
from bridgemil.engine.benchmark import Where
from bridgemil.errors import BadData, BadUse
from bridgemil.evaluation.metrics import bootstrap
from bridgemil.evaluation.protocol import Protocol
from bridgemil.evaluation.statistics import Comparison
from bridgemil.report.figures import canvas
from bridgemil.studies import Findings, reliability
from bridgemil.studies import evidence as shared
from bridgemil.studies.context import StudyContext
from bridgemil.studies.reliability import ALL, Choice
from people import people

QUICK = {"stage1.epochs": 1, "stage1.subbag_pairs": 4, "stage2.epochs": 2, "stage2.burn_in": 0}
K, PLENTY, FOLDS = 5, 100, 4  # nobody has PLENTY windows


class Done(NamedTuple):
    context: StudyContext
    findings: Findings
    runs: list[dict[str, Any]]  # run.json of each, with its identity

    def part(self, part: str | None, method: str = "majority_vote") -> list[dict[str, Any]]:
        return [run for run in self.runs if run["split"].get("part") == part and run["settings"]["method"] == method]

    def gates(self, runs: list[dict[str, Any]], subject: str) -> np.ndarray:
        """Of the only one of these runs that held the subject out."""
        (run,) = [run for run in runs if subject in run["test"]]
        windows = pd.read_parquet(self.context.store.run_folder(run["identity"]) / "windows.parquet")
        return windows[windows["subject"] == subject].sort_values("window")["gate"].to_numpy()


def read_runs(context: StudyContext) -> list[dict[str, Any]]:
    files = sorted((context.store.root / "runs").glob("*/run.json"))
    return [json.loads(file.read_text()) | {"identity": file.parent.name} for file in files]


def files_of(context: StudyContext) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted((context.out / "reliability").iterdir())}


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Done:
    folder = tmp_path_factory.mktemp("reliability")
    cohort = people(8, windows=6, effect=0.5).save(folder / "small.cohort")
    context = StudyContext(
        (cohort,), folder / "out",
        Protocol(backbone="covariance", recipe="paper", budget="demo", folds=FOLDS, settings=QUICK),
        options={"top": [PLENTY, K], "nested": True}, where=Where(jobs=1, device="cpu"), progress=False,
    )  # fmt: skip
    return Done(context, studies.study("reliability", context), read_runs(context))


def test_agreement_is_the_share_of_windows_that_say_the_label(done: Done) -> None:
    table = done.findings.data["agreement"]
    cohort = done.context.cohorts[0]
    assert sorted(table["subject"]) == sorted(cohort.subjects)
    labels = dict(zip(cohort.subjects, cohort.labels, strict=True))
    for run in done.part(None):
        windows = pd.read_parquet(done.context.store.run_folder(run["identity"]) / "windows.parquet")
        for subject in run["test"]:
            hits = [
                labels[subject] == max(cohort.classes, key=lambda name, row=row: row[f"p_{name}"])
                for _, row in windows[windows["subject"] == subject].iterrows()
            ]
            row = table[table["subject"] == subject].iloc[0]
            assert row["agreement"] == pytest.approx(np.mean(hits))
            assert (row["label"], row["n_windows"]) == (labels[subject], cohort.records[subject].n_windows)
    by_class = done.findings.tables["agreement_by_class"]
    for _, row in by_class.iterrows():
        shares = table[table["label"] == row["label"]]["agreement"]
        assert row["agreement"] == pytest.approx(shares.mean())
        assert row["most_windows_against"] == (shares < 0.5).sum()
    against = by_class["most_windows_against"].sum()
    assert f"{against} of 8 subjects" in done.findings.sentences[0]


@pytest.mark.parametrize("rule", ["top", "bottom"])
def test_training_subjects_keep_their_highest_or_lowest_windows_and_nobody_else_is_reduced(
    done: Done, rule: str
) -> None:
    runs, gated = done.part(f"{rule} {K} windows"), done.part(None, "bridgemil")
    assert len(runs) == len(gated) == FOLDS
    for run in runs:
        assert set(run["kept"]) == set(run["train"])
        for subject, kept in run["kept"].items():
            gates = done.gates(gated, subject)
            rest = np.delete(gates, kept)
            assert len(kept) == K
            assert gates[kept].min() >= rest.max() if rule == "top" else gates[kept].max() <= rest.min()
        held_out = (
            pd.read_parquet(done.context.store.run_folder(run["identity"]) / "windows.parquet")
            .groupby("subject")
            .size()
        )
        assert held_out.to_dict() == {s: done.context.cohorts[0].records[s].n_windows for s in run["test"]}


def test_what_stays_is_what_is_trained_on(done: Done) -> None:
    parts = [None, *(f"{rule} {K} windows" for rule in ("top", "bottom", "random"))]
    said = [
        tuple(
            pd.concat([done.context.store.predictions(run["identity"]) for run in done.part(part)])
            .sort_values("subject")["p_patient"]
            .round(9)
        )
        for part in parts
    ]
    assert len(set(said)) == len(parts), "two kinds of windows gave the same model"


def test_random_windows_are_neither_and_the_same_for_a_subject_in_every_round(done: Done) -> None:
    kept: dict[str, set[tuple[int, ...]]] = {}
    for run in done.part(f"random {K} windows"):
        assert set(run["kept"]) == set(run["train"])
        for subject, rows in run["kept"].items():
            kept.setdefault(subject, set()).add(tuple(rows))
    assert {len(draws) for draws in kept.values()} == {1}
    assert len(set.union(*kept.values())) > 1, "every subject has the same windows"


def test_nested_gates_come_from_models_that_never_saw_the_test_subjects(done: Done) -> None:
    outer, inner = (
        done.part(f"top {K} windows, nested attention weights"),
        done.part("attention weights without the test fold", "bridgemil"),
    )
    assert len(inner) == FOLDS * (FOLDS - 2)
    differ = 0
    for run in outer:
        allowed = {*run["train"], *run["validation"]}
        mine = [one for one in inner if {*one["train"], *one["validation"], *one["test"]} == allowed]
        assert {subject for one in mine for subject in one["test"]} == set(run["train"])
        assert not set(run["test"]) & allowed
        for subject, kept in run["kept"].items():
            gates = done.gates(mine, subject)
            assert gates[kept].min() >= np.delete(gates, kept).max()
            plain = np.argsort(-done.gates(done.part(None, "bridgemil"), subject), kind="stable")[:K]
            differ += set(plain.tolist()) != set(kept)
    assert differ, "nested gates chose what plain ones do: the test proves nothing"


def test_who_has_fewer_windows_keeps_all_and_nothing_is_run_twice_for_it(done: Done) -> None:
    table = done.findings.tables["reliability"].set_index(["gates", "windows"])
    assert len(table) == 1 + 2 + 2 * 4
    for gates, rule in [("none", "random"), ("plain", "top"), ("plain", "bottom"), ("nested", "top")]:
        row = table.loc[(gates, f"{rule} {PLENTY}")]
        assert row["accuracy"] == table.loc[("none", "all"), "accuracy"]
        assert pd.isna(row["gain"]), "nothing is left out: nothing is compared"
    assert not [run for run in done.runs if str(PLENTY) in run["split"].get("part", "")]
    assert len(done.part(None)) == FOLDS, "the whole runs carry no part: report reads them"
    assert any(f"no subject has more than {PLENTY} windows" in sentence for sentence in done.findings.sentences)
    assert any(
        f"K = {PLENTY}: 8 of 8 subjects with at most K windows keep all" in note for note in done.findings.footnotes
    )


def test_leaks_controls_and_cost_are_said(done: Done) -> None:
    notes = " ".join(done.findings.footnotes)
    assert "trained or selected on the test subjects" in notes
    assert "random K (not in the paper)" in notes
    rows = [
        {"cohort": "small.cohort", "rule": "all", "accuracy": 70.0, "ci95_low": low, "ci95_high": 90.0}
        for low in (50, 51)
    ]
    agreement = pd.DataFrame({"cohort": "small.cohort", "agreement": [0.25, 0.75]})
    shown = [reliability._agreement_sentences(done.context, agreement, [row]) for row in rows]
    assert "in 1 of 2 subjects most windows disagree" in shown[0][0]
    assert "not better than chance (70.0 %" in shown[0][1]
    assert len(shown[1]) == 1
    assert f"{FOLDS * (FOLDS - 2)} runs more of bridgemil, where plain weights need {FOLDS}" in notes
    for kind in ("plain", "nested"):
        (sentence,) = [text for text in done.findings.sentences if f"top {K} by {kind} attention weights" in text]
        assert all(rival in sentence for rival in ("all", f"bottom {K}", f"random {K}"))


def test_a_second_call_runs_nothing_and_writes_the_same_bytes_and_so_does_one_after_a_kill(done: Done) -> None:
    before, identities = files_of(done.context), {run["identity"] for run in done.runs}
    assert {"agreement.csv", "reliability.csv", "reliability.png", "reliability.svg", "findings.md"} <= set(before)
    stamps = {i: (done.context.store.run_folder(i) / "run.json").stat().st_mtime_ns for i in identities}
    studies.study("reliability", done.context)
    assert files_of(done.context) == before
    assert stamps == {i: (done.context.store.run_folder(i) / "run.json").stat().st_mtime_ns for i in identities}
    lost = [done.part(None, "bridgemil")[0], done.part(f"top {K} windows")[0]]
    for run in lost:  # as if it had been killed before these
        shutil.rmtree(done.context.store.run_folder(run["identity"]))
    shutil.rmtree(done.context.out / "reliability")
    studies.study("reliability", done.context)
    assert {run["identity"] for run in read_runs(done.context)} == identities
    assert files_of(done.context) == before


def test_where_the_truth_is_known_the_kept_windows_are_held_against_it(
    done: Done, monkeypatch: pytest.MonkeyPatch
) -> None:
    cohort = done.context.cohorts[0]
    known = {s: np.arange(cohort.records[s].n_windows) % 3 == i % 3 for i, s in enumerate(cohort.subjects)}
    monkeypatch.setattr(StudyContext, "evidence", known)
    context = replace(done.context, truth=Path("made up"), options={"top": [K]})
    found = context.explained(reliability.perform(context))
    table = found.tables["reliability"].set_index(["gates", "windows"])["true_evidence"]
    gated = done.part(None, "bridgemil")
    shares = [known[s][np.argsort(-done.gates(gated, s), kind="stable")[:K]].mean() for s in cohort.subjects]
    assert table["plain", f"top {K}"] == pytest.approx(np.mean(shares))
    assert table["none", "all"] == pytest.approx(np.mean([rows.mean() for rows in known.values()]))
    ranked = found.tables["evidence_found"].groupby("what")["ranked_by"].agg(set)
    assert shared.VOTE in ranked["majority_vote"]
    assert shared.ATTENTION in ranked["bridgemil"]


def test_the_papers_numbers_stand_beside_plain_gates_only(done: Done, monkeypatch: pytest.MonkeyPatch) -> None:
    adftd: Any = SimpleNamespace(metadata={"source": "adftd"})
    assert "paper" not in done.findings.tables["reliability"]
    monkeypatch.setattr(StudyContext, "matches_paper", lambda *_: True)
    expected = {
        Choice("plain", "top", 100): 61.35,
        Choice("plain", "bottom", 100): 49.62,
        ALL: 55.74,
        Choice("nested", "top", 100): None,
        Choice("plain", "top", 50): None,
        Choice("none", "random", 100): None,
    }
    assert {choice: reliability._published(done.context, adftd, choice) for choice in expected} == expected


def gate_table(**columns: Any) -> Any:
    return SimpleNamespace(windows=pd.DataFrame(columns), settings=SimpleNamespace(title="a method"))


def test_gates_are_averaged_over_seeds_and_bad_ones_are_refused() -> None:
    cohort = people(2, windows=1)
    ids, counts = cohort.subjects, [cohort.records[s].n_windows for s in cohort.subjects]
    names = [s for s, n in zip(ids, counts, strict=True) for _ in range(n)]
    numbers = [i for n in counts for i in range(n)]
    rows = {"subject": names[::-1] + names, "window": numbers[::-1] + numbers}
    gates = np.linspace(0, 1, len(names))
    said = reliability.mean_weights(gate_table(**rows, gate=[*gates[::-1], *(gates + 0.5)]), cohort)
    np.testing.assert_allclose(np.concatenate([said[s] for s in ids]), gates + 0.25)
    with pytest.raises(BadUse, match="has no attention weights"):
        reliability.mean_weights(gate_table(**rows), cohort)
    with pytest.raises(BadUse, match="gives every window the same attention weight"):
        reliability.mean_weights(gate_table(**rows, gate=1.0), cohort)
    with pytest.raises(BadData, match=f"{ids[-1]}: has {counts[-1]} windows"):
        reliability.mean_weights(gate_table(subject=names[:-1], window=numbers[:-1], gate=gates[:-1]), cohort)


def test_inner_folds_leave_out_the_test_fold_and_need_three_others() -> None:
    split = FoldPlan(tuple((f"a{i}", f"b{i}") for i in range(5)))
    for outer in (*split.cv_folds(), *split.cv_folds(selects=False)):
        plan = reliability.inner_plan(split, outer)
        rounds = reliability.inner_folds(outer, plan.cv_folds())
        assert plan.k == 4
        assert sorted(s for inner in rounds for s in inner.test) == sorted(outer.train)
    few = FoldPlan((("a",), ("b",), ("c",)))
    with pytest.raises(BadUse, match="--folds 4"):
        reliability.inner_plan(few, few.cv_folds()[0])


def test_evidence_is_counted_in_people_who_have_both_kinds_of_windows() -> None:
    known = {"a": np.array([True, True, False, False]), "b": np.array([False, False]), "c": np.array([True, False])}
    rounds = [Fold(1, ("a", "b", "c"), (), (), {"a": (0, 1, 2)}), Fold(2, ("a",), (), (), {"a": (3,)})]
    assert reliability.evidence_share(rounds, known) == pytest.approx(((2 / 3 + 0) / 2 + 1 / 2) / 2)
    assert reliability.evidence_share(rounds, dict.fromkeys("abc", np.zeros(4, dtype=bool))) is None


@pytest.mark.parametrize(
    ("changes", "options", "folds", "words"),
    [
        ({}, {"top": [0]}, 4, "--top"),
        ({}, {"top": []}, 4, "--top"),
        ({}, {"top": [5], "nested": True}, 3, "--folds 4"),
    ],
)
def test_what_cannot_be_studied_is_refused_before_any_run(
    done: Done, tmp_path: Path, changes: dict[str, Any], options: dict[str, Any], folds: int, words: str
) -> None:
    protocol = replace(done.context.protocol, settings=changes, folds=folds)
    context = replace(done.context, out=tmp_path / "new", protocol=protocol, options=options)
    with pytest.raises(BadUse, match=words):
        reliability.perform(context)
    assert not (tmp_path / "new").exists()


def test_a_class_whose_people_agree_alike_is_drawn() -> None:
    shares = pd.DataFrame({"subject": list("abc"), "label": "x", "agreement": 2 / 3})
    low, high = bootstrap(shares["agreement"].to_numpy())
    by_class = pd.DataFrame([{"label": "x", "agreement": 2 / 3, "agreement95_low": low, "agreement95_high": high}])
    assert 100 * low > 100 * (2 / 3), "rounding puts the bound beyond the mean"
    _, (ax,) = canvas()
    reliability._draw_agreement(ax, shares, by_class, ["x"])
    assert len(ax.collections[0].get_offsets()) == 3


def test_choices_that_leave_nothing_out_are_no_comparisons(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Comparison("a", "b", 0.0, -1.0, 1.0, p=1.0, p_holm=1.0, seeds=1)
    monkeypatch.setattr(reliability, "compare_splits", lambda *_, names: found)
    chosen = reliability.choices([5, 500], nested=False)
    against = reliability._compared({choice: [] for choice in chosen}, [choice for choice in chosen if choice.k == 5])
    assert [(one.title, other.title) for one, other in against] == [
        ("random 5", "all"), ("top 5", "all"), ("bottom 5", "all"), ("top 5", "bottom 5"), ("top 5", "random 5"),
    ]  # fmt: skip
    assert {comparison.family for comparison in against.values()} == {5}
