"""Named pipes, where the system has them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def make_pipe(path: Path) -> None:
    """A pipe that nobody writes to: opening it would wait for ever."""
    if not hasattr(os, "mkfifo"):
        pytest.skip("this system has no named pipes")
    os.mkfifo(path)
