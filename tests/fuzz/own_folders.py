"""Our own folders, damaged: any folder of files, each of which somebody may have changed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

from bridgemil import Cohort
from fuzz.kind import Said, of_cohort
from fuzz.mutations import Change, Random, any_bytes, choose, json_value, replaced_by_no_file
from people import people


class Folder:
    """A folder that we wrote; every byte of it matters, or is not read at all.

    Parameters
    ----------
    name
        Of the kind.
    make
        Writes the whole folder to a path that does not exist.
    read
        Reads everything in it that a user would see; ``out`` is a place to write.
    """

    def __init__(self, name: str, make: Callable[[Path], object], read: Callable[[Path, Path], Said]) -> None:
        self.name, self.make, self.read = name, make, read

    def build(self, folder: Path) -> None:
        """The whole folder."""
        self.make(folder / "it")

    def damage(self, folder: Path, rng: Random) -> Change:
        """One of its files, or one more."""
        file = choose(rng, sorted(path for path in (folder / "it").rglob("*") if path.is_file()))
        if rng.random() < 0.15:
            return replaced_by_no_file(rng, file)
        if file.suffix == ".json" and rng.random() < 0.7:
            changed, change = json_value(rng, json.loads(file.read_text(encoding="utf-8")))
        else:
            changed, what = any_bytes(rng, file.read_bytes())
            change = Change(what)
        file.write_bytes(changed)
        return Change(f"{file.relative_to(folder / 'it')}: {change.what}", change.region)

    def run(self, folder: Path, out: Path, number: int) -> Said:
        """Opened, and everything read."""
        return self.read(folder / "it", out)


def _cohort(folder: Path) -> None:
    people(6, windows=3).save(folder)


def _read_cohort(folder: Path, out: Path) -> Said:
    return of_cohort(Cohort.open(folder))


def _runs(folder: Path) -> None:
    from bridgemil import evaluate

    evaluate(people(9, windows=4), "bandpower", folds=3, out=folder, threads=1, progress=False, baselines=False)


def _read_runs(folder: Path, out: Path) -> Said:
    from typer.testing import CliRunner

    from bridgemil.cli import app

    ended = CliRunner().invoke(app, ["report", str(folder), "--out", str(out), "--json"])
    if ended.exception is not None and not isinstance(ended.exception, SystemExit):
        raise ended.exception
    return Said(json.loads(ended.stdout)["experiments"])


def _bundle(folder: Path) -> None:
    from bridgemil.bundle.bundle import locate

    shutil.copytree(locate("alzheimer"), folder)


def _read_bundle(folder: Path, out: Path) -> Said:
    from bridgemil import bundle

    loaded = bundle.load(folder)
    return Said([loaded.title, loaded.card, str(loaded.metadata)])


OWN_FOLDERS = (
    Folder("cohort", _cohort, _read_cohort), Folder("runs", _runs, _read_runs), Folder("bundle", _bundle, _read_bundle),
)  # fmt: skip
