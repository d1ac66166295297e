"""TUAB, the TUH Abnormal EEG Corpus: ``edf/{train,eval}/{normal,abnormal}/01_tcp_ar/<person>_s<session>_t<token>.edf``.

A person's sessions are the recordings of one subject. The column ``part`` says who is of the official evaluation set
(``bridgemil folds COHORT --test part=eval``). Two kinds of subjects need a rule, and each is listed: a subject of both
parts is an evaluation subject by the recordings there, since a model trained on the others would know it; a subject
with sessions of both classes has no diagnosis that one label could state, and is left out.
"""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path
from typing import NamedTuple

from bridgemil.cohort.formats import patient
from bridgemil.cohort.settings import PrepareSettings
from bridgemil.cohort.sources import LeftOut, Listing, SourceOptions
from bridgemil.errors import BadData

SETTINGS = PrepareSettings(
    channels=tuple("Fp1 Fp2 F7 F3 Fz F4 F8 A1 T3 C3 Cz C4 T4 A2 T5 P3 Pz P4 T6 O1 O2".split()),
    reference=("average",), bad_annotations="keep",
)  # fmt: skip
NAME = re.compile(r"^([a-z0-9]+)_s(\d+)_t(\d+)\.edf$", re.IGNORECASE)
PARTS, CLASSES = ("train", "eval"), ("normal", "abnormal")


class _Recording(NamedTuple):
    part: str
    label: str
    session: int
    path: Path


def find(root: Path, options: SourceOptions) -> Listing:
    """List every person's recordings, session after session."""
    base, listing = root / "edf" if (root / "edf").is_dir() else root, Listing("tuab", root)
    people: dict[str, list[_Recording]] = {}
    for part, label in product(PARTS, CLASSES):
        for path in sorted((base / part / label).rglob("*.[eE][dD][fF]")):
            if match := NAME.match(path.name):
                people.setdefault(match[1], []).append(_Recording(part, label, int(match[2]), path))
            else:
                why = "its name is not '<person>_s<session>_t<token>.edf'"
                listing.left_out.append(LeftOut(listing.name(path), why))
    if not people:
        raise BadData(f"{base}: no {{train,eval}}/{{normal,abnormal}}/01_tcp_ar/*.edf, the layout of TUH Abnormal")
    both_parts, both_classes = list[str](), list[str]()
    for person, every in sorted(people.items()):
        own = [one for one in every if one.part == PARTS[1]] or every
        if len(own) < len(every):
            both_parts.append(person)
            why = f"{person} is an evaluation subject; a model that is trained on this recording would know the person"
            listing.left_out += [LeftOut(listing.name(one.path), why) for one in every if one not in own]
        sessions = {one.label: sorted({f"s{o.session:03d}" for o in own if o.label == one.label}) for one in own}
        if len(sessions) > 1:
            both_classes.append(person)
            each = "; ".join(f"{label}: {', '.join(names)}" for label, names in sorted(sessions.items()))
            listing.left_out.append(LeftOut(person, f"has sessions of both classes ({each})"))
            continue
        listing.labels[person] = own[0].label
        listing.columns[person] = {"part": own[0].part, "sessions": str(len({one.session for one in own}))}
        listing.columns[person] |= _about(own[0].path)
        for one in sorted(own, key=lambda one: (one.session, one.path.name)):
            listing.add(person, one.path)
    several = [person for person, row in listing.columns.items() if row["sessions"] != "1"]
    for names, what in (
        (several, "with several sessions: one subject each"),
        (both_parts, "in train and eval: evaluation subjects, without their recordings of train"),
        (both_classes, "with sessions of both classes: left out"),
    ):
        if names:
            listing.notes.append(f"{len(names)} {what} ({', '.join(names[:8])}{' …' if len(names) > 8 else ''})")
    return listing


def _about(path: Path) -> dict[str, str]:
    """Age and sex by the file's header (``aaaaaaaq M 01-JAN-1984 aaaaaaaq Age:26``); '' where it does not say."""
    try:
        words = patient(path)
    except OSError:  # named as unreadable when its signal is read
        words = ""
    age, sex = re.search(r"\bAge:(\d+)", words), re.search(r"(?<=\s)[MF](?=\s)", words)
    return {"age": age[1] if age else "", "sex": sex[0] if sex else ""}
