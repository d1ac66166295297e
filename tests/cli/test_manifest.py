"""``bridgemil manifest``: from a heap of files to a CSV that ``prepare`` takes once the labels are there."""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from pathlib import Path

import pytest

from bridgemil import prepare
from bridgemil.cohort.manifest_template import write_manifest_template
from bridgemil.errors import BadData, BadUse
from command import bridgemil
from recordings import MONTAGE, noise, write_edf


def folder_of(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"a recording, not looked into")
    return root


def guessed(root: Path) -> dict[str, list[str]]:
    return write_manifest_template(root)[1].files()


@pytest.mark.parametrize(
    ("names", "subjects"),
    [
        (("P2.edf", "P10.edf"), {"P2": ["P2.edf"], "P10": ["P10.edf"]}),
        (("P01 EC.edf", "P01 EO.edf"), {"P01": ["P01 EC.edf", "P01 EO.edf"]}),
        (("EC_P01.edf", "EO_P01.edf"), {"P01": ["EC_P01.edf", "EO_P01.edf"]}),
        (("A_rest_run-1.bdf", "A_rest_run-2.bdf"), {"A": ["A_rest_run-1.bdf", "A_rest_run-2.bdf"]}),
        (("x/P1/rest.set", "x/P2/rest.set"), {"P1": ["x/P1/rest.set"], "P2": ["x/P2/rest.set"]}),
        (("EC/P1.edf", "EO/P1.edf"), {"P1": ["EC/P1.edf", "EO/P1.edf"]}),
        (("S001R01.edf", "S001R02.edf"), {"S001": ["S001R01.edf", "S001R02.edf"]}),
        (("sub-7_task-a_eeg.edf", "sub-7_task-b_eeg.edf"), {"sub-7": ["sub-7_task-a_eeg.edf", "sub-7_task-b_eeg.edf"]}),
        (("a/01.edf", "b/01.edf"), {"a-01": ["a/01.edf"], "b-01": ["b/01.edf"]}),
        (("EC 01.edf", "EO 01.edf"), {"01": ["EC 01.edf", "EO 01.edf"]}),
        (("P01/run_1.edf", "P01/run_2.edf"), {"P01": ["P01/run_1.edf", "P01/run_2.edf"]}),
        (("P01/rest_1.edf", "P01/rest_2.edf"), {"P01": ["P01/rest_1.edf", "P01/rest_2.edf"]}),
        (("session_1/P01.edf", "session 2/P01.edf"), {"P01": ["session 2/P01.edf", "session_1/P01.edf"]}),
        (("x/P1/visit_1/EC.edf", "x/P1/visit_2/EC.edf"), {"P1": ["x/P1/visit_1/EC.edf", "x/P1/visit_2/EC.edf"]}),
        (("a/P01/run-1.edf", "b/P02/run-1.edf"), {"P01": ["a/P01/run-1.edf"], "P02": ["b/P02/run-1.edf"]}),
        (
            ("sub-1/ses-1/eeg/sub-1_eeg.edf", "sub-1/ses-on/eeg/sub-1_eeg.edf"),
            {"sub-1": ["sub-1/ses-1/eeg/sub-1_eeg.edf", "sub-1/ses-on/eeg/sub-1_eeg.edf"]},
        ),
        (("edf/eeg1.edf", "edf/eeg2.edf"), {"eeg1": ["edf/eeg1.edf"], "eeg2": ["edf/eeg2.edf"]}),
        (("AD/rec1.edf", "HC/rec1.edf"), {"AD-rec1": ["AD/rec1.edf"], "HC-rec1": ["HC/rec1.edf"]}),
    ],
)
def test_subjects_are_guessed_from_names(
    tmp_path: Path, names: tuple[str, ...], subjects: dict[str, list[str]]
) -> None:
    assert guessed(folder_of(tmp_path, *names)) == subjects


def test_names_that_say_nothing_of_a_person_are_asked_about(tmp_path: Path) -> None:
    def notes(*names: str) -> list[str]:
        return write_manifest_template(folder_of(tmp_path / "of" / names[0][:3], *names))[1].notes

    assert notes("P1/run_1.edf", "P1/run_2.edf", "P2/run_1.edf") == []
    assert notes("study/eeg1.edf", "study/eeg2.edf") == [
        "study is the name of a folder with 2 recordings: are they of one person?"
    ]
    assert notes("edf/eeg1.edf", "edf/eeg2.edf") == [
        "eeg1.edf and 1 more name no person: each became a subject of its own; is that right?"
    ]


def test_only_what_opens_a_recording_is_listed(tmp_path: Path) -> None:
    root = folder_of(
        tmp_path, "P1.vhdr", "P1.eeg", "P1.vmrk", "P2.set", "P2.fdt", "notes.txt", ".P3.edf", ".old/P3.edf",
        "P4_raw.fif", "P4_raw-1.fif", "P5.EEG", "P6.mff/signal1.bin", "P6.mff/P7.edf",
    )  # fmt: skip
    path, template = write_manifest_template(root)
    assert [row.file for row in template.rows] == ["P1.vhdr", "P2.set", "P4_raw.fif", "P5.EEG", "P6.mff"]
    assert [item.what for item in template.left_out] == ["P4_raw-1.fif"]
    assert path == root / "manifest.csv"


@pytest.mark.parametrize(
    ("names", "labels"),
    [
        (("P1.edf", "P2.edf"), ["", ""]),
        (("controls/P1.edf", "patients/P2.edf"), ["controls", "patients"]),
        (("HC 1 EC.edf", "MDD 2 EC.edf"), ["HC", "MDD"]),
        (("HC 1 EC.edf", "MDD 2 EC.edf", "x 3.edf"), ["HC", "MDD", ""]),  # one does not say it
        (("H S1 EC.edf", "MDD S1 EC.edf", "P1 H.edf"), ["H", "MDD", ""]),  # one letter counts at the beginning only
        (("patients/P1.edf", "patients/P2.edf"), ["", ""]),  # one class is no answer
        (("patients/AD/P1.edf", "controls/P2.edf"), ["", ""]),  # one says two
    ],
)
def test_labels_are_taken_over_where_names_say_one_of_several_classes(
    tmp_path: Path, names: tuple[str, ...], labels: list[str]
) -> None:
    template = write_manifest_template(folder_of(tmp_path, *names))[1]
    assert [row.label for row in template.rows] == labels
    assert template.unlabelled == [row.file for row, label in zip(template.rows, labels, strict=True) if not label]


def test_two_names_that_do_not_say_their_class_leave_the_other_116_labels(shared: Path, tmp_path: Path) -> None:
    listing = (shared / "layouts/mumtaz2017-files.tsv").read_text().splitlines()
    root = folder_of(tmp_path, *(line.split("\t")[0] for line in listing if line and line[0] != "#"))
    done = bridgemil("manifest", root)
    assert "labels from names: 116 of 118 recordings" in done.stdout
    assert re.findall(r"^    (.+)$", done.stdout, re.MULTILINE) == ["6921143_H S15 EO.edf", "6921959_H S15 EO.edf"]
    with (root / "manifest.csv").open() as stream:
        assert Counter(row["label"] for row in csv.DictReader(stream)) == {"H": 54, "MDD": 62, "": 2}


def test_help_has_an_example() -> None:
    answer = bridgemil("manifest", "--help")
    assert "Example: bridgemil manifest" in answer.stdout
    assert "--json" in answer.stdout


def test_it_never_overwrites_and_says_what_is_wrong(tmp_path: Path) -> None:
    root = folder_of(tmp_path / "r", "P1.edf")
    (root / "manifest.csv").write_text("mine")
    with pytest.raises(BadUse, match="exists and is left as it is"):
        write_manifest_template(root)
    assert (root / "manifest.csv").read_text() == "mine"
    with pytest.raises(BadUse, match="no such folder; name the one"):
        write_manifest_template(tmp_path / "nowhere")
    with pytest.raises(BadUse, match="no such folder to write"):
        write_manifest_template(root, tmp_path / "nowhere/m.csv")
    with pytest.raises(BadData, match=r"no recording there; formats that are read: EDF \(.edf\), BDF"):
        write_manifest_template(folder_of(tmp_path / "empty", "notes.txt"))
    (root / "participants.tsv").write_text("participant_id\n")
    with pytest.raises(BadUse, match="is a BIDS folder and needs no manifest"):
        write_manifest_template(root, tmp_path / "m.csv")


def test_from_a_folder_to_a_cohort(tmp_path: Path) -> None:
    root = tmp_path / "my recordings"
    for i in range(6):
        write_edf(root / f"P{i} EC.edf", noise(i, 3, 250), 250, MONTAGE)
        write_edf(root / f"P{i} EO.edf", noise(10 + i, 4, 250), 250, MONTAGE)
    done = bridgemil("manifest", root)
    assert done.returncode == 0, done.stderr
    assert "12 recordings of 6 subjects" in done.stdout
    assert "fill in the column label" in done.stdout
    again = bridgemil("manifest", root)
    assert again.returncode == 2
    assert "exists" in again.stderr

    unfilled = bridgemil("prepare", root, tmp_path / "c", "--jobs", 1)
    assert unfilled.returncode == 1
    assert "the column label is empty in all 12 rows: fill in each subject's diagnosis" in unfilled.stderr
    assert not (tmp_path / "c").exists()

    elsewhere = json.loads(bridgemil("manifest", root, "--out", tmp_path / "list.csv", "--json").stdout)
    assert (elsewhere["n_recordings"], elsewhere["n_subjects"], elsewhere["n_labelled"]) == (12, 6, 0)
    with (tmp_path / "list.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert rows == elsewhere["rows"]
    with (tmp_path / "list.csv").open("w", newline="") as stream:
        writer = csv.DictWriter(stream, ["subject", "label", "file"], delimiter=";")
        writer.writeheader()
        writer.writerows(row | {"label": "ab"[int(row["subject"][1]) % 2]} for row in rows)
    cohort = prepare(tmp_path / "list.csv", tmp_path / "c", jobs=1, progress=False)
    assert cohort.labels == list("ababab")
    assert cohort.records["P0"].recording_windows == (3, 4)
