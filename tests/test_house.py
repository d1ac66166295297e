"""The rules of the house: who may import whom, and what must not be loaded early."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "bridgemil"

# What stands later may import what stands earlier, never the reverse.
ORDER = [
    "errors", "registry", "settings", "plots", "storage", "parallel", "user_code", "datasets", "cohort", "backbones",
    "aggregators", "learning", "pretraining", "baselines", "methods", "models", "runs", "evaluation", "audit",
    "engine", "report", "studies", "bundle", "verify", "estimator", "recordings", "cli", "__main__",
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
    resource = pytest.importorskip("resource")  # which Windows lacks
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


# What only some systems have, and the modules that may use it, with a fallback.
POSIX_ONLY = ("import fcntl", "import resource", "os.fork", "os.getuid", "os.sysconf", "os.mkfifo", "/proc/",
              "sched_getaffinity", "SIGKILL", "os.getpgid", "os.killpg", 'get_context("fork")')  # fmt: skip


def test_what_only_some_systems_have_is_in_one_module() -> None:
    found = {
        file.relative_to(PACKAGE).as_posix() for file in PACKAGE.rglob("*.py")
        if any(word in file.read_text(encoding="utf-8") for word in POSIX_ONLY)
    }  # fmt: skip
    assert found == {"parallel.py"}


def test_text_files_are_read_and_written_with_a_stated_encoding() -> None:
    """Windows would take its code page."""
    bare = re.compile(r"\.read_text\(\)|\.write_text\([^,()]*\)\.|\bopen\(\)|\.open\(\)")
    found = [f"{file.name}: {line.strip()}" for file in PACKAGE.rglob("*.py")
             for line in file.read_text(encoding="utf-8").splitlines() if bare.search(line)]  # fmt: skip
    assert [line for line in found if "/proc/" not in line] == []


HOUSE_NAMES = {
    "PyYAML": "yaml",
    "scikit-learn": "sklearn",
    "mne-bids": "mne_bids",
    "pillow": "PIL",
}  # what is not imported by its name


def _third_party(file: Path) -> set[str]:
    """The packages that a file imports, but for Python's own and ours."""
    modules = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and not node.level:
            modules.add((node.module or "").partition(".")[0])
        elif isinstance(node, ast.Import):
            modules |= {alias.name.partition(".")[0] for alias in node.names}
    return modules - sys.stdlib_module_names - {"bridgemil"}


def test_what_is_imported_is_declared_and_what_is_declared_is_imported() -> None:
    project = tomllib.loads((PACKAGE.parents[1] / "pyproject.toml").read_text())["project"]

    def modules(lines: list[str]) -> set[str]:
        names = {re.split(r"[<>=\[ ]", line)[0] for line in lines}
        return {HOUSE_NAMES.get(name, name) for name in names}

    needed, extras = modules(project["dependencies"]), project["optional-dependencies"]
    optional = modules([line for name, lines in extras.items() if name not in ("dev", "docs") for line in lines])
    imported = set().union(*(_third_party(file) for file in PACKAGE.rglob("*.py")))
    assert imported - needed - optional == set(), "imported, and not declared"
    assert needed - imported == set(), "declared, and not imported"


def test_what_is_no_python_is_in_the_package_and_not_ignored_by_git() -> None:
    """A wheel takes what lies in the package and is not in .gitignore."""
    files = [
        "py.typed",
        "budgets.yaml",
        "recipes.yaml",
        "datasets/cards.yaml",
        "report/paper.yaml",
        "report/templates/checklist.yaml",
        "recordings/adftd-60s/participants.tsv",
    ]
    assert [name for name in files if not (PACKAGE / name).is_file()] == []
    assert len(list((PACKAGE / "recordings").rglob("*.edf"))) == 65
    ignored = (PACKAGE.parents[1] / ".gitignore").read_text().split()
    assert not {"*.edf", "*.yaml", "*.tsv", "*.json", "recordings/"} & set(ignored)


def test_unknown_names_are_refused() -> None:
    import bridgemil

    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = bridgemil.nonsense
    assert all(getattr(bridgemil, name) is not None for name in bridgemil.__all__)


def test_every_test_that_the_guarantees_name_is_there() -> None:
    root = PACKAGE.parents[1]
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", (root / "docs" / "guarantees.md").read_text())
    assert len(named) > 15
    for file, test in named:
        assert (root / file).is_file(), file
        assert not test or f"def {test}(" in (root / file).read_text(), f"{file}::{test}"
