"""Mumtaz2017 (figshare 4244171): a flat folder of ``MDD S<n> <EC|EO|TASK>.edf`` and ``H S<n> <EC|EO|TASK>.edf``.

Group and number together are the subject: H S1 and MDD S1 are two subjects. Eyes closed stands before eyes open; TASK
is not used. One recording (H S15 EO) exists twice under numeric prefixes: the first by name is kept. MDD S33 and MDD
S34 are the same recordings under two ids, as are H S27 and H S30: the preset's ``duplicates`` setting keeps the lower
number, since one person in two folds leaks test data into training.
"""

from __future__ import annotations

import filecmp
import re
from pathlib import Path

from bridgemil.cohort import formats
from bridgemil.cohort.settings import PrepareSettings
from bridgemil.cohort.sources import LeftOut, Listing, SourceOptions
from bridgemil.errors import BadData, Problem

SETTINGS = PrepareSettings(
    channels=tuple("Fp1 Fp2 F3 F4 C3 C4 P3 P4 O1 O2 F7 F8 T3 T4 T5 T6 Fz Cz Pz".split()),
    low=0.3, high=75.0, notch=(50.0,), bad_annotations="keep", duplicates="keep-first", folds=10, burn_in=0,
)  # fmt: skip
NAME = re.compile(r"^(?:\d+_)?(MDD|H)\s+S(\d+)\s+(EC|EO|TASK)\s*\.edf$", re.IGNORECASE)
CLASSES = {"MDD": "MDD", "H": "HC"}


def find(root: Path, options: SourceOptions) -> Listing:
    """List eyes-closed then eyes-open recordings per subject."""
    listing = Listing("mumtaz2017", root)
    chosen: dict[tuple[str, str], Path] = {}
    tasks = []
    for path in sorted(root.rglob("*.[eE][dD][fF]")):
        match = NAME.match(path.name)
        if match is None:
            listing.left_out.append(LeftOut(listing.name(path), "its name is not '<MDD|H> S<n> <EC|EO|TASK>.edf'"))
            continue
        subject, condition = f"{match[1].upper()}{int(match[2]):02d}", match[3].upper()
        first = chosen.get((subject, condition))
        if condition == "TASK":
            tasks.append((subject, path))
        elif why := formats.missing(path):
            listing.problems.append(Problem(why, subject, listing.name(path)))
        elif first is None:
            chosen[subject, condition] = path
        elif filecmp.cmp(path, first, shallow=False):
            listing.left_out.append(LeftOut(listing.name(path), f"identical to {listing.name(first)}"))
        else:
            what = f"a second {condition} recording that differs from {listing.name(first)}"
            listing.problems.append(Problem(what, subject, listing.name(path)))
    if not chosen:
        raise BadData(f"{root}: no file named like 'MDD S1 EC.edf' or 'H S1 EO.edf'", listing.problems)

    for (subject, _), path in sorted(chosen.items()):  # EC sorts before EO
        listing.labels[subject] = CLASSES[subject.rstrip("0123456789")]
        listing.add(subject, path)
    for subject, path in tasks:
        used = subject in listing.labels
        why = "TASK recordings are not used" if used else "its subject has neither an EC nor an EO recording"
        listing.left_out.append(LeftOut(listing.name(path), why))
    return listing
