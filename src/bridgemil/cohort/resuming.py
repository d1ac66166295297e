"""What lies at ``prepare``'s OUT already: refused where it is not ours, kept where an earlier call made it so."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.cutting import SubjectTask
from bridgemil.cohort.folder import (
    MARKER,
    METADATA,
    RECORD,
    SUBJECTS,
    is_whole,
    mark,
    open_cohort,
    open_subject,
    subject_folder,
)  # fmt: skip
from bridgemil.cohort.listing import Listing
from bridgemil.errors import BadData, BadUse
from bridgemil.storage.artifact import MANIFEST, is_artifact
from bridgemil.storage.files import Taken, lock, refuse_link, remove


def refuse_foreign(out: Path, listing: Listing) -> None:
    """Refuse an OUT that this tool did not make, or cannot make: what lies there may be all a user has.

    Parameters
    ----------
    out
        The folder of the cohort.
    listing
        The recordings, which must not lie there.
    """
    out = out.absolute()
    lost = next((folder for folder in (out, *out.parents) if folder.is_symlink() and not folder.exists()), None)
    if lost is not None:
        raise BadUse(f"{lost}: is a link to itself or to nothing; remove it, or choose another OUT")
    existing = next(folder for folder in (out, *out.parents) if folder.exists())
    if not existing.is_dir():
        raise BadUse(f"{existing}: is a file; name a folder for the cohort")
    place, root = out.resolve(), listing.root.resolve()
    files = [recording.path.resolve() for recording in listing.recordings]
    if any(file.is_relative_to(place) for file in files):
        raise BadUse(f"{out}: holds the recordings themselves; choose another OUT")
    among = next((file for file in files if place.is_relative_to(file)
                  or (file.parent != root and place.is_relative_to(file.parent))), None)  # fmt: skip
    if among is not None:
        raise BadUse(f"{out}: lies among the recordings ({listing.name(among)}); choose an OUT outside of them")
    if out.is_dir() and any(out.iterdir()) and not (out / MARKER).is_file():
        raise BadUse(f"{out}: exists and is no cohort; choose another OUT")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise BadUse(f"{existing}: you may not write there; choose another OUT")


@contextmanager
def only_writer(out: Path) -> Iterator[None]:
    """Own the folder; a writer that dies gives it back.

    Parameters
    ----------
    out
        The folder of the cohort.
    """
    try:
        mark(out, "This folder is a bridgemil cohort; `bridgemil prepare` may replace what is in it.\n")
        with lock(out / ".lock", wait=False):
            yield
    except Taken:
        raise BadUse(f"{out}: another `prepare` is writing there") from None


def is_finished(out: Path, recipe: str, tasks: list[SubjectTask], overwrite: bool) -> bool:
    """Whether ``out`` already is this cohort, whole; refuses to replace another one unless told to.

    Parameters
    ----------
    out
        The folder of the cohort.
    recipe
        Identifies the cohort: its files and settings.
    tasks
        Its subjects.
    overwrite
        Replace another cohort.
    """
    refuse_link(out / METADATA, out / MANIFEST)
    if not is_artifact(out):
        if not overwrite and not _is_of_these(out, tasks, damaged_too=True):
            raise BadUse(
                f"{out}: holds an unfinished cohort made from other files or settings; choose another OUT, or "
                "--overwrite"
            )
        return False
    try:
        known = open_cohort(out).json(METADATA).get("recipe")
    except BadData:
        known = None
    if known == recipe:
        if _is_whole(out):
            return True
    elif known is not None and not overwrite:
        raise BadUse(f"{out}: holds a cohort made from other files or settings; choose another OUT, or --overwrite")
    elif not overwrite and not _is_of_these(out, tasks):
        raise BadUse(
            f"{out}: holds a cohort whose {METADATA} does not say how it was made (edited, damaged or saved from "
            "arrays), and subjects that are not known to be of these files and settings; choose another "
            "OUT, or --overwrite"
        )
    remove(out / MANIFEST)  # from here on it is an unfinished cohort
    return False


def _is_of_these(out: Path, tasks: list[SubjectTask], damaged_too: bool = False) -> bool:
    """Whether all subjects that are there were cut by these tasks' recipes: nothing else may be lost.

    ``damaged_too`` takes what is not whole for theirs, as an interrupted call leaves it.
    """
    by_folder = {subject_folder(out, task.subject).name: task for task in tasks}
    folders = (out / SUBJECTS).iterdir() if (out / SUBJECTS).is_dir() else ()
    for folder in folders:
        if folder.name.startswith(".") or (damaged_too and not is_artifact(folder)):
            continue
        task = by_folder.get(folder.name)
        try:
            if task is None or open_subject(out, task.subject).json(RECORD).get("recipe") != task.recipe:
                return False
        except BadData:
            if not damaged_too:
                return False
    return True


def _is_whole(out: Path) -> bool:
    """Whether a finished cohort is as it was written; what is damaged is cut anew."""
    try:
        return all(is_whole(out, subject) for subject in Cohort.open(out).subjects)
    except BadData:
        return False


def already_done(out: Path, tasks: list[SubjectTask]) -> dict[str, dict[str, Any] | None]:
    """The records of subjects that an earlier call finished by the same recipe; other subjects' folders are removed.

    Parameters
    ----------
    out
        The folder of the cohort.
    tasks
        The cohort's subjects.
    """
    done: dict[str, dict[str, Any] | None] = {}
    for task in tasks:
        refuse_link(subject_folder(out, task.subject))
        if subject_folder(out, task.subject).is_dir():
            try:
                record = open_subject(out, task.subject).json(RECORD)
            except BadData:
                continue  # damaged or incomplete: it is segmented again
            if record.get("recipe") == task.recipe and is_whole(out, task.subject):
                done[task.subject] = record
    wanted = {subject_folder(out, subject).name for subject in done}
    for folder in (out / SUBJECTS).iterdir():
        if folder.name not in wanted and (is_artifact(folder) or folder.suffix == ".part"):
            remove(folder)
    return done
