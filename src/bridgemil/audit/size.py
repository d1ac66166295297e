"""Is the cohort large and balanced enough for conclusions?"""

from __future__ import annotations

import math
from collections import Counter

from bridgemil.audit.findings import AuditInput, Finding
from bridgemil.evaluation.metrics import chance, wilson

DISCORDANT = 0.2  # share of subjects on whom two methods disagree, as in most comparisons
USUAL_DIFFERENCE = 5.0  # points of accuracy, where the user names none
USUAL_ACCURACY = 0.75  # at which the interval's width is stated
# With 20 subjects of a class, a sensitivity of 75 % has a 95 % interval of 53 to 89 % (Wilson): with fewer subjects it
# is hardly distinguishable from chance, and no conclusion about the class can be drawn.
FEW = 20
LOPSIDED = 0.75  # share of the largest class


def check(inputs: AuditInput) -> list[Finding]:
    """Class balance with the chance level, and the number of subjects that a difference of methods needs."""
    return [_balance(inputs), _size(inputs)]


def _balance(inputs: AuditInput) -> Finding:
    labels = inputs.cohort.labels
    counts = Counter(labels)
    counted = ", ".join(f"{counts[name]} {name}" for name in inputs.cohort.classes)
    rate, low, high = chance(labels)
    guess = (
        f"Always predicting the largest class has an accuracy of {100 * rate:.1f} %; 95 % chance interval for this "
        f"many subjects: {100 * low:.1f} to {100 * high:.1f} %"
    )
    numbers = {"counts": dict(counts), "chance": rate, "chance95": [low, high]}
    if rate > LOPSIDED:
        fix = (
            "report balanced accuracy and AUROC with their intervals, claim no accuracy inside the chance interval, "
            "and add subjects of the smaller classes if you can"
        )
        return Finding("balance", "WARN", f"{counted}: {100 * rate:.0f} % in one class.", (guess,), fix, numbers)
    return Finding("balance", "PASS", f"{counted}. {guess}.", numbers=numbers)


def _size(inputs: AuditInput) -> Finding:
    counts, n, stated = Counter(inputs.cohort.labels), len(inputs.cohort), inputs.options.difference
    smallest, difference = min(counts, key=lambda name: counts[name]), stated or USUAL_DIFFERENCE
    needed, width = subjects_needed(difference / 100), half_width(n)
    numbers = {"n": n, "smallest_class": counts[smallest], "difference": difference, "needed": needed,
               "interval_half_width": width, "discordant": DISCORDANT}  # fmt: skip
    accuracy = f"an accuracy of {100 * USUAL_ACCURACY:.0f} % over {n} subjects"
    interval = f"{accuracy} has a 95 % interval of ± {100 * width:.1f} points"
    power = f"a difference of {difference:g} points between two methods needs about {needed} subjects"
    disagree = f"methods that disagree on {100 * DISCORDANT:.0f} % of subjects"
    evidence = [f"{power} (McNemar's test, 5 %, power 80 %, {disagree})"]
    if counts[smallest] < FEW:
        few = f"Only {counts[smallest]} subjects of class {smallest}, too few to estimate its sensitivity;"
    elif stated is not None and n < needed:
        few = f"Too few subjects to show a difference of {stated:g} points:"
    else:
        message = f"{FEW} or more subjects of each class: {interval}; {power}."
        return Finding("size", "PASS", message, evidence, numbers=numbers)
    fix = "add subjects, compare methods on the same subjects, and claim no difference smaller than the interval"
    return Finding("size", "WARN", f"{few} {interval}.", evidence, fix, numbers)


def subjects_needed(difference: float, discordant: float = DISCORDANT) -> int:
    """Subjects needed to show that one method is correct more often than another on the same subjects.

    McNemar's test, two-sided 5 %, power 80 %, normal approximation (Connor, 1987). ``difference`` of the accuracies and
    ``discordant``, who exactly one method classifies correctly, are shares of the subjects.
    """
    discordant = max(discordant, difference)
    root = 1.96 * math.sqrt(discordant) + 0.8416 * math.sqrt(max(discordant - difference**2, 0.0))
    return math.ceil((root / difference) ** 2)


def half_width(n: int, accuracy: float = USUAL_ACCURACY) -> float:
    """Half the width of Wilson's 95 % interval of an accuracy over n subjects."""
    low, high = wilson(accuracy, n)
    return (high - low) / 2
