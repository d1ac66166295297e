"""The template of a manifest from a folder of recordings: the likely subject of each file, and room for the label.

Subjects are guessed from names, which a user must check; labels are never guessed, only taken over where a file's path
names exactly one class (``patients/``, ``MDD S1 EC.edf``) and the paths name at least two. The rest is listed.
"""

from __future__ import annotations

import csv
import io
import os
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from bridgemil.cohort import formats
from bridgemil.cohort.sources import NOT_TEXT, LeftOut
from bridgemil.cohort.tables import natural_key
from bridgemil.errors import BadData, BadUse, plain
from bridgemil.storage.files import write_text

# What a file's name says of the recording and not of the person.
_CONDITION = re.compile(
    r"(ec|eo|eyes?|eyes?closed|eyes?open|closed|open|rest|resting|restingstate|task|run|ses|session|visit|day|trial|rec|"
    r"recording|part|block|raw|eeg|clean|cleaned|filtered|preprocessed|baseline|pre|post)\d*",
    re.IGNORECASE,
)
_COUNTING = set("run ses session visit day trial rec recording part block task".split())  # a number after them counts
_BIDS_FOLDER = re.compile(r"(ses|run|task|acq)-[a-z0-9]+", re.IGNORECASE)
_CLASSES = set(
    "patient patients control controls healthy hc case cases normal abnormal ad ftd mci mdd pd sz scz adhd asd "
    "dementia depression depressed epilepsy epileptic schizophrenia alzheimer alzheimers parkinson parkinsons".split()
)
# Folders, besides those of a class, that hold the recordings of many subjects.
_HEAPS = {"people", *(ending.removeprefix(".") for ending in formats.FORMATS)}
_HEAPS |= set("data dataset files recordings signals subjects participants derivatives sourcedata rawdata".split())


class Row(NamedTuple):
    """One recording as the manifest lists it."""

    subject: str
    label: str  # '' unless the names say it
    file: str  # relative to the manifest


@dataclass
class ManifestTemplate:
    """What was found in a folder, and what a user must know about it."""

    rows: list[Row] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def unlabelled(self) -> list[str]:
        """The files whose names do not say the label."""
        return [row.file for row in self.rows if not row.label]

    def files(self) -> dict[str, list[str]]:
        """Subject to its files, in order."""
        subjects: dict[str, list[str]] = {}
        for row in self.rows:
            subjects.setdefault(row.subject, []).append(row.file)
        return subjects


def write_manifest_template(folder: str | Path, out: str | Path | None = None) -> tuple[Path, ManifestTemplate]:
    """List a folder's recordings in a manifest to be filled in; returns where it was written, and what is in it.

    Parameters
    ----------
    folder : str or Path
        Recordings, flat or in folders of any depth.
    out : str or Path, optional
        The CSV to write; ``manifest.csv`` in the folder if left out. An existing file is never replaced.
    """
    folder = Path(folder)
    path = folder / "manifest.csv" if out is None else Path(out)
    if not folder.is_dir():
        raise BadUse(f"{folder}: no such folder; name the one that holds the recordings")
    if (folder / "participants.tsv").is_file():
        instead = f"run `bridgemil prepare {folder} OUT --label COLUMN`"
        raise BadUse(f"{folder}: is a BIDS folder and needs no manifest; {instead}")
    if not path.parent.is_dir():
        raise BadUse(f"{path.parent}: no such folder to write the manifest to")
    if os.path.lexists(path):
        raise BadUse(f"{path}: exists and is left as it is; choose another --out, or take it away first")
    template = ManifestTemplate()
    places = _recordings(folder, template)
    if not places:
        raise BadData(f"{folder}: no recording there; {formats.FORMATS_READ}")
    subjects, top, start = _subjects(places, template), folder.absolute(), path.parent.absolute()
    for place, subject, label in zip(places, subjects, _labels(places), strict=True):
        file = os.path.relpath(top / place, start) if top.drive == start.drive else top / place
        template.rows.append(Row(subject, label, Path(file).as_posix()))
    template.rows.sort(key=lambda row: (natural_key(row.subject), natural_key(row.file)))
    text = io.StringIO(newline="")
    csv.writer(text).writerows([Row._fields, *template.rows])
    write_text(path, text.getvalue())
    return path, template


def _recordings(folder: Path, template: ManifestTemplate) -> list[Path]:
    """The recordings below a folder, relative to it."""
    places: list[Path] = []
    for path in sorted(folder.rglob("*")):
        place = path.relative_to(folder)
        hidden = any(part.startswith(".") or part.lower().endswith(".mff") for part in place.parts[:-1])
        if hidden or not formats.is_recording(path):  # hidden, or inside a recording
            continue
        part = re.fullmatch(r"(.+)-\d+\.fif", path.name, re.IGNORECASE)
        if plain(str(place)) != str(place):
            template.left_out.append(LeftOut(plain(place.as_posix()), NOT_TEXT))
        elif part and path.with_name(f"{part[1]}.fif").is_file():
            template.left_out.append(LeftOut(place.as_posix(), f"is read together with {part[1]}.fif"))
        else:
            places.append(place)
    return places


def _subject(place: Path) -> str:
    """The person's name in a file's name, or in that of the nearest folder that has one."""
    bids = re.findall(r"sub-[A-Za-z0-9]+", place.as_posix())
    if bids:
        return str(bids[-1])
    folder = _folder_person(place)
    in_person = any(letter.isdigit() for letter in folder)  # P01/rest_1: the number is not another person
    return _without_conditions(place.stem, numbers=in_person) or folder or place.stem


def _folder_person(place: Path) -> str:
    """The person's name in that of the nearest folder that has one; folders of a class or of everybody have none."""
    people = (_without_conditions(part) for part in reversed(place.parent.parts))
    return next((person for person in people if person and person.lower() not in _CLASSES | _HEAPS), "")


def _without_conditions(name: str, numbers: bool = False) -> str:
    """A name without the words at its ends that describe the recording: ``P01_rest_2`` becomes ``P01``.

    A number after such a word goes with it if the word counts recordings (``run_1``), or if ``numbers`` says so: in
    ``EC_01`` it may be the person.
    """
    if _BIDS_FOLDER.fullmatch(name):
        return ""
    if numbered := re.fullmatch(r"(s\d+)r\d+", name, re.IGNORECASE):  # subject and run, as PhysioNet writes them
        return numbered[1]
    words = list(re.finditer(r"[^\s_.-]+", name))
    while words and _CONDITION.fullmatch(words[0][0]):
        counts = words[0][0].lower() in _COUNTING or (numbers and words[0][0].isalpha())
        words = words[2 if counts and len(words) > 1 and words[1][0].isdigit() else 1 :]
    while words:
        numbered_last = len(words) > 2 and words[-1][0].isdigit() and _CONDITION.fullmatch(words[-2][0])
        n = 1 if _CONDITION.fullmatch(words[-1][0]) else 2 if numbered_last else 0
        if n == 0:
            break
        del words[-n:]
    return name[words[0].start() : words[-1].end()] if words else ""


def _subjects(places: Sequence[Path], template: ManifestTemplate) -> list[str]:
    """The subject of each recording; where names do not say it clearly, a note asks.

    Where one name is in several folders (``patients/01``, ``controls/01``) it is joined to theirs.
    """
    guesses = [_subject(place) for place in places]
    silent = [i for i, place in enumerate(places) if not _without_conditions(place.stem) and guesses[i][:4] != "sub-"]
    folders = Counter(guesses[i] for i in silent if guesses[i] == _folder_person(places[i]))
    for folder, n in sorted(folders.items()):
        if n > 1 and (len(set(guesses)) == 1 or not any(letter.isdigit() for letter in folder)):
            template.notes.append(f"{folder} is the name of a folder with {n} recordings: are they of one person?")
    alone = [places[i].name for i in silent if guesses[i] == places[i].stem]
    if len(alone) > 1:
        each = "name no person: each became a subject of its own; is that right?"
        template.notes.append(f"{alone[0]} and {len(alone) - 1} more {each}")
    branches = defaultdict[str, list[tuple[str, ...]]](list)  # by guess: the folders of each recording
    for place, guess in zip(places, guesses, strict=True):
        branches[guess].append(
            tuple(part for part in place.parent.parts if _without_conditions(part) not in ("", guess))
        )
    several = {guess for guess, own in branches.items() if len(set(own)) > 1}
    for guess in sorted(several):
        apart = sorted({"-".join([*branch, guess]) for branch in branches[guess]})
        template.notes.append(f"{guess} is in several folders and became {', '.join(apart)}: are they one person?")
    return ["-".join([*branches[guess].pop(0), guess]) if guess in several else guess for guess in guesses]


def _labels(places: Sequence[Path]) -> list[str]:
    """The class that each path names, '' where it names none or several; all '' unless two classes are named.

    One class alone is often the data set's name (``ad-study/``), which stands on everybody's path.
    """
    labels = []
    for place in places:
        words = re.split(r"[\s_.-]+", place.stem)
        named = {word for word in [*place.parent.parts, *words] if word.lower() in _CLASSES}
        named |= {word for word in words[:1] if word.lower() == "h"}  # healthy, as the first word of a file's name
        labels.append(named.pop() if len(named) == 1 else "")
    return labels if len(set(labels) - {""}) > 1 else [""] * len(labels)
