"""How big the house is, and how far `evaluate` travels through it: lines, files, hops and depth.

A hop is a first call from one function of the package to another on the way from `evaluate` to its result; the depth is
the longest chain of such calls. Both are counted in one small evaluation of `bridgemil` in this process. Class bodies,
which run on import, and reads of properties are no hops. Calls across files are counted beside all calls, and those of
the evaluation's own rooms (its path without audit, cohort, learning and networks) beside those of the whole package.

    python benchmarks/house_size.py [--quick]
"""

from __future__ import annotations

import argparse
import functools
import inspect
import io
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import bridgemil

PACKAGE = Path(bridgemil.__file__).parent
LONG = 450  # lines
OWN = {"__init__", "engine", "evaluation", "methods", "models", "parallel", "runs", "storage"}
IGNORED = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def code_lines(text: str) -> int:
    """Lines that hold code: neither blank, nor a comment, nor a docstring."""
    lines: set[int] = set()
    previous = tokenize.NEWLINE
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        docstring = token.type == tokenize.STRING and previous in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
        if token.type not in IGNORED and not docstring:
            lines.update(range(token.start[0], token.end[0] + 1))
        if token.type not in (tokenize.COMMENT, tokenize.NL):
            previous = token.type
    return len(lines)


def sizes() -> Iterator[tuple[str, int, int]]:
    """Each file of the package with its lines and code lines."""
    for file in sorted(PACKAGE.rglob("*.py")):
        text = file.read_text("utf-8")
        yield file.relative_to(PACKAGE).as_posix(), text.count("\n"), code_lines(text)


class Tracer:
    """Counts calls between functions of the package."""

    def __init__(self) -> None:
        self.hops: set[tuple[str, str]] = set()
        self.files: set[str] = set()
        self.depth = 0

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if event != "call" or not _ours(frame) or frame.f_code.co_name.startswith("<") or not _is_call(frame):
            return
        chain = [frame, *_callers(frame)]
        self.files.add(frame.f_code.co_filename)
        self.depth = max(self.depth, len(chain))
        if len(chain) > 1:
            self.hops.add((_name(chain[1]), _name(frame)))


def _is_call(frame: FrameType) -> bool:
    """Whether a function was called: neither the body of a class nor a property's."""
    if not frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        return False
    owner: Any = sys.modules.get(frame.f_globals.get("__name__", ""))
    for name in frame.f_code.co_qualname.split("."):
        owner = inspect.getattr_static(owner, name, None)
    return not isinstance(owner, property | functools.cached_property)


def _ours(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(str(PACKAGE))


def _callers(frame: FrameType) -> Iterator[FrameType]:
    caller = frame.f_back
    while caller is not None:
        if _ours(caller) and not caller.f_code.co_name.startswith("<"):
            yield caller
        caller = caller.f_back


def _name(frame: FrameType) -> str:
    return f"{frame.f_code.co_filename}:{frame.f_code.co_qualname}"


def _file(name: str) -> str:
    return Path(name.rpartition(":")[0]).relative_to(PACKAGE).as_posix()


def trace() -> Tracer:
    """`evaluate` on six subjects of noise, in this process."""
    import numpy as np

    rng = np.random.default_rng(0)
    bags = [rng.normal(scale=10, size=(6, 4, 200)) for _ in range(6)]
    cohort = bridgemil.Cohort.from_arrays(bags, list("ababab"), sfreq=200, channels=["C3", "C4", "O1", "O2"], burn_in=0)
    changes = {"stage1.epochs": 1, "stage2.epochs": 1, "stage2.burn_in": 0}
    how = {"budget": "demo", "folds": 3, "baselines": False, "progress": False, "settings": changes}
    tracer = Tracer()
    sys.setprofile(tracer)
    try:
        bridgemil.evaluate(cohort, "bridgemil", "eegnet", **how)
    finally:
        sys.setprofile(None)
    return tracer


def main() -> None:
    """Print the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="sizes only")
    quick = parser.parse_args().quick
    files = list(sizes())
    print(f"{len(files)} files, {sum(n for _, n, _ in files):,} lines, {sum(n for *_, n in files):,} lines of code")
    print(f"files under 60 lines: {sum(n < 60 for _, n, _ in files)}")
    print(f"files over {LONG} lines: {', '.join(f'{name} ({n})' for name, n, _ in files if n > LONG) or 'none'}")
    if not quick:
        tracer = trace()
        across = {hop for hop in tracer.hops if _file(hop[0]) != _file(hop[1])}
        own = {hop for hop in across if all(_file(end).split("/")[0].removesuffix(".py") in OWN for end in hop)}
        own_files = {_file(end) for hop in own for end in hop}
        print(f"evaluate: {len(tracer.hops)} hops through {len(tracer.files)} files, {tracer.depth} frames deep")
        print(f"  across files: {len(across)}; of its own path: {len(own)} through {len(own_files)} files")


if __name__ == "__main__":
    main()
