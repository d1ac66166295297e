"""``bridgemil`` as users call it, in a fork of the test process, which has imported everything already."""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import tempfile
import traceback
import warnings
from multiprocessing.util import _exit_function
from pathlib import Path

from bridgemil import cli

IGNORED = (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning)  # as Python does by itself


def bridgemil(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Exit code, standard output and standard error of a command."""
    words = ["bridgemil", *map(str, arguments)]
    if not hasattr(os, "fork"):
        command = [sys.executable, "-m", *words]
        return subprocess.run(command, cwd=cwd, capture_output=True, text=True, encoding="utf-8", check=False)
    with tempfile.TemporaryFile("w+", encoding="utf-8") as out, tempfile.TemporaryFile("w+", encoding="utf-8") as err:
        sys.stdout.flush()
        child = os.fork()
        if not child:
            try:
                os.dup2(out.fileno(), 1)
                os.dup2(err.fileno(), 2)
                _run(words, cwd)
            finally:
                os._exit(70)  # only where what follows could not even end
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        for stream in (out, err):
            stream.seek(0)
        return subprocess.CompletedProcess(words, code, out.read(), err.read())


def _run(words: list[str], cwd: Path | None) -> None:
    atexit._clear()  # pytest's own stay with the test process
    sys.argv, sys.stdout, sys.stderr = words, os.fdopen(1, "w"), os.fdopen(2, "w", buffering=1)
    warnings.resetwarnings()
    for category in IGNORED:
        warnings.simplefilter("ignore", category)
    warnings.showwarning = lambda message, category, file, line, *_: sys.stderr.write(
        warnings.formatwarning(message, category, file, line)
    )
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)  # a fork has none of its parent's threads
    if cwd is not None:
        os.chdir(cwd)
    code = 0
    try:
        cli.main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    atexit._run_exitfuncs()
    _exit_function()
    os._exit(code)
