"""The demo's report: one HTML file with its pictures inside."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bridgemil.report.results_table import against_floor, recipe

if TYPE_CHECKING:
    from bridgemil.cohort.store import Cohort
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
<p>One minute of eyes-closed EEG of {{ first.n_subjects }} real people ({{ counts }}), {{ windows }} windows of one
second. Every person was held out once ({{ first.folds }} folds); normalisation, training and selection never saw them.
Source: ADFTD, OpenNeuro ds004504 (CC0), Miltiadous et al. 2023. It is one minute of each person: no result here is a
result on the data set.</p>
<h2>Results</h2>
<table><tr><th>method<th>accuracy<th>95 %<th>balanced<th>macro F1<th>AUROC<th>MCC</tr>
{% for row in rows %}<tr><td>{{ row.method }}<td>{{ '%.1f' % (100 * row.accuracy) }}
<td>{{ '%.1f to %.1f' % (100 * row.ci95_low, 100 * row.ci95_high) }}<td>{{ '%.3f' % row.balanced_accuracy }}
<td>{{ '%.3f' % row.macro_f1 }}<td>{{ '%.3f' % row.auroc }}<td>{{ '%.3f' % row.mcc }}</tr>
{% endfor %}</table>
<p class="quiet">Intervals: bootstrap over subjects. Guessing the largest class: {{ '%.1f' % (100 * first.chance) }} %
(a guesser on so many subjects: {{ '%.1f to %.1f' % (100 * first.chance95_low, 100 * first.chance95_high) }}).</p>
<ul>{% for sentence in sentences %}<li>{{ sentence }}</li>{% endfor %}</ul>
{% if found %}<h2>Do gates point at the evidence?</h2>
<p>Of real people nobody knows which seconds matter. So simulated people follow: patients have isolated sharp waves at
known places. AUROC of the gates against that truth, within each held-out
patient (0.5 is chance; below it, the gates prefer windows without evidence):</p>
<ul>{% for name, one in found.items() %}<li>{{ name }}: {{ '%.3f' % one.mean }}
(95 % {{ '%.3f to %.3f' % (one.low, one.high) }}, {{ one.subjects | length }} patients)</li>{% endfor %}</ul>{% endif %}
{% for picture in pictures %}<p><img alt="{{ picture.name }}" src="{{ picture.data }}"></p>
{% endfor %}<p class="quiet">{% for line in recipes %}{{ line }}<br>{% endfor %}</p>
</html>
"""


def write_page(
    path: Path,
    cohort: Cohort,
    results: Sequence[Results],
    found: Mapping[str, EvidenceFound],
    pictures: Sequence[Path],
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
    """
    from jinja2 import Environment

    embedded = [
        {"name": picture.stem, "data": "data:image/png;base64," + base64.b64encode(picture.read_bytes()).decode()}
        for picture in pictures
    ]
    floors = [result for result in results if not result.settings.is_network]
    networks = [result for result in results if result.settings.is_network]
    rows = [result.summary.iloc[0].to_dict() for result in results]
    text = (
        Environment(autoescape=True)
        .from_string(_PAGE)
        .render(
            rows=rows,
            first=rows[0],
            counts=", ".join(f"{cohort.labels.count(name)} {name}" for name in cohort.classes),
            windows=f"{cohort.n_windows:,}",
            found=found,
            pictures=embedded,
            sentences=[against_floor(result, floor) for result in networks for floor in floors],
            recipes=[recipe(result) for result in results],
        )
    )
    path.write_text(text, encoding="utf-8")
