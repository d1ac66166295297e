"""The rules of the house: who may import whom, and what must not be loaded early."""

from __future__ import annotations

import ast
import resource
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "bridgemil"

# What stands later may import what stands earlier, never the reverse.
ORDER = [
    "errors", "settings", "disk", "parallel", "user_code", "cohort", "backbones", "aggregators", "learning",
    "pretraining", "baselines", "methods", "models", "runs", "evaluation", "audit", "engine", "report", "studies",
    "bundle", "estimator", "recordings", "cli", "__main__",
]  # fmt: skip


def _imports(file: Path) -> set[str]:
    """The top-level parts of this package that a file imports."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "bridgemil":
            parts = node.module.split(".")
            found |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {a.name.split(".")[1] for a in node.names if a.name.startswith("bridgemil.")}
    return found - {"__version__"}


@pytest.mark.parametrize("file", sorted(PACKAGE.rglob("*.py")), ids=lambda f: f.relative_to(PACKAGE).as_posix())
def test_imports_follow_the_order_of_the_house(file: Path) -> None:
    own = file.relative_to(PACKAGE).parts[0].removesuffix(".py")
    if own == "__init__":  # the package's face names everything, lazily
        return
    assert own in ORDER, f"{own} is not in the list: give it a place"
    later = [name for name in _imports(file) if ORDER.index(name) > ORDER.index(own)]
    assert not later, f"{own} must not import {later}"


def test_help_is_quick_and_loads_nothing_heavy() -> None:
    code = (
        "import sys; sys.argv = ['bridgemil', '--help']\n"
        "import bridgemil.cli, bridgemil\n"
        "try: bridgemil.cli.main()\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'mne', 'sklearn', 'pandas', 'ray', 'matplotlib', 'scipy'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    spent = []
    while len(spent) < 5 and min(spent, default=1.0) >= 0.5:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        # The processor's time, not the clock's: other work on the machine is not our doing.
        spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(spent) < 1.0, "half a second on a quiet machine"


def test_unknown_names_are_refused() -> None:
    import bridgemil

    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = bridgemil.nonsense
    assert all(getattr(bridgemil, name) is not None for name in bridgemil.__all__)
