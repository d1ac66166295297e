"""Caps with electrode names of their own: the nearest 10-10 site, or the site that a table names."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from bridgemil import bundle as bundles
from bridgemil import prepare
from bridgemil.bundle.prediction import RecordingPrediction, Refused, predict
from bridgemil.bundle.training import train
from bridgemil.cohort.caps import FAR, FAR_FIRST, cap
from bridgemil.cohort.channels import ADFTD_ORDER, electrode, key
from bridgemil.cohort.cohort import Cohort
from bridgemil.errors import BadData, BadUse
from recordings import build_bids, noise, write_edf

GSN = ("GSN-HydroCel-32", "GSN-HydroCel-64_1.0", "GSN-HydroCel-128", "GSN-HydroCel-129", "GSN-HydroCel-256")
# BioSemi's own equivalents of the 128-channel cap.
BIOSEMI = {
    "A1": "Cz", "A19": "Pz", "A23": "Oz", "A25": "Iz", "C21": "Fz", "C17": "Fpz", "C29": "Fp1", "C16": "Fp2",
    "D4": "F3", "C4": "F4", "D7": "F7", "C7": "F8", "D19": "C3", "B22": "C4", "D23": "T7", "B26": "T8", "A7": "P3",
    "B4": "P4", "D31": "P7", "B11": "P8", "A15": "O1", "A28": "O2",
}  # fmt: skip
# EGI's (Luu and Ferree 2005) of the 128-channel net that are the nearest electrode in MNE's template as well.
EGI = {"E36": "C3", "E104": "C4", "E62": "Pz", "E22": "Fp1", "E9": "Fp2", "E24": "F3", "E124": "F4", "E33": "F7",
       "E122": "F8", "E70": "O1", "E83": "O2", "E75": "Oz", "E11": "Fz"}  # fmt: skip
E_NAMES = [f"E{number}" for number in range(1, 33)]


@pytest.mark.parametrize(("name", "known"), [("biosemi128", BIOSEMI), ("GSN-HydroCel-128", EGI)])
def test_the_makers_equivalents_are_found(name: str, known: dict[str, str]) -> None:
    names = cap(name).keys([f"{bank}{i}" for bank in "ABCD" for i in range(1, 33)] + [f"E{i}" for i in range(1, 129)])
    assert {electrode_name: names[electrode_name] for electrode_name in known} == known


def test_biosemis_small_caps_are_named_in_order() -> None:
    names = cap("biosemi64").keys(["A1", "A15", "A32", "B1", "B2", "B32", "A31"])
    assert list(names.values()) == ["Fp1", "T7", "CPz", "Fpz", "Fp2", "O2", "Pz"]
    assert cap("biosemi32").keys(["A1", "A32", "A31"]) == {"A1": "Fp1", "A32": "Cz", "A31": "Fz"}


@pytest.mark.parametrize("name", [*GSN, "biosemi160", "biosemi256"])
def test_a_site_is_given_once_both_sides_alike_and_near(name: str) -> None:
    found = cap(name)
    first = {key(site) for site in ADFTD_ORDER}
    lacking = first - set(found.distances)
    assert lacking <= {"Cz"}, "the vertex is the reference of nets that have no electrode there"
    for site, distance in found.distances.items():
        assert distance <= (FAR_FIRST if site in first else FAR)
        row, number = re.fullmatch(r"([A-Za-z]+?)(z|\d+)", site).groups()
        if number != "z":
            other = row + str(int(number) + (1 if int(number) % 2 else -1))
            assert found.distances[other] == pytest.approx(distance, abs=0.3)
    given = [site for name, site in found.sites.items() if site and site != "Cz"]
    assert len(given) == len(set(given))


@pytest.mark.parametrize(
    ("name", "n", "median", "most"),  # the table of docs/cohorts.md
    [
        ("GSN-HydroCel-32", 28, 12.0, 28.1),
        ("GSN-HydroCel-64_1.0", 54, 11.1, 26.8),
        ("GSN-HydroCel-128", 74, 10.4, 22.6),
        ("GSN-HydroCel-256", 85, 7.4, 19.0),
        ("biosemi128", 64, 0.0, 19.9),
        ("biosemi160", 64, 6.5, 13.5),
        ("biosemi256", 64, 6.6, 12.4),
    ],
)
def test_the_distances_are_those_of_the_documentation(name: str, n: int, median: float, most: float) -> None:
    words = f"{name}: {n} electrodes stand for 10-10 sites, at a median distance of {median} mm (at most {most})"
    assert cap(name).sentence == words


def test_names_of_a_cap_are_spelt_in_many_ways_and_never_taken_for_10_10_names() -> None:
    found = cap("GSN-HydroCel-129")
    names = found.keys(["EEG E011", "e36-REF", "E129", "VREF", "E17", "ECG"])
    assert names == {"EEG E011": "Fz", "e36-REF": "C3", "E129": "Cz", "VREF": "Cz", "E17": "E17", "ECG": "ECG"}
    names = cap("biosemi128").keys(["A1", "C3", "D19", "EXG1"])
    assert electrode(names["C3"]) is None, "the third electrode of bank C is not the site C3"
    usual = cap("biosemi128").keys(["Fz", "Cz", "C3", "F3", "O1"])
    assert usual["C3"] == "C3", "a file with 10-10 names is read by them"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """12 subjects with a 32-channel net."""
    labels = {f"sub-{i:02d}": ("A", "C")[i % 2] for i in range(12)}
    return build_bids(tmp_path_factory.mktemp("net") / "bids", labels, seconds=12, names=E_NAMES)


@pytest.fixture(scope="module")
def cohort(source: Path) -> Cohort:
    (source / "sub-05/eeg/sub-05_task-rest_channels.tsv").write_text(
        "name\ttype\tstatus\nE28\tEEG\tbad\nE31\tEOG\tn/a\n"
    )
    return prepare(source, source.parent / "c", label="Group", montage="GSN-HydroCel-32", bad_channels="drop", jobs=2,
                   progress=False)  # fmt: skip


def test_a_net_is_prepared_by_site_and_the_distances_are_recorded(source: Path, cohort: Cohort) -> None:
    assert {"Fp1", "Fz", "T7", "Oz", "C3"} <= set(cohort.channels)
    assert not {"FCz", "F9", "Cz"} & set(cohort.channels), "marked bad, of another type, and the reference"
    with pytest.raises(BadData, match="no scalp electrode is shared"):
        prepare(source, source.parent / "d", label="Group", jobs=1, progress=False)
    kept = cohort.metadata["settings"]["montage"]
    assert kept["name"] == "GSN-HydroCel-32"
    assert kept["sites"]["e17"] == "Fz"
    assert 20 < kept["distances"]["Fz"] < 25
    notes = " ".join(cohort.metadata["notes"])
    assert "montage GSN-HydroCel-32: 28 electrodes stand for 10-10 sites, at a median distance of" in notes
    assert "E17 for Fz (22 mm)" in notes
    chosen = prepare(source, source.parent / "e", label="Group", montage="GSN-HydroCel-32", channels=("C3", "Fz"),
                     jobs=1, progress=False)  # fmt: skip
    own = [cohort.channels.index("C3"), cohort.channels.index("Fz")]
    np.testing.assert_array_equal(chosen.windows("sub-03"), cohort.windows("sub-03")[:, own])
    whole = prepare(source, source.parent / "f", label="Group", channels=("E5", "E17"), jobs=1, progress=False)
    np.testing.assert_array_equal(whole.windows("sub-03"), chosen.windows("sub-03"))


def test_a_model_maps_new_recordings_likewise_and_takes_other_caps(
    source: Path, cohort: Cohort, tmp_path: Path
) -> None:
    train(cohort, tmp_path / "m", "bandpower", folds=3, baselines=False, progress=False, threads=1)
    bundle, signal = bundles.load(tmp_path / "m"), noise(3, 12, 250, 32)

    def answer(names: list[str], **how: str) -> RecordingPrediction | Refused:
        file = write_edf(tmp_path / "new.edf", signal, 250, names)
        (found,) = predict(bundle, [file], **how)
        return found

    first = answer(E_NAMES)
    assert isinstance(first, RecordingPrediction)
    sites = cap("GSN-HydroCel-32").keys(E_NAMES)
    for names, how in (
        ([sites[name] for name in E_NAMES], {}),
        ([f"X{i}" for i in range(32)], {"montage": str(tmp_path / "x.tsv")}),
    ):
        rows = "\n".join(f"X{i}\t{electrode(sites[name]) or 'n/a'}" for i, name in enumerate(E_NAMES))
        (tmp_path / "x.tsv").write_text(f"from\tto\n{rows}\n")
        found = answer(names, **how)
        assert isinstance(found, RecordingPrediction), found
        np.testing.assert_array_equal(found.recording.windows, first.recording.windows)
    refused = answer([f"X{i}" for i in range(32)])
    assert isinstance(refused, Refused)
    assert "missing electrode" in refused.why
    assert "--montage NAME, if these are names of a cap" in refused.why


def test_cleaning_gets_the_caps_names_and_positions(source: Path, tmp_path: Path) -> None:
    (tmp_path / "clean.py").write_text(
        "def clean(raw):\n"
        "    place = raw.get_montage().get_positions()['ch_pos']['E17']\n"
        "    raw.info['description'] = f'{raw.ch_names[16]} {place.round(2)}'\n"
        "    return raw.drop_channels('E1')\n"
    )
    made = prepare(source, tmp_path / "c", label="Group", montage="GSN-HydroCel-32", jobs=1, progress=False,
                   bad_channels="drop", clean=f"{tmp_path}/clean.py:clean")  # fmt: skip
    assert "Fp1" not in made.channels
    assert "Fp2" in made.channels
    assert made.metadata["files"][0]["cleaning"][0]["note"].startswith("E17 [")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("GSN-HydroCell-128", "montage: must be one of .*; did you mean GSN-HydroCel-128?"),
        ("absent.tsv", "absent.tsv: no such table"),
        ("from\tin\nA\tB\n", "expected the columns from and to, separated by tabs; it has from, in"),
        ("from\tto\nA\tnowhere\n", "line 2: 'nowhere' is no electrode of the 10-20 or 10-10 system"),
        ("from\tto\nA\tFz\nB\tFz\n", "line 3: Fz is there twice"),
        ("from\tto\nA\tFz\na\tCz\n", "line 3: a is there twice"),
    ],
)
def test_a_wrong_montage_is_one_sentence(source: Path, tmp_path: Path, name: str, words: str) -> None:
    if "\n" in name:
        (tmp_path / "map.tsv").write_text(name)
        name = str(tmp_path / "map.tsv")
    with pytest.raises((BadUse, BadData), match=words):
        prepare(source, tmp_path / "c", label="Group", montage=name, progress=False)
    assert not (tmp_path / "c").exists()
