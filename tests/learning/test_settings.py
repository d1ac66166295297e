"""What can be set, what is refused, and how a floor and a ceiling of steps change a run."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from bridgemil import aggregators, methods
from bridgemil.cohort.cohort import Cohort
from bridgemil.learning.objectives import STAGE1, AnyStage1Settings
from bridgemil.learning.settings import STAGE2, BagSettings, WindowSettings, limited_steps, with_min_steps
from people import people


@pytest.mark.parametrize("objective", STAGE1)
def test_an_objective_has_its_own_settings_and_names_itself(objective: str) -> None:
    settings = TypeAdapter(AnyStage1Settings).validate_python({"objective": objective, "epochs": 3})
    assert type(settings) is STAGE1[objective]
    assert next(iter(settings.model_dump())) == "objective"
    assert settings.model_dump(exclude_defaults=True) == {"epochs": 3}
    assert settings.objective == objective
    if objective != "alignment":
        with pytest.raises(ValidationError, match=r"radius\s+Extra inputs are not permitted"):
            STAGE1[objective](objective=objective, radius=3)


def test_the_defaults_leave_the_paper_as_it_is() -> None:
    for settings in (BagSettings(), WindowSettings()):
        assert (settings.min_steps, settings.selection, settings.averaging, settings.label_smoothing) == (
            0, "accuracy", 0, 0,
        )  # fmt: skip
    assert (BagSettings().positions, BagSettings().dropout, STAGE1["alignment"]().min_steps) == (True, 0.1, 0)
    assert list(STAGE2) == ["windows", "bags"]


def test_an_unknown_aggregator_is_refused_with_the_choices() -> None:
    with pytest.raises(ValidationError, match=r"must be one of attention, additive.*; got 'max'"):
        BagSettings(aggregator="max")


@pytest.mark.parametrize("name", aggregators.names())
def test_positions_are_left_out_only_where_they_can_be(name: str) -> None:
    assert BagSettings(aggregator=name, positions=True).positions
    if name in aggregators.with_positions():
        assert not BagSettings(aggregator=name, positions=False).positions
    else:
        with pytest.raises(ValidationError, match=f"positions cannot be left out of {name}, only of attention"):
            BagSettings(aggregator=name, positions=False)


@pytest.mark.parametrize(
    "wrong", [{"averaging": 1.0}, {"averaging": -0.1}, {"label_smoothing": 1}, {"selection": "test"}, {"min_steps": -1}]
)
def test_impossible_values_are_refused(wrong: dict[str, object]) -> None:
    for kind in (WindowSettings, BagSettings):
        with pytest.raises(ValidationError, match=next(iter(wrong))):
            kind(**wrong)


def test_a_floor_of_steps_stretches_every_part_of_the_run_alike() -> None:
    settings = BagSettings(epochs=20, warmup_epochs=2, freeze_epochs=5, burn_in=6, min_steps=1000)
    assert with_min_steps(settings, 50) is settings, "a thousand steps are there already"
    longer = with_min_steps(settings, 9)
    assert longer.epochs == 112  # ceil(1000 / 9)
    assert (longer.warmup_epochs, longer.freeze_epochs, longer.burn_in) == (11, 28, 34)
    assert longer.model_copy(update=settings.model_dump()) == settings, "only these four may change"
    vote = with_min_steps(WindowSettings(epochs=3, burn_in=2, min_steps=100), 1)
    assert (vote.epochs, vote.burn_in) == (100, 67)
    stage1 = with_min_steps(STAGE1["alignment"](epochs=10, warmup_epochs=1, min_steps=50), 2)
    assert (stage1.epochs, stage1.warmup_epochs) == (25, 3)


def test_a_ceiling_of_steps_shortens_every_epoch_alike() -> None:
    settings = BagSettings(epochs=60, max_steps=1200)
    assert [limited_steps(settings, steps) for steps in (1, 20, 21, 1000)] == [1, 20, 20, 20]
    assert limited_steps(BagSettings(epochs=60, max_steps=5), 10) == 1, "an epoch has a step"
    assert limited_steps(BagSettings(epochs=60), 10) == 10


def large(n: int, windows: int) -> Cohort:
    """A cohort that says it has so many subjects and windows."""
    small = people(2)
    first = next(iter(small.records.values()))
    records = [replace(first, subject=str(i), label="ab"[i % 2], recording_windows=(windows,)) for i in range(n)]
    return Cohort(records, small.metadata, {}, arrays={})


def test_the_budgets_ceiling_enters_the_settings_of_large_cohorts_only() -> None:
    def steps(cohort: Cohort, changes: dict[str, Any] | None = None, **how: Any) -> list[int | None]:
        made = methods.for_cohort(cohort, "bridgemil", "eegnet", changes=changes, **how)
        assert not any("max_steps" in key for key in methods.changed_from_budget(made)), "it is the budget's"
        return [made.stage1.max_steps, made.stage2.max_steps]

    assert steps(large(88, 800)) == [None, None], "the whole of ADFTD"
    assert steps(large(600, 60)) == [None, 1200]
    assert steps(large(2000, 600)) == [1000, 1200]
    assert steps(large(88, 300), further=1_000_000) == [1000, None]
    assert steps(large(2000, 600), {"stage2.epochs": 60}) == [1000, None], "who sets the epochs means them"
    for budget in methods.budgets():
        assert steps(large(88, 300), budget=budget) == [None, None]
        assert steps(large(5000, 900), budget=budget, recipe="paper") == [None, None]
    plain = methods.settings("bridgemil", "eegnet", "laptop", burn_in=1, recipe="ours")
    assert methods.for_cohort(large(88, 300), "bridgemil", "eegnet").hash == plain.hash


@pytest.mark.parametrize("epochs", [1, 2, 3, 7, 100])
def test_a_stretched_burn_in_always_leaves_an_epoch(epochs: int) -> None:
    for steps in range(1, 40):
        longer = with_min_steps(WindowSettings(epochs=epochs, burn_in=epochs - 1, min_steps=777), steps)
        assert longer.burn_in < longer.epochs
        assert longer.epochs * steps >= 777


def test_settings_are_read_without_torch() -> None:
    code = "import sys, bridgemil.learning.objectives as o; o.STAGE1['masked'](); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_windows_and_objectives_do_not_import_each_other_in_a_circle() -> None:
    code = (
        "import sys, bridgemil.learning.data\n"
        "assert not [name for name in sys.modules if name.startswith('bridgemil.learning.objectives')]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
