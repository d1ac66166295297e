"""The demo's report: one HTML file with its pictures inside."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bridgemil.report.results_table import against_floor, recipe

if TYPE_CHECKING:
    from bridgemil.evaluation.evidence import EvidenceFound
    from bridgemil.evaluation.results import Results

_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>bridgemil demo</title>
<style>
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
table { border-collapse: collapse } th, td { padding: .3rem .8rem; text-align: right; border-bottom: 1px solid #ddd }
th:first-child, td:first-child { text-align: left } img { max-width: 100% } .quiet { color: #666 }
</style>
<h1>bridgemil demo</h1>
<p>A synthetic cohort of {{ first.n_subjects }} people: each has a strong fingerprint of their own, and what tells
patients from controls comes and goes. Every person was held out once ({{ first.folds }} folds); normalisation,
training and selection never saw them. Budget: {{ budget }}.</p>
<h2>Results</h2>
<table><tr><th>method<th>accuracy<th>95 %<th>balanced<th>macro F1<th>AUROC<th>MCC</tr>
{% for row in rows %}<tr><td>{{ row.method }}<td>{{ '%.1f' % (100 * row.accuracy) }}
<td>{{ '%.1f to %.1f' % (100 * row.ci95_low, 100 * row.ci95_high) }}<td>{{ '%.3f' % row.balanced_accuracy }}
<td>{{ '%.3f' % row.macro_f1 }}<td>{{ '%.3f' % row.auroc }}<td>{{ '%.3f' % row.mcc }}</tr>
{% endfor %}</table>
<p class="quiet">Intervals: bootstrap over subjects. Guessing the largest class: {{ '%.1f' % (100 * first.chance) }} %
(a guesser on so many subjects: {{ '%.1f to %.1f' % (100 * first.chance95_low, 100 * first.chance95_high) }}).</p>
<ul>{% for sentence in sentences %}<li>{{ sentence }}</li>{% endfor %}</ul>
<h2>Where is the evidence?</h2>
<p>The simulation knows which windows hold evidence. AUROC of the gates against that truth, within each held-out
patient (0.5 is chance; below it, the gates prefer windows without evidence):</p>
<ul>{% for name, one in found.items() %}<li>{{ name }}: {{ '%.3f' % one.mean }}
(95 % {{ '%.3f to %.3f' % (one.low, one.high) }}, {{ one.subjects | length }} patients)</li>{% endfor %}</ul>
{% for picture in pictures %}<p><img alt="{{ picture.name }}" src="{{ picture.data }}"></p>
{% endfor %}<p class="quiet">{% for line in recipes %}{{ line }}<br>{% endfor %}</p>
</html>
"""


def write_page(
    path: Path,
    results: Sequence[Results],
    floor: Results,
    found: Mapping[str, EvidenceFound],
    pictures: Sequence[Path],
) -> None:
    """Write the page; ``floor`` is among the results."""
    from jinja2 import Environment

    rows = [one.summary.iloc[0].to_dict() for one in results]
    embedded = [
        {"name": picture.stem, "data": "data:image/png;base64," + base64.b64encode(picture.read_bytes()).decode()}
        for picture in pictures
    ]
    text = (
        Environment(autoescape=True)
        .from_string(_PAGE)
        .render(
            rows=rows,
            budget=results[-1].settings.budget,
            first=rows[0],
            found=found,
            pictures=embedded,
            sentences=[against_floor(one, floor) for one in results if one is not floor],
            recipes=[recipe(one) for one in results],
        )
    )
    path.write_text(text, encoding="utf-8")
