"""What a study takes from its user, and what it refuses."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

import leaky
from bridgemil import methods, studies
from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.prepare import prepare
from bridgemil.cohort.synthetic import SynthSettings, synthesise, true_evidence
from bridgemil.errors import BadData, BadUse
from bridgemil.evaluation.protocol import Protocol
from bridgemil.report.figures import canvas
from bridgemil.studies import Findings, StudyContext, study
from bridgemil.studies import evidence as shared
from contexts import QUICK, quick_context


@pytest.mark.parametrize("name", methods.ablations())
def test_what_makes_an_ablation_is_not_the_users_to_set(name: str, cohort: Cohort, tmp_path: Path) -> None:
    changes = {"stage2.retention": 0.5, "stage1.variance": 3, "stage1.weight_decay": 0.2, "stage2.lr": 0.01}
    context = StudyContext((cohort,), tmp_path, Protocol(settings=changes))
    plain = StudyContext((cohort,), tmp_path).experiment(cohort, name).settings
    changed = context.experiment(cohort, name).settings
    assert changed.stage2.lr == 0.01
    for key in methods.fixed(name) & set(changes):
        part, _, setting = key.partition(".")
        assert getattr(getattr(changed, part), setting) == getattr(getattr(plain, part), setting)


@pytest.mark.parametrize("name", methods.ablations())
def test_whole_and_ablations_have_the_aggregator_that_the_user_sets(name: str, cohort: Cohort, tmp_path: Path) -> None:
    context = StudyContext((cohort,), tmp_path, Protocol(settings={"stage2.aggregator": "conjunctive"}))
    assert context.experiment(cohort, name).settings.stage2.aggregator == "conjunctive"


def test_every_split_is_audited(tmp_path: Path) -> None:
    persons = ["one", "one", *(f"p{i}" for i in range(10))]
    made = leaky.made(leaky.signals(12, n_channels=4, seconds=8), columns={"person": persons})
    cohort = made.save(tmp_path / "some.cohort")

    def refused(*seeds: int) -> bool:
        try:
            return StudyContext((cohort,), tmp_path / "out", Protocol(folds=3), seeds).warnings is None
        except BadData as error:
            return "groups_person" in str(error)

    apart = {seed: refused(seed) for seed in range(12)}
    together, parted = (next(seed for seed in apart if apart[seed] is answer) for answer in (False, True))
    assert refused(together, parted), "a person who is in two folds of the second split only"


def test_a_misspelt_setting_is_refused(cohort: Cohort, tmp_path: Path) -> None:
    with pytest.raises(BadUse, match=r"stage2\.retension"):
        StudyContext((cohort,), tmp_path, Protocol(settings={"stage2.retension": 1}))


def test_what_an_earlier_call_wrote_does_not_stay_beside_findings_without_it(tmp_path: Path) -> None:
    table = pd.DataFrame({"a": [1]})
    Findings("one", [], {"kept": table, "forecast": table}, {}).write(tmp_path)
    (tmp_path / "mine.csv").write_text("a note of the user's")
    Findings("two", [], {"kept": table}, {}).write(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir() if p.name[0] != ".") == ["findings.md", "kept.csv", "mine.csv"]


def test_the_audit_is_asked_before_anything_is_run(tmp_path: Path) -> None:
    twice = leaky.signals(9, n_channels=4, seconds=8)
    names = list(twice)
    twice[names[1]] = -2 * twice[names[0]]
    context = StudyContext((leaky.made(twice).save(tmp_path / "twice.cohort"),), tmp_path / "out", Protocol(folds=3))
    with pytest.raises(BadData, match="--accept-risk same_signal"):
        context.experiment(context.cohorts[0], "bridgemil")
    assert not (tmp_path / "out").exists()


def test_a_cohort_named_twice_is_refused(cohort: Cohort, tmp_path: Path) -> None:
    with pytest.raises(BadUse, match="name each once"):
        StudyContext((cohort, Cohort.open(cohort.path)), tmp_path)


def test_a_folder_of_other_recordings_is_no_truth(cohort: Cohort, tmp_path: Path) -> None:
    synthesise(tmp_path / "synth", SynthSettings(subjects=6, seconds=60), jobs=1, progress=False)
    with pytest.raises(BadUse, match=r"^--truth needs a cohort that was prepared from the folder's recordings"):
        study("ablation", StudyContext((cohort,), tmp_path / "out", truth=tmp_path / "synth"))
    (tmp_path / "synth/dataset_description.json").write_text("[1]")
    with pytest.raises(BadUse, match="is no folder that `bridgemil synth` wrote"):
        study("ablation", StudyContext((cohort,), tmp_path / "out", truth=tmp_path / "synth"))
    assert not (tmp_path / "out").exists()


def test_only_patients_have_evidence_to_find_and_a_perfect_ranking_finds_all(tmp_path: Path) -> None:
    made = SynthSettings(subjects=6, seconds=60, evidence="burst")
    synthesise(tmp_path / "synth", made, jobs=1, progress=False)
    cohort = prepare(tmp_path / "synth", tmp_path / "c", label="group", jobs=1, progress=False)
    every = {s: true_evidence(tmp_path / "synth", s, cohort.window_starts(s)) for s in cohort.subjects}
    controls = [s for s in cohort.subjects if cohort.records[s].label == "control"]
    assert any(every[s].any() for s in controls), "controls hold a little evidence, which speaks against their label"
    known = StudyContext((cohort,), tmp_path / "out", truth=tmp_path / "synth").evidence
    assert set(known) == set(cohort.subjects) - set(controls)

    # A window classifier that is always right.
    windows = pd.DataFrame(
        [(s, 0, i, 1 - p, p) for s in cohort.subjects for i, p in enumerate(every[s].astype(float))],
        columns=["subject", "seed", "window", "p_control", "p_slowing"],
    )
    people = pd.DataFrame({"subject": cohort.subjects, "label": cohort.labels})
    results: Any = SimpleNamespace(windows=windows, predictions=people)
    (row,) = shared.evidence_found([results], known)
    assert (row["ranked_by"], row["auroc"], row["precision_at_k"], row["patients"]) == (shared.VOTE, 1, 1, 3)


def test_evidence_found_averages_over_patients_that_have_both_kinds_of_windows() -> None:
    known = {"a": np.array([True, False, False]), "b": np.array([False, True, True]), "c": np.array([True, True])}
    gates = {"a": [0.9, 0.1, 0.2], "b": [0.5, 0.4, 0.6], "c": [0.0, 0.0], "control": [1.0]}
    windows = pd.DataFrame([(s, 0, i, g) for s, own in gates.items() for i, g in enumerate(own)])
    windows.columns = ["subject", "seed", "window", "gate"]
    people = pd.DataFrame({"subject": list(gates), "label": "ill"})
    results: Any = SimpleNamespace(windows=windows, predictions=people)
    (row,) = shared.evidence_found([results], known)
    assert (row["ranked_by"], row["auroc"], row["patients"]) == (shared.ATTENTION, 0.75, 2)
    assert shared.evidence_found([results], {"c": known["c"]}) == []


def test_what_was_set_and_reaches_no_method_is_said(cohort: Cohort, tmp_path: Path) -> None:
    settings = QUICK | {"stage2.batch_windows": 64}  # of the vote, which an ablation does not run
    context = quick_context(cohort, tmp_path, settings=settings, options={"variants": ["wo_retention"]})
    notes = " ".join(study("ablation", context).footnotes)
    assert "Set, but no method of this study has it: stage2.batch_windows." in notes
    assert "stage2.batch_windows = 64" not in notes


def test_findings_hold_names_as_they_are_and_leave_the_users_figures_alone(
    cohort: Cohort, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = pd.DataFrame({"label": ["A|B"], "value": [1]})
    text = Findings("of <b>", ["*x*"], {"t": table}, {}, footnotes=["$y"]).markdown()
    assert all(words in text for words in (r"# of \<b\>", r"- \*x\*", r"| A\|B | 1 |", r"- \$y"))
    before = mpl.rcParams["text.parse_math"]
    titles: list[Any] = []

    def perform(_: StudyContext) -> Findings:
        figure, (ax,) = canvas()
        titles.append(ax.set_title("$x"))
        return Findings("made up", [], {}, {"figure": figure})

    monkeypatch.setattr(studies.STUDIES, "load", lambda _: SimpleNamespace(perform=perform))
    study("scarcity", StudyContext((cohort,), tmp_path))
    assert not titles[0].get_parse_math()
    assert mpl.rcParams["text.parse_math"] == before


def test_points_below_one_are_points_still() -> None:
    row = {
        "accuracy": 50.0,
        "ci95_low": 40.0,
        "ci95_high": 60.0,
        "gain": -0.04,
        "gain95_low": -6.23,
        "gain95_high": 0.5,
    }
    shown = Findings.plain(pd.DataFrame([row | {"gain95_high": 0.5}]))
    assert "50.0 (40.0 to 60.0)" in shown
    assert " 0.0 (-6.2 to 0.5)" in shown
