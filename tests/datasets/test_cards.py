"""Cards of public data sets: complete, true of the presets, and equal to the documentation page."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path

import pytest
from pydantic import ValidationError

from bridgemil import datasets
from bridgemil.cohort.sources import PRESETS
from bridgemil.datasets.fetch import SITES
from bridgemil.errors import BadUse
from command import bridgemil

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_is_generated_from_the_cards() -> None:
    page = runpy.run_path(str(DOCS / "tables.py"))["datasets_page"]()
    assert (DOCS / "datasets.md").read_text() == page, "run: python docs/tables.py"


@pytest.mark.parametrize("name", datasets.names())
def test_every_card_says_how_to_get_the_data_and_what_to_cite(name: str) -> None:
    card = datasets.card(name)
    assert (card.host is None) != (card.access is None), "either it can be fetched, or the card says how to get it"
    assert card.host is None or card.host.site in SITES
    assert re.search(r"\d{4}", card.citation)
    assert card.url.startswith("https://")
    assert card.prepare or card.note, "how to prepare it, or why it cannot be"
    assert card.defects
    assert card.subjects == (sum(card.classes.values()) if card.classes else card.subjects)


def test_the_data_sets_of_the_paper_are_prepared_by_their_presets() -> None:
    for preset in PRESETS:
        assert any(command.endswith(f"--preset {preset}") for command in datasets.card(preset).prepare), preset


def test_known_defects_are_stated() -> None:
    text = {name: " ".join(datasets.card(name).defects) for name in datasets.names()}
    for part in ("MDD S33 and MDD S34", "H S27 and H S30", "20 signals", "22 signals", "H S15 EO exists twice"):
        assert part in text["mumtaz2017"]
    assert "Five ids are one recording" in text["florida"]
    assert "reference separates the classes" in text["florida"]
    assert "ids 2 and 21 are one recording cleaned twice, 1 s apart" in text["racz2025"]
    assert "AUROC of .66" in text["nasrabadi2020"]


def test_an_unknown_name_lists_what_there_is() -> None:
    with pytest.raises(BadUse, match=r"must be one of adftd, .*; did you mean mumtaz2017\?"):
        datasets.card("mumtaz")
    with pytest.raises(ValidationError, match="colour"):
        datasets.DatasetCard(name="x", title="x", condition="x", url="x", citation="x", colour="red")


def test_the_command_lists_all_and_shows_one() -> None:
    everything = json.loads(bridgemil("datasets", "--json").stdout)
    assert [card["name"] for card in everything] == datasets.names()
    assert "rockhill2021" in bridgemil("datasets").stdout
    one = bridgemil("datasets", "vanhees2018")
    assert "Subjects    unknown" in one.stdout
    assert "Next: bridgemil download vanhees2018 vanhees2018" in one.stdout
    assert json.loads(bridgemil("datasets", "adftd", "--json").stdout)["classes"] == {"AD": 36, "FTD": 23, "HC": 29}
    assert bridgemil("datasets", "nothing").returncode == 2
