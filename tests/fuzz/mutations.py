"""Ways to damage a file, a table or a value, each drawn from a random generator: the same seed, the same damage."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from named_pipes import make_pipe

Random = np.random.Generator

# Whether a change must be noticed. STRUCTURE: the file contradicts itself, or is not what it was. SAMPLES: others, and
# no format knows of that. MEANING: another value that may well be meant (a gain, a label, a rate).
STRUCTURE, SAMPLES, MEANING = "structure", "samples", "meaning"

NUMBERS = ("0", "-1", "nan", "inf", "-inf", "1e999", "1e300", "-1e300", "1e-300", "99999999", "-9999999", "2147483648",
           "4294967296", "1_0", "0x10", "", " ", "x", "1,5", "1e12", "9" * 40, "-0", "+5", "1e5", "²", "٣")  # fmt: skip
WORDS = ("", "n/a", "nan", "\x1b[2J", "\x00", "\u202e", "../../x", "/etc/passwd", "a" * 5000, "é", "'", '"', "\t", "\n",
         "$\\frac{a$", "<script>", "%s", "{0}", "\u0000", "CON", "None", "=1+1", "\ufeff", "\udc80", "🧠")  # fmt: skip


@dataclass(frozen=True)
class Change:
    """What was done to an input, and whether it must be noticed."""

    what: str
    region: str = STRUCTURE


def choose(rng: Random, options: Sequence[Any]) -> Any:
    """One of several, not turned into an array's type."""
    return options[int(rng.integers(len(options)))]


def encoded(text: str) -> bytes:
    """As UTF-8, half surrogates left as they are: some texts are meant to be none."""
    return text.encode("utf-8", "surrogatepass")


def cut(rng: Random, content: bytes) -> tuple[bytes, str]:
    """The beginning of a file only."""
    keep = int(rng.integers(len(content))) if content else 0
    return content[:keep], f"cut to {keep} of {len(content)} bytes"


def lengthened(rng: Random, content: bytes) -> tuple[bytes, str]:
    """A file with something at its end."""
    more = int(choose(rng, (1, 2, 96, 4096)))
    return content + rng.bytes(more), f"{more} bytes more"


def hole(rng: Random, content: bytes) -> tuple[bytes, str]:
    """Some bytes gone from the middle."""
    start = int(rng.integers(len(content)))
    size = int(rng.integers(1, 64))
    return content[:start] + content[start + size :], f"{size} bytes gone at {start}"


def flipped(rng: Random, content: bytes, start: int, stop: int) -> tuple[bytes, int]:
    """One bit turned between two places; returns where."""
    place, changed = int(rng.integers(start, stop)), bytearray(content)
    changed[place] ^= 1 << int(rng.integers(8))
    return bytes(changed), place


def overwritten(rng: Random, content: bytes, start: int, stop: int) -> tuple[bytes, int]:
    """Some bytes replaced by others that numbers in headers are hurt by; returns where."""
    place, changed = int(rng.integers(start, stop)), bytearray(content)
    value = choose(
        rng, (b"\xff\xff\xff\xff", b"\x00\x00\x00\x00", b"\xff\xff\xff\x7f", b"\x00\x00\xc0\x7f", rng.bytes(4))
    )
    changed[place : place + 4] = value[: max(0, min(4, stop - place))]
    return bytes(changed), place


def any_bytes(rng: Random, content: bytes) -> tuple[bytes, str]:
    """Any of the changes above."""
    kind = int(rng.integers(6))
    if kind < 3 or not content:
        return (cut, lengthened, hole)[kind](rng, content) if content else (b"x", "one byte in an empty file")
    if kind == 3:
        return choose(rng, (b"", b"\x00" * 512, b"not what it should be " * 20, b"\xff\xfe" + content)), "other content"
    changed, place = (flipped if kind == 4 else overwritten)(rng, content, 0, len(content))
    return changed, f"bytes changed at {place}"


def table(rng: Random, text: str, separator: str) -> tuple[bytes, Change]:
    """A delimited table with something wrong in it, or with another value."""
    rows = [line.split(separator) for line in text.rstrip("\n").split("\n")]
    row, column = int(rng.integers(len(rows))), int(rng.integers(len(rows[0])))
    kind = int(rng.integers(9))
    region = STRUCTURE
    if kind == 0:
        what = f"a cell too many in row {row}"
        rows[row].append("surplus")
        region = MEANING if row == 0 else STRUCTURE  # one column more, without values
    elif kind == 1:
        what = f"a cell too few in row {row}"
        rows[row].pop(column)
        region = MEANING
    elif kind == 2:
        what = f"column {column} twice"
        rows = [[*cells, cells[column]] for cells in rows]
    elif kind == 3:
        other = choose(rng, [sign for sign in ",;\t|" if sign != separator])
        return encoded("\n".join(other.join(cells) for cells in rows) + "\n"), Change(
            f"separated by {other!r}", MEANING
        )
    elif kind == 4:
        what = f"column {column} is gone"
        rows = [cells[:column] + cells[column + 1 :] for cells in rows]
        region = MEANING
    elif kind == 5:
        what, region = f"another value in row {row}, column {column}", MEANING
        rows[row][column] = choose(rng, (*NUMBERS, *WORDS))
    elif kind == 6:
        what, region = f"row {row} twice", MEANING
        rows.insert(row, list(rows[row]))
    elif kind == 7:
        what, region = f"row {row} is gone", MEANING
        rows.pop(row)
    else:
        codec = choose(rng, ("utf-16", "utf-32", "utf-7", "cp037"))
        return text.encode(codec), Change(f"written as {codec}", STRUCTURE)
    return encoded("\n".join(separator.join(cells) for cells in rows) + "\n"), Change(what, region)


def json_value(rng: Random, content: Any) -> tuple[bytes, Change]:
    """A JSON document with one of its values, at any depth, replaced or gone."""
    places: list[tuple[Any, Any]] = []

    def walk(inside: Any) -> None:
        for key, value in inside.items() if isinstance(inside, dict) else enumerate(inside):
            places.append((inside, key))
            if isinstance(value, dict | list):
                walk(value)

    walk(content)
    if not places:
        return b"[]", Change("an empty document became a list")
    holder, key = choose(rng, places)
    if isinstance(holder, dict) and rng.random() < 0.2:
        del holder[key]
        return json.dumps(content).encode(), Change(f"{key} is gone")
    holder[key] = choose(rng, (None, True, -1, 0, 1e308, float("nan"), float("inf"), 10**30, "", "x", [], {}, [[]],
                               {"a": 1}, "../../x", "\x1b[2J", "\ud800", -(10**9), 0.5, ["x"] * 3))  # fmt: skip
    return json.dumps(content).encode(), Change(f"{key} has another value")


def replaced_by_no_file(rng: Random, path: Path) -> Change:
    """Something in a file's place that is no regular file, or nothing."""
    path.unlink()
    kinds: dict[str, Callable[[], object]] = {
        "nothing": lambda: None,
        "a folder": path.mkdir,
        "a pipe": lambda: make_pipe(path),
        "a link to itself": lambda: path.symlink_to(path.name),
        "a link to nothing": lambda: path.symlink_to("nowhere"),
        "a link to a device": lambda: path.symlink_to("/dev/zero"),
    }
    name = choose(rng, list(kinds))
    kinds[name]()
    return Change(f"{path.name}: {name} in its place")
