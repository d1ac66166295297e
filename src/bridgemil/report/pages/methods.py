"""A methods section in plain English, with the numbers of the runs filled in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bridgemil.cohort.folds import FoldPlan
from bridgemil.evaluation.clinical import INTERVALS, TITLES, TwoClassMetrics
from bridgemil.learning.settings import BagSettings, Stage1Settings, Stage2Settings
from bridgemil.methods import ABLATIONS, METHODS, Settings, changed_from_budget, short_name
from bridgemil.report.benchmark import Cell
from bridgemil.runs import RunStore

STAGE1 = {
    "alignment": "aligning nearby windows and sub-bags of one person (VICReg loss, no labels)",
    "supcon": "supervised contrastive learning",
    "masked": "reconstructing masked samples",
    "supervised": "classifying windows by their person's label",
}


def methods_text(cells: Sequence[Cell], store: RunStore) -> list[str]:
    """Paragraphs on the data, the protocol, the models and the statistics of cells of one cohort and split.

    Parameters
    ----------
    cells
        Of one group of a report.
    store
        Where their runs are.
    """
    model = _model_facts(store, cells[0])
    models = [f"{model_words(c.label, c.results.settings)} {c.results.bands_sentence}".strip() for c in cells]
    parts = [_data(cells[0], model), _protocol(cells), *dict.fromkeys(models), _statistics(cells, model)]
    return [*parts, _diagnostic_accuracy(cells)]


def _model_facts(store: RunStore, cell: Cell) -> dict[str, Any]:
    return store.model_facts(cell.results.runs[0])


def _data(cell: Cell, model: Mapping[str, Any]) -> str:
    source, signal, preparation = cell.source, model["signal"], model["preparation"]
    labels = cell.results.labels
    groups = ", ".join(f"{labels.count(name)} {name}" for name in cell.results.classes)
    words = (
        f"Data. {source['n_subjects']} people ({groups}) gave {source['n_windows']:,} windows of "
        f"{signal['n_times'] / signal['sfreq']:g} s from {len(signal['channels'])} electrodes "
        f"({', '.join(signal['channels'])}) at {signal['sfreq']:g} Hz"
    )
    if signal["native_sfreq"]:
        words += f", recorded at {signal['native_sfreq']:g} Hz or more"
    if not preparation:
        return words + ". The windows were given as arrays; how they were filtered is not known here."
    notch = "".join(f", notch at {edge:g} Hz" for edge in preparation.get("notch") or ())
    high = preparation.get("high")
    reference = ", ".join(preparation.get("reference") or ()) or "left as recorded"
    overlap = f", overlapping by {preparation['overlap']:.0%}" if preparation.get("overlap") else ", without overlap"
    return (
        f"{words}; filtered to {preparation.get('low') or 0:g}-{f'{high:g}' if high else '(no upper edge)'} Hz{notch}, "
        f"reference {reference}{overlap}."
    )


def _protocol(cells: Sequence[Cell]) -> str:
    settings = [member for cell in cells for member in cell.results.settings.each]
    return (
        f"Protocol. {dealt_words(cells[0].split)} {roles_words(settings)} Normalisation and any pre-training saw "
        "training subjects only; test subjects were read once, at the end."
    )


def roles_words(settings: Sequence[Settings]) -> str:
    """Which folds trained, selected and tested, in one or two sentences.

    Parameters
    ----------
    settings
        Of every method; of ensembles, their members'.
    """
    selected = (
        "the next one was the validation fold, which selected the epoch and nothing else, and the rest was training."
    )
    if all(member.selects for member in settings):
        return f"Each fold was test once; {selected}"
    everyone = "Each fold was test once and all others were training"
    if not any(member.selects for member in settings):
        return f"{everyone}: nothing was selected, so that no validation fold was needed."
    titles = ", ".join(dict.fromkeys(member.title for member in settings if member.selects))
    return f"{everyone}, but for {titles}: there {selected}"


def dealt_words(split: FoldPlan) -> str:
    """How people came to their folds, a sentence.

    Parameters
    ----------
    split
        Which subject is in which fold.
    """
    seed = "" if split.split_seed is None else f" (split seed {split.split_seed})"
    dealt = {
        "array_split": "stratified by diagnosis",
        "sklearn": "stratified by diagnosis with scikit-learn",
        "groups": "by groups, stratified by diagnosis as far as groups allow",
    }.get(split.kind, "as given in a file")
    return f"People, not windows, were dealt to {split.k} folds{seed}, {dealt}."


def model_words(label: str, settings: Settings) -> str:
    """What a method is and how it was trained.

    Parameters
    ----------
    label
        Its name among those it stands beside.
    settings
        Of its runs.
    """
    if settings.members:
        return f"{label} averages the probabilities of {', '.join(member.method for member in settings.members)}."
    if not settings.is_network:
        from bridgemil import baselines

        if settings.method not in baselines.names():
            return f"{label}: a baseline that is not in this installation."
        return f"{label}: {baselines.BASELINES[settings.method].description}, of each person's mean over windows."
    about = (METHODS | ABLATIONS)[settings.method].description
    backbone = short_name(settings.backbone or "")
    words = f"{label}: {about}; backbone {backbone}, recipe {settings.recipe}, budget {settings.budget}."
    if settings.stage1 is not None:
        stage1 = settings.stage1
        trained = f" Stage 1 trained the encoder for {_epochs(stage1)} by {STAGE1.get(stage1.objective)}."
        words += trained if stage1.objective in STAGE1 else " The encoder kept its random weights."
    stage2 = settings.stage2
    assert stage2 is not None
    words += f" {'Stage 2' if settings.stage1 else 'Training'} ran for {_epochs(stage2)}"
    if isinstance(stage2, BagSettings):
        rate = f", encoder {stage2.encoder_lr:g}" if stage2.encoder_lr else ""
        words += f" ({stage2.optimiser}, learning rate {stage2.lr:g}{rate}, {stage2.batch_subjects} people a step"
    else:
        words += f" (adam, learning rate {stage2.lr:g}, {stage2.batch_windows} windows a step"
    kept = f"epochs from {stage2.burn_in + 1} on could be selected" if settings.selects else "the last was taken"
    words += f", weight decay {stage2.weight_decay:g}); {kept}."
    changed = ", ".join(f"{key} = {value}" for key, value in changed_from_budget(settings).items())
    return f"{words} Changed from the budget: {changed}." if changed else words


def _epochs(stage: Stage1Settings | Stage2Settings) -> str:
    floor = f", or as many as make {stage.min_steps} steps" if stage.min_steps else ""
    return f"{stage.epochs} epochs{floor}"


def _diagnostic_accuracy(cells: Sequence[Cell]) -> str:
    results = []
    for cell in cells:
        found = cell.results.clinical
        if isinstance(found, TwoClassMetrics):
            values = ", ".join(f"{TITLES[name]} {value}" for name, value in found.measures.items())
            results.append(f"{cell.label}: {values}")
    numbers = f" In percent, with intervals: {'; '.join(results)}." if results else ""
    return f"Diagnostic accuracy. {cells[0].results.clinical.method} {INTERVALS}{numbers}"


def _statistics(cells: Sequence[Cell], model: Mapping[str, Any]) -> str:
    row = cells[0].row
    results = "; ".join(
        f"{cell.label} {cell.row['accuracy']:.1f} % ({cell.row['ci95_low']:.1f} to {cell.row['ci95_high']:.1f})"
        for cell in cells
    )
    chance = (
        f"95 % chance interval for n = {row['n_subjects']}: {row['chance95_low']:.1f} to {row['chance95_high']:.1f}"
    )
    versions = ", ".join(f"{name} {version}" for name, version in model["versions"].items())
    return (
        f"Results. Accuracy is the share of held-out subjects correctly classified, mean over seeds; in brackets its "
        f"95 % Wilson interval over subjects, which does not include retraining variance: {results}. The chance level "
        f"(largest class) is {row['chance']:.1f} % ({chance}). Pairs of methods were compared by their pooled accuracy "
        "on the same subjects; p is the larger of a sign-flip test over subjects and a corrected resampled t-test over "
        "folds (Nadeau and Bengio 2003), Holm-corrected for the pairs compared. "
        f"Computed with {versions}."
    )
