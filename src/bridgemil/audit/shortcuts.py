"""How well is the label predicted by what is no EEG: length, rate, amplitude, order, missing parts, age, sex, site?

Each trait by itself predicts the label of subjects it was not fitted on: a number by a linear discriminant of its ranks
(in one dimension the boundary of a logistic regression) and by how often each class has a value of the same quantile
bin, which sees what is not monotone (patients with 10 or 30 windows, controls with 20); a word by how often each class
goes with it; a number of few values, which may be a code (sites 1, 2, 3), by all three. The best learner and the class
told apart best count. The p-value is from the same, choices included, with the trait permuted among subjects; Holm's
correction over all traits.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bridgemil.audit.findings import Finding
from bridgemil.audit.inputs import AuditInput
from bridgemil.audit.traits import Trait, Unknown, traits
from bridgemil.evaluation.statistics import holm

Floats = NDArray[np.float64]

NAME = "shortcuts"
FOLDS = 5
PERMUTATIONS = 1000
NOTICED, DAMNING, LEVEL = 0.65, 0.9, 0.05  # AUROC of a WARN, of a FAIL where it cannot be biology; significance
UNSEEN = ("order", "channels", "date", "date_missing")  # in no window, so never a FAIL; what goes with them may be
FEWEST_BINS, MOST_BINS, PER_BIN = 3, 10, 4  # quantile bins of a number, and subjects in one at least
OF_SIGNAL = ("amplitude", "flatness", "line_50", "line_60")
BLOCK = 2_000_000  # numbers ranked at once, which bounds the memory


def check(inputs: AuditInput) -> list[Finding]:
    """Every trait by itself: one finding for each that predicts the label, one for the rest, one for the unknown."""
    y, k = inputs.cohort.y, len(inputs.cohort.classes)
    smallest = int(np.bincount(y, minlength=k).min())
    if k < 2 or smallest < 2:
        message = "A class has fewer than 2 subjects: shortcuts cannot be tested."
        return [Finding(NAME, "SKIP", message)]
    every = traits(inputs)
    known = [trait for trait in every if isinstance(trait, Trait)]
    unknown = [trait for trait in every if isinstance(trait, Unknown) and not trait.constant]
    constant = [trait.name for trait in every if isinstance(trait, Unknown) and trait.constant]
    rng = np.random.default_rng(inputs.options.seed)
    folds = _folds(y, min(FOLDS, smallest), rng)
    # Holm multiplies by the number of traits: the smallest possible p must still say something.
    n_shuffles = max(PERMUTATIONS, 40 * len(known))
    tested = [_test(trait, y, k, folds, n_shuffles, rng) for trait in known]
    corrected = holm([p for _, _, p in tested])
    findings, quiet = [], []
    for trait, (auroc, best, p), p_holm in zip(known, tested, corrected, strict=True):
        if p_holm < LEVEL and auroc > NOTICED:
            findings.append(_flagged(inputs, trait, auroc, best, p_holm))
        else:
            quiet.append(f"{trait.name} {auroc:.2f} (p {p:.3f})")
    if quiet or constant:
        told = [f"Do not predict the label (AUROC over held-out subjects): {', '.join(quiet)}."] if quiet else []
        told += [f"The same for all subjects: {', '.join(constant)}."] if constant else []
        message = " ".join(told)
        findings.append(Finding(NAME, "PASS", message, numbers={"permutations": n_shuffles, "traits": len(known)}))
    if unknown:
        message = "Not tested: " + "; ".join(f"{u.name} ({u.why})" for u in unknown) + "."
        findings.append(Finding(NAME, "SKIP", message))
    return findings


def _flagged(inputs: AuditInput, trait: Trait, auroc: float, best: int, p_holm: float) -> Finding:
    damning = trait.technical and auroc >= DAMNING
    name = inputs.cohort.classes[best]
    whom = f"{name} from the rest" if len(inputs.cohort.classes) > 2 else " from ".join(inputs.cohort.classes)
    message = f"The {trait.description} alone separates {whom}: AUROC {auroc:.2f} over held-out subjects."
    numbers = {"auroc": auroc, "p_holm": p_holm, "class": name, "technical": trait.technical}
    evidence = (f"Holm-corrected p = {p_holm:.3f}", _by_class(inputs, trait))
    fix = _fix(trait)
    return Finding(f"shortcut_{trait.name}", "FAIL" if damning else "WARN", message, evidence, fix, numbers)


def _fix(trait: Trait) -> str:
    if trait.technical:
        return "record or cut the classes alike (same length, rate and rules), or leave out who differs; prepare again"
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


def _folds(y: NDArray[np.int64], k: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """The fold of each person, stratified."""
    folds = np.empty(len(y), dtype=np.int64)
    at = 0
    for label in np.unique(y):
        members = rng.permutation(np.flatnonzero(y == label))
        folds[members] = (np.arange(len(members)) + at) % k
        at += len(members)
    return folds


def _test(
    trait: Trait, y: NDArray[np.int64], k: int, folds: NDArray[np.int64], n_shuffles: int, rng: np.random.Generator
) -> tuple[float, int, float]:
    """AUROC of the class told apart best, that class, and the p-value."""
    from scipy.stats import rankdata

    values = rankdata(trait.values) / len(y) if trait.is_number else trait.values
    ways = [_numbers, _bins] if trait.is_number else []
    ways += [_words] if trait.is_code or not trait.is_number else []

    def areas(x: Floats) -> Floats:
        """Of each class, by the way that tells it best."""
        best_way: Floats = np.max([auroc(way(x, y, k, folds), y) for way in ways], axis=0)
        return best_way

    true = areas(values[None])[0]
    best, beaten = int(true.argmax()), 0
    step = max(1, BLOCK // (len(y) * k))
    for first in range(0, n_shuffles, step):
        drawn = rng.permuted(np.tile(values, (min(step, n_shuffles - first), 1)), axis=1)
        beaten += int((areas(drawn).max(axis=1) >= true[best] - 1e-12).sum())
    return float(true[best]), best, (beaten + 1) / (n_shuffles + 1)


def _numbers(x: Floats, y: NDArray[np.int64], k: int, folds: NDArray[np.int64]) -> Floats:
    """Probabilities of held-out people by a linear discriminant: shuffles x people x classes."""
    probabilities = np.empty((*x.shape, k))
    member = (y[:, None] == np.arange(k)).astype(np.float64)  # people x classes
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


def _bins(x: Floats, y: NDArray[np.int64], k: int, folds: NDArray[np.int64]) -> Floats:
    """Probabilities of held-out people by how often each class is in the same quantile bin; x are ranks over n."""
    n = min(MOST_BINS, max(FEWEST_BINS, len(y) // PER_BIN))
    return _words(np.ceil(x * n - 1e-9), y, k, folds)


def _words(x: Floats, y: NDArray[np.int64], k: int, folds: NDArray[np.int64]) -> Floats:
    """Probabilities of held-out people by how often each class goes with the word: shuffles x people x classes."""
    probabilities = np.empty((*x.shape, k))
    member = (y[:, None] == np.arange(k)).astype(np.float64)
    values = np.unique(x)
    for fold in np.unique(folds):
        train = member * (folds != fold)[:, None]
        prior = train.sum(axis=0) / train.sum()
        for value in values:
            holding = x == value  # shuffles x people
            count = holding @ train + prior  # as if one more person of the usual mixture had the word
            share = count / count.sum(axis=1, keepdims=True)  # shuffles x classes
            rows, columns = np.nonzero(holding & (folds == fold))
            probabilities[rows, columns] = share[rows]
    return probabilities


def auroc(probabilities: Floats, y: NDArray[np.int64]) -> Floats:
    """Area under the curve of each class against the rest: shuffles x classes.

    Parameters
    ----------
    probabilities
        Shuffles x people x classes.
    y
        The class number of each person.
    """
    from scipy.stats import rankdata

    k = probabilities.shape[2]
    ranks = rankdata(np.round(probabilities, 9), axis=1)
    member = (y[:, None] == np.arange(k)).astype(np.float64)
    count = member.sum(axis=0)
    areas: Floats = (np.einsum("pnk,nk->pk", ranks, member) - count * (count + 1) / 2) / (count * (len(y) - count))
    return areas
