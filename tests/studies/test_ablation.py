"""The study ablation: what its variants leave out is left out, and gains are paired."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from bridgemil import methods, studies
from bridgemil.cohort.cohort import Cohort
from bridgemil.engine.benchmark import collect
from bridgemil.errors import BadUse
from bridgemil.evaluation.protocol import Protocol
from bridgemil.evaluation.results import compare_splits
from bridgemil.learning.loop import Streams
from bridgemil.models import encoder_for, fit
from contexts import QUICK, files, quick_context


def fitted(cohort: Cohort, method: str, recipe: str = "paper") -> tuple[nn.Module, nn.Module]:
    """The encoder as it was drawn, and as a fit of the first fold left it."""
    changes = {key: value for key, value in QUICK.items() if methods.has_setting(method, key)}
    settings = methods.for_cohort(cohort, method, "eegnet", "demo", changes, recipe=recipe)
    subjects = Protocol(folds=3).fold_plan(cohort).cv_folds(settings.selects)[0]
    with torch.random.fork_rng():
        Streams(0, sorted(subjects.train)).start("encoder")
        drawn = encoder_for(settings, cohort.signal)
    return drawn, fit(cohort, subjects.train, subjects.validation, settings).model.network.encoder


def test_without_stage1_training_starts_from_random_weights_and_changes_them(cohort: Cohort, tmp_path: Path) -> None:
    drawn, trained = fitted(cohort, "wo_stage1")
    before, after = dict(drawn.named_parameters()), dict(trained.named_parameters())
    assert all(not torch.equal(before[name], after[name]) for name in before if name.endswith("weight"))
    near = [torch.allclose(before[name], after[name], atol=0.01) for name in before]
    assert all(near), "two epochs from other weights would not end near these"
    context = quick_context(cohort, tmp_path)
    context.perform([context.experiment(cohort, "wo_stage1")])
    assert not (tmp_path / "runs" / "stage1").exists()


@pytest.mark.parametrize("recipe", methods.recipes())
def test_a_random_encoder_keeps_every_weight_and_only_batch_norm_learns(cohort: Cohort, recipe: str) -> None:
    drawn, left = fitted(cohort, "random_encoder", recipe)
    for (name, before), after in zip(drawn.named_parameters(), left.parameters(), strict=True):
        assert torch.equal(before, after), name
    statistics = {name for name, _ in drawn.named_buffers()}
    after = dict(left.named_buffers())
    changed = {name for name, before in drawn.named_buffers() if not torch.equal(before, after[name])}
    assert changed == statistics
    assert all("running" in name or "num_batches" in name for name in statistics)


@pytest.fixture(scope="module")
def found(cohort: Cohort, out: Path) -> studies.Findings:
    return studies.study("ablation", quick_context(cohort, out))


def test_every_ablation_is_compared_with_the_whole(found: studies.Findings) -> None:
    table = found.tables["ablation"].set_index("variant")
    assert list(table.index) == ["bridgemil", *methods.ablations()]
    whole = table.loc["bridgemil"]
    assert whole[["gain", "gain95_low", "gain95_high"]].isna().all(), "it is not compared with itself"
    for name in methods.ablations():
        row = table.loc[name]
        assert row["gain"] == pytest.approx(row["accuracy"] - whole["accuracy"]), name
        assert row["gain95_low"] <= row["gain"] <= row["gain95_high"], name
        assert any(f", {name} (" in sentence for sentence in found.sentences), name
    assert "paper" not in table, "a demo's numbers are not set beside the paper's"


def test_a_gain_is_paired_by_subject_and_nothing_against_itself(cohort: Cohort, out: Path) -> None:
    context = quick_context(cohort, out)
    whole, without = context.perform(
        [context.experiment(cohort, name) for name in ("bridgemil", "wo_variance_covariance")]
    )
    same = compare_splits([whole], [whole])
    assert (same.difference, same.p) == (0, 1)
    forth, back = compare_splits([whole], [without]), compare_splits([without], [whole])
    assert forth.difference == pytest.approx(-back.difference)
    assert (forth.low, forth.high) == pytest.approx((-back.high, -back.low))
    without_order = replace(whole, predictions=whole.predictions.sample(frac=1, random_state=0))
    assert compare_splits([without_order], [whole]).difference == 0, "rows are matched by subject, not by place"


def test_the_study_says_the_sentence_of_the_pair(cohort: Cohort, out: Path, found: studies.Findings) -> None:
    context = quick_context(cohort, out)
    whole, without = context.perform(
        [context.experiment(cohort, name) for name in ("bridgemil", "wo_variance_covariance")]
    )
    pair = without.compare(whole)
    (said,) = [sentence for sentence in found.sentences if ", wo_variance_covariance (" in sentence]
    assert pair.sentence in said
    assert found.tables["ablation"].set_index("variant").loc["wo_variance_covariance", "p"] == pytest.approx(pair.p)


def test_retention_and_its_ablation_start_from_one_encoder(cohort: Cohort, out: Path, found: studies.Findings) -> None:
    context = quick_context(cohort, out)
    jobs = {name: context.experiment(cohort, name).jobs(0)[0] for name in ("bridgemil", "wo_retention", "wo_nearby")}
    assert jobs["bridgemil"].stage1 == jobs["wo_retention"].stage1 != jobs["wo_nearby"].stage1


def test_a_second_call_runs_nothing_and_writes_the_same_bytes(
    cohort: Cohort, out: Path, found: studies.Findings, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = quick_context(cohort, out)
    before = files(out / "ablation")
    monkeypatch.setattr(type(context.where), "workers", lambda *_: pytest.fail("a run was started"))
    studies.study("ablation", context)
    assert files(out / "ablation") == before
    assert {"ablation.csv", "ablation.png", "ablation.svg", "findings.md"} == set(before)


def test_chosen_variants_only_and_a_misspelt_one_is_refused(cohort: Cohort, out: Path, tmp_path: Path) -> None:
    table = studies.study("ablation", quick_context(cohort, out, options={"variants": ("wo_nearby",)})).tables[
        "ablation"
    ]
    assert list(table["variant"]) == ["bridgemil", "wo_nearby"]
    with pytest.raises(BadUse, match=r"variant must be one of bridgemil.*did you mean wo_nearby"):
        studies.study("ablation", quick_context(cohort, tmp_path, options={"variants": ("wo_nerby",)}))
    assert not (tmp_path / "runs").exists()


def test_several_splits_are_pooled(cohort: Cohort, out: Path) -> None:
    context = quick_context(cohort, out, split_seeds=(0, 1), options={"variants": ("wo_retention",)})
    table = studies.study("ablation", context).tables["ablation"]
    assert list(table["runs_of_all_folds"]) == [2, 2]
    assert list(table["subjects"]) == [len(cohort)] * 2
    assert collect(context.store)["split"].nunique() == 2
