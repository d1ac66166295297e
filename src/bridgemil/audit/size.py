"""Is the cohort large and balanced enough for the claim?"""

from __future__ import annotations

import math
from collections import Counter

from bridgemil.audit.findings import Finding
from bridgemil.audit.inputs import AuditInput
from bridgemil.evaluation.metrics import chance

DISCORDANT = 0.2  # share of people on whom two decent methods disagree: seen in most comparisons
USUAL_ACCURACY = 0.75  # at which the interval's width is shown
FEW, LOPSIDED = 10, 0.75  # people in the smallest class; share of the largest


def check(inputs: AuditInput) -> list[Finding]:
    """Class balance with what guessing gives, and the number of people that the hoped-for difference needs."""
    return [_balance(inputs), _enough(inputs)]


def _balance(inputs: AuditInput) -> Finding:
    labels = inputs.cohort.labels
    counts = Counter(labels)
    counted = ", ".join(f"{counts[name]} {name}" for name in inputs.cohort.classes)
    if len(counts) < 2:
        return Finding(
            "balance",
            "FAIL",
            f"One class only ({counted}): nothing can be classified.",
            fix="prepare subjects of another class too (`pool` joins cohorts)",
        )
    rate, low, high = chance(labels)
    guess = (
        f"Always predicting the largest class has an accuracy of {100 * rate:.1f} %; 95 % chance interval for this "
        f"many subjects: {100 * low:.1f} to {100 * high:.1f} %"
    )
    numbers = {"counts": dict(counts), "chance": rate, "chance95": [low, high]}
    smallest = min(counts.values())
    if smallest < FEW or rate > LOPSIDED:
        what = (
            f"only {smallest} subjects in the smallest class" if smallest < FEW else f"{100 * rate:.0f} % in one class"
        )
        fix = (
            "report balanced accuracy and AUROC with their intervals, claim no accuracy inside the chance interval, "
            "and add subjects of the smaller classes if you can"
        )
        return Finding("balance", "WARN", f"{counted}: {what}.", (guess,), fix, numbers)
    return Finding("balance", "PASS", f"{counted}. {guess}.", numbers=numbers)


def people_needed(difference: float, discordant: float = DISCORDANT) -> int:
    """People needed to show that one method is right more often than another on the same people.

    McNemar's test, two-sided 5 %, power 80 %, normal approximation.

    Parameters
    ----------
    difference
        Of the two accuracies, as a share.
    discordant
        Share of people of whom one method is right and the other wrong.
    """
    discordant = max(discordant, difference)
    root = 1.96 * math.sqrt(discordant) + 0.8416 * math.sqrt(max(discordant - difference**2, 0.0))
    return math.ceil((root / difference) ** 2)


def half_width(n: int, accuracy: float = USUAL_ACCURACY) -> float:
    """Half the width of Wilson's 95 % interval of an accuracy over n people."""
    z = 1.96
    return z * math.sqrt(accuracy * (1 - accuracy) / n + z * z / (4 * n * n)) / (1 + z * z / n)


def _enough(inputs: AuditInput) -> Finding:
    hope, n = inputs.options.hope, len(inputs.cohort)
    needed, width = people_needed(hope / 100), half_width(n)
    numbers = {"n": n, "hope": hope, "needed": needed, "interval_half_width": width, "discordant": DISCORDANT}
    line = (
        f"a difference of {hope:g} points between two methods needs about {needed} subjects (McNemar's test, 5 %, "
        f"power 80 %, methods that disagree on {100 * DISCORDANT:.0f} % of subjects)"
    )
    interval = (
        f"an accuracy of {100 * USUAL_ACCURACY:.0f} % over {n} subjects has a 95 % interval of ± {100 * width:.1f} "
        "points"
    )
    if n < needed:
        message = f"Too few subjects for a claim of {hope:g} points: {interval}."
        fix = (
            f"add subjects (about {needed} are needed), or claim no difference smaller than the interval; compare "
            "methods on the same subjects and report the interval"
        )
        return Finding("size", "WARN", message, (line,), fix, numbers)
    return Finding(
        "size", "PASS", f"Enough subjects for a claim of {hope:g} points: {line}; {interval}.", (), "", numbers
    )
