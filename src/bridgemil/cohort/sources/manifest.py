"""Any folder with a manifest: a CSV of ``subject,label,file``, one row per recording, rows of a subject in order.

Commas, semicolons or tabs separate the columns; capitals and spaces in their names do not matter. File names are
relative to the manifest. Further columns (site, age, family) are kept with the subject.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from bridgemil.cohort.sources import TAGS, LeftOut, Listing, SourceOptions
from bridgemil.cohort.tables import columns_named, folded, read_table
from bridgemil.errors import BadData, BadUse, Problem


def find(root: Path, options: SourceOptions) -> Listing:
    """List the rows of a manifest; ``root`` is the CSV file."""
    label_column = options.label or "label"
    columns, rows = read_table(root, delimiter=None, used=("subject", label_column, "file"))
    subject_column, file_column, *named = _columns(
        root, columns, ("subject", "file") if options.unlabelled else ("subject", "file", label_column)
    )
    if not rows:
        raise BadData(f"{root}: lists no recording")
    if options.session:
        raise BadUse("--session is for BIDS folders; a manifest names its files itself")
    if named and not any(row[named[0]] for _, row in rows):
        raise BadData(
            f"{root}: the column {named[0]} is empty in all {len(rows)} rows: fill in each subject's diagnosis (any "
            "spreadsheet or editor opens the file), then run the same command again; --unlabelled prepares them without"
        )
    listing = Listing("manifest", root.parent)
    unclear: set[str] = set()  # subjects with two labels: neither is guessed
    lines: dict[tuple[str, str], int] = {}  # where a subject's file is listed first
    for row, values in rows:
        subject, file = values.pop(subject_column), values.pop(file_column)
        label = values.pop(named[0]) if named else ""
        tags = {kind: value for name, value in values.items() if (kind := folded(name)) in TAGS}
        if not subject or not file:
            listing.problems.append(Problem("needs both a subject and a file", subject or None, f"line {row}"))
            continue
        if named and not label:
            what = f"missing label (line {row}): fill in {named[0]}, or take the row out"
            listing.problems.append(Problem(what, subject, file))
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
        if (first := lines.setdefault((subject, os.path.realpath(path)), row)) != row:
            listing.left_out.append(LeftOut(f"{subject}, {file}", f"line {row} repeats line {first}; it is used once"))
        else:
            listing.add(subject, path)
            listing.tags[path] = tags
    listing.drop(unclear)
    return listing


def _columns(root: Path, columns: Sequence[str], needed: Sequence[str]) -> list[str]:
    """The manifest's own names for the columns that are needed."""
    matches = {wanted: columns_named(wanted, columns) for wanted in needed}
    for wanted, names in matches.items():
        if len(names) > 1:
            raise BadUse(f"{root}: has the column {wanted} more than once: {', '.join(names)}")
    absent = [wanted for wanted in needed if not matches[wanted]]
    if absent:
        advice = "; name the column with the diagnosis with --label, or --unlabelled" if absent == ["label"] else (
            "; a manifest has the columns subject, label and file (`bridgemil manifest FOLDER` writes one)"
        )  # fmt: skip
        raise BadUse(f"{root}: lacks the column {', '.join(absent)}; it has {', '.join(columns)}{advice}")
    named = [names[0] for names in matches.values()]
    if len(set(named)) < len(named):
        raise BadUse(f"--label {needed[-1]}: that is the column of the {folded(needed[-1])}s; name the diagnosis's")
    return named
