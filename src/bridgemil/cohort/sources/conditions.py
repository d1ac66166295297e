"""Tasks and conditions of recordings, by a column of the manifest or by the words of a file's name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatch
from itertools import pairwise

from bridgemil.cohort.sources import LeftOut, Listing, Recording, SourceOptions
from bridgemil.cohort.tables import folded
from bridgemil.errors import BadUse, Problem

# Names of one condition, without capitals, signs between words and numbers at the end.
SAME = {
    "eyes_closed": {"ec", "closed", "eyesclosed", "eyeclosed", "restec", "ecrest", "resteyesclosed", "eyesclosedrest",
                    "closedeyes"},
    "eyes_open": {"eo", "open", "opened", "eyesopen", "eyeopen", "eyesopened", "resteo", "eorest", "resteyesopen",
                  "eyesopenrest", "openeyes"},
}  # fmt: skip
COLUMNS = ("task", "condition")  # of a manifest


def canonical(text: str) -> str:
    """One name for all spellings of a condition: ``EC``, ``eyes-closed`` and ``EyesClosed1`` are ``eyes_closed``."""
    whole = re.sub(r"[\s_.-]+", "", text).lower()
    plain = whole.rstrip("0123456789") or whole
    return next((name for name, spellings in SAME.items() if plain in spellings), plain)


def named(recording: Recording) -> set[str]:
    """The conditions that a file's name may state: its words, and neighbouring words together, but for the subject."""
    stem = re.split(r"[\\/]", recording.name)[-1].rpartition(".")[0] or recording.name
    stem = re.sub(re.escape(recording.subject), " ", stem, flags=re.IGNORECASE)
    words = [word for word in re.split(r"[^A-Za-z0-9]+", stem) if word]
    return {canonical(word) for word in (*words, *("".join(pair) for pair in pairwise(words)))}


def condition_of(recording: Recording, tags: Mapping[str, str]) -> str:
    """Eyes open or closed, by the column or the file's name; '' where neither or both are named."""
    if tags.get("condition"):
        return canonical(tags["condition"])
    found = named(recording) & set(SAME)
    return found.pop() if len(found) == 1 else ""


def select(listing: Listing, options: SourceOptions) -> None:
    """Keep the recordings of the task and condition asked for; list the others.

    A value with ``*`` or ``?`` is a pattern of the file's name; otherwise the column of the manifest counts, or, where
    it has none, the words of the name. A subject without such a recording is a problem.
    """
    for kind in COLUMNS:
        wanted = getattr(options, kind)
        if wanted is None or (kind == "task" and listing.source != "manifest"):  # BIDS names tasks itself
            continue
        kept = [one for one in listing.recordings if _is(one, kind, wanted, listing.tags.get(one.path, {}))]
        if not kept:
            seen = sorted({tags[kind] for tags in listing.tags.values() if tags.get(kind)})
            names = sorted({name for one in listing.recordings for name in named(one)} & set(SAME))
            raise BadUse(
                f"--{kind} {wanted}: no recording is of it; there are {', '.join(seen or names) or 'none named'}"
            )
        others = [one for one in listing.recordings if one not in kept]
        listing.left_out += [LeftOut(f"{one.subject}, {one.name}", f"not of the {kind} {wanted!r}") for one in others]
        listing.recordings = kept
        lacking = {one.subject for one in others} - {one.subject for one in kept}
        listing.problems += [Problem(f"has no recording of the {kind} {wanted!r}", who) for who in sorted(lacking)]
        listing.drop(lacking)
        for one in reversed(kept):  # the subject's columns are those of its first recording
            own = listing.tags.get(one.path, {})
            known = listing.columns.get(one.subject, {})
            known.update({name: own[folded(name)] for name in known if folded(name) in own})
    used = {condition_of(one, listing.tags.get(one.path, {})) for one in listing.recordings} - {""}
    if len(used) > 1 and listing.source == "manifest":
        listing.notes.append(
            f"{len(used)} conditions are used together: {', '.join(sorted(used))} (narrow with --condition, or "
            "`evaluate --bags recording`)"
        )


def _is(recording: Recording, kind: str, wanted: str, tags: Mapping[str, str]) -> bool:
    if "*" in wanted or "?" in wanted:
        return fnmatch(re.split(r"[\\/]", recording.name)[-1].lower(), wanted.lower())
    if tags.get(kind):
        return canonical(tags[kind]) == canonical(wanted)
    return canonical(wanted) in named(recording)
