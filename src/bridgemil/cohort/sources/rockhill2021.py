"""Rockhill2021 (OpenNeuro ds002778): 15 PD on medication and 16 HC, BDF.

The class is in the subject's name; ``ses-off`` recordings are not used. Two ``ses-on`` recordings were restored from
preprocessed files, which a model could recognise: they are noted in the cohort's record.
"""

from __future__ import annotations

from pathlib import Path

from bridgemil.cohort.settings import PrepareSettings
from bridgemil.cohort.sources import LeftOut, Listing, SourceOptions, bids
from bridgemil.errors import Problem

MONTAGE = (
    "Fp1 AF3 F7 F3 FC1 FC5 T7 C3 CP1 CP5 P7 P3 Pz PO3 O1 Oz O2 PO4 P4 P8 CP6 CP2 C4 T8 FC6 FC2 F4 F8 AF4 Fp2 Fz Cz"
)
SETTINGS = PrepareSettings(
    channels=tuple(MONTAGE.split()), high=40.0, overlap=0.5, bad_annotations="keep", folds=5, burn_in=15
)
SESSIONS = {"pd": ("PD", "on"), "hc": ("HC", "hc")}


def find(root: Path, options: SourceOptions) -> Listing:
    """List ``ses-on`` of PD and ``ses-hc`` of HC subjects."""
    listing = Listing("rockhill2021", root)
    _, participants = bids.read_participants(root)
    for path in bids.recordings(root, options):
        label, session = SESSIONS.get(path.subject[:2], (None, None))
        if label is None:
            listing.left_out.append(LeftOut(listing.name(path.fpath), "its subject is neither sub-pd* nor sub-hc*"))
        elif path.session != session:
            listing.left_out.append(LeftOut(listing.name(path.fpath), f"only ses-{session} of {label} is used"))
        else:
            listing.labels[f"sub-{path.subject}"] = label
            bids.add(listing, path)
    for name in sorted(set(participants) | set(listing.labels)):
        if name not in listing.labels:
            what = bids.absent(root / name) or "listed in participants.tsv but its recording was not found"
            listing.problems.append(Problem(what, name))
        elif name in participants:
            listing.columns[name] = row = participants[name]
            if "preprocessed" in row.get("notes", ""):
                listing.notes.append(f"possible shortcut: {name} comes from a preprocessed file ({row['notes']})")
    return listing
