"""The site builds without a warning, and every example is in its gallery."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    """The examples are parsed here; `make docs` runs them too."""
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-d", tmp_path / "trees", ROOT / "docs"]
    environment = os.environ | {"GALLERY": "parse"}
    built = subprocess.run([*command, tmp_path / "site"], capture_output=True, text=True, env=environment)
    assert built.returncode == 0, built.stderr
    pages = {page.stem for page in (tmp_path / "site" / "gallery").glob("plot_*.html")}
    assert pages == {example.stem for example in (ROOT / "examples").glob("plot_*.py")}
    front = (tmp_path / "site" / "method.html").read_text()
    assert "<math" in front, "equations need no network"
    assert "https://cdn" not in front
