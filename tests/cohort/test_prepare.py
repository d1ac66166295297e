"""Recordings to a cohort, through real files."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import mne
import numpy as np
import pytest

from bridgemil import Cohort, prepare
from bridgemil.cohort.segment import touching
from bridgemil.cohort.signal import rereferenced
from bridgemil.cohort.views import subset
from bridgemil.errors import BadData, BadUse
from bridgemil.learning.data import WindowSet
from bridgemil.learning.objectives.alignment import nearby, with_partner
from recordings import MONTAGE, build_bids, noise, write_edf


def quiet(source: Path, out: Path, **more: object) -> Cohort:
    return prepare(source, out, jobs=1, progress=False, **({"label": "Group"} | more))


def plain_mne(path: Path, names: list[str], sfreq: float = 200, low: float = 0.5, high: float = 45) -> np.ndarray:
    """The obvious loop: what the windows must equal."""
    raw = mne.io.read_raw(path, preload=True, verbose="ERROR")
    raw.pick(names).reorder_channels(names)
    raw.filter(low, high, verbose="ERROR").resample(sfreq, verbose="ERROR")
    data = raw.get_data() * 1e6
    n = data.shape[1] // int(sfreq)
    return data[:, : n * int(sfreq)].reshape(len(names), n, int(sfreq)).transpose(1, 0, 2)


def test_windows_equal_a_plain_mne_loop(bids: Path, tmp_path: Path) -> None:
    cohort = quiet(bids, tmp_path / "c")
    assert cohort.subjects == [f"sub-{i:02d}" for i in range(1, 7)]
    assert cohort.labels == ["C", "A"] * 3
    assert cohort.channels == ["Fp1", "Fp2", "C3", "C4", "O1", "O2"]
    expected = plain_mne(bids / "sub-02/eeg/sub-02_task-rest_eeg.edf", cohort.channels)
    assert cohort.windows("sub-02").shape == (8, 6, 200)
    np.testing.assert_allclose(cohort.windows("sub-02"), expected, rtol=1e-6, atol=1e-5)
    assert cohort.column("Age") == ["60", "61", "62", "63", "64", "65"]
    files = cohort.metadata["files"]
    assert all(len(file["sha256"]) == 64 and file["sfreq"] == 250 for file in files)
    assert cohort.metadata["versions"]["mne"] == mne.__version__


@pytest.mark.parametrize("sfreq", [95, 128, 500])
def test_any_rate_becomes_200_hz(tmp_path: Path, sfreq: int) -> None:
    root = build_bids(tmp_path / "b", {"sub-1": "A", "sub-2": "C"}, sfreq=sfreq, seconds=10)
    cohort = quiet(root, tmp_path / "c")
    assert cohort.windows("sub-1").shape == (10, 6, 200)
    expected = plain_mne(root / "sub-1/eeg/sub-1_task-rest_eeg.edf", cohort.channels)
    np.testing.assert_allclose(cohort.windows("sub-1"), expected, rtol=1e-6, atol=1e-5)


def test_only_shared_channels_are_kept_and_the_rest_is_listed(bids: Path, tmp_path: Path) -> None:
    path = bids / "sub-03/eeg/sub-03_task-rest_eeg.edf"
    names = ["EEG O1-LE", "EEG FP1-LE", "EEG T3-LE", "EEG C3-LE", "EEG A2-A1", "EXG1", "EEG C4-LE", "O2.", "FP2"]
    write_edf(path, noise(9, 8, 250, len(names)), 250, names)
    cohort = quiet(bids, tmp_path / "c")
    assert cohort.channels == ["Fp1", "Fp2", "C3", "C4", "O1", "O2"]
    left_out = {item["what"]: item["why"] for item in cohort.metadata["left_out"]}
    assert set(left_out) == {"channel EEG T3-LE", "channel EEG A2-A1", "channel EXG1"}
    assert "in 1 of 6 recordings" in left_out["channel EEG T3-LE"]
    expected = plain_mne(path, ["EEG FP1-LE", "FP2", "EEG C3-LE", "EEG C4-LE", "EEG O1-LE", "O2."])
    np.testing.assert_allclose(cohort.windows("sub-03"), expected, rtol=1e-6, atol=1e-5)


def test_old_and_new_names_are_one_electrode(tmp_path: Path) -> None:
    root = build_bids(tmp_path / "b", {"sub-1": "A", "sub-2": "C"}, names=("T3", "T6", "Cz"))
    write_edf(root / "sub-2/eeg/sub-2_task-rest_eeg.edf", noise(7, 8, 250, 3), 250, ("T7", "P8", "Cz"))
    assert quiet(root, tmp_path / "c").channels == ["T3", "Cz", "T6"]


def test_channels_can_be_chosen_in_any_order(bids: Path, tmp_path: Path) -> None:
    cohort = quiet(bids, tmp_path / "c", channels=("O2", "Fp1"))
    assert cohort.channels == ["O2", "Fp1"]
    whole = quiet(bids, tmp_path / "d")
    np.testing.assert_array_equal(cohort.windows("sub-01"), whole.windows("sub-01")[:, [5, 0]])


def test_classes_are_renamed_and_others_left_out_by_name(tmp_path: Path) -> None:
    root = build_bids(tmp_path / "b", {"sub-1": "A", "sub-2": "C", "sub-3": "F", "sub-4": "C"})
    cohort = quiet(root, tmp_path / "c", classes={"A": "AD", "C": "HC"})
    assert cohort.classes == ["AD", "HC"]
    assert cohort.labels == ["AD", "HC", "HC"]
    assert {"what": "sub-3", "why": "class 'F' is not among the classes asked for"} in cohort.metadata["left_out"]
    with pytest.raises(BadUse, match="names 'X', but the labels are 'A', 'C', 'F'"):
        quiet(root, tmp_path / "d", classes={"X": "Y"})


def test_sessions_and_tasks_narrow_the_choice(bids: Path, tmp_path: Path) -> None:
    for i in range(1, 7):
        for k, name in enumerate(("ses-1_task-rest", "ses-2_task-rest", "ses-2_task-move")):
            folder = bids / f"sub-{i:02d}" / name[:5] / "eeg"
            write_edf(folder / f"sub-{i:02d}_{name}_eeg.edf", noise(100 * k + 50 + i, 4, 250), 250, MONTAGE)
    cohort = quiet(bids, tmp_path / "all")
    assert cohort.records["sub-01"].recording_windows == (8, 4, 4, 4)
    assert any("sessions are used together: 1, 2" in note for note in cohort.metadata["notes"])
    assert quiet(bids, tmp_path / "s", session="2").records["sub-01"].recording_windows == (4, 4)
    assert quiet(bids, tmp_path / "t", session="2", task="move").records["sub-01"].recordings == (
        "sub-01/ses-2/eeg/sub-01_ses-2_task-move_eeg.edf",
    )


def test_windows_overlap_and_never_cross_recordings(bids: Path, tmp_path: Path) -> None:
    write_edf(bids / "sub-01/eeg/sub-01_task-rest_run-2_eeg.edf", noise(50, 3.4, 250), 250, MONTAGE)
    cohort = quiet(bids, tmp_path / "c", overlap=0.5)
    assert cohort.records["sub-01"].recording_windows == (15, 5)  # 8 s and 3.4 s at half-second steps
    bag = cohort.windows("sub-01")
    np.testing.assert_array_equal(bag[0, :, 100:], bag[1, :, :100])
    assert not np.allclose(bag[14, :, 100:], bag[15, :, :100])
    assert cohort.stretches("sub-01") == [15, 5]
    assert cohort.window_starts("sub-01")[13:17].tolist() == [6.5, 7.0, 0.0, 0.5]


def test_what_was_left_out_ends_a_stretch(bids: Path, tmp_path: Path) -> None:
    """Windows on either side of a gap are not nearby, of a recording as of a subset."""
    path = bids / "sub-01/eeg/sub-01_task-rest_eeg.edf"
    write_edf(path, noise(51, 40, 250), 250, MONTAGE, [(10, 20, "BAD_break"), (35.2, 0.5, "BAD_blink")])
    cohort = quiet(bids, tmp_path / "c")
    assert cohort.stretches("sub-01") == [10, 5, 4]
    assert sum(cohort.stretches("sub-01")) == cohort.records["sub-01"].n_windows
    assert cohort.stretches("sub-02") == [8]
    assert subset(cohort, {"sub-01": [8, 9, 10, 11, 13]}).stretches("sub-01") == [2, 2, 1]
    layout = WindowSet(cohort, ["sub-01"], None).layout
    anchors = with_partner(layout)
    starts, rng = cohort.window_starts("sub-01"), np.random.default_rng(0)
    for _ in range(20):
        assert (np.abs(starts[nearby(rng, layout, anchors)] - starts[anchors]) <= 2).all()
    overlapping = quiet(bids, tmp_path / "d", overlap=0.5)
    assert overlapping.stretches("sub-01") == [19, 9, 7]


def test_marked_windows_are_dropped_and_counted_or_kept(bids: Path, tmp_path: Path) -> None:
    path = bids / "sub-01/eeg/sub-01_task-rest_eeg.edf"
    marks = [(1.5, 0.2, "BAD_movement"), (3.0, 0.0, "boundary"), (5.9, 0.3, "EDGE"), (7.2, 0.1, "eyes closed")]
    write_edf(path, noise(60, 8, 250), 250, MONTAGE, marks)
    (bids / "sub-02/eeg/sub-02_task-rest_events.tsv").write_text(
        "onset\tduration\ttrial_type\n2.5\t1.0\tbad\n4\t1\tgo\n"
    )
    cohort = quiet(bids, tmp_path / "c")
    assert cohort.window_starts("sub-01").tolist() == [0, 2, 4, 7]
    assert cohort.window_starts("sub-02").tolist() == [0, 1, 4, 5, 6, 7]
    files = {file["subject"]: file for file in cohort.metadata["files"]}
    assert (files["sub-01"]["marked_bad"], files["sub-01"]["dropped_marked_bad"]) == (4, 4)
    kept = quiet(bids, tmp_path / "d", bad_annotations="keep")
    assert kept.records["sub-01"].n_windows == 8
    assert {f["subject"]: f["marked_bad"] for f in kept.metadata["files"]}["sub-01"] == 4


def test_touching_counts_points_and_stretches() -> None:
    starts = np.arange(4.0)
    assert touching(starts, 1.0, [(1.0, 0.0)]).tolist() == [False, True, False, False]
    assert touching(starts, 1.0, [(0.5, 1.5)]).tolist() == [True, True, False, False]
    assert touching(starts, 1.0, [(2.0, 1.0)]).tolist() == [False, False, True, False]
    assert not touching(starts, 1.0, []).any()


def test_large_windows_are_rejected_only_when_asked(bids: Path, tmp_path: Path) -> None:
    data = noise(70, 8, 250)
    data[2, 500:600] += 1500 * np.hanning(100)
    write_edf(bids / "sub-01/eeg/sub-01_task-rest_eeg.edf", data, 250, MONTAGE)
    assert quiet(bids, tmp_path / "c").n_windows == 48
    cohort = quiet(bids, tmp_path / "d", reject_uv=600)
    assert cohort.window_starts("sub-01").tolist() == [0, 1, 3, 4, 5, 6, 7]
    assert sum(file["dropped_amplitude"] for file in cohort.metadata["files"]) == 1
    with pytest.raises(BadData, match="no usable window is left after amplitude rejection"):
        quiet(bids, tmp_path / "e", reject_uv=0.01)


def test_bad_channels_stop_or_go_or_are_rebuilt(bids: Path, tmp_path: Path) -> None:
    tsv = "name\ttype\tunits\tstatus\n" + "".join(f"{n}\tEEG\tuV\t{'bad' if n == 'C3' else 'good'}\n" for n in MONTAGE)
    (bids / "sub-01/eeg/sub-01_task-rest_channels.tsv").write_text(tsv)
    with pytest.raises(BadData, match=r"sub-01, .*channel C3 marked bad"):
        quiet(bids, tmp_path / "c")
    dropped = quiet(bids, tmp_path / "d", bad_channels="drop")
    assert dropped.channels == ["Fp1", "Fp2", "C4", "O1", "O2"]
    assert any("lacking in sub-01" in item["why"] for item in dropped.metadata["left_out"])
    rebuilt = quiet(bids, tmp_path / "e", bad_channels="interpolate")
    plain = quiet(bids, tmp_path / "f", bad_channels="interpolate", channels=("C4",))
    bag = rebuilt.windows("sub-01")
    assert rebuilt.channels == list(MONTAGE)
    np.testing.assert_array_equal(bag[:, 3], plain.windows("sub-01")[:, 0])
    own = plain_mne(bids / "sub-01/eeg/sub-01_task-rest_eeg.edf", ["C3"])[:, 0]
    assert abs(np.corrcoef(bag[:, 2].ravel(), own.ravel())[0, 1]) < 0.2
    assert any("C3 marked bad; interpolated" in note for note in rebuilt.metadata["notes"])


def test_references(bids: Path, tmp_path: Path) -> None:
    plain, average = quiet(bids, tmp_path / "c"), quiet(bids, tmp_path / "d", reference=("average",))
    expected = plain.windows("sub-01") - plain.windows("sub-01").mean(axis=1, keepdims=True)
    np.testing.assert_allclose(average.windows("sub-01"), expected, atol=1e-3)
    against_o1 = quiet(bids, tmp_path / "e", reference=("O1",), channels=("C3", "C4"))
    expected = plain.windows("sub-01")[:, 2:4] - plain.windows("sub-01")[:, 4:5]
    np.testing.assert_allclose(against_o1.windows("sub-01"), expected, atol=1e-3)


@pytest.mark.parametrize("how", ["flat", "absent", "sidecar"])
def test_the_electrode_that_is_the_reference_is_recovered_by_the_average(tmp_path: Path, how: str) -> None:
    names = [*MONTAGE, "Cz"]
    kept = [name for name in names if how == "flat" or name != "Cz"]
    labels = {"sub-1": "A", "sub-2": "C"}
    for folder in ("original", "copy"):
        for i, edf in enumerate(sorted(build_bids(tmp_path / folder, labels).glob("sub-*/eeg/*.edf"))):
            edf.unlink()
            signal, own = noise(i, 8, 200, len(names)), names
            if folder == "copy":
                signal, own = (signal - signal[-1])[: len(kept)], kept
            write_edf(edf.with_suffix(".bdf"), signal, 200, own)  # 24 bits: EDF would round to 0.09 µV
    expected = quiet(tmp_path / "original", tmp_path / "c1", channels=names)
    if how == "sidecar":
        (tmp_path / "copy" / "task-rest_eeg.json").write_text('{"EEGReference": "CZ"}')
        cohort = quiet(tmp_path / "copy", tmp_path / "c2")
    else:
        with pytest.raises(BadData) as error:
            quiet(tmp_path / "copy", tmp_path / "c2", channels=names)
        assert "--recorded-reference Cz if it is the reference electrode" in str(error.value.problems[0])
        cohort = quiet(tmp_path / "copy", tmp_path / "c2", channels=names, recorded_reference="Cz")
    order = [cohort.channels.index(name) for name in names]
    for subject in cohort.subjects:
        windows = cohort.windows(subject)[:, order]
        assert not windows[:, -1].any()
        np.testing.assert_allclose(rereferenced(windows), rereferenced(expected.windows(subject)), atol=1e-2)
    given = json.loads((tmp_path / "c2" / "cohort.json").read_text())
    assert ("recorded_reference" in given["settings"]) == (how != "sidecar")
    assert {file["reference_electrode"] for file in given["files"]} == {"Cz"}
    assert "reference_electrode" not in expected.metadata["files"][0]
    assert "recorded_reference" not in expected.metadata["settings"]
    assert cohort.normalisation(cohort.subjects)[1][cohort.channels.index("Cz")] == 1  # networks can be trained
    average = quiet(tmp_path / "copy", tmp_path / "c3", channels=names, recorded_reference="Cz", reference=["average"])
    np.testing.assert_allclose(average.windows("sub-1"), rereferenced(expected.windows("sub-1")), atol=1e-2)


def test_the_recorded_reference_is_one_electrode_and_not_one_with_a_signal(bids: Path, tmp_path: Path) -> None:
    for name in ("A1", "average", "linked ears", "C3+C4"):
        with pytest.raises(BadUse, match="one electrode of the 10-20 or 10-10 system"):
            quiet(bids, tmp_path / "c", recorded_reference=name)
    cohort = quiet(bids, tmp_path / "c", recorded_reference="C3")
    assert "C3 is not flat, so it is not the reference; used as recorded" in cohort.metadata["notes"][0]
    (bids / "task-rest_eeg.json").write_text('{"EEGReference": "placed on Cz, later A1"}')
    assert quiet(bids, tmp_path / "d").channels == list(MONTAGE)


def test_notch_and_open_edges(bids: Path, tmp_path: Path) -> None:
    time_axis = np.arange(2000) / 250
    humming = noise(80, 8, 250) + 50 * np.sin(2 * np.pi * 50 * time_axis)
    write_edf(bids / "sub-01/eeg/sub-01_task-rest_eeg.edf", humming, 250, MONTAGE)

    def hum(**more: object) -> float:
        cohort = quiet(bids, tmp_path / f"c{len(list(tmp_path.iterdir()))}", **more)
        spectrum = np.abs(np.fft.rfft(cohort.windows("sub-01"), axis=-1))
        return float(spectrum[..., 50].mean())

    assert hum(high=75) > 8 * hum(high=75, notch=(50,))
    assert hum(low=None, high=None) > 8 * hum(high=30)


@pytest.mark.parametrize("suffix", [".bdf", ".fif", ".vhdr", ".set"])
def test_other_formats(tmp_path: Path, bids: Path, suffix: str) -> None:
    data = noise(90, 8, 250)
    old = bids / "sub-01/eeg/sub-01_task-rest_eeg.edf"
    path = old.with_suffix(suffix)
    old.unlink()
    raw = mne.io.RawArray(data * 1e-6, mne.create_info(list(MONTAGE), 250, "eeg"), verbose="ERROR")
    if suffix == ".bdf":
        write_edf(path, data, 250, MONTAGE)
    elif suffix == ".fif":
        raw.save(path, verbose="ERROR")
    else:
        mne.export.export_raw(path, raw, verbose="ERROR")
    cohort = quiet(bids, tmp_path / "c")
    expected = plain_mne_array(data)
    np.testing.assert_allclose(cohort.windows("sub-01"), expected, atol=0.1)  # 16-bit formats round


def plain_mne_array(data: np.ndarray) -> np.ndarray:
    raw = mne.io.RawArray(data * 1e-6, mne.create_info(list(MONTAGE), 250, "eeg"), verbose="ERROR")
    raw.filter(0.5, 45, verbose="ERROR").resample(200, verbose="ERROR")
    return (raw.get_data() * 1e6).reshape(len(data), 8, 200).transpose(1, 0, 2)


def test_manifest_keeps_the_order_and_further_columns(tmp_path: Path) -> None:
    for i in range(6):
        write_edf(tmp_path / f"rec/{i}.edf", noise(i, 3 + i, 250), 250, MONTAGE)
    rows = [
        "subject,label,file,site",
        "x,pat,rec/5.edf,1",
        "x,pat,rec/1.edf,1",
        "y,con,rec/2.edf,2",
        "z,con,rec/0.edf,2",
    ]
    (tmp_path / "manifest.csv").write_text("\n".join(rows) + "\n")
    for source in (tmp_path / "manifest.csv", tmp_path):
        cohort = quiet(source, tmp_path / "c", label=None)
        assert cohort.subjects == ["x", "y", "z"]
        assert cohort.records["x"].recordings == ("rec/5.edf", "rec/1.edf")
        assert cohort.records["x"].recording_windows == (8, 4)
        assert cohort.column("site") == ["1", "2", "2"]


@pytest.mark.parametrize("duplicates", ["stop", "keep-first"])
def test_a_row_of_a_manifest_written_twice_is_used_once_and_listed(tmp_path: Path, duplicates: str) -> None:
    rows = ["subject,label,file"]
    for i in range(6):
        write_edf(tmp_path / f"{i}.edf", noise(i, 3, 250), 250, MONTAGE)
        rows.append(f"P{i},{'ab'[i % 2]},{i}.edf")
    (tmp_path / "list.csv").write_text("\n".join([*rows, "P0,a,./0.edf"]) + "\n")
    cohort = quiet(tmp_path / "list.csv", tmp_path / "c", label=None, duplicates=duplicates)
    assert cohort.records["P0"].recordings == ("0.edf",)
    assert cohort.metadata["left_out"] == [{"what": "P0, ./0.edf", "why": "line 8 repeats line 2; it is used once"}]


def test_preparing_again_does_nothing_and_other_settings_are_refused(bids: Path, tmp_path: Path) -> None:
    first = quiet(bids, tmp_path / "c")
    stamp = (tmp_path / "c/subjects/sub-01/windows.npy").stat().st_mtime_ns
    assert quiet(bids, tmp_path / "c").hash == first.hash
    with pytest.raises(BadUse, match="other files or settings"):
        quiet(bids, tmp_path / "c", high=40)
    write_edf(bids / "sub-02/eeg/sub-02_task-rest_eeg.edf", noise(99, 8, 250), 250, MONTAGE)
    changed = quiet(bids, tmp_path / "c", overwrite=True)
    assert changed.hash != first.hash
    assert (tmp_path / "c/subjects/sub-01/windows.npy").stat().st_mtime_ns == stamp  # only what changed is redone
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/notes.txt").write_text("mine")
    with pytest.raises(BadUse, match="is no cohort"):
        quiet(bids, tmp_path / "mine")


def test_an_unfinished_cohort_is_not_replaced_by_another_unless_told_to(bids: Path, tmp_path: Path) -> None:
    first = quiet(bids, tmp_path / "c")
    (tmp_path / "c/manifest.json").unlink()
    with pytest.raises(BadUse, match="holds subjects made from other files or settings"):
        quiet(bids, tmp_path / "c", high=40)
    assert (tmp_path / "c/subjects/sub-01/windows.npy").is_file()
    (tmp_path / "c/subjects/sub-02/record.json").write_text("{")  # damaged: it is cut anew
    assert quiet(bids, tmp_path / "c").hash == first.hash
    (tmp_path / "c/manifest.json").unlink()
    assert quiet(bids, tmp_path / "c", high=40, overwrite=True).hash != first.hash


def test_jobs_do_not_change_the_result(bids: Path, tmp_path: Path) -> None:
    two = prepare(bids, tmp_path / "two", label="Group", jobs=2, progress=False)
    assert two.hash == quiet(bids, tmp_path / "one").hash


def test_killed_in_the_middle_it_goes_on_to_the_same_cohort(tmp_path: Path) -> None:
    labels = {f"sub-{i:02d}": "AC"[i % 2] for i in range(12)}
    root = build_bids(tmp_path / "b", labels, seconds=120, sfreq=500)
    undisturbed = quiet(root, tmp_path / "undisturbed")
    out = tmp_path / "killed"
    command = [sys.executable, "-m", "bridgemil", "prepare", str(root), str(out), "--label", "Group", "--jobs", "1"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while len(list(out.glob("subjects/sub-*"))) < 3 and time.monotonic() < deadline:
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    finished = len(list(out.glob("subjects/sub-*")))
    assert 3 <= finished < 12, "the kill came too early or too late to show anything"
    assert not (out / "cohort.json").exists()
    with pytest.raises(BadData, match="not finished"):
        Cohort.open(out)
    resumed = quiet(root, out)
    assert resumed.hash == undisturbed.hash
    assert not list(out.rglob("*.part"))
    assert json.loads((out / "cohort.json").read_text())["hash"] == undisturbed.hash


def test_the_label_column_of_a_bids_folder_is_found_in_other_capitals(bids: Path, tmp_path: Path) -> None:
    assert prepare(bids, tmp_path / "c", label="group", jobs=1, progress=False).classes == ["A", "C"]
    with pytest.raises(BadUse, match=r"no column 'Grup'.* did you mean Group"):
        prepare(bids, tmp_path / "d", label="Grup", jobs=1, progress=False)
