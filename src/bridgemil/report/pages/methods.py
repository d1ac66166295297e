"""The methods section of a report, from ``templates/methods.txt.j2``, and its sentences that the checklist uses."""

from __future__ import annotations

from collections.abc import Sequence

from bridgemil import methods
from bridgemil.backbones import BACKBONES
from bridgemil.baselines import BASELINES
from bridgemil.cohort.folds import FoldPlan
from bridgemil.evaluation.clinical import TITLES, TwoClassMetrics
from bridgemil.learning.objectives import OBJECTIVES
from bridgemil.methods import Settings, changed_from_budget, short_name
from bridgemil.report import templating
from bridgemil.report.benchmark import Cell
from bridgemil.runs import RunStore

TEMPLATE = "methods.txt.j2"


def methods_text(cells: Sequence[Cell], store: RunStore) -> list[str]:
    """Paragraphs on data, cross-validation, models, statistics and results of experiments on one cohort and split."""
    results = {cell.label: cell.results for cell in cells}
    facts = store.model_facts(cells[0].results.runs[0])
    members = [member for one in results.values() for member in one.settings.each]
    encoders = list(dict.fromkeys(_encoder(member) for member in members if member.is_network))
    shared = encoders[0] if len(encoders) == 1 else ""
    models = [
        f"{model_text(name, one.settings, encoder=not shared)} {one.bands_sentence} {one.adjustment}"
        for name, one in results.items()
    ]
    text = templating.text(
        TEMPLATE,
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


def assignment_text(split: FoldPlan) -> str:
    """How subjects were assigned to folds: one sentence."""
    return templating.macro(TEMPLATE, "assignment")(split)


def model_text(label: str, settings: Settings, encoder: bool = True) -> str:
    """What a method is and how it was trained; with ``encoder``, also the encoder of a network."""
    known = {**methods.METHODS, **methods.ABLATIONS, **BASELINES}
    description = known[settings.method].description if settings.method in known else ""
    objective = OBJECTIVES[settings.stage1.objective].description if settings.stage1 else ""
    model, shown = templating.macro(TEMPLATE, "model"), _encoder(settings) if encoder else ""
    return model(label, settings, description, shown, objective, changed_from_budget(settings))


def _encoder(settings: Settings) -> str:
    name = short_name(settings.backbone or "")
    description = f"{BACKBONES[name].description}; " if name in BACKBONES.built_in else ""
    return f"{name} ({description}recipe {settings.recipe}, budget {settings.budget})"
