"""Fixtures that several tests share."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from recordings import build_bids

if "PYTEST_XDIST_WORKER" in os.environ:  # the workers share the cores; torch reads this when it is imported
    os.environ["OMP_NUM_THREADS"] = "1"

ROOT = Path(__file__).parents[1]
# These limit and kill processes as only POSIX systems let them.
collect_ignore_glob = [] if find_spec("resource") else ["test_fault_injection.py", "fuzz/*"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """How many mutated inputs tests/fuzz tries, and which."""
    group = parser.getgroup("fuzz")
    group.addoption("--cases", type=int, default=300, help="mutated inputs to try, over all kinds")
    group.addoption("--kinds", default=None, help="kinds of input, comma-separated")
    group.addoption("--case", type=int, default=None, help="only the case of this number")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What became of the mutated inputs, by kind and outcome."""
    reports = [report for kind in ("passed", "failed") for report in terminalreporter.stats.get(kind, ())]
    counts = dict(value for report in reports for key, value in getattr(report, "user_properties", ()) if key == "fuzz")
    if not counts:
        return
    outcomes = sorted({outcome for row in counts.values() for outcome in row})
    terminalreporter.section(f"{sum(sum(row.values()) for row in counts.values())} mutated inputs")
    terminalreporter.line(f"{'':14}" + "".join(f"{outcome:>17}" for outcome in outcomes))
    for kind, row in counts.items():
        terminalreporter.line(f"{kind:14}" + "".join(f"{row.get(outcome, 0):17}" for outcome in outcomes))


@pytest.fixture
def bids(tmp_path: Path) -> Path:
    """Six subjects, two classes."""
    return build_bids(tmp_path / "bids", {f"sub-{i:02d}": "AC"[i % 2] for i in range(1, 7)})


@pytest.fixture(scope="session")
def shared() -> Path:
    """The development data beside the project."""
    path = ROOT.parent / "shared" / "data"
    if not path.is_dir():
        pytest.skip("the development data (../shared/data) are not beside the project")
    return path


@pytest.fixture(autouse=True)
def _forget_user_modules(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Each test imports user code of its own: folders on the path and modules of a test are gone after it."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    below = str(tmp_path_factory.getbasetemp().parent)
    for name in [
        name for name, module in sys.modules.items() if str(getattr(module, "__file__", "")).startswith(below)
    ]:
        del sys.modules[name]
