"""What ``prepare`` must never do: touch what is not its own, mislabel channels, trust half a file, guess."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import mne
import numpy as np
import pandas as pd
import pytest
from filelock import FileLock

from bridgemil import Cohort, SubjectKFold, prepare
from bridgemil.errors import BadData, BadUse
from recordings import MONTAGE, build_bids, noise, write_edf


def quiet(source: Path, out: Path, **more: object) -> Cohort:
    return prepare(source, out, jobs=1, progress=False, **({"label": "Group"} | more))


def test_a_users_folder_is_left_alone(bids: Path, tmp_path: Path) -> None:
    photo = tmp_path / "study/subjects/P1/photo.txt"
    photo.parent.mkdir(parents=True)
    photo.write_text("mine")
    with pytest.raises(BadUse, match="is no cohort"):
        quiet(bids, tmp_path / "study")
    with pytest.raises(BadUse, match="holds the recordings themselves"):
        quiet(bids, bids)
    assert photo.read_text() == "mine"
    assert not list(bids.glob(".bridgemil*"))
    cohort = quiet(bids, tmp_path / "c")
    (tmp_path / "c/subjects/.DS_Store").write_text("")
    (tmp_path / "c/subjects/notes").mkdir()
    assert quiet(bids, tmp_path / "c", high=40, overwrite=True).hash != cohort.hash
    assert (tmp_path / "c/subjects/notes").is_dir()


def test_files_have_their_own_hash_however_their_folder_is_spelt(
    bids: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(bids.parent)
    cohort = quiet(Path(bids.name), tmp_path / "c")
    content = (bids / "sub-01/eeg/sub-01_task-rest_eeg.edf").read_bytes()
    assert cohort.metadata["files"][0]["sha256"] == hashlib.sha256(content).hexdigest()
    assert cohort.metadata["files"][0]["bytes"] == len(content)
    (tmp_path / "link").symlink_to(bids)
    for spelling in (bids, tmp_path / "link"):
        assert quiet(spelling, tmp_path / "c").hash == cohort.hash, "the finished cohort was not recognised"


def test_another_order_of_channels_is_cut_again(bids: Path, tmp_path: Path) -> None:
    quiet(bids, tmp_path / "c", channels=("C3", "O1"))
    turned = quiet(bids, tmp_path / "c", channels=("O1", "C3"), overwrite=True)
    fresh = quiet(bids, tmp_path / "d", channels=("O1", "C3"))
    assert turned.hash == fresh.hash
    np.testing.assert_array_equal(turned.windows("sub-01"), fresh.windows("sub-01"))


def test_a_boundary_is_a_point_whatever_was_cut_out_there(bids: Path, tmp_path: Path) -> None:
    raw = mne.io.RawArray(noise(5, 20, 250) * 1e-6, mne.create_info(list(MONTAGE), 250, "eeg"), verbose="ERROR")
    raw.set_annotations(mne.Annotations([4.5], [11.0], ["boundary"]))
    (bids / "sub-01/eeg/sub-01_task-rest_eeg.edf").unlink()
    mne.export.export_raw(bids / "sub-01/eeg/sub-01_task-rest_eeg.set", raw, verbose="ERROR")
    assert quiet(bids, tmp_path / "c").window_starts("sub-01").tolist() == [i for i in range(20) if i != 4]


@pytest.mark.parametrize("place", ["the file", "events.tsv"])
def test_a_pause_of_brainvision_is_a_boundary_and_the_beginning_is_none(bids: Path, tmp_path: Path, place: str) -> None:
    raw = mne.io.RawArray(noise(5, 20, 250) * 1e-6, mne.create_info(list(MONTAGE), 250, "eeg"), verbose="ERROR")
    old = bids / "sub-01/eeg/sub-01_task-rest_eeg.edf"
    old.unlink()
    mne.export.export_raw(old.with_suffix(".vhdr"), raw, verbose="ERROR")
    if place == "the file":
        with old.with_suffix(".vmrk").open("a") as stream:
            stream.write("Mk1=New Segment,,1,1,0,20200101100000000000\n")
            stream.write("Mk2=New Segment,,1126,1,0,20200101103000000000\n")
    else:
        rows = ["onset\tduration\ttrial_type", "0.0\tn/a\tNew Segment/", "4.5\tn/a\tNew Segment/"]
        old.with_name("sub-01_task-rest_events.tsv").write_text("\n".join(rows) + "\n")
    assert quiet(bids, tmp_path / "c").window_starts("sub-01").tolist() == [i for i in range(20) if i != 4]


def test_a_damaged_cohort_is_mended(bids: Path, tmp_path: Path) -> None:
    whole = quiet(bids, tmp_path / "c").hash
    (tmp_path / "c/subjects/sub-01/windows.npy").write_bytes(b"")
    (tmp_path / "c/subjects/sub-02/windows.npy").unlink()
    mended = quiet(bids, tmp_path / "c")
    assert mended.hash == whole
    assert len(mended.windows("sub-01")) == len(mended.windows("sub-02")) == 8
    (tmp_path / "c/cohort.json").write_text("{")
    with pytest.raises(BadData, match="was changed since it was written"):
        Cohort.open(tmp_path / "c")
    assert quiet(bids, tmp_path / "c").hash == whole


def test_a_second_writer_changes_nothing(bids: Path, tmp_path: Path) -> None:
    quiet(bids, tmp_path / "c")
    with FileLock(tmp_path / "c/.lock"), pytest.raises(BadUse, match="another `prepare` is writing there"):
        quiet(bids, tmp_path / "c", high=40, overwrite=True)
    assert Cohort.open(tmp_path / "c").metadata["settings"]["high"] == 45


def test_skipped_recordings_have_no_say_in_the_channels(bids: Path, tmp_path: Path) -> None:
    write_edf(bids / "sub-04/eeg/sub-04_task-rest_eeg.edf", noise(44, 0.8, 250, 2), 250, ("Fp1", "Fp2"))
    assert quiet(bids, tmp_path / "c", skip_bad=True).channels == list(MONTAGE)


@pytest.mark.parametrize("sfreq", [250, 80])
def test_recordings_refused_for_their_channels_have_no_say_in_them_either(
    bids: Path, tmp_path: Path, sfreq: int
) -> None:
    two = noise(44, 8, sfreq, 2)
    two[0] *= sfreq == 80  # flat at 250 Hz; at 80 Hz it is the rate that is refused
    write_edf(bids / "sub-04/eeg/sub-04_task-rest_eeg.edf", two, sfreq, ("Fp1", "Fp2"))
    cohort = quiet(bids, tmp_path / "c", skip_bad=True)
    assert cohort.channels == list(MONTAGE)
    assert cohort.metadata["left_out"] == []
    assert len(cohort) == 5


def test_a_wrong_unit_is_noticed(bids: Path, tmp_path: Path) -> None:
    raw = mne.io.RawArray(noise(5, 8, 250), mne.create_info(list(MONTAGE), 250, "eeg"), verbose="ERROR")  # as if volts
    (bids / "sub-01/eeg/sub-01_task-rest_eeg.edf").unlink()
    raw.save(bids / "sub-01/eeg/sub-01_task-rest_eeg.fif", verbose="ERROR")
    with pytest.raises(BadData, match="varies by more than 100 mV: is the file's unit right"):
        quiet(bids, tmp_path / "c")


@pytest.mark.parametrize("factor", [1000, 0.001])
def test_microvolts_called_millivolts_are_noticed(bids: Path, tmp_path: Path, factor: float) -> None:
    drift = 500 * np.sin(np.linspace(0, 3, 2000))  # no channel is flat, whatever the unit
    raw = mne.io.RawArray(
        (noise(5, 8, 250) + drift) * factor * 1e-6, mne.create_info(list(MONTAGE), 250, "eeg"), verbose="ERROR"
    )
    (bids / "sub-01/eeg/sub-01_task-rest_eeg.edf").unlink()
    raw.save(bids / "sub-01/eeg/sub-01_task-rest_eeg.fif", verbose="ERROR")
    with pytest.raises(
        BadData, match=r"rest_eeg.fif: its electrodes vary by [\d,.]+ µV, [\d.]+ µV is usual among the others"
    ):
        quiet(bids, tmp_path / "c")
    skipped = quiet(bids, tmp_path / "c", skip_bad=True)
    assert "sub-01" not in skipped.subjects
    assert "is the file's unit right?" in skipped.metadata["skipped"][0]


def test_drift_and_mains_are_no_wrong_unit(bids: Path, tmp_path: Path) -> None:
    t = np.arange(2000) / 250
    loud = noise(5, 8, 250) + 50_000 * np.sin(2 * np.pi * 0.05 * t) + 5_000 * np.sin(2 * np.pi * 50 * t)
    raw = mne.io.RawArray(loud * 1e-6, mne.create_info(list(MONTAGE), 250, "eeg"), verbose="ERROR")
    (bids / "sub-01/eeg/sub-01_task-rest_eeg.edf").unlink()
    raw.save(bids / "sub-01/eeg/sub-01_task-rest_eeg.fif", verbose="ERROR")
    assert "sub-01" in quiet(bids, tmp_path / "c").subjects


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"channels": ("T3", "T7")}, "named twice"),
        ({"channels": ("C3", "EEG C3")}, "named twice"),
        ({"reference": ("average", "C3")}, "not both"),
        ({"reference": ("C3",), "channels": ("C3", "O1")}, "would be zero"),
        ({"notch": (-50,)}, "above 0 Hz"),
        ({"folds": 2}, "greater than or equal to 3"),
        ({"raw": True}, "goes with --preset adftd"),
    ],
)
def test_settings_that_make_no_sense(bids: Path, tmp_path: Path, settings: dict, message: str) -> None:
    with pytest.raises(BadUse, match=message):
        quiet(bids, tmp_path / "c", **settings)


def test_references_are_matched_checked_and_not_kept(tmp_path: Path) -> None:
    names = ("EEG C3-Ref", "EEG C4-Ref", "EEG A1-Ref", "EEG A2-Ref")
    root = build_bids(tmp_path / "b", {"sub-1": "A", "sub-2": "C"}, names=names)
    cohort = quiet(root, tmp_path / "c", reference=("A1", "A2"))
    assert cohort.channels == ["C3", "C4"]
    assert quiet(root, tmp_path / "d", reference=("C3",)).channels == ["C4"]
    data = noise(3, 8, 250, 4)
    data[2] = 0
    write_edf(root / "sub-1/eeg/sub-1_task-rest_eeg.edf", data, 250, names)
    with pytest.raises(BadData, match=r"sub-1, .*reference A1 is flat"):
        quiet(root, tmp_path / "e", reference=("A1", "A2"))


def test_a_bad_channel_that_is_rebuilt_may_be_loud(bids: Path, tmp_path: Path) -> None:
    loud = noise(5, 8, 250)
    loud[2] *= 10_000
    raw = mne.io.RawArray(loud * 1e-6, mne.create_info(list(MONTAGE), 250, "eeg"), verbose="ERROR")
    raw.info["bads"] = ["C3"]
    (bids / "sub-01/eeg/sub-01_task-rest_eeg.edf").unlink()
    raw.save(bids / "sub-01/eeg/sub-01_task-rest_eeg.fif", verbose="ERROR")
    rebuilt = quiet(bids, tmp_path / "c", bad_channels="interpolate")
    assert float(np.abs(rebuilt.windows("sub-01")).max()) < 1000


def test_a_notch_whose_flank_is_beyond_nyquist_is_refused_before_cutting(tmp_path: Path) -> None:
    source = build_bids(tmp_path / "b", {f"sub-{i:02d}": "AC"[i % 2] for i in range(6)}, sfreq=101)
    with pytest.raises(BadData, match=r"sampled at 101 Hz: a filter edge of 50.625 Hz is at or beyond its Nyquist"):
        quiet(source, tmp_path / "c", high=40, notch=(50,))
    cohort = quiet(source, tmp_path / "c", high=40, notch=(50,), allow_low_rate=True)
    assert "filters at or beyond 50.5 Hz were left out" in cohort.metadata["notes"][0]


def test_a_recording_shorter_than_the_filter_is_noted(bids: Path, tmp_path: Path) -> None:
    write_edf(bids / "sub-02/eeg/sub-02_task-rest_eeg.edf", noise(45, 2, 250), 250, MONTAGE)
    (note,) = quiet(bids, tmp_path / "c").metadata["notes"]
    assert note.startswith("sub-02, sub-02/eeg/sub-02_task-rest_eeg.edf: shorter than the filter, which distorts it")


def test_different_references_in_the_channels_names_are_recorded_and_noted(tmp_path: Path) -> None:
    labels = {f"sub-{i:02d}": "AC"[i % 2] for i in range(1, 7)}
    build_bids(tmp_path / "b", labels)
    for i in (1, 2, 4):
        path = tmp_path / f"b/sub-{i:02d}/eeg/sub-{i:02d}_task-rest_eeg.edf"
        write_edf(path, noise(60 + i, 8, 250), 250, [f"EEG {name}-{'LE' if i == 1 else 'REF'}" for name in MONTAGE])
    cohort = quiet(tmp_path / "b", tmp_path / "c")
    stated = [file.get("reference") for file in cohort.metadata["files"]]
    assert stated == ["LE", "REF", None, "REF", None, None]
    assert "reference" not in cohort.metadata["files"][2]
    assert cohort.metadata["notes"] == [
        "by their channels' names the recordings have different references: REF (2 A), linked ears (1 C), "
        "none named (1 A, 2 C); --reference average makes them alike"
    ]
    assert quiet(tmp_path / "b", tmp_path / "d", reference=("average",)).metadata["notes"] == []


def test_spellings_of_one_reference_are_not_different_references(tmp_path: Path) -> None:
    labels = {f"sub-{i:02d}": "AC"[i % 2] for i in range(1, 7)}
    build_bids(tmp_path / "b", labels)
    for i in range(1, 7):
        path = tmp_path / f"b/sub-{i:02d}/eeg/sub-{i:02d}_task-rest_eeg.edf"
        spelling = ("LE", "A1A2", "(A1+A2)")[i % 3]
        write_edf(path, noise(60 + i, 8, 250), 250, [f"EEG {name}-{spelling}" for name in MONTAGE])
    assert quiet(tmp_path / "b", tmp_path / "c").metadata["notes"] == []


def test_runs_are_in_the_order_of_their_numbers_and_strange_files_are_listed(bids: Path, tmp_path: Path) -> None:
    folder = bids / "sub-01/eeg"
    (folder / "sub-01_task-rest_eeg.edf").unlink()
    for run, seconds in ((1, 3), (2, 4), (10, 5)):
        write_edf(folder / f"sub-01_task-rest_run-{run}_eeg.edf", noise(100 + run, seconds, 250), 250, MONTAGE)
    write_edf(folder / "recording2.edf", noise(99, 4, 250), 250, MONTAGE)
    cohort = quiet(bids, tmp_path / "c")
    assert cohort.records["sub-01"].recording_windows == (3, 4, 5)
    assert [item["what"] for item in cohort.metadata["left_out"]] == ["sub-01/eeg/recording2.edf"]


def patched(path: Path, at: int, text: bytes) -> None:
    content = bytearray(path.read_bytes())
    content[at : at + len(text)] = text
    path.write_bytes(bytes(content))


BAD_STRETCH = "onset\tduration\ttrial_type\n2.0\t3.0\tBAD_move\n"


@pytest.mark.parametrize(
    ("place", "dropped"),
    [
        ("sub-01/eeg/sub-01_task-rest_events.tsv", 3),
        ("sub-01/eeg/sub-01_events.tsv", 3),
        ("sub-01/sub-01_task-rest_events.tsv", 3),
        ("task-rest_events.tsv", 3),
        ("sub-01/eeg/sub-01_task-rest_acq-x_events.tsv", 0),
        ("sub-01/eeg/sub-01_task-other_events.tsv", 0),
        ("derivatives/sub-01/eeg/sub-01_task-rest_events.tsv", 0),
    ],
)
def test_a_side_file_applies_where_its_name_says_nothing_that_the_recordings_lacks(
    bids: Path, tmp_path: Path, place: str, dropped: int
) -> None:
    (bids / place).parent.mkdir(parents=True, exist_ok=True)
    (bids / place).write_text(BAD_STRETCH)
    assert quiet(bids, tmp_path / "c").metadata["files"][0]["dropped_marked_bad"] == dropped


def test_the_nearest_side_file_counts_and_two_of_one_rank_are_a_problem(bids: Path, tmp_path: Path) -> None:
    (bids / "task-rest_events.tsv").write_text(BAD_STRETCH)
    (bids / "sub-01/eeg/sub-01_task-rest_events.tsv").write_text("onset\tduration\ttrial_type\n")
    cohort = quiet(bids, tmp_path / "c")
    assert [file["dropped_marked_bad"] for file in cohort.metadata["files"]] == [0, 3, 3, 3, 3, 3]
    folder = bids / "sub-01/eeg"
    (folder / "sub-01_task-rest_eeg.edf").rename(folder / "sub-01_task-rest_run-1_eeg.edf")
    (folder / "sub-01_run-1_events.tsv").write_text(BAD_STRETCH)
    both = "sub-01_run-1_events.tsv and sub-01_task-rest_events.tsv both apply to it"
    with pytest.raises(BadData, match=f"sub-01, sub-01/eeg/sub-01_task-rest_run-1_eeg.edf: {both}"):
        quiet(bids, tmp_path / "d")
    assert "sub-01" not in quiet(bids, tmp_path / "d", skip_bad=True).subjects


def test_only_discontinuous_recordings_with_gaps_are_refused(bids: Path, tmp_path: Path) -> None:
    path = bids / "sub-01/eeg/sub-01_task-rest_eeg.edf"
    write_edf(path, noise(51, 8, 250), 250, MONTAGE, [(1.0, 0.1, "eyes")])
    patched(path, 192, b"EDF+D")
    whole = quiet(bids, tmp_path / "c")
    assert whole.records["sub-01"].n_windows == 8, "called discontinuous, but without a gap"
    content = path.read_bytes()
    for onset in (b"+9\x14\x14", b"?5\x14\x14"):  # a later one, and one that cannot be read
        path.write_bytes(content)
        patched(path, content.index(b"+5\x14\x14"), onset)
        with pytest.raises(BadData, match=r"sub-01, .*discontinuous \(EDF\+D\)"):
            quiet(bids, tmp_path / "d")


def eeglab_pair(path: Path, data: np.ndarray) -> None:
    """A .set with its samples beside it in an .fdt."""
    from scipy.io import savemat

    places = np.array([(name,) for name in MONTAGE], dtype=[("labels", object)])
    about = {"nbchan": len(data), "pnts": data.shape[1], "trials": 1, "srate": 250.0, "xmin": 0.0, "event": []}
    about |= {"data": f"{path.stem}.fdt", "datfile": f"{path.stem}.fdt", "chanlocs": places}
    savemat(path, {"EEG": about}, appendmat=False)
    path.with_suffix(".fdt").write_bytes(data.T.astype("<f4").tobytes())


def test_an_eeglab_file_says_itself_what_is_wrong_with_it(bids: Path, tmp_path: Path) -> None:
    old = bids / "sub-01/eeg/sub-01_task-rest_eeg.edf"
    old.unlink()
    path, samples = old.with_suffix(".set"), old.with_suffix(".fdt")
    eeglab_pair(path, noise(55, 8, 250))
    assert quiet(bids, tmp_path / "c").records["sub-01"].n_windows == 8
    whole = samples.read_bytes()

    def refused(message: str) -> None:
        with pytest.raises(BadData, match=f"sub-01_task-rest_eeg.set: {message}"):
            quiet(bids, tmp_path / "d")

    samples.write_bytes(whole[:-400])
    refused("truncated: its .set says 6 channels of 2000 samples of 4 bytes, its .fdt has 47600 bytes")
    samples.write_bytes(whole + whole[:24])
    refused("its size contradicts its header: its .set says 6 channels")
    samples.unlink()
    epochs = mne.EpochsArray(
        noise(6, 8, 250).reshape(8, 6, 250) * 1e-6, mne.create_info(list(MONTAGE), 250, "eeg"), verbose="ERROR"
    )
    epochs.export(path, overwrite=True, verbose="ERROR")
    refused("it holds epochs, not a continuous recording; save it as continuous data")
    header = b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(124) + b"\x00\x02IM"
    path.write_bytes(header.ljust(512, b"\0") + b"\x89HDF\r\n\x1a\n" + bytes(2000))
    refused("it was saved as MATLAB v7.3, which is not read; save it as v7 or earlier")


def test_a_brainvision_file_cut_within_a_sample_is_truncated(bids: Path, tmp_path: Path) -> None:
    folder = bids / "sub-01/eeg"
    (folder / "sub-01_task-rest_eeg.edf").unlink()
    raw = mne.io.RawArray(noise(1, 8, 250) * 1e-6, mne.create_info(list(MONTAGE), 250, "eeg"), verbose="ERROR")
    mne.export.export_raw(folder / "sub-01_task-rest_eeg.vhdr", raw, verbose="ERROR")
    data = folder / "sub-01_task-rest_eeg.eeg"
    data.write_bytes(data.read_bytes()[:-7001])
    with pytest.raises(BadData, match="truncated: its data file ends in the middle of a sample"):
        quiet(bids, tmp_path / "c")


def test_the_rate_of_the_kept_signals_counts(bids: Path, tmp_path: Path) -> None:
    from edfio import Edf, EdfSignal

    signals = [
        EdfSignal(row, 80, label=name, physical_dimension="uV")
        for name, row in zip(MONTAGE, noise(1, 8, 80), strict=True)
    ]
    signals.append(EdfSignal(noise(2, 8, 1000, 1)[0], 1000, label="ECG", physical_dimension="uV"))
    Edf(signals).write(bids / "sub-01/eeg/sub-01_task-rest_eeg.edf")
    with pytest.raises(BadData, match="sampled at 80 Hz: a filter edge of 45 Hz"):
        quiet(bids, tmp_path / "c")


def test_a_faster_channel_of_another_kind_changes_no_window(
    bids: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from edfio import Edf, EdfAnnotation, EdfSignal

    from bridgemil.report.terminal import print_summary, summary

    path = bids / "sub-01/eeg/sub-01_task-rest_eeg.edf"
    drift = 300 * np.sin(np.linspace(0, 1, 8 * 128))
    signals = [
        EdfSignal(row + drift, 128, label=name, physical_dimension="uV")
        for name, row in zip(MONTAGE, noise(1, 8, 128), strict=True)
    ]
    ecg = EdfSignal(noise(2, 8, 512, 1)[0], 512, label="ECG", physical_dimension="uV")
    marks = [EdfAnnotation(6.2, 0.1, "BAD_move")]
    Edf(signals, annotations=marks).write(path)
    alone = quiet(bids, tmp_path / "alone")
    Edf([*signals, ecg], annotations=marks).write(path)
    mixed = quiet(bids, tmp_path / "mixed")
    np.testing.assert_array_equal(alone.windows("sub-01"), mixed.windows("sub-01"))
    assert mixed.hash == alone.hash
    assert summary(mixed)["native_rates"] == [128, 250]
    print_summary(mixed)
    assert "recorded at 128, 250 Hz" in capsys.readouterr().out


def test_classes_left_out_may_have_problems(bids: Path, tmp_path: Path) -> None:
    table = (bids / "participants.tsv").read_text() + "sub-99\tF\t70\n"
    (bids / "participants.tsv").write_text(table)
    with pytest.raises(BadData, match=r"sub-99: listed in participants.tsv but has no EEG recording"):
        quiet(bids, tmp_path / "c")
    assert len(quiet(bids, tmp_path / "c", classes=["A", "C"])) == 6
    (bids / "sub-99/eeg").mkdir(parents=True)
    write_edf(bids / "sub-99/eeg/sub-99_task-rest_eeg.edf", noise(99, 8, 250), 250, MONTAGE)
    (bids / "sub-99/eeg/sub-99_task-other_eeg.edf").symlink_to("not-fetched.edf")
    with pytest.raises(BadData, match=r"sub-99_task-other_eeg.edf: its content is not here"):
        quiet(bids, tmp_path / "d")
    assert len(quiet(bids, tmp_path / "d", classes=["A", "C"])) == 6


def test_files_of_a_manifest_that_are_not_asked_for_may_be_gone(tmp_path: Path) -> None:
    rows = ["subject,label,file", "Z,z,gone.edf"]
    for i in range(6):
        write_edf(tmp_path / f"{i}.edf", noise(i, 3, 250), 250, MONTAGE)
        rows.append(f"P{i},{'ab'[i % 2]},{i}.edf")
    (tmp_path / "list.csv").write_text("\n".join(rows) + "\n")
    with pytest.raises(BadData, match=r"Z, gone.edf: no such file"):
        quiet(tmp_path / "list.csv", tmp_path / "c", label=None)
    assert len(quiet(tmp_path / "list.csv", tmp_path / "c", label=None, classes=["a", "b"])) == 6


def test_labels_that_differ_only_in_capitals_are_no_classes_of_their_own(tmp_path: Path) -> None:
    labels = {f"sub-{i:02d}": "patient" if i % 2 else "control" for i in range(1, 9)} | {"sub-03": "Patient"}
    source = build_bids(tmp_path / "b", labels)
    what = "sub-03: label 'Patient' differs from 'patient' only in capitals or spaces"
    with pytest.raises(BadData, match=f"{what}; --classes 'Patient=patient,control,patient' joins them"):
        quiet(source, tmp_path / "c")
    assert quiet(source, tmp_path / "c", skip_bad=True).subjects == [s for s in labels if s != "sub-03"]
    joined = {"Patient": "patient", "control": "control", "patient": "patient"}
    assert quiet(source, tmp_path / "d", classes=joined).classes == ["control", "patient"]


def test_text_that_is_no_text_is_refused(bids: Path, tmp_path: Path) -> None:
    (bids / "participants.tsv").write_bytes("participant_id\tGroup\nsub-01\tMüller\n".encode("latin-1"))
    with pytest.raises(BadData, match=r"participants.tsv: is no text in UTF-8"):
        quiet(bids, tmp_path / "c")


def epochs(volts: np.ndarray, names: list[str], kinds: list[str]) -> mne.BaseEpochs:
    return mne.EpochsArray(volts, mne.create_info(names, 50, kinds), verbose="ERROR")


def test_epochs_bring_their_eeg_channels_only() -> None:
    rng = np.random.default_rng(0)
    bags = []
    for code in (1, 2):
        data = rng.normal(0, 2e-5, (4, 3, 50))
        data[:, 2] = code
        bags.append(epochs(data, ["C3", "C4", "STI"], ["eeg", "eeg", "stim"]))
    cohort = Cohort.from_arrays([[bags[0], bags[0].copy()[:2]], bags[1]], ["a", "b"])
    assert cohort.channels == ["C3", "C4"]
    assert cohort.records["subject-001"].recording_windows == (4, 2)
    assert 5 < float(np.std(cohort.windows("subject-001"))) < 80
    bags[0].info["bads"] = ["C3"]
    with pytest.raises(BadUse, match="bad channels"):
        Cohort.from_arrays(bags, ["a", "b"])


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"labels": ["a", None, "b"]}, BadUse, "no label for subject-002"),
        *(
            ({"labels": ["a", missing, "b"]}, BadUse, "no label for subject-002")
            for missing in (float("nan"), pd.NA, pd.NaT, np.datetime64("NaT"), "", " ", "NaN", "N/A", "<NA>")
        ),
        ({"labels": ["a", "b", "a "]}, BadUse, "labels 'a ' and 'a' differ only in capitals or spaces"),
        ({"labels": ["a", "b", "A"]}, BadUse, "labels 'a' and 'A' differ only in capitals or spaces"),
        ({"bags": lambda b: [b[0], b[1], b[0].copy()]}, BadData, "subject-003 and subject-001 have the same windows"),
    ],
)
def test_arrays_under_the_same_rules(change: dict, error: type[Exception], message: str) -> None:
    bags = [np.random.default_rng(i).normal(size=(3, 2, 50)) for i in range(3)]
    change = {key: value(bags) if isinstance(value, Callable) else value for key, value in change.items()}
    given = {"bags": bags, "labels": list("aba"), "sfreq": 50, "channels": np.array(["C3", "C4"])} | change
    with pytest.raises(error, match=message):
        Cohort.from_arrays(**given)


def test_the_split_depends_on_who_is_there_not_on_their_order() -> None:
    subjects, labels = [f"s{i}" for i in range(20)], ["a", "b"] * 10
    forward = SubjectKFold(5).plan(subjects, labels)
    assert SubjectKFold(5).plan(subjects[::-1], labels[::-1]) == forward


def test_a_subject_without_a_group_is_related_to_nobody() -> None:
    subjects, labels = [f"s{i}" for i in range(20)], ["a", "b"] * 10
    plan = SubjectKFold(5).plan(subjects, labels, ["x", "x", "x", *[""] * 17])
    assert max(map(len, plan.folds)) <= 5  # one large group would make a fold of 17
    assert any({"s0", "s1", "s2"} <= set(fold) for fold in plan.folds)


def test_the_record_is_plain_json(bids: Path, tmp_path: Path) -> None:
    quiet(bids, tmp_path / "c")
    record = json.loads((tmp_path / "c/subjects/sub-01/record.json").read_text())
    assert record["files"][0]["file"] == "sub-01/eeg/sub-01_task-rest_eeg.edf"
