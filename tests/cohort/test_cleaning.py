"""A user's own cleaning: called with one recording alone, recorded, fingerprinted, asked for again by ``predict``."""

from __future__ import annotations

from pathlib import Path

import mne
import numpy as np
import pytest
from typer.testing import CliRunner

from bridgemil import Cohort, prepare
from bridgemil import bundle as bundles
from bridgemil.bundle.prediction import RecordingPrediction, Refused, predict
from bridgemil.bundle.training import train
from bridgemil.cli import app
from bridgemil.cohort.channels import template
from bridgemil.cohort.cleaning import summarise
from bridgemil.cohort.new_recording import find, read, settings_for
from bridgemil.errors import BadData, BadUse
from bridgemil.report.benchmark import build
from bridgemil.report.pages.results import methods_text
from bridgemil.runs import find_store
from recordings import MONTAGE, build_bids, noise, write_edf

SUBJECTS = {f"sub-{i}": ("A", "C")[i % 2] for i in range(1, 7)}
PLAIN = "def clean(raw):\n    return raw\n"
CROP = """
import bridgemil

def clean(raw):
    if raw.times[-1] < 7:
        raise bridgemil.Exclude(f"only {raw.n_times / raw.info['sfreq']:g} s")
    raw.info["bads"] = ["C3"]
    raw.interpolate_bads()
    raw.annotations.append(2.2, 0.5, "BAD_blink")
    raw.info["description"] = "C3 rebuilt"
    return raw.drop_channels(["O2"]).crop(1)
"""
# What a cleaning could know of whom it cleans, and what it was called with before.
CURIOUS = """
import random
import numpy as np

calls = []

def clean(raw):
    calls.append(raw)
    person, files = raw.info["subject_info"], [str(name) for name in raw.filenames if name]
    raw.info["description"] = f"{person} {files} {raw.info['meas_date']} {len(calls)} {random.random()}"
    raw._data += 1e-6 * np.random.normal(size=raw._data.shape)
    return raw
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return build_bids(tmp_path / "bids", SUBJECTS)


def quiet(source: Path, out: Path, code: str | None = None, **more: object) -> Cohort:
    """Prepare with the code in clean.py beside the source."""
    if code is not None:
        (source.parent / "clean.py").write_text(code)
        more["clean"] = f"{source.parent / 'clean.py'}:clean"
    return prepare(source, out, jobs=more.pop("jobs", 1), progress=False, label="Group", **more)


def reported(cohort: Cohort) -> list[dict]:
    return [file["cleaning"][0] for file in cohort.metadata["files"]]


def test_a_function_that_changes_nothing_gives_the_same_windows(source: Path, tmp_path: Path) -> None:
    without, cleaned = quiet(source, tmp_path / "c"), quiet(source, tmp_path / "d", PLAIN)
    for subject in SUBJECTS:
        np.testing.assert_allclose(cleaned.windows(subject), without.windows(subject), atol=1e-3)
    assert reported(cleaned) == [{"by": "clean.py:clean", "variance_change": 0.0}] * 6
    assert "clean" not in without.metadata["settings"], "its recipe and its runs stay as they were"
    assert cleaned.hash != without.hash


def test_an_excluded_subject_is_shown_once(tmp_path: Path) -> None:
    source = build_bids(tmp_path / "b", {f"sub-{i}": "AC"[i % 2] for i in range(10)})
    for i in range(4):
        write_edf(source / f"sub-{i}/eeg/sub-{i}_task-rest_eeg.edf", noise(i, 6, 250), 250, MONTAGE)
    quiet(source, tmp_path / "c", CROP)
    shown = " ".join(CliRunner().invoke(app, ["inspect", str(tmp_path / "c")]).output.split())
    assert "- 4 recordings (sub-0, sub-0/eeg/sub-0_task-rest_eeg.edf, …): excluded by clean.py:clean: only 6 s" in shown
    assert "all its recordings were excluded" not in shown


def test_what_it_changed_is_used_and_recorded(source: Path, tmp_path: Path) -> None:
    write_edf(source / "sub-6/eeg/sub-6_task-rest_eeg.edf", noise(9, 6, 250), 250, MONTAGE)
    cohort = quiet(source, tmp_path / "c", CROP)
    assert cohort.channels == ["Fp1", "Fp2", "C3", "C4", "O1"]
    assert {"what": "sub-6", "why": "all its recordings were excluded by cleaning"} in cohort.metadata["left_out"]
    assert any(item["why"] == "excluded by clean.py:clean: only 6 s" for item in cohort.metadata["left_out"])
    assert "cleaning excluded 1 of 6 subjects: 1 A" in cohort.metadata["notes"]
    change = dict(reported(cohort)[0])
    assert change.pop("variance_change") != 0
    assert change == {
        "by": "clean.py:clean", "dropped_channels": ["O2"], "seconds_removed": 1.0, "note": "C3 rebuilt",
        "annotations": {"BAD_blink": {"n": 1, "seconds": 0.5}},
    }  # fmt: skip
    assert list(cohort.window_starts("sub-1")) == [0, 2, 3, 4, 5, 6], (
        "the stretch marked bad begins 1.2 s after the cut"
    )

    raw = mne.io.read_raw_edf(source / "sub-1/eeg/sub-1_task-rest_eeg.edf", preload=True, verbose="ERROR")
    raw.set_montage(template()).info["bads"] = ["C3"]
    raw.interpolate_bads(verbose="ERROR").drop_channels(["O2"]).crop(1).filter(0.5, 45, verbose="ERROR").resample(200)
    expected = 1e6 * raw.get_data()[:, 400:600]
    np.testing.assert_allclose(cohort.windows("sub-1")[1], expected, atol=2e-3)

    (line,) = summarise(cohort.metadata["settings"], cohort.metadata["files"])
    assert line.startswith("clean.py:clean (code ")
    assert "5 channels dropped in 5, 5 s removed from 5, 5 BAD_blink (2 s) in 5" in line
    shown = CliRunner().invoke(app, ["inspect", str(tmp_path / "c")])
    assert "cleaned by clean.py:clean" in shown.output


def test_it_sees_one_recording_alone_and_the_order_of_work_does_not_matter(source: Path, tmp_path: Path) -> None:
    one, two = quiet(source, tmp_path / "c", CURIOUS), quiet(source, tmp_path / "d", CURIOUS, jobs=2)
    assert {change["note"] for change in reported(one)} == {"None [] None 1 0.8444218515250481"}
    assert one.hash == two.hash


def test_sidecars_and_positions_are_there_and_what_it_leaves_bad_is_bad(source: Path, tmp_path: Path) -> None:
    folder = source / "sub-2/eeg"
    (folder / "sub-2_task-rest_channels.tsv").write_text("name\ttype\tstatus\nC4\tEEG\tbad\nO2\tEOG\tgood\n")
    (folder / "sub-2_task-rest_events.tsv").write_text("onset\tduration\ttrial_type\n3\t1\tBAD_cough\n")
    code = """
def clean(raw):
    marks = [(float(mark["onset"]), str(mark["description"])) for mark in raw.annotations]
    placed = raw.get_montage() is not None
    raw.info["description"] = f"{raw.info['bads']} {raw.get_channel_types(['O2'])} {marks} {placed}"
    return raw.interpolate_bads() if raw.info["bads"] else raw
"""
    with pytest.raises(BadData, match="C4 marked bad"):
        quiet(source, tmp_path / "c")
    cohort = quiet(source, tmp_path / "c", code)
    assert cohort.channels == ["Fp1", "Fp2", "C3", "C4", "O1"], "O2 is no EEG channel in one of them"
    change = reported(cohort)[1]
    assert change["changed_channels"] == ["C4"]
    assert change["note"] == "['C4'] ['eog'] [(3.0, 'BAD_cough')] True"
    assert list(cohort.window_starts("sub-2")) == [0, 1, 2, 4, 5, 6, 7]
    with pytest.raises(BadData, match="channel C3 marked bad"):
        quiet(source, tmp_path / "d", "def clean(raw):\n    raw.info['bads'] = ['C3']\n    return raw\n")


def test_functions_are_called_in_order_and_a_module_is_named_too(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "twice.py").write_text("def double(raw):\n    raw._data *= 2\n    return raw\n")
    (tmp_path / "offset.py").write_text("def drop(raw):\n    return raw.drop_channels(raw.ch_names[-1])\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    cohort = prepare(source, tmp_path / "c", label="Group", jobs=1, progress=False,
                     clean=["twice:double", f"{tmp_path}/offset.py:drop"])  # fmt: skip
    both = cohort.metadata["files"][0]["cleaning"]
    assert [change["by"] for change in both] == ["twice:double", "offset.py:drop"]
    assert both[0]["variance_change"] == 3.0
    assert both[1]["dropped_channels"] == ["O2"]


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("def clean(raw, epochs):\n    return raw\n", r"takes \(raw, epochs\); a cleaning is `def clean\(raw"),
        ("def clean():\n    pass\n", r"takes \(\); a cleaning is"),
        ("def clean(raw):\n    return raw.get_data()\n", "returned ndarray; a cleaning is `def clean"),
        ("clean = 3\n", "must be a class or a function"),
        ("def other(raw):\n    return raw\n", "it has no clean"),
        ("import nowhere\n", "cannot be loaded: ModuleNotFoundError"),
    ],
)
def test_a_wrong_signature_is_one_sentence_with_the_right_one(
    source: Path, tmp_path: Path, code: str, words: str
) -> None:
    with pytest.raises(BadUse, match=words):
        quiet(source, tmp_path / "c", code)
    assert not (tmp_path / "c/cohort.json").exists()
    with pytest.raises(BadUse, match=r"--clean nonsense: expected path/to/file.py:NAME or package.module:NAME"):
        quiet(source, tmp_path / "c", clean=["nonsense"])


def test_a_failure_is_a_problem_that_is_skipped_on_request_only(source: Path, tmp_path: Path) -> None:
    code = "def clean(raw):\n    if raw.times[-1] < 7:\n        raise RuntimeError('no ICA')\n    return raw\n"
    write_edf(source / "sub-6/eeg/sub-6_task-rest_eeg.edf", noise(9, 6, 250), 250, MONTAGE)
    with pytest.raises(BadData, match=r"sub-6, .*: clean.py:clean failed: RuntimeError: no ICA \(.*clean.py, line 3\)"):
        quiet(source, tmp_path / "c", code)
    assert len(quiet(source, tmp_path / "c", code, skip_bad=True)) == 5
    with pytest.raises(BadData, match="it returned None"):
        quiet(source, tmp_path / "d", "def clean(raw):\n    raw.filter(1, 40)\n")


def test_nothing_is_cleaned_twice_and_an_edit_prepares_again(source: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    code = f"def clean(raw):\n    open({str(log)!r}, 'a').write('x')\n    return raw\n"
    (source / "sub-6/eeg/sub-6_task-rest_eeg.edf").write_bytes(b"")
    with pytest.raises(BadData, match="only cleaned recordings were written"):
        quiet(source, tmp_path / "c", code)
    first = quiet(source, tmp_path / "c", code, skip_bad=True)
    quiet(source, tmp_path / "c", code, skip_bad=True)
    assert log.read_text() == "x" * 5, "resumed, and finished"
    assert not list((tmp_path / "c").rglob("*.fif"))

    (tmp_path / "c/subjects/sub-2/windows.npy").write_bytes(b"damage")
    assert quiet(source, tmp_path / "c", code, skip_bad=True).hash == first.hash
    assert log.read_text() == "x" * 6, "the damaged subject only"

    with pytest.raises(BadUse, match="made from other files or settings"):
        quiet(source, tmp_path / "c", code + "# edited\n", skip_bad=True)
    assert log.read_text() == "x" * 6, "refused before anything is cleaned"
    again = quiet(source, tmp_path / "c", code + "# edited\n", skip_bad=True, overwrite=True)
    assert log.read_text() == "x" * 11
    assert again.hash != first.hash


def test_a_bundle_asks_for_the_same_code(tmp_path: Path) -> None:
    (tmp_path / "clean.py").write_text("def clean(raw):\n    return raw.drop_channels('O2').crop(1)\n")
    address = f"{tmp_path / 'clean.py'}:clean"
    source = build_bids(tmp_path / "bids", {f"sub-{i:02d}": ("A", "C")[i % 2] for i in range(12)}, seconds=14)
    cohort = prepare(source, tmp_path / "c", label="Group", jobs=1, progress=False, clean=address)
    made = train(cohort, tmp_path / "m", "bandpower", folds=3, baselines=False, progress=False, threads=1)
    bundle, new = bundles.load(tmp_path / "m"), source / "sub-03/eeg/sub-03_task-rest_eeg.edf"
    assert bundle.metadata["preparation"]["clean"][0]["address"] == "clean.py:clean"
    assert "`--clean clean.py:clean` (not part of the bundle)" in bundle.card
    assert str(tmp_path) not in (tmp_path / "m/bundle.json").read_text()
    assert "cleaned one by one by the function clean.py:clean (code" in _methods(made.runs)

    (answer,) = predict(bundle, [new], clean=[address])
    assert isinstance(answer, RecordingPrediction)
    np.testing.assert_array_equal(answer.recording.windows, cohort.windows("sub-03"))
    with pytest.raises(BadUse, match=r"cleaned by clean.py:clean, and a model contains no code: name it again"):
        list(predict(bundle, [new]))
    settings = settings_for(bundle.signal, bundle.model.facts.preparation)
    with pytest.raises(BadUse, match="a model contains no code"):
        read(find([new])[0], settings)
    with pytest.raises(BadUse, match="a model contains no code"):
        prepare(source, tmp_path / "again", label="Group", **settings.model_dump())
    run = CliRunner().invoke(app, ["predict", str(tmp_path / "m"), str(new), "--clean", address, "--json"])
    assert run.exit_code == 0, run.output

    short = write_edf(tmp_path / "short.edf", noise(1, 0.8, 250), 250, MONTAGE)
    (refused,) = predict(bundle, [short], clean=[address])
    assert isinstance(refused, Refused)
    assert "clean.py:clean failed: ValueError" in refused.why
    (tmp_path / "clean.py").write_text("def clean(raw):\n    return raw.drop_channels('O2').crop(2)\n")
    with pytest.raises(BadData, match="is not the code the training recordings were cleaned by"):
        list(predict(bundle, [new], clean=[address]))


def _methods(runs: Path) -> str:
    store = find_store(runs)
    return " ".join(methods_text(build(store).cells[:1], store))


def test_derivatives_are_a_source_with_their_provenance(source: Path, tmp_path: Path) -> None:
    place = source / "derivatives/tidy"
    for number, subject in enumerate(SUBJECTS):
        for desc, level in (("clean", 1), ("filtered", 2)):
            file = place / subject / "eeg" / f"{subject}_task-rest_desc-{desc}_eeg.edf"
            write_edf(file, level * noise(50 + number, 8, 250), 250, MONTAGE)
    stated = '{"Name": "Tidy", "GeneratedBy": [{"Name": "PyPREP", "Version": "0.4", "Container": {}}]}'
    (place / "dataset_description.json").write_text(stated)
    with pytest.raises(BadUse, match="has recordings of desc clean, filtered; choose one with --desc"):
        quiet(source, tmp_path / "c", derivatives="tidy")
    with pytest.raises(BadUse, match="--derivatives tydi: no such folder; the derivatives there are: tidy"):
        quiet(source, tmp_path / "c", derivatives="tydi")
    with pytest.raises(BadUse, match="--desc raw: the recordings of tidy have desc clean, filtered"):
        quiet(source, tmp_path / "c", derivatives="tidy", desc="raw")
    with pytest.raises(BadUse, match="--desc goes with --derivatives"):
        quiet(source, tmp_path / "c", desc="raw")
    cohort = quiet(source, tmp_path / "c", derivatives="tidy", desc="clean")
    assert cohort.labels == [SUBJECTS[subject] for subject in cohort.subjects]
    assert cohort.metadata["provenance"] == {
        "derivative": "tidy", "desc": "clean", "name": "Tidy", "generated_by": [{"Name": "PyPREP", "Version": "0.4"}],
    }  # fmt: skip
    assert cohort.records["sub-1"].recordings == (
        "derivatives/tidy/sub-1/eeg/sub-1_task-rest_desc-clean_eeg.edf",
    )  # fmt: skip
    assert sum(item["why"] == "not among those with desc 'clean'" for item in cohort.metadata["left_out"]) == 6
    shown = CliRunner().invoke(app, ["inspect", str(tmp_path / "c")])
    assert "recordings: derivative tidy, desc-clean (PyPREP 0.4)" in shown.output
    for subject in SUBJECTS:  # as ds004504 has them: no folder with a name
        write_edf(
            source / "derivatives" / subject / "eeg" / f"{subject}_task-rest_eeg.edf", noise(9, 8, 250), 250, MONTAGE
        )
    with pytest.raises(BadData, match="duplicate"):
        quiet(source, tmp_path / "e", derivatives=".")
    (place / "dataset_description.json").write_text("{}")
    assert "GeneratedBy" in " ".join(quiet(source, tmp_path / "d", derivatives="tidy", desc="clean").metadata["notes"])
