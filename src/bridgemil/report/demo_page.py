"""The demo's report: one HTML file with its pictures inside."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bridgemil.evaluation.statistics import COMPARED, SCORE_INTERVALS, corrected
from bridgemil.report.terminal import recipe
from bridgemil.runs import merged

if TYPE_CHECKING:
    from bridgemil.cohort.cohort import Cohort
    from bridgemil.evaluation.metrics import EvidenceFound
    from bridgemil.evaluation.results import Results


def write_page(
    path: Path,
    cohort: Cohort,
    results: Sequence[Results],
    found: Mapping[str, EvidenceFound],
    pictures: Sequence[Path],
    people: Sequence[Mapping[str, Any]] = (),
) -> None:
    """Write the page.

    Parameters
    ----------
    path
        The HTML file.
    cohort
        The real people.
    results
        Of each method, baselines first.
    found
        What gates found where the truth is known; may be empty.
    pictures
        PNG files to put into it.
    people
        Who was predicted though the model never saw them: ``subject``, ``label``, ``predicted``, ``probabilities``,
        ``warnings`` and ``page``.
    """
    from bridgemil.report import templating

    embedded = [
        {"name": picture.stem, "data": "data:image/png;base64," + base64.b64encode(picture.read_bytes()).decode()}
        for picture in pictures
    ]
    baselines = [result for result in results if not result.settings.is_network]
    networks = [result for result in results if result.settings.is_network]
    rows = [result.summary.iloc[0].to_dict() | {"label": result.name} for result in results]
    evidence = [("evidence", "Evidence")] if found else []
    new = [("people", "New people")] if people else []
    text = templating.page(
        "demo.html.j2",
        heading="bridgemil demo",
        sections=[("results", "Results"), *new, *evidence, ("pictures", "Pictures"), ("settings", "What was run")],
        audit_warnings=merged(*(result.warnings for result in results)),
        rows=rows,
        first=rows[0],
        counts=", ".join(f"{cohort.labels.count(name)} {name}" for name in cohort.classes),
        windows=f"{cohort.n_windows:,}",
        found=found,
        people=people,
        pictures=embedded,
        sentences=[
            comparison.corrected_sentence
            for result in networks
            for comparison in corrected([result.compare(baseline) for baseline in baselines])
        ],
        notes=[SCORE_INTERVALS, COMPARED],
        recipes=[recipe(result) for result in results],
    )
    templating.write(path, text)
