"""From every site to every other: who trains, who is tested, and what a site of one class shows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bridgemil import studies
from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.folds import Fold, FoldPlan
from bridgemil.engine.execute import Where
from bridgemil.errors import BadData
from bridgemil.evaluation.protocol import Protocol
from bridgemil.studies import StudyContext, transfer
from people import people


def of_sites() -> Cohort:
    """Two sites of twelve with both classes and one of six controls."""
    plain = people(30, n_channels=4, windows=3, effect=0.5)
    sites = ["a"] * 12 + ["b"] * 12 + ["x"] * 6
    labels = ["control" if s == "x" else own for s, own in zip(sites, plain.labels, strict=True)]
    bags = [plain.windows(subject) for subject in plain.subjects]
    return Cohort.from_arrays(
        bags, labels, sfreq=200.0, channels=plain.channels, folds=3, columns={"site": sites, "age": list(range(30))}
    )


def context(cohort: Cohort, out: Path, **settings: object) -> StudyContext:
    return StudyContext(
        (cohort,), out, Protocol(settings=settings), options={"method": "bandpower"}, progress=False,
        where=Where("inline", device="cpu"),
    )  # fmt: skip


@pytest.fixture(scope="module")
def cohort(tmp_path_factory: pytest.TempPathFactory) -> Cohort:
    return of_sites().save(tmp_path_factory.mktemp("transfer") / "three.cohort")


def test_every_model_is_tested_at_sites_that_it_was_not_trained_on(cohort: Cohort) -> None:
    sites = transfer.Sites(cohort, "site")
    site = dict(zip(cohort.subjects, cohort.column("site"), strict=True))

    def named(subjects: tuple[str, ...]) -> set[str]:
        return {site[subject] for subject in subjects}

    for selects in (False, True):
        made = sites.single(sites.plan.cv_folds(selects))
        assert [named(fold.train) for fold in made] == [{"a"}, {"b"}]
        for fold in made:
            assert named(fold.test) == {"a", "b", "x"} - named(fold.train)
            assert named(fold.validation) == (named(fold.train) if selects else set())
            assert not set(fold.train) & set(fold.validation)
    assert isinstance(made[0], Fold)
    rest = sites.rest()
    assert isinstance(rest, FoldPlan)
    assert rest.tested == ()
    assert rest.hash == FoldPlan.leave_out(cohort.subjects, cohort.column("site"), "site").hash


def test_the_matrix_of_sites(cohort: Cohort, tmp_path: Path) -> None:
    found = studies.study("transfer", context(cohort, tmp_path))
    table = found.tables["transfer"].set_index(["trained_on", "tested_on"])
    assert list(table.index) == [
        ("a", "a"), ("a", "b"), ("a", "x"), ("b", "a"), ("b", "b"), ("b", "x"),
        ("all others", "a"), ("all others", "b"), ("all others", "x"),
    ]  # fmt: skip
    assert dict(table["n"]) == {key: 6 if key[1] == "x" else 12 for key in table.index}
    assert list(table["model"][:3]) == ["cross-validation within", "one other", "one other"]
    both = table[table.index.get_level_values("tested_on") != "x"]
    assert (both["auroc95_low"] <= both["auroc"]).all()
    assert (both["auroc"] > 0.8).all(), "the effect is the same at every site"
    assert np.isnan(table.loc[("a", "x"), "auroc"])
    assert table["accuracy"].between(table["ci95_low"], table["ci95_high"]).all()
    assert any("x is tested, but trains no model of its own (too few patient)" in line for line in found.sentences)
    assert {"transfer.png", "transfer.svg", "transfer.csv"} <= {f.name for f in (tmp_path / "transfer").iterdir()}


def test_adjustment_is_stated_in_the_findings(cohort: Cohort, tmp_path: Path) -> None:
    chosen = context(cohort, tmp_path, site_adjust="controls", site_controls=2)
    found = studies.study("transfer", chosen)
    table = found.tables["transfer"].set_index(["trained_on", "tested_on"])
    assert any("2 of its controls, who were set aside and not scored" in note for note in found.footnotes)
    assert table.loc[("a", "b"), "n"] == 10
    assert table.loc[("a", "a"), "n"] == 12


def test_a_cohort_without_a_complete_site_is_refused(tmp_path: Path) -> None:
    apart = people(12, windows=3)
    labels = dict(zip(apart.subjects, apart.labels, strict=True))
    bags = [apart.windows(subject) for subject in labels]
    made = Cohort.from_arrays(
        bags, list(labels.values()), sfreq=200.0, channels=apart.channels, columns={"site": list(labels.values())}
    )
    saved = made.save(tmp_path / "apart.cohort")
    chosen = context(saved, tmp_path)
    with pytest.raises(BadData, match=r"no site of apart\.cohort has three subjects of every class"):
        transfer.perform(chosen)
