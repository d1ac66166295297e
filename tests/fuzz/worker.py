"""The process in which mutated inputs are tried, in the folder it is given.

It reads ``kind number`` lines and answers one JSON line each. It may die, hang or run out of memory: the harness
(``fuzz.harness``) sees that, notes it and starts another.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import sys
import traceback
import warnings
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from bridgemil.errors import BridgeMILError, plain
from fuzz.kind import SECRET, Kind, Said
from fuzz.kinds import KINDS
from fuzz.mutations import MEANING, SAMPLES, Change

MORE_MEMORY = 3 << 30  # beyond what is taken at the start; no input here is larger than some hundred kilobytes


class Bench:
    """Whole inputs and what they give, made once; a fresh copy for each case."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.whole: dict[str, dict[int, Said]] = {}

    def case(self, kind: Kind, number: int) -> dict[str, Any]:
        """Damage, run and judge."""
        expected = self._expected(kind, number)
        work = self.place / "case"
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(self.place / "whole" / kind.name, work / "input", symlinks=True)
        (work / "outside").mkdir()
        (work / "outside" / "kept.txt").write_text("kept")
        rng = np.random.default_rng([zlib.crc32(kind.name.encode()), number])
        change = kind.damage(work / "input", rng)
        before = _tree(work)
        outcome, words = judged(kind, number, work, change, expected)
        if _tree(work) != before and not (kind.name == "names" and number % 3 == 0):
            outcome, words = "write outside", "the input or what lies beside it was changed"
        return {"outcome": outcome, "change": plain(change.what), "words": plain(words)[:2000]}

    def _expected(self, kind: Kind, number: int) -> Said:
        folder = self.place / "whole" / kind.name
        if not folder.exists():
            folder.mkdir(parents=True)
            kind.build(folder)
        known = self.whole.setdefault(kind.name, {})
        way = number % 12  # an entry point may differ by the case's number
        if way not in known:
            copy, out = self.place / "copy", self.place / "made" / "out"
            for old in (copy, out.parent):
                shutil.rmtree(old, ignore_errors=True)
            out.parent.mkdir()
            shutil.copytree(folder, copy, symlinks=True)
            known[way] = kind.run(copy, out, number)
        return known[way]


def judged(kind: Kind, number: int, work: Path, change: Change, expected: Said) -> tuple[str, str]:
    """The outcome of a case, and what was said."""
    (work / "made").mkdir()
    out = work / "made" / "out"
    try:
        said = kind.run(work / "input", out, number)
    except BridgeMILError as error:
        words = str(error)
        if SECRET in words.replace(change.what, "") or plain(words) != words:
            return "leak", words
        return ("memory" if "MemoryError" in words else "refused"), words
    except MemoryError:
        return "memory", traceback.format_exc()
    except BaseException:
        return "traceback", traceback.format_exc()
    if any(SECRET.encode() in file.read_bytes() for file in out.rglob("*") if file.is_file()):
        return "leak", "the header's name is in the result"
    if said.result == expected.result:
        return "identical", ""
    if said.notes != expected.notes:
        return "noted", str(said.notes)
    return {SAMPLES: "samples changed", MEANING: "as written"}.get(change.region, "silent change"), ""


def _tree(work: Path) -> list[tuple[str, int, int]]:
    """Everything in the case's folder but what the entry point may write."""
    entries = []
    for folder, folders, files in os.walk(work):
        if folder == str(work) and "made" in folders:
            folders.remove("made")
        for name in (*folders, *files):
            status = os.lstat(os.path.join(folder, name))  # noqa: PTH118  (names may be no text)
            entries.append((os.path.join(folder, name), status.st_size, status.st_mtime_ns))  # noqa: PTH118
    return sorted(entry for entry in entries if os.path.isfile(entry[0]))  # noqa: PTH113


def main() -> None:
    """Answer until there is nothing more to ask."""
    warnings.simplefilter("ignore")
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not be taken for an answer
    import mne
    import scipy.signal  # noqa: F401

    mne.set_log_level("ERROR")
    bench = Bench(Path(sys.argv[1]))
    limited = False
    for line in sys.stdin:
        name, number = line.split()
        if not limited:
            size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (size + MORE_MEMORY, resource.RLIM_INFINITY))
            limited = True
        answers.write(json.dumps(bench.case(KINDS[name], int(number))) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
