"""What the records say of models, their training and their code: items 12 to 18, 21, 22, 24 and 26."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from bridgemil import baselines
from bridgemil.cohort.folds import FoldPlan
from bridgemil.evaluation.clinical import INTERVALS
from bridgemil.evaluation.statistics import COMPARED, counted
from bridgemil.methods import Settings
from bridgemil.report.benchmark import Cell
from bridgemil.report.checklist import people
from bridgemil.report.checklist.data_items import classes_words
from bridgemil.report.checklist.dossier import Dossier
from bridgemil.report.checklist.entries import Answer
from bridgemil.report.pages.methods import assignment_text, model_text, roles_text
from bridgemil.report.tables import Sheet
from bridgemil.runs import RESULTS_VERSION, warning_text

SELECTION = {
    "accuracy": "the highest accuracy on validation people, then their lowest loss",
    "loss": "the lowest loss on validation people",
    "last": "none; the last epoch was taken",
}


def experiment(cell: Cell) -> str:
    """An experiment's name for a row: method, and backbone, recipe and budget of a network."""
    return cell.label if cell.is_baseline else f"{cell.label}, {cell.place.title}"


def _settings(known: Dossier) -> list[Settings]:
    """Of every experiment, ensembles taken apart."""
    return [member for cell in known.cells for member in cell.results.settings.each]


def use_of_data(known: Dossier) -> Answer:
    """Item 12a."""
    lines = _dealt({cell.split.hash: cell.split for cell in known.cells}.values())
    lines.append(roles_text(_settings(known)))
    lines.append("All windows of a person stay in one fold. Seeds of the weights share the split.")
    return Answer(tuple(lines))


def _dealt(splits: Iterable[FoldPlan]) -> list[str]:
    """How people were dealt; splits that differ in their seed only share a sentence."""
    alike: dict[tuple[int, str], list[FoldPlan]] = {}
    for split in splits:
        alike.setdefault((split.k, split.kind), []).append(split)
    lines = []
    for same in alike.values():
        lines.append(assignment_text(same[0]))
        if len(same) > 1:
            seeds = ", ".join(str(split.split_seed) for split in same if split.split_seed is not None)
            lines.append(f"They were assigned {len(same)} times" + (f", with split seeds {seeds}." if seeds else "."))
    return lines


def handling(known: Dossier) -> Answer:
    """Item 12b."""
    lines = []
    if any(member.is_network for member in _settings(known)):
        lines.append(
            "Networks: every channel was standardised by mean and standard deviation over the windows of the fold's "
            "training people; a backbone with a front end of its own (covariance) computes its features window by "
            "window instead."
        )
    if any(not member.is_network for member in _settings(known)):
        lines.append(
            "Baselines: features of a person's windows were averaged over that person alone, and standardised by the "
            "fold's training people."
        )
    return Answer(tuple(lines))


def model_building(known: Dossier) -> Answer:
    """Item 12c."""
    lines = list(dict.fromkeys(model_text(experiment(cell), cell.results.settings) for cell in known.cells))
    described = {cell.results.settings.hash for cell in known.cells}
    members = {member.hash: member for member in _settings(known) if member.hash not in described}
    lines += [model_text(member.title, member) for member in members.values()]
    rules = sorted({member.stage2.selection for member in _settings(known) if member.stage2 is not None})
    lines += [f"Selection of the epoch: {'; '.join(SELECTION[rule] for rule in rules)}."] if rules else []
    lines.append(
        f"Nothing else was tuned within runs. {known.tried} on these people are shown here; one that is picked among "
        "several by its result is better here than it will be elsewhere."
    )
    return Answer(tuple(lines), (_changed(known),))


def _changed(known: Dossier) -> Sheet:
    alike: dict[tuple[str, str], list[Cell]] = {}
    for cell in known.cells:
        alike.setdefault((experiment(cell), str(cell.row["settings_hash"])), []).append(cell)
    rows = [
        [*names, str(len(cells)), "; ".join(f"{key} = {value}" for key, value in cells[0].changed.items()) or "nothing"]
        for names, cells in alike.items()
    ]
    columns = ["experiment", "settings", "splits", "set by the user"]
    return Sheet("Experiments, and settings that differ from method, recipe and budget", columns, rows)


def clusters(known: Dossier) -> Answer:
    """Item 12d: groups that stayed together, and sites."""
    if any(cell.split.kind == "groups" for cell in known.cells):
        return Answer(("People of one group were kept in one fold (see 12a).",))
    if known.cohort is not None and people.by_site(known.cohort):
        words = "The cohort has a column of centres; folds were dealt without regard to it. Results by centre: 23b."
        return Answer((words,))
    return Answer()


def measures(known: Dossier) -> Answer:
    """Item 12e."""
    lines = [
        "Accuracy: share of held-out subjects correctly classified, mean over seeds; 95 % Wilson interval over "
        "subjects. Balanced accuracy (mean over classes of the share correctly classified; Wilson intervals joined by "
        "MOVER, Zou and Donner 2008) and AUROC (one class against the rest, mean over classes; DeLong's variance on "
        "the logit scale): over all held-out subjects of a seed, mean over seeds.",
        "Calibration: expected calibration error of the predicted class, bins of equal numbers of people, with its "
        "interval and what exactly right probabilities would show by chance. Calibration curves: report --html.",
        f"{known.cells[0].results.clinical.method} {INTERVALS} ROC, precision-recall and decision curves: report "
        "--html.",
        "Intervals of scores do not include retraining variance.",
    ]
    if len(known.cells) > 1:
        lines.append(f"{COMPARED} Holm-corrected; in report.md.")
    return Answer(tuple(lines))


def no_updating(known: Dossier) -> Answer:
    """Items 12f and 24."""
    return Answer(("None in these runs: no model was changed or recalibrated after it was evaluated.",))


def predictions(known: Dossier) -> Answer:
    """Item 12g."""
    return Answer(
        (
            "Of each person, by the stored model of the fold that had not seen them (model.json and safetensors in "
            "the folder of its run). Every probability is in predictions.csv, every window's in windows.csv.",
        )
    )


def imbalance(known: Dossier) -> Answer:
    """Item 13."""
    most = max(known.per_class.values()) / sum(known.per_class.values())
    lines, unsaid = [f"Classes: {classes_words(known)}; the largest has {most:.1%} of people."], list[str]()
    said = {True: list[str](), False: list[str]()}
    for settings in {member.hash: member for member in _settings(known)}.values():
        weighed = _weighs_classes(settings)
        (unsaid if weighed is None else said[weighed]).append(settings.title)
    yes, no = (", ".join(dict.fromkeys(said[kind])) for kind in (True, False))
    lines += [f"Classes weighed by inverse frequency in training: {yes}."] if yes else []
    lines += [f"Nothing was done about it in: {no}."] if no else []
    lines.append("Nobody was left out or repeated to balance classes, and probabilities were not corrected afterwards.")
    return Answer(tuple(lines), unknown=tuple(f"whether {name} weighs classes" for name in dict.fromkeys(unsaid)))


def _weighs_classes(settings: Settings) -> bool | None:
    if settings.stage2 is not None:
        return settings.stage2.class_weight
    return baselines.get(settings.method).weighs_classes if settings.method in baselines.names() else None


def fairness(known: Dossier) -> Answer:
    """Item 14."""
    return Answer(("Nothing was done for it in training or selection. Results by sex and age, where known: 23a.",))


def output(known: Dossier) -> Answer:
    """Item 15."""
    k, results = len(known.classes), known.cells[0].results
    point = results.clinical_options.operating_point.sentence if k == 2 else "No threshold was chosen."
    return Answer((f"For each person, a probability of each of {k} classes; the likeliest is predicted. {point}",))


def differences(known: Dossier) -> Answer:
    """Item 16."""
    return Answer(
        ("No difference, by design: all people are of one cohort, prepared alike, and dealt to folds (12a).",)
    )


def data_sharing(known: Dossier) -> Answer:
    """Item 18e."""
    source = known.source
    lines = [f"Cohort {known.name}, source {source['source']}, SHA-256 of signals, labels and boundaries "
             f"{source['hash']}."]  # fmt: skip
    if known.cohort is not None and known.cohort.about["files"]:
        lines.append("cohort.json holds the SHA-256 of every recording it was cut from.")
    return Answer(tuple(lines))


def code_sharing(known: Dossier) -> Answer:
    """Item 18f."""
    names = ("bridgemil", "torch", "numpy")
    found = {name: sorted({str(run[name]) for run in known.runs if name in run}) for name in names}
    versions = "; ".join(f"{name} {' and '.join(values)}" for name, values in found.items() if values)
    hashes = ", ".join(dict.fromkeys(str(cell.row["settings_hash"]) for cell in known.cells))
    lines = [f"bridgemil is open source (BSD-3-Clause). Runs were made with {versions}; results version "
             f"{RESULTS_VERSION}."]  # fmt: skip
    lines.append(f"Settings of the experiments (hash): {hashes}. The same settings, cohort and number of threads give "
                 "the same numbers on the same kind of processor.")  # fmt: skip
    prepared = known.cohort.about.get("versions") if known.cohort is not None else None
    if isinstance(prepared, Mapping) and prepared:
        lines.append(f"Prepared with {', '.join(f'{name} {version}' for name, version in prepared.items())}.")
    own = [member.title for member in _settings(known) if member.code is not None]
    unknown = (f"where the code of {', '.join(dict.fromkeys(own))} is, which is not bridgemil's",) if own else ()
    return Answer(tuple(lines), unknown=unknown)


def people_in_analyses(known: Dossier) -> Answer:
    """Item 21: people that train, select and test."""
    rows = []
    kinds = {
        (cell.split.hash, member.selects): (cell.split, cell.place.split, member.selects)
        for cell in known.cells
        for member in cell.results.settings.each
    }
    for split, title, selects in kinds.values():
        rounds = split.cv_folds(selects)
        sizes = [[len(side) for side in sides] for sides in
                 ([r.train for r in rounds], [r.validation for r in rounds], [r.test for r in rounds])]  # fmt: skip
        rows.append([title, str(split.k), *(_range(numbers) for numbers in sizes), str(sum(sizes[2]))])
    columns = ["split", "folds", "training", "validation", "test", "tested in all"]
    line = f"Tested in all: {classes_words(known)}, in every experiment."
    return Answer((line,), (Sheet("People of each fold", columns, rows),))


def _range(numbers: list[int]) -> str:
    return str(min(numbers)) if min(numbers) == max(numbers) else f"{min(numbers)} - {max(numbers)}"


def full_model(known: Dossier) -> Answer:
    """Item 22."""
    return Answer(
        (
            f"The {counted(len(known.runs), 'fitted model')} of the folds are in the folder of runs, each with its "
            "settings, channels and preparation. They were made to be tested, and none of them is the model for new "
            "people: the command bridgemil train makes that one, with a card.",
        )
    )


def limitations(known: Dossier) -> Answer:
    """Item 26: what the audit found, when the runs were made and now."""
    lines = [*map(warning_text, known.warnings)]
    if known.unaudited:
        return Answer(tuple(lines), unknown=(f"what the audit finds in the data: {known.unaudited}",))
    stored = {warning["check"] for warning in known.warnings}
    found = [f for f in known.findings if f.status in ("FAIL", "WARN") and f.name not in stored]
    lines += [f"{f.status} {f.name}: {f.message}" for f in found]
    lines.append("These runs hold no evaluation on people of another place, time or device.")
    return Answer(tuple(lines))


FILLERS: dict[str, Callable[[Dossier], Answer]] = {
    "12a": use_of_data, "12b": handling, "12c": model_building, "12d": clusters, "12e": measures, "12f": no_updating,
    "12g": predictions, "13": imbalance, "14": fairness, "15": output, "16": differences, "18e": data_sharing,
    "18f": code_sharing, "21": people_in_analyses, "22": full_model, "24": no_updating, "26": limitations,
}  # fmt: skip
