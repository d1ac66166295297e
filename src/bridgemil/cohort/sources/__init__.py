"""Where recordings come from: a source lists the recordings of a folder without reading a signal.

A source is a module with one function, ``find(root, options) -> Listing``. A preset, a data set with settings of its
own, also has ``SETTINGS`` and is named in ``PRESETS``.
"""

from __future__ import annotations

import importlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from itertools import pairwise
from pathlib import Path
from typing import Any

from bridgemil.cohort import formats
from bridgemil.cohort.settings import PrepareSettings
from bridgemil.cohort.tables import folded
from bridgemil.errors import BadUse, Problem, one_of, plain

PRESETS = ("adftd", "mumtaz2017", "rockhill2021", "tuab")  # the first three as the paper prepares them
NOT_TEXT = "its name is not UTF-8 or holds control characters (shown as codes); rename it"
TAGS = ("task", "condition")  # columns of a manifest that say what a file is
# Names of one condition, without capitals, signs between words and numbers at the end.
SAME = {
    "eyes_closed": {"ec", "closed", "eyesclosed", "eyeclosed", "restec", "ecrest", "resteyesclosed", "eyesclosedrest",
                    "closedeyes"},
    "eyes_open": {"eo", "open", "opened", "eyesopen", "eyeopen", "eyesopened", "resteo", "eorest", "resteyesopen",
                  "eyesopenrest", "openeyes"},
}  # fmt: skip


@dataclass(frozen=True)
class SourceOptions:
    """Which recordings and labels to take from a source."""

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
        """List a file as the subject's next recording; one that is missing, or not named in text, is a problem."""
        name = path.relative_to(self.root) if path.is_relative_to(self.root) else path
        wrong = NOT_TEXT if plain(str(name)) != str(name) else formats.missing(path)
        if wrong:
            self.problems.append(Problem(wrong, plain(subject), self.name(path)))
        else:
            self.recordings.append(Recording(subject, path, self.name(path), *sidecars))

    def drop(self, subjects: Iterable[str]) -> None:
        """Take subjects out of the listing."""
        gone = set(subjects)
        self.labels = {subject: label for subject, label in self.labels.items() if subject not in gone}
        self.recordings = [recording for recording in self.recordings if recording.subject not in gone]

    def rename_classes(self, mapping: Mapping[str, str], strict: bool = True) -> None:
        """Keep the classes named in ``mapping`` under their new names; drop and list every other subject."""
        known = self.unusable_labels | self.labels
        found = Counter(known.values())
        unknown = [old for old in mapping if old not in found]
        if unknown and strict:
            named, there = (", ".join(map(repr, names)) for names in (unknown, sorted(found)))
            raise BadUse(f"--classes names {named}, but the labels are {there}")
        dropped = [subject for subject, own in self.labels.items() if own not in mapping]
        for subject in sorted(dropped, key=lambda subject: (self.labels[subject], subject)):
            why = f"class {self.labels[subject]!r} is not among the classes asked for"
            self.left_out.append(LeftOut(subject, why))
        self.drop(dropped)
        self.labels = {subject: mapping[own] for subject, own in self.labels.items()}
        self.unusable_labels = {subject: mapping.get(own, own) for subject, own in self.unusable_labels.items()}
        self.problems = [p for p in self.problems if known.get(p.subject or "", "") in ("", *mapping)]

    def drop_unclear_labels(self) -> None:
        """Take out, as problems, subjects whose label is a typing error.

        It has an open quotation mark, or differs from a more frequent one only in capitals or spaces.
        """
        open_quote = {label for label in self.labels.values() if label.count('"') % 2}
        other = respelt(label for label in self.labels.values() if label not in open_quote)
        kept = sorted({*self.labels.values()} - open_quote - set(other))
        joined = ",".join([*(f"{label}={usual}" for label, usual in other.items()), *kept])
        wrong = dict.fromkeys(open_quote, "has a quotation mark that is not closed; correct it in the table")
        for label, usual in other.items():
            wrong[label] = f"differs from {usual!r} only in capitals or spaces; --classes {joined!r} joins them"
        unclear = sorted(subject for subject, label in self.labels.items() if label in wrong)
        for subject in unclear:
            label = self.labels[subject]
            self.problems.append(Problem(f"label {label!r} {wrong[label]}", subject))
        self.drop(unclear)

    def select(self, options: SourceOptions) -> None:
        """Keep the recordings of the task and condition asked for; list the others.

        A value with ``*`` or ``?`` is a pattern of the file's name; otherwise the column of the manifest counts, or,
        where it has none, the words of the name. A subject without such a recording is a problem.
        """
        for kind in TAGS:
            wanted = getattr(options, kind)
            if wanted is None or (kind == "task" and self.source != "manifest"):  # BIDS names tasks itself
                continue
            kept = [one for one in self.recordings if self._is_of(one, kind, wanted)]
            if not kept:
                seen = {tags[kind] for tags in self.tags.values() if tags.get(kind)}
                seen = seen or {name for one in self.recordings for name in named(one)} & set(SAME)
                there = ", ".join(sorted(seen)) or "none named"
                raise BadUse(f"--{kind} {wanted}: no recording is of it; there are {there}")
            others = [one for one in self.recordings if one not in kept]
            self.left_out += [LeftOut(f"{one.subject}, {one.name}", f"not of the {kind} {wanted!r}") for one in others]
            lacking = {one.subject for one in others} - {one.subject for one in kept}
            self.problems += [Problem(f"has no recording of the {kind} {wanted!r}", who) for who in sorted(lacking)]
            self.recordings = kept
            self.drop(lacking)
            for one in reversed(kept):  # the subject's columns are those of its first recording
                own, known = self.tags.get(one.path, {}), self.columns.get(one.subject, {})
                known.update({name: own[folded(name)] for name in known if folded(name) in own})
        used = {self._condition(one) for one in self.recordings} - {""}
        if len(used) > 1 and self.source == "manifest":
            self.notes.append(
                f"{len(used)} conditions are used together: {', '.join(sorted(used))} (narrow with --condition, or "
                "`evaluate --bags recording`)"
            )

    def _is_of(self, recording: Recording, kind: str, wanted: str) -> bool:
        if "*" in wanted or "?" in wanted:
            return fnmatch(recording.path.name.lower(), wanted.lower())
        stated = self.tags.get(recording.path, {}).get(kind)
        return canonical(wanted) in ({canonical(stated)} if stated else named(recording))

    def _condition(self, recording: Recording) -> str:
        """Eyes open or closed, by the column or the file's name; '' where neither or both are named."""
        if stated := self.tags.get(recording.path, {}).get("condition"):
            return canonical(stated)
        found = named(recording) & set(SAME)
        return found.pop() if len(found) == 1 else ""


def canonical(text: str) -> str:
    """One name for all spellings of a condition: ``EC``, ``eyes-closed`` and ``EyesClosed1`` are ``eyes_closed``."""
    whole = re.sub(r"[\s_.-]+", "", text).lower()
    bare = whole.rstrip("0123456789") or whole
    return next((name for name, spellings in SAME.items() if bare in spellings), bare)


def named(recording: Recording) -> set[str]:
    """The conditions that a file's name may state: its words, and neighbouring words together, but for the subject."""
    stem = re.sub(re.escape(recording.subject), " ", recording.path.stem, flags=re.IGNORECASE)
    words = re.findall(r"[A-Za-z0-9]+", stem)
    return {canonical(word) for word in (*words, *map("".join, pairwise(words)))}


def respelt(labels: Iterable[str]) -> dict[str, str]:
    """Labels that differ from a more frequent one only in capitals or in spaces around them, and that one."""
    counts, usual = Counter(labels), dict[str, str]()
    for label in sorted(counts, key=lambda label: (-counts[label], label)):
        usual.setdefault(label.strip().casefold(), label)
    return {label: known for label in sorted(counts) if (known := usual[label.strip().casefold()]) != label}


def preset_settings(name: str) -> PrepareSettings:
    """The settings of a preset."""
    one_of("preset", name, PRESETS)
    settings: PrepareSettings = importlib.import_module(f"{__name__}.{name}").SETTINGS
    return settings


def changed_from_preset(source: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings in a cohort.json that differ from those of its source, if that is a preset; folds do not count."""
    if source not in PRESETS:
        return {}
    usual = preset_settings(source).model_dump(mode="json")
    return {key: value for key, value in settings.items() if key != "folds" and value != usual.get(key)}


def find(
    source: Path, preset: str | None, options: SourceOptions, classes: Mapping[str, str] | Iterable[str] | None = None
) -> Listing:
    """List the recordings of a preset's folder, a manifest or a BIDS folder; parameters as of ``prepare``."""
    if not source.exists():
        raise BadUse(f"{source}: no such folder or manifest")
    if source.is_file() and formats.is_recording(source):
        raise BadUse(f"{source}: is a single recording; name a BIDS folder or a manifest (`bridgemil manifest FOLDER`)")
    flat = (source / "manifest.csv").is_file() and not (source / "participants.tsv").is_file()
    kind = preset or ("manifest" if source.is_file() or flat else "bids")
    root = source / "manifest.csv" if kind == "manifest" and flat else source
    if options.raw and preset != "adftd":
        raise BadUse("--raw goes with --preset adftd")
    if options.unlabelled and (options.label is not None or classes is not None):
        raise BadUse("--unlabelled prepares without diagnoses; leave --label and --classes out")
    for name in ("label", "unlabelled", "task", "session", "condition", "derivatives"):
        if preset is not None and getattr(options, name):
            raise BadUse(f"--{name} does not go with --preset {preset}, which settles it")
    if options.derivatives and kind != "bids":
        raise BadUse(f"--derivatives is for BIDS folders; {source} has no participants.tsv")
    if options.desc and not options.derivatives:
        raise BadUse("--desc goes with --derivatives")
    listing: Listing = importlib.import_module(f"{__name__}.{kind}").find(root, options)
    listing.select(options)
    if classes:
        listing.rename_classes(classes if isinstance(classes, Mapping) else {name: name for name in classes})
    listing.drop_unclear_labels()
    return listing
