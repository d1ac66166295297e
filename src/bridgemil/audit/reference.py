"""Does the recording reference tell the classes apart?

A reference adds one signal to all electrodes. Where the classes were recorded or re-referenced differently, that signal
separates them within the cohort and nowhere else. Two questions are asked: (a) whether the share of the variance that
all electrodes have in common predicts the label by itself, band by band, and whether the relative band powers of the
mean over electrodes predict it better than those of average-referenced electrodes; (b) whether covariances predict the
label better with the recorded reference than with the average reference, which removes what all have in common.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
from numpy.typing import NDArray

from bridgemil.audit.findings import AuditInput, Finding
from bridgemil.audit.shortcuts import WARN_FROM, auroc, separation, stratified_folds
from bridgemil.audit.traits import Trait
from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.signal import Band, band_name, band_power, evenly
from bridgemil.errors import BadData
from bridgemil.evaluation.statistics import holm

Floats = NDArray[np.float64]

NAME = "reference_shortcut"
WINDOWS = 60  # of each subject, evenly spaced: means over more change little
FOLDS = 5
PERMUTATIONS, LEVEL = 2000, 0.05  # family-wise, over all tests of the check
SEPARATED, KEPT = 0.98, 0.95  # AUROC with the recorded reference, and with the average reference, of a FAIL
# The average of few electrodes removes much of the EEG itself, and few subjects are separated easily.
FAIL_ELECTRODES, FAIL_SUBJECTS = 8, 10  # of the smallest class; with fewer it is a WARN
TINY = 1e-12
FIX = (
    "compare how the classes were recorded and re-referenced; use methods on the average reference (the default of "
    "`covariance`, `tangent` and `bandpower`), or prepare again with `--reference average`"
)


def check(inputs: AuditInput) -> list[Finding]:
    """Compare the recorded reference with the average reference."""
    cohort = inputs.cohort
    if tuple(cohort.metadata.get("settings", {}).get("reference") or ()) == ("average",):
        return [Finding(NAME, "PASS", "The recordings were re-referenced to the average of their electrodes.")]
    smallest = int(np.bincount(cohort.y, minlength=len(cohort.classes)).min())
    if smallest < FOLDS or len(cohort.channels) < 3:
        why = f"Needs {FOLDS} subjects of each class and 3 electrodes: the reference cannot be tested."
        return [Finding(NAME, "SKIP", why)]
    try:
        shares, (common, powers, recorded, average) = _features(cohort)
    except BadData as error:
        return [Finding(NAME, "SKIP", f"The reference cannot be tested: {error}")]
    rng = np.random.default_rng(inputs.options.seed)
    folds = stratified_folds(cohort.y, FOLDS, rng)
    tested = [
        separation(Trait(band, band, values), cohort.y, len(cohort.classes), folds, PERMUTATIONS, rng)
        for band, values in shares.items()
    ]
    of_powers = _paired(common, powers, cohort.y, folds, rng)
    of_covariances = _paired(recorded, average, cohort.y, folds, rng)
    *p_shares, p_powers, p_covariances = holm([*(p for _, _, p in tested), of_powers.p, of_covariances.p])
    areas = {band: (area, p) for band, (area, _, _), p in zip(shares, tested, p_shares, strict=True)}
    enough = smallest >= FAIL_SUBJECTS and len(cohort.channels) >= FAIL_ELECTRODES
    return [_finding(enough, areas, replace(of_powers, p=p_powers), replace(of_covariances, p=p_covariances))]


@dataclass(frozen=True)
class _Comparison:
    """AUROC over held-out subjects with the recorded and the average reference, and the one-sided p of the gain."""

    recorded: float
    average: float
    p: float  # Holm-corrected over all tests of this check

    @property
    def better(self) -> bool:
        """Whether the label is predicted significantly better with the reference."""
        return self.p < LEVEL and self.recorded > max(self.average, WARN_FROM)

    def __str__(self) -> str:
        return f"{self.recorded:.2f} against {self.average:.2f} (paired over subjects, p = {self.p:.3f})"


def _features(cohort: Cohort) -> tuple[dict[str, Floats], list[Floats]]:
    """Means over windows, one row per subject.

    By band the log share of the mean over electrodes in the electrodes' power; log relative band powers of that mean,
    and of the electrodes with average reference; log-covariances with recorded and with average reference.
    """
    import torch

    from bridgemil.backbones.covariance import FrontEnd

    recorded, average = FrontEnd(cohort.signal, "recorded"), FrontEnd(cohort.signal, "average")
    n_bands, n_covariances = len(recorded.bands), recorded.covariance.stop
    # Filled in place: small arrays kept between large ones would stop the C library from returning memory.
    widths = (n_bands, n_bands, recorded.dim - n_covariances, n_covariances, n_covariances)
    shares, common, powers, with_reference, without = (np.empty((len(cohort), width)) for width in widths)
    for row, subject in enumerate(cohort.subjects):
        bag = cohort.windows(subject)
        windows = np.asarray(bag[evenly(len(bag), WINDOWS)], dtype=np.float32)
        tensor = torch.from_numpy(windows)
        shares[row], common[row] = common_signal(windows[:, list(recorded.used)], recorded.bands, cohort.sfreq)
        with_reference[row] = recorded(tensor)[:, recorded.covariance].numpy().mean(axis=0, dtype=np.float64)
        features = average(tensor).numpy().mean(axis=0, dtype=np.float64)
        powers[row], without[row] = features[average.power], features[average.covariance]
    of_bands = dict(zip(map(band_name, recorded.bands), shares.T, strict=True))
    return of_bands, [common, powers, with_reference, without]


def common_signal(windows: NDArray[np.float32], bands: Sequence[Band], sfreq: float) -> tuple[Floats, Floats]:
    """What the mean over electrodes holds, by band: its log share of the electrodes' power, its log relative power.

    Means over windows (n_windows, n_channels, n_times) in any unit; bands and sampling rate are in Hz.
    """
    centred = (windows - windows.mean(axis=2, keepdims=True)) * np.hanning(windows.shape[2])
    spectrum, frequencies = np.fft.rfft(centred), np.fft.rfftfreq(windows.shape[2], 1 / sfreq)
    whole = band_power(np.square(np.abs(spectrum)).mean(axis=1), frequencies, bands)
    common = band_power(np.square(np.abs(spectrum.mean(axis=1))), frequencies, bands)
    shares = np.log((common + TINY) / (whole + TINY))  # windows x bands
    powers = np.log((common + TINY) / (common + TINY).sum(axis=1, keepdims=True))
    return shares.mean(axis=0), powers.mean(axis=0)


def _paired(
    with_reference: Floats, without: Floats, y: NDArray[np.int64], folds: NDArray[np.int64], rng: np.random.Generator
) -> _Comparison:
    """Compare two sets of features by the log-probability of the true class: a sign-flip test over subjects."""
    both = [_held_out(features, y, folds) for features in (with_reference, without)]
    recorded, average = (float(auroc(p[None], y)[0].mean()) for p in both)
    of_true = [np.log(p[np.arange(len(y)), y].clip(1e-6)) for p in both]
    gain = of_true[0] - of_true[1]
    flipped = (rng.choice([-1.0, 1.0], (PERMUTATIONS, len(y))) * gain).mean(axis=1)
    p = float(((flipped >= gain.mean() - 1e-12).sum() + 1) / (PERMUTATIONS + 1))
    return _Comparison(recorded, average, p)


def _held_out(features: Floats, y: NDArray[np.int64], folds: NDArray[np.int64]) -> Floats:
    """Probabilities of held-out subjects by a regularised logistic regression, subjects x classes."""
    from bridgemil.baselines.classifiers import fit_logistic

    k = int(y.max()) + 1
    probabilities = np.empty((len(y), k))
    for fold in np.unique(folds):
        train = folds != fold
        fitted = fit_logistic(features[train], y[train], k, C=10.0, class_weight="balanced", by_root=True)
        probabilities[~train] = fitted.probabilities(features[~train])
    return probabilities


def _finding(
    enough: bool, shares: dict[str, tuple[float, float]], powers: _Comparison, covariances: _Comparison
) -> Finding:
    parts = [f"{band} {area:.2f} (p = {p:.3f})" for band, (area, p) in shares.items()]
    evidence = [
        f"AUROC of covariances, recorded against average reference: {covariances}",
        f"AUROC of band powers, mean over electrodes against average-referenced electrodes: {powers}",
        f"AUROC of the share of variance common to all electrodes: {', '.join(parts)}",
        "all p one-sided, over held-out subjects, Holm-corrected",
    ]
    numbers = {
        "covariances": asdict(covariances), "powers": asdict(powers),
        "common": {band: {"auroc": area, "p_holm": p} for band, (area, p) in shares.items()},
    }  # fmt: skip
    band, (area, p_band) = max(shares.items(), key=lambda item: item[1][0])
    if enough and covariances.better and covariances.recorded >= SEPARATED and covariances.average < KEPT:
        message = (
            f"With the recorded reference covariances separate the classes (AUROC {covariances.recorded:.2f}), with "
            f"the average reference they do not ({covariances.average:.2f}): the classes differ in their reference."
        )
        return Finding(NAME, "FAIL", message, evidence, FIX, numbers)
    if area > WARN_FROM and p_band < LEVEL:
        message = (
            "What all electrodes have in common, as a reference has, predicts the label: its share of the variance at "
            f"{band} has an AUROC of {area:.2f} over held-out subjects."
        )
        return Finding(NAME, "WARN", message, evidence, FIX, numbers)
    if covariances.better or powers.better:
        what = f"covariances: AUROC {covariances}" if covariances.better else f"band powers: AUROC {powers}"
        message = f"The label is predicted better with the recorded reference than with the average reference; {what}."
        return Finding(NAME, "WARN", message, evidence, FIX, numbers)
    message = f"The reference does not separate the classes; covariances, recorded against average: {covariances}."
    return Finding(NAME, "PASS", message, numbers=numbers)
