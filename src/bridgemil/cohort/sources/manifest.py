"""Any folder with a manifest: a CSV of ``subject,label,file``, one row a recording, rows of a subject in order.

File names are relative to the manifest. Further columns (site, age, family) are kept with the subject.
"""

from __future__ import annotations

from pathlib import Path

from bridgemil.cohort.listing import Listing
from bridgemil.cohort.sources import SourceOptions
from bridgemil.cohort.tables import read_table
from bridgemil.errors import BadData, BadUse, Problem

REQUIRED = ("subject", "label", "file")


def find(root: Path, options: SourceOptions) -> Listing:
    """List the rows of a manifest; ``root`` is the CSV file."""
    columns, rows = read_table(root, delimiter=",")
    absent = [name for name in REQUIRED if name not in columns]
    if absent:
        raise BadUse(f"{root}: lacks the column {', '.join(absent)}; it has {', '.join(columns)}")
    if not rows:
        raise BadData(f"{root}: lists no recording")
    if options.task or options.session or (options.label and options.label != "label"):
        raise BadUse("--label, --task and --session are for BIDS folders; a manifest names its labels and files itself")

    listing = Listing("manifest", root.parent)
    unclear: set[str] = set()  # subjects with two labels: neither is guessed
    for row, values in enumerate(rows, start=2):  # the header is line 1
        subject, label, file = (values.pop(name) for name in REQUIRED)
        if not subject or not file:
            listing.problems.append(Problem("needs both a subject and a file", subject or None, f"line {row}"))
            continue
        if not label:
            listing.problems.append(Problem(f"missing label (line {row})", subject, file))
            continue
        if listing.labels.setdefault(subject, label) != label:
            known = listing.labels[subject]
            listing.problems.append(Problem(f"labelled {label!r} in line {row} but {known!r} before", subject, file))
            unclear.add(subject)
            continue
        for name, value in listing.columns.setdefault(subject, values).items():
            if values.get(name) != value:
                listing.notes.append(
                    f"{subject}: {name} is {value!r} first and {values.get(name)!r} in line {row}; the first is kept"
                )
        path = root.parent / file
        if path.exists():
            listing.add(subject, path)
        else:
            listing.problems.append(Problem("file not found", subject, file))
    listing.drop(unclear)
    return listing
