"""Where recordings come from: a source lists the recordings of a folder without reading a signal.

A source is a module with one function, ``find(root, options) -> Listing``; add one by adding a file and its name to
``SOURCES``. A preset, a data set with settings of its own, also has ``SETTINGS`` and is named in ``PRESETS``.
"""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from bridgemil.cohort.settings import PrepareSettings
from bridgemil.errors import BadUse, Problem, one_of, plain

PRESETS = ("adftd", "mumtaz2017", "rockhill2021", "tuab")  # the first three as the paper prepares them
SOURCES = ("bids", "manifest", *PRESETS)
NOT_TEXT = "its name is not UTF-8 or holds control characters (shown as codes); rename it"


class SourceOptions(BaseModel):
    """Which recordings and labels to take from a source."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    label: str | None = None  # the column of participants.tsv or of the manifest that holds the diagnosis
    unlabelled: bool = False  # every subject has the label ''
    task: str | None = None
    session: str | None = None
    condition: str | None = None  # eyes_closed, eyes_open, or a pattern of the file's name
    raw: bool = False  # ADFTD: the raw recordings instead of the authors' cleaned ones
    derivatives: str | None = None  # BIDS: the folder below derivatives/ to take the recordings from
    desc: str | None = None  # of derivatives: this desc (or proc) entity only


@dataclass(frozen=True)
class Recording:
    """One file of one subject; ``name`` is its path relative to the source, for messages and the cohort's record."""

    subject: str
    path: Path
    name: str
    channels_tsv: Path | None = None  # BIDS sidecars: channel types and bad channels, marked stretches
    events_tsv: Path | None = None
    eeg_json: Path | None = None  # says, among other things, how long the recording is


@dataclass(frozen=True)
class LeftOut:
    """Something the cohort does not contain, and why."""

    what: str
    why: str


@dataclass
class Listing:
    """All recordings to prepare, in the order their windows are kept, with labels, notes and problems."""

    source: str
    root: Path
    recordings: list[Recording] = field(default_factory=list)
    labels: dict[str, str] = field(default_factory=dict)
    unusable_labels: dict[str, str] = field(default_factory=dict)  # of subjects that only a problem speaks of
    columns: dict[str, dict[str, str]] = field(default_factory=dict)  # what else is known of a subject
    left_out: list[LeftOut] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    tags: dict[Path, dict[str, str]] = field(default_factory=dict)  # task and condition of a file, by the manifest
    provenance: dict[str, Any] = field(default_factory=dict)  # of a derivative: what generated it, as it states

    def name(self, path: Path) -> str:
        """The path as messages and records show it: relative to the source where it lies inside."""
        return plain(path.relative_to(self.root).as_posix() if path.is_relative_to(self.root) else str(path))

    def add(self, subject: str, path: Path, *sidecars: Path | None) -> None:
        """List a file as the subject's next recording with its sidecars; a name that is not plain text is a problem."""
        name = path.relative_to(self.root) if path.is_relative_to(self.root) else path
        if plain(str(name)) != str(name):
            self.problems.append(Problem(NOT_TEXT, plain(subject), self.name(path)))
        else:
            self.recordings.append(Recording(subject, path, self.name(path), *sidecars))

    def drop(self, subjects: set[str]) -> None:
        """Take subjects out of the listing."""
        self.labels = {subject: label for subject, label in self.labels.items() if subject not in subjects}
        self.recordings = [recording for recording in self.recordings if recording.subject not in subjects]

    def rename_classes(self, mapping: Mapping[str, str], strict: bool = True) -> None:
        """Keep the classes named in ``mapping`` under their new names; drop and list every other subject."""
        known = self.unusable_labels | self.labels
        found = Counter(known.values())
        unknown = [old for old in mapping if old not in found]
        if unknown and strict:
            named, there = (", ".join(map(repr, names)) for names in (unknown, sorted(found)))
            raise BadUse(f"--classes names {named}, but the labels are {there}")
        for label in sorted(set(found) - set(mapping)):
            dropped = sorted(s for s, own in self.labels.items() if own == label)
            why = f"class {label!r} is not among the classes asked for"
            self.left_out += [LeftOut(subject, why) for subject in dropped]
        self.drop({subject for subject, own in self.labels.items() if own not in mapping})
        self.labels = {subject: mapping[own] for subject, own in self.labels.items()}
        self.unusable_labels = {subject: mapping.get(own, own) for subject, own in self.unusable_labels.items()}
        self.problems = [p for p in self.problems if known.get(p.subject or "", "") in ("", *mapping)]

    def drop_unclear_labels(self) -> None:
        """Take out, as problems, subjects whose label is a typing error.

        It has an open quotation mark, or differs from a more frequent one only in capitals or spaces.
        """
        open_quote = sorted(subject for subject, label in self.labels.items() if label.count('"') % 2)
        for subject in open_quote:
            what = f"label {self.labels[subject]!r} has a quotation mark that is not closed; correct it in the table"
            self.problems.append(Problem(what, subject))
        self.drop(set(open_quote))
        other = respelt(self.labels.values())
        kept = [label for label in sorted(set(self.labels.values())) if label not in other]
        asked = ",".join([*(f"{label}={usual}" for label, usual in other.items()), *kept])
        for subject in sorted(subject for subject, label in self.labels.items() if label in other):
            label = self.labels[subject]
            what = f"label {label!r} differs from {other[label]!r} only in capitals or spaces; --classes {asked!r}"
            self.problems.append(Problem(f"{what} joins them", subject))
        self.drop({subject for subject, label in self.labels.items() if label in other})


def respelt(labels: Iterable[str]) -> dict[str, str]:
    """Labels that differ from a more frequent one only in capitals or in spaces around them, and that one."""
    counts = Counter(labels)
    usual: dict[str, str] = {}
    for label in sorted(counts, key=lambda label: (-counts[label], label)):
        usual.setdefault(label.strip().casefold(), label)
    other = {label: usual[label.strip().casefold()] for label in sorted(counts)}
    return {label: known for label, known in other.items() if label != known}


def preset_settings(name: str) -> PrepareSettings:
    """The settings of a preset."""
    one_of("preset", name, PRESETS)
    settings: PrepareSettings = importlib.import_module(f"{__name__}.{name}").SETTINGS
    return settings


def changed_from_preset(source: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a prepared cohort that differ from the paper's, but for the number of folds.

    Parameters
    ----------
    source : str
        The cohort's source; nothing differs for one that is no preset.
    settings : dict
        As written in its cohort.json.
    """
    if source not in PRESETS:
        return {}
    usual = preset_settings(source).model_dump(mode="json")
    return {key: value for key, value in settings.items() if key != "folds" and value != usual.get(key)}


def find(
    source: Path,
    preset: str | None,
    options: SourceOptions,
    classes: Mapping[str, str] | Iterable[str] | None = None,
) -> Listing:
    """List the recordings of a preset's folder, a manifest or a BIDS folder; parameters as of ``prepare``."""
    if not source.exists():
        raise BadUse(f"{source}: no such folder or manifest")
    if options.raw and preset != "adftd":
        raise BadUse("--raw goes with --preset adftd")
    if options.unlabelled and (options.label is not None or classes is not None):
        raise BadUse("--unlabelled prepares without diagnoses; leave --label and --classes out")
    given = [
        name
        for name in ("label", "unlabelled", "task", "session", "condition", "derivatives")
        if getattr(options, name)
    ]
    if preset is not None and given:
        raise BadUse(f"--{given[0]} does not go with --preset {preset}, which settles it")
    kind, root = preset or "bids", source
    if preset is None and source.is_file():
        kind = "manifest"
    elif preset is None and (source / "manifest.csv").is_file() and not (source / "participants.tsv").is_file():
        kind, root = "manifest", source / "manifest.csv"
    if kind != "bids" and options.derivatives:
        raise BadUse(f"--derivatives is for BIDS folders; {source} has no participants.tsv")
    if options.desc and not options.derivatives:
        raise BadUse("--desc goes with --derivatives")
    listing: Listing = importlib.import_module(f"{__name__}.{kind}").find(root, options)
    importlib.import_module(f"{__name__}.conditions").select(listing, options)
    if classes:
        listing.rename_classes(classes if isinstance(classes, Mapping) else {name: name for name in classes})
    listing.drop_unclear_labels()
    return listing
