"""What can go wrong, in two kinds: the data are bad (exit 1), or the call is (exit 2; also a path that is not there).

Every message names the file, subject or setting that is wrong, what was expected and what to do.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

# Errors of the operating system when a folder cannot be written.
STORAGE: set[int] = {errno.ENOSPC, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM}
STORAGE |= {getattr(errno, "EDQUOT", errno.ENOSPC)}  # which Windows may lack
# Control characters, bidirectional marks and lone surrogates (a file name that is not UTF-8).
_UNSAFE = re.compile("[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069\\ud800-\\udfff]")


def plain(text: str) -> str:
    """Text that is safe to print and to store: characters that a terminal would interpret are shown as codes.

    Line breaks and tabs stay.
    """
    return _UNSAFE.sub(lambda sign: f"\\x{ord(sign[0]):02x}" if ord(sign[0]) < 256 else f"\\u{ord(sign[0]):04x}", text)


EXAMPLES = 3  # equal problems that are listed one by one


class BridgeMILError(Exception):
    """Base class of the errors of this package; the message is safe to print."""

    exit_code = 1

    def __init__(self, message: str) -> None:
        super().__init__(plain(message))


class BridgeMILWarning(UserWarning):
    """Something a user should know, though the work continues."""


class BadUse(BridgeMILError, ValueError):
    """A setting or an argument is wrong; nothing was done."""

    exit_code = 2


class Exclude(Exception):
    """Raised by a cleaning function (``prepare --clean``): leave this recording out.

    Parameters
    ----------
    reason : str
        Why; it stands in the cohort's record.
    """

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)


@dataclass(frozen=True)
class Problem:
    """One problem of the input, with the subject and file it concerns."""

    what: str
    subject: str | None = None
    file: str | None = None

    @property
    def place(self) -> str:
        """Subject and file, as far as they are known."""
        return ", ".join(part for part in (self.subject, self.file) if part)

    def __str__(self) -> str:
        return f"{self.place}: {self.what}" if self.place else self.what


def grouped(problems: Iterable[Problem]) -> list[str]:
    """One line per kind of problem, with the number and examples; details in brackets do not distinguish kinds."""
    kinds: dict[str, list[Problem]] = {}
    for problem in problems:
        kind = problem.what
        while (shorter := re.sub(r"\([^()]*\)", "", kind)) != kind:
            kind = shorter
        kinds.setdefault(kind, []).append(problem)
    lines = []
    for same in kinds.values():
        places = [place for problem in same if (place := problem.place)]
        if len(same) <= EXAMPLES or len(places) < len(same):
            lines += [str(problem) for problem in same]
            continue
        count = f"{len(same)} {'recordings' if all(problem.file for problem in same) else 'subjects'}"
        examples = "; ".join(places[:EXAMPLES])
        lines.append(f"{count}: {same[0].what}: {examples}; and {len(same) - EXAMPLES} more")
    return lines


class BadData(BridgeMILError):
    """The recordings or their labels cannot be used as they are; lists every problem at once."""

    def __init__(self, message: str, problems: Sequence[Problem] = ()) -> None:
        self.message = message
        self.problems = list(problems)
        super().__init__("\n".join([message, *(f"  - {line}" for line in grouped(self.problems))]))

    def __reduce__(self) -> tuple[type[BadData], tuple[str, list[Problem]]]:
        return type(self), (self.message, self.problems)  # so that a worker process can raise it


class NotFound(BadData):
    """A file or folder that the call names is not there; nothing was done."""

    exit_code = 2


def one_of(what: str, value: str, known: Iterable[str], more: str = "") -> None:
    """Refuse an unknown name: the error lists the known ones, further forms (``more``) and the nearest."""
    choices = list(known)
    if value not in choices:
        raise BadUse(f"{what} must be one of {', '.join(choices)}{more}; got {value!r}{did_you_mean(value, choices)}")


def some(names: Sequence[str], most: int = 4) -> str:
    """The first names, and how many more there are: ``a, b and 3 more``."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more or "none"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The end of a sentence that names the known word nearest to a wrong one; empty if none is near."""
    from difflib import get_close_matches

    by_lower = {name.lower(): name for name in known}
    near = get_close_matches(word.lower(), by_lower, n=1)
    return f"; did you mean {by_lower[near[0]]}?" if near else ""
