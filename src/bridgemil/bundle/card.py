"""The model card: what a bundle is for, what it is not for, how good it is and who was in it, in Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bridgemil.bundle.bundle import NOTICE, not_better_than_chance
from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.tables import is_missing
from bridgemil.evaluation.clinical import TITLES
from bridgemil.report.markdown import md_warnings


def people(cohort: Cohort) -> list[dict[str, Any]]:
    """A row a class: how many people, how many windows, and age and sex where the cohort knows them."""
    rows = []
    labels = cohort.labels
    for name in cohort.classes:
        members = [i for i, label in enumerate(labels) if label == name]
        counts = [cohort.records[cohort.subjects[i]].n_windows for i in members]
        row: dict[str, Any] = {"class": name, "n": len(members), "windows": sum(counts)}
        for column in sorted({key for values in cohort.rows() for key in values}):
            if column.lower() in ("age", "sex", "gender"):
                of_class = [cohort.column(column)[i] for i in members]
                row[column.lower()] = _range(of_class) if column.lower() == "age" else _counts(of_class)
        rows.append(row)
    return rows


def _known(values: list[Any]) -> list[Any]:
    return [value for value in values if not is_missing(value)]


def _range(values: list[Any]) -> str:
    """Mean, least and most; counts where some age is no number ("70+")."""
    try:
        numbers = [float(value) for value in _known(values)]
    except ValueError:
        return _counts(values)
    if not numbers:
        return "not known"
    return f"{sum(numbers) / len(numbers):.0f} ({min(numbers):.0f} to {max(numbers):.0f})"


def _counts(values: list[Any]) -> str:
    """How many of each; a code in numbers (1, 2) is a name too."""
    names = [f"{value:g}" if isinstance(value, float) else str(value) for value in _known(values)]
    return ", ".join(f"{name}: {names.count(name)}" for name in sorted(set(names))) or "not known"


def write_card(about: Mapping[str, Any], facts: Mapping[str, Any]) -> str:
    """The card.

    Parameters
    ----------
    about
        ``name``, ``warnings``, ``performance``, ``calibration``, ``provenance`` and ``trained``, as ``bundle.json``
        holds them.
    facts
        ``ModelFacts.for_json()``.
    """
    warnings = md_warnings(about.get("warnings", ()))
    parts = [
        f"# {about['name']}",
        f"**{NOTICE}**",
        *([warnings] if warnings else []),
        _what(about, facts),
        _use(facts),
        _performance(about),
        _who(about),
        _limits(about),
        _made(about, facts),
    ]
    return "\n\n".join(parts) + "\n"


def _what(about: Mapping[str, Any], facts: Mapping[str, Any]) -> str:
    signal, classes = facts["signal"], ", ".join(facts["classes"])
    settings = facts["settings"]
    method = settings["method"] + (f" on {settings['backbone']}" if settings["backbone"] else "")
    use = "`bridgemil predict` prepares a recording the way its training recordings were."
    if not facts["preparation"]:
        use = "it was trained on arrays, and is given windows in Python (`bundle.load`), not recordings."
    return (
        f"From one EEG recording, a probability for each of: {classes}. Method: {method}. {about['trained']}\n\n"
        f"It takes {len(signal['channels'])} electrodes ({', '.join(signal['channels'])}), in windows of "
        f"{signal['n_times'] / signal['sfreq']:g} s at {signal['sfreq']:g} Hz; {use}"
    )


def _use(facts: Mapping[str, Any]) -> str:
    prepared = facts["preparation"]
    band = f"{prepared.get('low')} to {prepared.get('high')} Hz" if prepared else "not known (trained on arrays)"
    return (
        "## Intended use\n\nTo study how well such models carry over, on recordings made like those of the training "
        f"people: task, electrodes, reference, age, and how the classes were diagnosed. Band: {band}.\n\nNot for "
        "diagnosis, screening, triage or any decision about a person; not for people whose condition is none of the "
        "classes: the probabilities always sum to 1 over these classes."
    )


def _performance(about: Mapping[str, Any]) -> str:
    found, calibrated = about["performance"], about["calibration"]
    rows = ["| | held-out people | 95 % interval |", "|---|---|---|"]
    for name, title in (("accuracy", "accuracy"), ("balanced_accuracy", "balanced accuracy"), ("auroc", "AUROC")):
        low, high = found[name]["ci95"]
        rows.append(f"| {title} | {found[name]['value']:.3f} | {low:.3f} to {high:.3f} |")
    rows += _clinical_rows(found["clinical"])
    for when in ("before", "after"):
        error = calibrated["error"][when]
        low, high = error["ci95"]
        rows.append(f"| calibration error {when} calibration | {error['value']:.3f} | {low:.3f} to {high:.3f} |")
    expected = calibrated["error"]["after"]["expected_if_calibrated"]
    baselines = "; ".join(f"{name} {value:.3f}" for name, value in found["baselines"].items())
    beside = f" Simple baselines on the same folds: accuracy {baselines}." if baselines else ""
    doubt = not_better_than_chance(found)
    caution = f"**{doubt[0].upper()}{doubt[1:]}.**\n\n" if doubt else ""
    return (
        f"## Performance\n\n{caution}By cross-validation over {found['n_subjects']} people, each held out once "
        f"({found['split'].get('title', '')}).{beside} Chance level (largest class): {found['chance']:.3f}.\n\n"
        + "\n".join(rows)
        + _clinical_note(found["clinical"])
        + f"\n\nCalibration: {calibrated['sentence']} ({calibrated['why']}). The error after calibration is "
        "cross-fitted: each fold is calibrated by the other folds. Expected calibration error under perfect "
        f"calibration: {expected:.3f}."
    )


def _clinical_rows(clinical: Mapping[str, Any]) -> list[str]:
    """Sensitivity, specificity and predictive values; of more than two classes the first two of each class."""
    named = [(title, clinical[name]) for name, title in TITLES.items() if name in clinical]
    for name, own in clinical.get("per_class", {}).items():
        named += [(f"{TITLES[measure]}, {name}", value) for measure, value in own.items()]
    if stated := clinical.get("at_prevalence"):
        share = f"at a prevalence of {100 * stated['prevalence']:g} %"
        named += [(f"{TITLES[name]} {share}", stated[name]) for name in ("ppv", "npv")]
    return [
        f"| {title} | {'not defined' if found['value'] is None else format(found['value'], '.3f')} | "
        f"{found['ci95'][0]:.3f} to {found['ci95'][1]:.3f} |"
        for title, found in named
    ]


def _clinical_note(clinical: Mapping[str, Any]) -> str:
    if "positive" not in clinical:
        return "\n\nSensitivity and specificity are of each class against the rest."
    return (
        f"\n\nSensitivity, specificity, PPV and NPV are of {clinical['positive']} ({clinical['positive_reason']}) "
        "where it is the likelier class, with Wilson's intervals; unless another prevalence is named, PPV and NPV are "
        "at the class shares of this cohort, not of a clinic."
    )


def _who(about: Mapping[str, Any]) -> str:
    rows = about["provenance"]["people"]
    columns = list(rows[0])
    lines = [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
    lines += [f"| {' | '.join(str(row.get(column, '')) for column in columns)} |" for row in rows]
    return "## Who was in it\n\n" + "\n".join(lines)


def _limits(about: Mapping[str, Any]) -> str:
    n = about["performance"]["n_subjects"]
    standing = "".join(f"- **{caution[0].upper()}{caution[1:]}.**\n" for caution in about.get("cautions", ()))
    return (
        f"## Limits\n\n{standing}"
        f"- {n} people from one cohort. Another hospital, amplifier, reference, age or medication may change every "
        "number above; none of that was tested.\n"
        "- The numbers are of the models of the folds, each on people it had not seen. Everyone had a part in "
        "the bundle as a whole, so nobody is left to test it on, and its calibration is borrowed from those models.\n"
        "- The probabilities hold the shares of the classes in the cohort, or equal ones where a method weighs classes "
        "alike (tangent does). Where a class is rarer than that, they are too high.\n"
        "- `predict` warns when a recording is out of distribution. The test sees relative band power, relative "
        "amplitude and correlation of electrodes; a low percentile does not prove that the model applies.\n"
        "- An attention weight is how strongly a window enters the prediction, not which class it supports."
    )


def _made(about: Mapping[str, Any], facts: Mapping[str, Any]) -> str:
    where, versions = about["provenance"], facts["versions"]
    software = ", ".join(f"{name} {version}" for name, version in versions.items())
    return (
        f"## How it was made\n\n{about['created'][:10]}, {software}; seed {facts['seed']}; cohort "
        f"`{where['cohort_hash'][:16]}` ({where['source']}), {where['n_windows']} windows. Settings, preparation and "
        "hashes of all files: `bundle.json`."
    )
