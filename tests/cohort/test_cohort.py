from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import mne
import numpy as np
import pytest

from bridgemil import Cohort
from bridgemil.cohort.folder import SubjectRecord, subject_folder, write_cohort
from bridgemil.errors import BadData, BadUse


def bags(n: int = 4, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.normal(5 * i, 1 + i, (3 + i, 2, 50)).astype(np.float32) for i in range(n)]


def cohort_of(arrays: list, **more: object) -> Cohort:
    labels = ["b", "a"] * (len(arrays) // 2)
    return Cohort.from_arrays(arrays, labels, sfreq=50, channels=["C3", "C4"], **more)


def test_from_arrays_keeps_what_it_was_given() -> None:
    arrays = bags()
    cohort = cohort_of(arrays, subjects=["p1", "p2", "p3", "p4"])
    assert cohort.subjects == ["p1", "p2", "p3", "p4"]
    assert cohort.labels == ["b", "a", "b", "a"]
    assert cohort.classes == ["a", "b"]
    assert cohort.y.tolist() == [1, 0, 1, 0]
    assert cohort.channels == ["C3", "C4"]
    assert cohort.sfreq == 50
    assert cohort.n_windows == 3 + 4 + 5 + 6
    np.testing.assert_array_equal(cohort.windows("p3"), arrays[2])


def test_saved_and_opened_it_is_the_same(tmp_path: Path) -> None:
    arrays = [[b[:2], b[2:]] for b in bags()]  # two recordings each
    cohort = cohort_of(arrays, subjects=["a/b", ".hidden", "ümlaut 1", "plain"])
    again = cohort.save(tmp_path / "c")
    assert again.hash == cohort.hash
    assert again.subjects == cohort.subjects
    assert again.records == cohort.records
    assert again.records["a/b"].recording_windows == (2, 1)
    for subject in cohort.subjects:
        np.testing.assert_array_equal(again.windows(subject), cohort.windows(subject))
        np.testing.assert_array_equal(again.window_starts(subject), cohort.window_starts(subject))
    assert isinstance(again.windows("plain"), np.memmap)


THREADS_OF_OPENING = """
import os, sys
import pyarrow.parquet
from bridgemil import Cohort
before = set(os.listdir("/proc/self/task"))
cohort = Cohort.open(sys.argv[1])
print(len(set(os.listdir("/proc/self/task")) - before))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="counts threads as Linux lists them")
def test_tables_are_read_without_threads_that_could_outlive_python(tmp_path: Path) -> None:
    cohort_of(bags()).save(tmp_path / "c")
    command = [sys.executable, "-c", THREADS_OF_OPENING, str(tmp_path / "c")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0"]  # Arrow's would abort a process that ends while they still hold the file


def test_hash_changes_with_a_sample_a_label_and_a_boundary() -> None:
    arrays = bags()
    hashes = {cohort_of(arrays).hash, Cohort.from_arrays(arrays, list("abba"), sfreq=50, channels=["C3", "C4"]).hash}
    changed = [a.copy() for a in arrays]
    changed[1][0, 0, 0] += 1
    hashes |= {cohort_of(changed).hash, cohort_of([[a[:1], a[1:]] for a in arrays]).hash}
    assert len(hashes) == 4
    assert cohort_of([a.copy() for a in arrays]).hash in hashes


def test_hash_holds_the_native_rate_of_arrays_that_decides_their_bands(tmp_path: Path) -> None:
    plain, low = cohort_of(bags()), cohort_of(bags(), native_sfreq=40)
    assert cohort_of(bags(), native_sfreq=50).hash == plain.hash
    assert low.hash != plain.hash
    assert low.save(tmp_path / "c").hash == low.hash


def test_normalisation_is_that_of_the_pooled_windows_of_these_subjects_only() -> None:
    arrays = bags()
    mean, std = cohort_of(arrays).normalisation(["subject-001", "subject-003"])
    pooled = np.concatenate([arrays[0], arrays[2]]).astype(np.float64)
    np.testing.assert_allclose(mean, pooled.mean(axis=(0, 2)), rtol=1e-12)
    np.testing.assert_allclose(std, pooled.std(axis=(0, 2)), rtol=1e-12)


def test_normalisation_survives_a_large_offset() -> None:
    arrays = [b * 1e-2 + 3e4 for b in bags()]
    _, std = cohort_of(arrays).normalisation(["subject-001", "subject-002"])
    pooled = np.concatenate([arrays[0], arrays[1]]).astype(np.float64)
    np.testing.assert_allclose(std, pooled.std(axis=(0, 2)), rtol=1e-9)


def test_a_constant_channel_cannot_be_normalised() -> None:
    arrays = bags()
    for array in arrays[:2]:
        array[:, 1] = 7
    with pytest.raises(BadData, match="channel C4 is constant over the 2 training subjects"):
        cohort_of(arrays).normalisation(["subject-001", "subject-002"])


def test_epochs_come_in_volts_and_bring_their_channels() -> None:
    info = mne.create_info(["C3", "C4"], 50, "eeg")
    epochs = [mne.EpochsArray(b.astype(float) * 1e-6, info, verbose="ERROR") for b in bags()]
    cohort = Cohort.from_arrays(epochs, ["x", "y", "x", "y"])
    assert (cohort.channels, cohort.sfreq) == (["C3", "C4"], 50)
    np.testing.assert_allclose(cohort.windows("subject-002"), bags()[1], rtol=1e-5)


@pytest.mark.parametrize(("names", "sfreq"), [(["C4", "C3"], 50), (["C3", "C4"], 100)])
def test_all_epochs_of_a_person_need_one_rate_and_one_order_of_channels(names: list[str], sfreq: int) -> None:
    def epochs(bag: np.ndarray, names: list[str], sfreq: int) -> mne.BaseEpochs:
        return mne.EpochsArray(bag * 1e-6, mne.create_info(names, sfreq, "eeg"), verbose="ERROR")

    usual = [epochs(bag, ["C3", "C4"], 50) for bag in bags()]
    with pytest.raises(BadUse, match="subject-001: its Epochs differ in their rate, or in their channels"):
        Cohort.from_arrays([[epochs(bags()[0] + 1, names, sfreq), usual[0]], *usual[1:]], ["x", "y", "x", "y"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": ["a"]}, "one of each per subject"),
        ({"subjects": ["x", "x", "y", "z"]}, "named twice"),
        ({"sfreq": None}, "sfreq and channels are needed"),
        ({"channels": ["C3"]}, "1 channels x time"),
        ({"bags": [np.zeros((2, 50))] * 4}, "n_windows, n_channels, n_times"),
        ({"bags": [np.full((2, 2, 50), np.nan)] * 4}, "NaN"),
    ],
)
def test_wrong_arrays_are_refused(change: dict, message: str) -> None:
    given = {"bags": bags(), "labels": list("abab"), "sfreq": 50, "channels": ["C3", "C4"]} | change
    with pytest.raises((BadUse, BadData), match=message):
        Cohort.from_arrays(**given)


def test_opening_what_is_no_cohort_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(BadData, match="bridgemil prepare SOURCE OUT"):
        Cohort.open(tmp_path)
    (tmp_path / "subjects").mkdir()
    with pytest.raises(BadData, match="not finished"):
        Cohort.open(tmp_path)
    with pytest.raises(KeyError, match="no subject 'nobody'"):
        cohort_of(bags()).windows("nobody")


def test_a_thousand_subjects_open_at_once_and_without_their_signal(tmp_path: Path) -> None:
    few = cohort_of(bags())
    channels = [f"C{i}" for i in range(19)]
    records = [
        SubjectRecord(f"s{i}", "ab"[i % 2], ("f",), (300,), (0.0,) * 19, (1.0,) * 19, "0" * 64) for i in range(1000)
    ]
    cohort = Cohort(records, few.metadata | {"channels": channels}, {r.subject: {"site": "x"} for r in records})
    for record in records:
        subject_folder(tmp_path, record.subject).mkdir(parents=True)
        (subject_folder(tmp_path, record.subject) / "manifest.json").write_text("{}")
    write_cohort(tmp_path, cohort.metadata, cohort.rows())
    times = []
    for _ in range(3):
        start = time.perf_counter()
        opened = Cohort.open(tmp_path)
        times.append(time.perf_counter() - start)
    assert len(opened) == 1000
    assert opened.column("site") == ["x"] * 1000
    assert min(times) < 0.5


def test_unknown_columns_are_named(tmp_path: Path) -> None:
    with pytest.raises(BadUse, match="has no column 'site'"):
        cohort_of(bags()).column("site")


def test_fortran_ordered_arrays_are_saved_and_read(tmp_path: Path) -> None:
    """As ``scipy.io.loadmat`` gives them."""
    given = bags()
    saved = cohort_of([np.asfortranarray(bag) for bag in given]).save(tmp_path / "c")
    for subject, bag in zip(saved.subjects, given, strict=True):
        np.testing.assert_array_equal(saved.windows(subject), bag)


def test_a_column_with_the_name_of_a_count_does_not_replace_it() -> None:
    cohort = Cohort.from_arrays(
        [np.random.default_rng(i).normal(size=(3, 2, 200)) for i in range(2)], ["a", "b"], sfreq=200,
        channels=["C3", "C4"], columns={"n_windows": [1000, 1000], "age": [60, 70]},
    )  # fmt: skip
    assert cohort.table["n_windows"].tolist() == [3, 3]
    assert cohort.table["age"].tolist() == [60, 70]
