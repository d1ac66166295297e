"""Faults of the disk: a command in a process of its own that is killed, or refused, at a chosen step of its writing.

Every step at which something on disk changes (a file opened for writing, a rename, a removal, a new folder) is seen by
Python's audit hooks, whoever writes; a full disk is the operating system's own limit on a file's size. Both work for
root, and for libraries that write by themselves.
"""

from __future__ import annotations

import errno
import os
import resource
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bridgemil import cli

Command = Sequence[str] | Callable[[], object]
CHANGES = ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir")
KILLED = 137  # the exit code of a process that was killed
SECONDS = 150  # a command that takes longer hangs; less than the patience of the whole test


@dataclass(frozen=True)
class Ended:
    """How a command ended: its exit code, what it said, and how many steps it took."""

    code: int
    words: str
    steps: int


@dataclass(frozen=True)
class Fault:
    """What happens to a command.

    Parameters
    ----------
    kind
        ``killed`` before a step, ``denied`` that step, or ``full``: no file may become larger than ``at`` bytes.
    at
        The step, from 1; or the bytes.
    """

    kind: str = "none"
    at: int = 0


NONE = Fault()


def perform(command: Command, place: Path, fault: Fault = NONE) -> Ended:
    """Run a command in a fork of this process, as the command line would; steps are those below ``place``."""
    read, write = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if not child:
        try:
            os.close(read)
            _child(command, place, fault, write)
        finally:
            os._exit(3)
    os.close(write)
    said = _read(read, child)
    status = os.waitpid(child, 0)[1]
    words, _, steps = said.rpartition("\nsteps: ")
    if os.waitstatus_to_exitcode(status) == KILLED:
        return Ended(KILLED, said, fault.at)
    return Ended(os.waitstatus_to_exitcode(status), words, int(steps))


def _read(pipe: int, child: int) -> str:
    """What the child says, who is killed when it takes too long. Without an alarm: that is the test's own."""
    deadline, said = time.monotonic() + SECONDS, b""
    with os.fdopen(pipe, "rb", buffering=0) as stream:
        while True:
            if not select.select([stream], [], [], max(0.0, deadline - time.monotonic()))[0]:
                os.kill(child, signal.SIGKILL)
                deadline += SECONDS
            elif part := stream.read(2**16):
                said += part
            else:
                return said.decode()


def _child(command: Command, place: Path, fault: Fault, pipe: int) -> None:
    """Everything the command says goes into the pipe; it ends with the number of steps."""
    os.dup2(pipe, 2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w", buffering=1)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)  # a fork has none of its parent's threads
    if fault.kind == "full":
        resource.setrlimit(resource.RLIMIT_FSIZE, (fault.at, resource.RLIM_INFINITY))
    steps = _watch(place, fault)
    if callable(command):
        cli.app = command  # the same handling of errors as for a verb
    else:
        sys.argv = ["bridgemil", *command]
    code: Any = 0
    try:
        cli.main()
    except SystemExit as end:
        code = end.code or 0
    except BaseException:
        traceback.print_exc()
        code = 4
    sys.stderr.write(f"\nsteps: {len(steps)}")
    sys.stderr.flush()
    os._exit(code)


def _watch(place: Path, fault: Fault) -> list[str]:
    """Notice every step below a place, and let the fault happen at its own."""
    steps: list[str] = []

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event not in CHANGES or not isinstance(arguments[0], str | bytes):
            return
        path = os.fsdecode(arguments[0])
        if event == "open" and not arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            return
        # shutil.rmtree names files by their folder's handle: what is relative is within a folder that it removes.
        if Path(path).is_absolute() and not path.startswith(str(place)):
            return
        steps.append(f"{event} {path}")
        if len(steps) == fault.at and fault.kind == "killed":
            os._exit(KILLED)
        if len(steps) == fault.at and fault.kind == "denied":
            raise PermissionError(errno.EACCES, "Permission denied", path)

    sys.addaudithook(hook)
    return steps
