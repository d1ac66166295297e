"""The pages that are generated: the tables of results.md, from docs/records, and datasets.md, from the cards.

python docs/tables.py            # writes them; tests assert that they are current
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jinja2

from bridgemil import datasets

HERE = Path(__file__).parent
PAGE = HERE / "results.md"
HEAD = ["cohort", "method", "balanced", "AUROC", "accuracy, pooled (95 %)", "minus tangent", "minus bandpower"]


def short(value: float) -> str:
    """A share with three decimals and no leading zero."""
    return f"{value:.3f}".removeprefix("0")


def difference(row: dict[str, Any], baseline: str) -> str:
    """Points of accuracy minus a baseline, with interval and p; empty for the baselines."""
    found = row.get(f"minus {baseline}")
    if found is None:
        return ""
    low, high = (f"{100 * end:+.1f}" for end in found["ci95"])
    return f"{100 * found['difference']:+.1f} ({low} to {high}), p = {short(found['p'])}"


def table(record: dict[str, Any]) -> str:
    """The conditions of a record as a Markdown table."""
    lines = [f"| {' | '.join(HEAD)} |", "|---" * len(HEAD) + "|"]
    for name, rows in record["conditions"].items():
        for row in rows:
            balanced = f"{short(row['balanced'])} ± {short(row['balanced_std'])}"
            low, high = (f"{100 * end:.1f}" for end in row["ci95"])
            cells = [f"{name} ({row['subjects']})", row["method"], balanced, short(row["auroc"])]
            cells.append(f"{100 * row['accuracy']:.1f} ({low} to {high})")
            lines.append(f"| {' | '.join([*cells, difference(row, 'tangent'), difference(row, 'bandpower')])} |")
    return "\n".join(lines)


def filled(page: str) -> str:
    """The page with every table between its marks written anew."""

    def block(match: re.Match[str]) -> str:
        record = json.loads((HERE / "records" / f"{match[1]}.json").read_text())
        about = f"`{record['command']}`, {record['splits']} splits, results version {record['results_version']}."
        return f"<!-- record {match[1]} -->\n{about}\n\n{table(record)}\n<!-- end -->"

    return re.sub(r"<!-- record (\w+) -->\n.*?<!-- end -->", block, page, flags=re.S)


def datasets_page() -> str:
    """The page of the public data sets."""
    source = (HERE / "_templates" / "datasets.md.j2").read_text(encoding="utf-8")
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)
    return environment.from_string(source).render(cards=[datasets.card(name) for name in datasets.names()])


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text()))
    (HERE / "datasets.md").write_text(datasets_page())
