"""The methods as data: what the paper's table says, what budgets change, and what cannot be set."""

from __future__ import annotations

import pytest

from bridgemil import methods
from bridgemil.errors import BadUse


def test_the_names_of_the_contract() -> None:
    expected = "majority_vote additive attention millet timemil supcon masked bridgemil bandpower tangent".split()
    assert methods.names() == expected
    ablations = "wo_variance_covariance wo_nearby wo_subbag wo_retention supervised wo_stage1 random_encoder".split()
    assert methods.ablations() == ablations
    assert list(methods.budgets()) == ["paper", "laptop", "demo"]


@pytest.mark.parametrize("name", ["additive", "attention", "millet", "timemil"])
def test_end_to_end_methods_follow_the_paper(name: str) -> None:
    own = methods.settings(name, budget="paper", burn_in=10)
    s2 = own.stage2
    assert own.stage1 is None
    assert (s2.epochs, s2.batch_subjects, s2.lr, s2.encoder_lr, s2.weight_decay) == (100, 8, 5e-4, None, 1e-4)
    assert (s2.optimiser, s2.schedule, s2.freeze_epochs, s2.retention, s2.burn_in) == ("adam", "constant", 0, 0, 10)
    assert s2.aggregator == {"millet": "conjunctive"}.get(name, name)


UNTAUGHT = ("wo_stage1", "random_encoder")  # beyond the paper: no Stage 1 teaches the encoder anything


@pytest.mark.parametrize(
    "name", ["supcon", "masked", "bridgemil", *(name for name in methods.ABLATIONS if name not in UNTAUGHT)]
)
def test_two_stage_methods_follow_the_paper(name: str) -> None:
    own = methods.settings(name, budget="paper", burn_in=15)
    s1, s2 = own.stage1, own.stage2
    assert (s1.epochs, s1.batch_windows, s1.lr, s1.weight_decay, s1.warmup_epochs) == (50, 512, 1e-3, 1e-4, 5)
    if s1.objective == "alignment":
        assert (s1.subbag_pairs, s1.subbag_size, s1.radius, s1.invariance) == (512, 8, 2, 25)
    assert (s2.epochs, s2.batch_subjects, s2.lr, s2.encoder_lr, s2.weight_decay) == (100, 8, 5e-4, 1e-4, 1e-4)
    assert (s2.optimiser, s2.schedule, s2.warmup_epochs, s2.freeze_epochs) == ("adamw", "cosine", 5, 5)
    assert s2.retention == (0 if name == "wo_retention" else 1e-5)
    assert (s2.retention_windows, s2.aggregator, s2.burn_in) == (512, "attention", 15)


def test_ablations_change_what_they_say() -> None:
    own = {name: methods.settings(name, budget="paper") for name in methods.ABLATIONS}
    assert (own["wo_variance_covariance"].stage1.variance, own["wo_variance_covariance"].stage1.covariance) == (0, 0)
    assert not own["wo_nearby"].stage1.nearby
    assert not own["wo_subbag"].stage1.subbag
    assert own["supervised"].stage1.objective == "supervised"
    assert own["wo_retention"].stage1 == methods.settings("bridgemil", budget="paper").stage1


@pytest.mark.parametrize("recipe", methods.recipes())
def test_without_a_stage1_the_rest_is_trained_as_bridgemils_stage2(recipe: str) -> None:
    made = {name: methods.settings(name, budget="paper", recipe=recipe) for name in ("bridgemil", *UNTAUGHT)}
    assert made["wo_stage1"].stage1 is None
    assert (made["random_encoder"].stage1.objective, made["random_encoder"].stage1.weight_decay) == ("untrained", 0)
    assert made["random_encoder"].stage2.frozen
    assert not made["wo_stage1"].stage2.frozen
    whole = made["bridgemil"].stage2
    for name in UNTAUGHT:
        stage2 = made[name].stage2
        assert stage2.retention == 0, "there is nothing worth retaining"
        apart = {key for key, value in stage2.model_dump().items() if value != getattr(whole, key)}
        assert apart <= {"retention", "freeze_epochs", "frozen"}, name


def test_majority_vote_follows_the_paper() -> None:
    s2 = methods.settings("majority_vote", budget="paper").stage2
    assert (s2.kind, s2.epochs, s2.batch_windows, s2.lr, s2.weight_decay) == ("windows", 100, 512, 5e-4, 1e-4)


def test_the_laptop_budget_is_what_was_fixed() -> None:
    own = methods.settings("bridgemil", budget="laptop", burn_in=10)
    assert (own.stage1.epochs, own.stage1.subbag_pairs, own.stage1.warmup_epochs) == (20, 64, 2)
    assert (own.stage2.epochs, own.stage2.warmup_epochs, own.stage2.freeze_epochs, own.stage2.burn_in) == (60, 5, 5, 10)
    assert methods.settings("majority_vote", budget="laptop").stage2.epochs == 30
    assert methods.settings("attention", budget="laptop").stage2.epochs == 60


def test_reduced_budgets_shorten_the_burn_in_and_the_paper_refuses_one_that_leaves_nothing() -> None:
    assert methods.settings("majority_vote", budget="demo", burn_in=15).stage2.burn_in == 5
    assert methods.settings("majority_vote", budget="laptop", burn_in=15).stage2.burn_in == 10
    assert methods.settings("bridgemil", budget="demo", burn_in=10).stage2.burn_in == 10
    with pytest.raises(BadUse, match=r"burn_in 15 leaves no epoch of 10"):
        methods.settings("attention", budget="paper", burn_in=15, changes={"stage2.epochs": 10})


def test_the_user_has_the_last_word() -> None:
    own = methods.settings("bridgemil", changes={"stage1.epochs": 3, "stage2.burn_in": 0, "stage2": {"retention": 0}})
    assert (own.stage1.epochs, own.stage1.warmup_epochs, own.stage2.burn_in, own.stage2.retention) == (3, 0, 0, 0)
    options = methods.settings("attention", "conformer", changes={"backbone_options.attention_scale": "head"})
    assert options.backbone_options == {"attention_scale": "head"}


@pytest.mark.parametrize(
    ("arguments", "changes", "words"),
    [
        (("nonsense",), {}, "method must be one of majority_vote"),
        (("attention", "eegnet", "huge"), {}, "budget must be one of paper"),
        (
            ("attention",),
            {"stage1.epochs": 3},
            r"attention has no setting stage1\.epochs; the settings are",
        ),
        (("attention",), {"stage2.epochs": "many"}, r"stage2\.epochs must be a whole number"),
        (("attention",), {"stage2": 3}, r"has no setting stage2; the settings are stage2\.epochs"),
        (("bridgemil",), {"stage1.nearby": False, "stage1.subbag": False}, "nothing is left to align"),
        (("attention",), {"nonsense": 3}, "nonsense"),
        (("attention",), {"budget": "paper"}, "use --budget"),
        (("attention",), {"burn_in": 2}, r"set stage2\.burn_in"),
        (("attention",), {"stage2.kind": "windows"}, "choose another method"),
        (("bridgemil",), {"stage1.objective": "supcon"}, "choose another method"),
        (("supcon",), {"stage1.radius": 7}, r"supcon has no setting stage1\.radius"),
        (("bridgemil",), {"stage2.aggregator": "atention"}, r"stage2\.aggregator: must be one of attention"),
        (("bandpower",), {"stage2.epochs": 3}, r"bandpower has no setting stage2\.epochs"),
        (("bandpower",), {"baseline.clasifier": "x"}, r"baseline\.clasifier; did you mean baseline\.classifier"),
        (("attention",), {"baseline.classifier": "logistic"}, "attention has no setting baseline"),
        (("atention",), {}, r"did you mean attention\?"),
        (("tangent+tangent",), {}, "named twice"),
        (
            ("tangent+bridgemil",),
            {"stage3.x": 1},
            r"tangent\+bridgemil has no setting stage3\.x; the settings are",
        ),
        (("attention",), {"stage2.epochs": True}, r"stage2\.epochs must be a whole number"),
        (("attention",), {"stage2.epoch": 3}, r"stage2\.epoch; did you mean stage2\.epochs\?"),
        (("bridgemil",), {"stage1.epoch": 3}, r"stage1\.epoch; did you mean stage1\.epochs\?"),
    ],
)
def test_wrong_settings_are_refused_with_their_name(arguments: tuple, changes: dict, words: str) -> None:
    with pytest.raises(BadUse, match=words):
        methods.settings(*arguments, changes=changes)


def test_a_setting_at_its_default_does_not_change_the_hash() -> None:
    plain = methods.settings("bridgemil", budget="paper")
    assert methods.settings("bridgemil", budget="paper", changes={"stage1.radius": 2}).hash == plain.hash
    assert methods.settings("bridgemil", budget="paper", changes={"stage1.radius": 3}).hash != plain.hash
    assert "radius" not in plain.changed["stage1"]


def test_what_the_user_changed_is_told_apart_from_the_budget() -> None:
    own = methods.settings("bridgemil", budget="paper", burn_in=0, changes={"stage2.epochs": 7, "stage1.radius": 3})
    assert methods.changed_from_budget(own) == {"stage1.radius": 3, "stage2.epochs": 7}
    assert methods.changed_from_budget(methods.settings("attention", burn_in=10)) == {}
    laptop = methods.settings("attention", burn_in=10, changes={"stage2.burn_in": 3})
    assert methods.changed_from_budget(laptop, burn_in=10) == {"stage2.burn_in": 3}
    assert methods.changed_from_budget(methods.settings("attention", burn_in=10), burn_in=10) == {}
    assert methods.changed_from_budget(methods.settings("majority_vote", budget="demo", burn_in=15), burn_in=15) == {}


def test_a_baseline_has_neither_backbone_nor_budget() -> None:
    chosen = methods.settings("bandpower", "mtdnet", "demo")
    assert (chosen.backbone, chosen.budget, chosen.stage2) == (None, None, None)
    assert chosen.hash == methods.settings("bandpower", "eegnet", "paper").hash
    trees = methods.settings("bandpower", changes={"baseline.classifier": "extra_trees"})
    assert trees.hash != chosen.hash
    assert methods.changed_from_budget(trees) == {"baseline.classifier": "extra_trees"}


def test_an_ensemble_is_its_members_and_each_takes_the_settings_it_has() -> None:
    chosen = methods.settings(
        "tangent+attention+bridgemil", budget="demo", changes={"stage1.epochs": 3, "stage2.lr": 1}
    )
    assert [member.method for member in chosen.each] == ["tangent", "attention", "bridgemil"]
    tangent, attention, bridgemil = chosen.each
    assert tangent == methods.settings("tangent")
    assert (attention.stage2.lr, bridgemil.stage2.lr, bridgemil.stage1.epochs) == (1, 1, 3)
    assert (chosen.backbone, chosen.budget) == ("eegnet", "demo")


def test_the_papers_recipe_is_the_paper_and_ours_changes_only_how_it_is_trained() -> None:
    assert list(methods.recipes()) == ["paper", "ours"]
    for name in [*methods.METHODS, *methods.ABLATIONS]:
        paper, ours = (methods.settings(name, budget="paper", recipe=recipe) for recipe in ("paper", "ours"))
        assert paper == methods.settings(name, budget="paper")
        assert getattr(paper.stage2, "aggregator", None) == getattr(ours.stage2, "aggregator", None)
        assert (paper.stage1 is None) == (ours.stage1 is None)
    assert methods.settings("wo_retention", recipe="ours").stage2.retention == 0
    assert methods.settings("bridgemil", recipe="ours").stage2.retention > 0


@pytest.mark.parametrize(
    ("method", "recipe", "selects"),
    [
        ("bridgemil", "paper", True),
        ("majority_vote", "paper", True),
        ("bridgemil", "ours", False),
        ("tangent", "paper", False),
        ("attention+tangent", "paper", True),
        ("attention+tangent", "ours", False),
    ],
)
def test_only_what_looks_at_validation_subjects_selects(method: str, recipe: str, selects: bool) -> None:
    assert methods.settings(method, recipe=recipe).selects is selects


def test_taking_the_last_epoch_selects_nothing() -> None:
    assert not methods.settings("bridgemil", recipe="paper", changes={"stage2.selection": "last"}).selects
