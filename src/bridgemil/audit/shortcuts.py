"""How well is the label predicted by anything but EEG: length, rate, amplitude, order, missing parts, age, sex, site?

Each trait alone predicts the label of held-out subjects: a number by a linear discriminant of its ranks and by the
class frequencies in its quantile bin, which detects relations that are not monotone (patients with 10 or 30 windows,
controls with 20); a word by its class frequencies; a number of few values, which may be a code (sites 1, 2, 3), by all
three. The best learner and the best separated class are reported. The p-value is of a permutation test that includes
both choices, Holm-corrected over all traits.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bridgemil.audit.findings import AuditInput, Finding, Status
from bridgemil.audit.traits import Trait, traits
from bridgemil.evaluation.statistics import holm

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

NAME = "shortcuts"
FOLDS = 5
PERMUTATIONS = 1000
WARN_FROM, FAIL_FROM, LEVEL = 0.65, 0.9, 0.05  # AUROC of a WARN, of a FAIL of a technical trait; significance
UNSEEN = ("order", "channels", "date", "date_missing")  # not in the windows, so never a FAIL
FEWEST_BINS, MOST_BINS, PER_BIN = 3, 10, 4  # quantile bins of a number, and subjects in one at least
OF_SIGNAL = ("amplitude", "flatness", "line_50", "line_60")
BLOCK = 2_000_000  # numbers ranked at once, which bounds the memory


def check(inputs: AuditInput) -> list[Finding]:
    """One finding for each trait that predicts the label, and one for the others, tested or not."""
    y, k = inputs.cohort.y, len(inputs.cohort.classes)
    smallest = int(np.bincount(y, minlength=k).min())
    if smallest < 2:
        return [Finding(NAME, "SKIP", "A class has fewer than 2 subjects: shortcuts cannot be tested.")]
    found = traits(inputs)
    rng = np.random.default_rng(inputs.options.seed)
    folds = stratified_folds(y, min(FOLDS, smallest), rng)
    # Holm multiplies by the number of traits: the smallest possible p must still be below the level.
    n_shuffles = max(PERMUTATIONS, 40 * len(found.tested))
    tested = [separation(trait, y, k, folds, n_shuffles, rng) for trait in found.tested]
    corrected = holm([p for _, _, p in tested])
    findings, quiet = [], []
    for trait, (auroc, best, p), p_holm in zip(found.tested, tested, corrected, strict=True):
        if p_holm < LEVEL and auroc > WARN_FROM:
            findings.append(_flagged(inputs, trait, auroc, best, p_holm))
        else:
            quiet.append(f"{trait.name} {auroc:.2f} (p {p:.3f})")
    untested = "; ".join(f"{name} ({reason})" for name, reason in found.untested)
    if quiet or found.constant:
        parts = [f"Do not predict the label (AUROC over held-out subjects): {', '.join(quiet)}."] if quiet else []
        parts += [f"The same for all subjects: {', '.join(found.constant)}."] if found.constant else []
        parts += [f"Not tested: {untested}."] if untested else []
        numbers = {"permutations": n_shuffles, "traits": len(found.tested)}
        findings.append(Finding(NAME, "PASS", " ".join(parts), numbers=numbers))
    elif untested:
        findings.append(Finding(NAME, "SKIP", f"Not tested: {untested}."))
    return findings


def _flagged(inputs: AuditInput, trait: Trait, auroc: float, best: int, p_holm: float) -> Finding:
    name = inputs.cohort.classes[best]
    whom = f"{name} from the rest" if len(inputs.cohort.classes) > 2 else " from ".join(inputs.cohort.classes)
    message = f"The {trait.description} alone separates {whom}: AUROC {auroc:.2f} over held-out subjects."
    numbers = {"auroc": auroc, "p_holm": p_holm, "class": name, "technical": trait.technical}
    evidence = (f"Holm-corrected p = {p_holm:.3f}", _by_class(inputs, trait))
    status: Status = "FAIL" if trait.technical and auroc >= FAIL_FROM else "WARN"
    return Finding(f"shortcut_{trait.name}", status, message, evidence, _fix(trait), numbers)


def _fix(trait: Trait) -> str:
    if trait.technical:
        return "record or cut the classes alike (same length, rate and rules), or leave out the others; prepare again"
    if trait.name in UNSEEN:
        return (
            "check that the classes were recorded in the same period, place and way; if not, keep what was recorded "
            "together in one fold (`evaluate --groups COLUMN`)"
        )
    if trait.name in OF_SIGNAL:
        return (
            "compare how the classes were recorded and cleaned (device, gain, reference, filters, artefact removal), "
            "and prepare all recordings alike"
        )
    return "match the classes in it (leave subjects out), or report results within its strata and say so"


def _by_class(inputs: AuditInput, trait: Trait) -> str:
    y, classes = inputs.cohort.y, inputs.cohort.classes
    if trait.is_number and not trait.is_code:
        of = {name: np.percentile(trait.values[y == i], (50, 5, 95)) for i, name in enumerate(classes)}
        each = [f"{name}: {median:.4g} ({low:.4g} to {high:.4g})" for name, (median, low, high) in of.items()]
        return f"median (5th to 95th percentile) {', '.join(each)}"
    parts, place = [], np.unique(trait.values, return_inverse=True)[1]
    for i, name in enumerate(classes):
        counts = np.bincount(place[y == i], minlength=len(trait.names))
        counted = [f"{n} with {word}" for word, n in zip(trait.names, counts, strict=True) if n]
        parts.append(f"{name}: {', '.join(counted)}")
    return "subjects: " + "; ".join(parts)


def stratified_folds(y: Ints, k: int, rng: np.random.Generator, continued: bool = True) -> Ints:
    """The fold of each subject (0 to k - 1), stratified; each class continues where the last ended, or at fold 0."""
    folds = np.empty(len(y), dtype=np.int64)
    at = 0
    for label in np.unique(y):
        members = rng.permutation(np.flatnonzero(y == label))
        folds[members] = (np.arange(len(members)) + at) % k
        at += len(members) if continued else 0
    return folds


def separation(
    trait: Trait, y: Ints, k: int, folds: Ints, n_shuffles: int, rng: np.random.Generator
) -> tuple[float, int, float]:
    """AUROC of the best separated class, that class, and the p-value."""
    from scipy.stats import rankdata

    values = rankdata(trait.values) / len(y) if trait.is_number else trait.values
    learners = [_discriminant, _bins] if trait.is_number else []
    learners += [_frequencies] if trait.is_code or not trait.is_number else []

    def areas(x: Floats) -> Floats:
        """Of each class, by its best learner."""
        return np.asarray(np.max([auroc(learner(x, y, k, folds), y) for learner in learners], axis=0))

    true = areas(values[None])[0]
    best, beaten = int(true.argmax()), 0
    step = max(1, BLOCK // (len(y) * k))
    for first in range(0, n_shuffles, step):
        drawn = rng.permuted(np.tile(values, (min(step, n_shuffles - first), 1)), axis=1)
        beaten += int((areas(drawn).max(axis=1) >= true[best] - 1e-12).sum())
    return float(true[best]), best, (beaten + 1) / (n_shuffles + 1)


def _discriminant(x: Floats, y: Ints, k: int, folds: Ints) -> Floats:
    """Probabilities of held-out subjects by a linear discriminant: shuffles x subjects x classes."""
    probabilities = np.empty((*x.shape, k))
    member = (y[:, None] == np.arange(k)).astype(np.float64)  # subjects x classes
    for fold in np.unique(folds):
        train = member * (folds != fold)[:, None]
        count = train.sum(axis=0)
        mean = x @ train / count  # shuffles x classes
        square = (x**2 @ train).sum(axis=1) - (mean**2 * count).sum(axis=1)
        variance = np.maximum(square / count.sum(), 1e-9)[:, None, None]
        part = x[:, folds == fold, None]
        logit = (part * mean[:, None] - mean[:, None] ** 2 / 2) / variance + np.log(count / count.sum())
        weight = np.exp(logit - logit.max(axis=2, keepdims=True))
        probabilities[:, folds == fold] = weight / weight.sum(axis=2, keepdims=True)
    return probabilities


def _bins(x: Floats, y: Ints, k: int, folds: Ints) -> Floats:
    """Probabilities of held-out subjects by class frequencies in their quantile bin; x are ranks divided by n."""
    n = min(MOST_BINS, max(FEWEST_BINS, len(y) // PER_BIN))
    return _frequencies(np.ceil(x * n - 1e-9), y, k, folds)


def _frequencies(x: Floats, y: Ints, k: int, folds: Ints) -> Floats:
    """Probabilities of held-out subjects by class frequencies of their value: shuffles x subjects x classes."""
    probabilities = np.empty((*x.shape, k))
    member = (y[:, None] == np.arange(k)).astype(np.float64)
    values = np.unique(x)
    for fold in np.unique(folds):
        train = member * (folds != fold)[:, None]
        prior = train.sum(axis=0) / train.sum()
        for value in values:
            holding = x == value  # shuffles x subjects
            count = holding @ train + prior  # with one pseudo-subject distributed as the classes
            share = count / count.sum(axis=1, keepdims=True)  # shuffles x classes
            rows, columns = np.nonzero(holding & (folds == fold))
            probabilities[rows, columns] = share[rows]
    return probabilities


def auroc(probabilities: Floats, y: Ints) -> Floats:
    """AUROC of each class against the rest (shuffles x classes), from probabilities (shuffles x subjects x classes)."""
    from scipy.stats import rankdata

    k = probabilities.shape[2]
    ranks = rankdata(np.round(probabilities, 9), axis=1)
    member = (y[:, None] == np.arange(k)).astype(np.float64)
    count = member.sum(axis=0)
    beaten = np.einsum("pnk,nk->pk", ranks, member) - count * (count + 1) / 2
    return np.asarray(beaten / (count * (len(y) - count)))
