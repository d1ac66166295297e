"""The pages of results, of a folder of runs and of the demo, and the methods section of a report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bridgemil.backbones import BACKBONES
from bridgemil.evaluation.calibration import calibration_summary
from bridgemil.evaluation.clinical import TITLES, TwoClassMetrics
from bridgemil.evaluation.metrics import correctness
from bridgemil.evaluation.statistics import COMPARED, SCORE_INTERVALS, corrected
from bridgemil.learning.objectives import OBJECTIVES
from bridgemil.methods import Settings, changed_from_budget, colour, entry, short_name
from bridgemil.report import templating
from bridgemil.report.benchmark import BenchmarkReport, Cell
from bridgemil.report.pages import charts
from bridgemil.report.tables import caveats, clinical, sites
from bridgemil.report.terminal import recipe
from bridgemil.runs import RunStore, merged

if TYPE_CHECKING:
    from bridgemil.cohort.cohort import Cohort
    from bridgemil.evaluation.results import Results

NOTES: dict[str, Any] = {"score_intervals": SCORE_INTERVALS, "compared": COMPARED}
METHODS = "methods.txt.j2"


def report_page(report: BenchmarkReport) -> str:
    """The page of a folder of runs, as text."""
    groups = [
        {
            "id": f"group-{number}",
            "title": f"{place.cohort}, {place.split}, {place.title}",
            "cells": cells,
            "rows": _rows((cell.label, cell.results) for cell in cells),
            "caveats": caveats(cells),
            "comparisons": report.comparisons.get(place, []),
            "adjusted": [f"{cell.label}: {cell.results.adjustment}" for cell in cells if cell.results.adjustment],
            "site_sheets": sites([(cell.label, cell.results) for cell in cells]),
            "clinical_sheets": clinical([(cell.label, cell.results) for cell in cells]),
            "clinical_charts": charts.clinical_charts(
                {cell.label: found for cell in cells if isinstance(found := cell.results.clinical, TwoClassMetrics)}
            ),
            "calibrations": [_calibration(cell) for cell in cells],
            "outcomes": _outcomes(cells),
            "curves": _curves(cells),
            "methods": methods_text(cells, report.store),
        }
        for number, (place, cells) in enumerate(report.groups().items(), 1)
    ]
    return templating.page(
        "report.html.j2", heading=f"Results of {report.store.root.name}", audit_warnings=report.warnings, groups=groups,
        remarks=report.remarks, **NOTES,
    )  # fmt: skip


def demo_page(
    cohort: Cohort,
    results: Sequence[Results],
    found: Mapping[str, Mapping[str, Any]] | None = None,
    example: charts.Chart | None = None,
    held_out: Sequence[Mapping[str, Any]] = (),
) -> str:
    """The page of the demo, as text: the results of each method on a cohort of real recordings.

    ``found`` is how well attention weights rank the true evidence of simulated patients, by method, ``example`` the
    weights of one of them; ``held_out`` are subjects kept out of training: ``subject, label, predicted, probabilities,
    warnings, page``.
    """
    baselines = [result for result in results if not result.settings.is_network]
    pairs = [result.compare(other) for result in results if result.settings.is_network for other in baselines]
    return templating.page(
        "demo.html.j2",
        heading="bridgemil demo",
        audit_warnings=merged(*(result.warnings for result in results)),
        rows=_rows((result.name, result) for result in results),
        comparisons=corrected(pairs),
        cohort=cohort,
        charts=[charts.spectrum_chart(cohort), *([example] if example else [])],
        found=found or {},
        held_out=held_out,
        recipes=[recipe(result) for result in results],
        **NOTES,
    )


def _rows(named: Iterable[tuple[str, Results]]) -> list[dict[str, Any]]:
    return [dict(results.summary.iloc[0]) | {"label": label} for label, results in named]


def _calibration(cell: Cell) -> dict[str, Any]:
    held_out = cell.results.predictions, cell.results.classes
    chart = charts.calibration_chart(*held_out, colour(cell.label))
    return {"label": cell.label, "chart": chart, "error": calibration_summary(*held_out)}


def _outcomes(cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """For each subject the share of seeds in which each method was correct; the least often correct come first."""
    import pandas as pd

    tables = [cell.results.predictions for cell in cells]
    shares = pd.concat([correctness(table) for table in tables], axis=1)
    labels = tables[0].drop_duplicates("subject").set_index("subject")["label"]
    lists = pd.Series(shares.to_numpy().tolist(), shares.index)
    rows = pd.DataFrame({"label": labels, "shares": lists, "mean": shares.mean(axis=1)}).rename_axis("subject")
    found: list[Any] = rows.reset_index().sort_values(["mean", "subject"]).to_dict("records")
    return found


def _curves(cells: Sequence[Cell]) -> list[charts.Chart]:
    """A chart for each phase of training; a method that is also a member of an ensemble is shown once."""
    phases = {"bags": "training on bags", "windows": "training on windows"}
    shown = {c.results.settings.hash: (c.label, c.label, c.results) for c in cells if not c.results.members}
    for cell in cells:
        for name, one in cell.results.members.items():
            shown.setdefault(one.settings.hash, (f"{cell.label}, {name}", name, one))
    return [
        charts.training_chart(f"{title}, {phases.get(str(phase), phase)}", rows, colour(name))
        for title, name, results in shown.values()
        if len(results.curves)
        for phase, rows in results.curves.groupby("phase", sort=False)
    ]


def methods_text(cells: Sequence[Cell], store: RunStore) -> list[str]:
    """Paragraphs on data, cross-validation, models, statistics and results of experiments on one cohort and split."""
    results = {cell.label: cell.results for cell in cells}
    facts = store.record("runs", cells[0].results.runs[0], "model.json")
    members = [member for one in results.values() for member in one.settings.each]
    encoders = list(dict.fromkeys(_encoder(member) for member in members if member.is_network))
    shared = encoders[0] if len(encoders) == 1 else ""
    models = [
        f"{model_text(name, one.settings, encoder=not shared)} {one.bands_sentence} {one.adjustment}"
        for name, one in results.items()
    ]
    text = templating.text(
        METHODS,
        cells=cells,
        facts=facts,
        members=members,
        encoder=shared,
        models=models,
        clinical_method=cells[0].results.clinical.method,
        titles=TITLES,
        two_class={n: one.clinical.measures for n, one in results.items() if isinstance(one.clinical, TwoClassMetrics)},
        versions=[f"{name} {version}" for name, version in facts["versions"].items()],
    )
    return [" ".join(paragraph.split()) for paragraph in text.split("\n\n")]


def model_text(label: str, settings: Settings, encoder: bool = True) -> str:
    """What a method is and how it was trained; with ``encoder``, also the encoder of a network."""
    description = entry(settings.method).description
    objective = OBJECTIVES[settings.stage1.objective].description if settings.stage1 else ""
    model, shown = templating.macro(METHODS, "model"), _encoder(settings) if encoder else ""
    description = "" if description == settings.method else description  # where it is not in this installation
    return model(label, settings, description, shown, objective, changed_from_budget(settings))


def _encoder(settings: Settings) -> str:
    name = short_name(settings.backbone or "")
    description = f"{BACKBONES[name].description}; " if name in BACKBONES.built_in else ""
    return f"{name} ({description}recipe {settings.recipe}, budget {settings.budget})"
