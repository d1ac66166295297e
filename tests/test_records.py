"""Tables of docs/results.md are those of the committed records."""

from __future__ import annotations

import runpy
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"


def test_the_page_has_the_records_numbers() -> None:
    page = (DOCS / "results.md").read_text()
    assert "<!-- record default_rule -->" in page
    assert runpy.run_path(str(DOCS / "tables.py"))["filled"](page) == page, "run python docs/tables.py"
