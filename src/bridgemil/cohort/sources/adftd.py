"""ADFTD (OpenNeuro ds004504): 36 AD, 23 FTD, 29 HC, eyes closed; the authors' cleaned derivative, or the raw files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from bridgemil.cohort.channels import ADFTD_ORDER
from bridgemil.cohort.settings import PrepareSettings
from bridgemil.cohort.sources import Listing, SourceOptions, bids
from bridgemil.errors import BadData, Problem

SETTINGS = PrepareSettings(channels=ADFTD_ORDER, bad_annotations="keep", folds=10, burn_in=10)
CLASSES = {"A": "AD", "F": "FTD", "C": "HC"}


def find(root: Path, options: SourceOptions) -> Listing:
    """List ``derivatives/sub-*/eeg/*_eeg.set``, or with ``raw`` the recordings at the top level."""
    if options.raw:
        listing = bids.find(root, replace(options, label="Group"))
        listing.rename_classes(CLASSES, strict=False)
        listing.source = "adftd-raw"  # not what the paper used
        return listing

    derivatives = root / "derivatives"
    if not any(derivatives.glob("sub-*/eeg/*_eeg.set")):
        raise BadData(
            f"{derivatives}: no sub-*/eeg/*_eeg.set, the data set's cleaned recordings; fetch them, or pass --raw to "
            "use the recordings at the top level"
        )
    listing = Listing("adftd", root)
    for name, row in bids.read_participants(root, "Group")[1].items():
        group = row.get("Group", "")
        path = derivatives / name / "eeg" / f"{name}_task-eyesclosed_eeg.set"
        if group not in CLASSES:
            listing.problems.append(Problem(f"unknown class {group!r} in Group, expected A, F or C", name))
        else:
            listing.labels[name] = CLASSES[group]
            listing.columns[name] = row
            listing.add(name, path)
    return listing
