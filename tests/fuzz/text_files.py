"""Mutated side files, lists, names and settings, through ``prepare``, splits and settings."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from bridgemil.cohort.folds import FoldPlan
from bridgemil.cohort.manifest_template import write_manifest_template
from bridgemil.cohort.settings import PrepareSettings
from bridgemil.settings import parse
from fuzz.kind import Said, prepared
from fuzz.mutations import (
    MEANING,
    NUMBERS,
    WORDS,
    Change,
    Random,
    any_bytes,
    choose,
    json_value,
    replaced_by_no_file,
    table,
)
from named_pipes import make_pipe
from recordings import MONTAGE, build_bids, noise, write_edf

SUBJECT = "sub-02/eeg/sub-02_task-rest_"
EVENTS = "onset\tduration\ttrial_type\tvalue\n0.5\t0.2\tgo\t1\n2.1\t0.5\tBAD_move\t2\n5.0\tn/a\tboundary\t3\n"
ABOUT = {"TaskName": "rest", "SamplingFrequency": 250, "RecordingDuration": 8, "EEGReference": "Cz", "Extra": [1, {}]}


PATHS = ("../outside/kept.txt", "/dev/zero", "/dev/stdin", ".", "..", "m.csv", "loop", "pipe.edf", "x" * 300, "~/x",
         "../" * 40 + "etc/passwd", "0.edf/", "C:\\x", "link.edf", "new.edf")  # fmt: skip
SUBJECTS = ("p9", "../../p9", "..", ".", "/abs", "a/b", "CON", "p" * 300, "é", ".hidden", "p0 ", "P0")


class SideFile:
    """A BIDS folder with one of its tables or side files damaged."""

    def __init__(self, name: str, file: str) -> None:
        self.name, self.file = name, file

    def build(self, folder: Path) -> None:
        """Four people, the second with every side file."""
        build_bids(folder, {f"sub-{i:02d}": "AC"[i % 2] for i in range(1, 5)})
        (folder / f"{SUBJECT}events.tsv").write_text(EVENTS)
        rows = "".join(f"{name}\tEEG\tuV\tgood\n" for name in MONTAGE)
        (folder / f"{SUBJECT}channels.tsv").write_text(f"name\ttype\tunits\tstatus\n{rows}")
        (folder / f"{SUBJECT}eeg.json").write_text(json.dumps(ABOUT))

    def damage(self, folder: Path, rng: Random) -> Change:
        """Another table, other values, other bytes, or no file."""
        file = folder / self.file
        if rng.random() < 0.08:
            gone = replaced_by_no_file(rng, file)
            return Change(gone.what, MEANING)  # a side file that is not there is none
        text = file.read_text(encoding="utf-8")
        if rng.random() < 0.3:
            changed, what = any_bytes(rng, file.read_bytes())
            change = Change(what, MEANING)
        elif file.suffix == ".json":
            changed, change = json_value(rng, json.loads(text))
            change = Change(change.what, MEANING)
        else:
            changed, change = table(rng, text, "\t")
        file.write_bytes(changed)
        return Change(f"{file.name}: {change.what}", change.region)

    def run(self, folder: Path, out: Path, number: int) -> Said:
        """As a user would prepare it."""
        return prepared(folder, out, label="Group", skip_bad=number % 4 == 0)


class Manifest:
    """A list of recordings, damaged; and names that lead elsewhere."""

    name = "manifest"

    def build(self, folder: Path) -> None:
        """Three people."""
        for i in range(3):
            write_edf(folder / f"{i}.edf", noise(i, 4, 250), 250, MONTAGE)
        (folder / "m.csv").write_text(
            "subject,label,file,site\n" + "".join(f"p{i},{'AB'[i % 2]},{i}.edf,s\n" for i in range(3))
        )

    def damage(self, folder: Path, rng: Random) -> Change:
        """Other cells, other bytes, paths and names that escape."""
        file = folder / "m.csv"
        kind = int(rng.integers(4))
        if kind == 0:
            changed, what = any_bytes(rng, file.read_bytes())
            change = Change(what, MEANING)
        elif kind == 1:
            changed, change = table(rng, file.read_text(), ",")
        else:
            row = f"{choose(rng, SUBJECTS)},A,{choose(rng, PATHS)},s\n"
            make_pipe(folder / "pipe.edf")
            write_edf(folder / "new.edf", noise(9, 4, 250), 250, MONTAGE)
            (folder / "loop").symlink_to(folder)
            (folder / "link.edf").symlink_to("/dev/zero")
            changed, change = file.read_bytes() + row.encode(), Change(f"a row {row[:60]!r}", MEANING)
        file.write_bytes(changed)
        return change

    def run(self, folder: Path, out: Path, number: int) -> Said:
        """As a user would prepare it."""
        return prepared(folder / "m.csv", out, skip_bad=number % 2 == 0)


class Names:
    """A BIDS folder with strange files, folders and links in it."""

    name = "names"

    def build(self, folder: Path) -> None:
        """Four people."""
        build_bids(folder, {f"sub-{i:02d}": "AC"[i % 2] for i in range(1, 5)}, seconds=4)

    def damage(self, folder: Path, rng: Random) -> Change:
        """Something more in a subject's folder."""
        place = folder / choose(rng, ("sub-02/eeg", "sub-02", ".", "sub-02/eeg/more"))
        place.mkdir(exist_ok=True)
        name = os.fsdecode(choose(rng, (
            b"sub-02_task-rest_run-2_eeg.edf", b"sub-02_task-r\xe9st_eeg.edf", b"x\x1b[2J_eeg.edf", b"sub-02_eeg.EDF",
            b"sub-02_task-a_b_eeg.edf", b"\xff\xfe", b"sub-02_task-rest_events.tsv", b"sub-\x9b_eeg.vhdr", b" .edf",
            b"sub-02_task-rest_eeg.mff", b"-rf_eeg.edf", b"sub-02_task-rest_run-x_eeg.edf", b"a\nb_eeg.edf",
        )))  # fmt: skip
        target, kind = place / name, int(rng.integers(7))
        kinds = ("a pipe", "a folder", "a link to a folder above", "a link to itself", "rubbish", "a device", "a copy")
        if target.exists():
            target.unlink()
        if kind == 0:
            make_pipe(target)
        elif kind == 1:
            target.mkdir()
        elif kind == 2:
            target.symlink_to(folder, target_is_directory=True)
            (place / "again").symlink_to(place, target_is_directory=True)
        elif kind in (3, 5):
            target.symlink_to(target.name if kind == 3 else "/dev/zero")
        else:
            target.write_bytes(
                b"rubbish" if kind == 4 else (folder / "sub-01/eeg/sub-01_task-rest_eeg.edf").read_bytes()
            )
        return Change(f"{kinds[kind]} called {name!r} in {place.name}", MEANING)

    def run(self, folder: Path, out: Path, number: int) -> Said:
        """Prepared, or listed as a manifest."""
        if number % 3 == 0:
            (folder / "participants.tsv").unlink()
            _, template = write_manifest_template(folder, out.parent / "out.csv")
            return Said([row.file for row in template.rows], [str(item) for item in template.left_out])
        return prepared(folder, out, label="Group", skip_bad=number % 2 == 0)


class Splits:
    """A split file, damaged."""

    name = "split"

    def build(self, folder: Path) -> None:
        """Three folds."""
        FoldPlan((("a", "b"), ("c",), ("d", "é")), 0, "array_split").save(folder / "s.json")

    def damage(self, folder: Path, rng: Random) -> Change:
        """Other values, other bytes, or no file."""
        file = folder / "s.json"
        if rng.random() < 0.15:
            return replaced_by_no_file(rng, file)
        if rng.random() < 0.4:
            changed, what = any_bytes(rng, file.read_bytes())
            change = Change(what, MEANING)
        else:
            changed, change = json_value(rng, json.loads(file.read_text(encoding="utf-8")))
        file.write_bytes(changed)
        return Change(change.what, MEANING)

    def run(self, folder: Path, out: Path, number: int) -> Said:
        """Read, and held against its subjects."""
        plan = FoldPlan.load(folder / "s.json")
        plan.check(["a", "b", "c", "d", "é"])
        return Said([plan.hash, plan.title, str(plan.metadata)])


class Settings:
    """Settings of ``prepare`` and of training, with values that nobody means."""

    name = "settings"

    def build(self, folder: Path) -> None:
        """Nothing is needed."""
        (folder / "set.txt").write_text("stage1.epochs=5")

    def damage(self, folder: Path, rng: Random) -> Change:
        """A setting and a value."""
        from bridgemil.learning.settings import AlignmentSettings, BagSettings

        keys = [f"prepare.{key}" for key in PrepareSettings.model_fields]
        keys += [f"stage1.{key}" for key in AlignmentSettings.model_fields]
        keys += [f"stage2.{key}" for key in BagSettings.model_fields]
        keys += ["backbone_options.x", "method", "members", "stage1", "stage2", "", ".", "stage1.", "baseline.C"]
        values = (*NUMBERS, *WORDS, "1e308", "[1, 2]", "{a: 1}", "[" * 3000, "&a [*a]", "!!python/object:x {}",
                  "2020-13-45", "null", "true", "1e18", ".inf", ".nan", "- 1", "? x", "1:30:00")  # fmt: skip
        text = f"{choose(rng, keys)}={choose(rng, values)}"
        (folder / "set.txt").write_text(text, encoding="utf-8", errors="surrogatepass")
        return Change(text[:80], MEANING)

    def run(self, folder: Path, out: Path, number: int) -> Said:
        """As --set gives it to a method, or as an option of ``prepare``."""
        import typer

        from bridgemil.cli.options import settings as from_options
        from bridgemil.errors import BadUse
        from bridgemil.methods import settings

        text = (folder / "set.txt").read_bytes().decode("utf-8", "surrogatepass")
        try:
            given: dict[str, Any] = from_options([text])
        except typer.BadParameter as error:
            raise BadUse(str(error)) from None
        key = next(iter(given))
        if key.startswith("prepare."):
            made = parse(PrepareSettings, {key.removeprefix("prepare."): given[key]})
            return Said(made.model_dump_json())
        return Said(settings("bridgemil", changes=given).hash)


SIDE_FILES = (
    SideFile("participants", "participants.tsv"), SideFile("events", f"{SUBJECT}events.tsv"),
    SideFile("channels", f"{SUBJECT}channels.tsv"), SideFile("eeg.json", f"{SUBJECT}eeg.json"),
)  # fmt: skip
