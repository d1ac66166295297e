"""Several cohorts as one: electrodes by name, sites, ids, columns, and what is refused."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

import bridgemil
from bridgemil import Cohort, pool, prepare
from bridgemil.audit import audit
from bridgemil.errors import BadData, BadUse
from bridgemil.report.terminal import summary
from command import bridgemil as command
from recordings import build_bids
from recordings import noise as make_noise

FIRST = ("Fp1", "Fp2", "T3", "T4", "O1", "O2")
LABELS = {f"sub-{i:02d}": "AC"[i % 2] for i in range(6)}


def cohort(root: Path, name: str, labels: dict[str, str] = LABELS, **made: object) -> Cohort:
    options = {"jobs": 1, "progress": False, "label": "Group", "high": 40, "sfreq": 100}
    options |= {
        key: made.pop(key) for key in list(made) if key in ("high", "sfreq", "notch", "window_seconds", "channels")
    }
    source = build_bids(root / name, labels, **({"names": FIRST} | made))
    return prepare(source, root / f"{name}.cohort", **options)


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> tuple[Cohort, Cohort]:
    """Athens with T3 and T4; Kyiv with T7 and T8 in another order, one electrode more, and labels of its own."""
    root = tmp_path_factory.mktemp("sites")
    kyiv = {f"sub-{i:02d}": "healthy" if i % 2 else "A" for i in range(4)}
    names = ("EEG O2-LE", "EEG O1-LE", "EEG Cz-LE", "EEG T8-LE", "EEG T7-LE", "EEG FP2-LE", "EEG FP1-LE")
    return cohort(root, "athens"), cohort(root, "kyiv", kyiv, names=names, channels=names, seed=100)


def test_electrodes_are_matched_by_name_and_the_others_listed(sites: tuple[Cohort, Cohort], tmp_path: Path) -> None:
    both = pool(sites, tmp_path / "both", progress=False)
    assert both.channels == list(FIRST)
    order = [6, 5, 4, 3, 1, 0]  # of Kyiv's electrodes
    np.testing.assert_array_equal(both.windows("kyiv_sub-03"), sites[1].windows("sub-03")[:, order])
    np.testing.assert_array_equal(both.windows("athens_sub-03"), sites[0].windows("sub-03"))
    assert {"what": "kyiv: EEG Cz-LE", "why": "not an electrode of all cohorts"} in both.metadata["left_out"]
    mean, _ = both.normalisation(["kyiv_sub-00"])
    np.testing.assert_allclose(mean, sites[1].windows("sub-00")[:, order].mean(axis=(0, 2), dtype=float), atol=1e-6)


def test_signals_are_linked_where_no_electrode_moves_and_copied_otherwise(
    sites: tuple[Cohort, Cohort], tmp_path: Path
) -> None:
    both = pool(sites, tmp_path / "both", progress=False)
    for site, own, links in zip(("athens", "kyiv"), sites, (True, False), strict=True):
        files = [c.path / "subjects" / name / "windows.npy" for c, name in
                 ((own, "sub-01"), (both, f"{site}_sub-01"))]  # fmt: skip
        assert files[0].samefile(files[1]) is links
    assert [origin["same_channels"] for origin in both.metadata["pooled"]] == [True, False]
    assert not bridgemil.verify.verify(both.path, progress=False).findings


def test_without_hard_links_it_is_a_copy(
    sites: tuple[Cohort, Cohort], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    linked = pool(sites, tmp_path / "linked", progress=False)

    def refuse(*_: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    copied = pool(sites, tmp_path / "copied", progress=False)
    assert copied.hash == linked.hash
    shutil.rmtree(linked.path)
    assert not bridgemil.verify.verify(copied.path, progress=False).findings


def test_classes_are_mapped_and_sites_are_a_column(sites: tuple[Cohort, Cohort], tmp_path: Path) -> None:
    both = pool(sites, tmp_path / "both", classes={"A": "AD", "C": "HC", "healthy": "HC"}, progress=False)
    assert both.classes == ["AD", "HC"]
    assert both.labels.count("HC") == 3 + 2
    assert both.column("site") == ["athens"] * 6 + ["kyiv"] * 4
    assert both.column("age")[:2] == ["60", "61"]  # "Age" in the tables
    assert "Group" not in both.table.columns  # the labels as the sites state them
    only = pool(sites, tmp_path / "only", sites=["a", "b"], classes=["A"], progress=False)
    assert only.subjects == ["a_sub-00", "a_sub-02", "a_sub-04", "b_sub-00", "b_sub-02"]
    assert {"what": "b_sub-01", "why": "class 'healthy' is not among the classes asked for"} in only.metadata[
        "left_out"
    ]


def test_a_label_column_is_dropped_where_preparation_renamed_its_classes(tmp_path: Path) -> None:
    sites = []
    for name in ("one", "two"):
        source = build_bids(tmp_path / name, LABELS, names=FIRST, seed=ord(name[0]))
        new = {"A": "AD", "C": "HC"}
        how = {"label": "Group", "classes": new, "high": 40, "sfreq": 100, "jobs": 1, "progress": False}
        sites.append(prepare(source, tmp_path / f"{name}.cohort", **how))
    both = pool(sites, tmp_path / "both", progress=False)
    assert "Group" not in both.table.columns
    assert "Age" not in both.table.columns
    assert both.column("age")[0] == "60"


def test_columns_of_one_meaning_are_joined(tmp_path: Path) -> None:
    def arrays(seed: int, **columns: list[object]) -> Cohort:
        bags = [make_noise(seed + i, 4, 100, 2).reshape(2, 4, 100).swapaxes(0, 1).astype("float32") for i in range(2)]
        return Cohort.from_arrays(bags, ["A", "C"], sfreq=100, channels=["C3", "C4"], columns=columns)

    one = arrays(0, Gender=["female", "M"], Age=[60, 61], site=["ward", "lab"])
    two = arrays(9, sex=["m", "F"], age=["70", "n/a"], MMSE=[20, 30])
    both = pool([one, two], tmp_path / "both", progress=False)
    assert both.column("sex") == ["F", "M", "M", "F"]
    assert both.column("age") == ["60", "61", "70", None]
    assert both.column("site") == ["site-1", "site-1", "site-2", "site-2"]
    assert both.column("site_source") == ["ward", "lab", None, None]
    assert both.column("MMSE") == [None, None, 20, 30]


def test_the_same_person_at_two_sites_is_found_by_the_audit(tmp_path: Path) -> None:
    one = cohort(tmp_path, "one", seconds=30)
    moved = FIRST[::-1]
    two = build_bids(tmp_path / "two", LABELS, seconds=30, names=moved, seed=50)
    copy = tmp_path / "one" / "sub-02" / "eeg" / "sub-02_task-rest_eeg.edf"
    shutil.copy(copy, two / "sub-04" / "eeg" / "sub-04_task-rest_eeg.edf")
    second = prepare(two, tmp_path / "two.cohort", label="Group", high=40, sfreq=100, jobs=1, progress=False)
    both = pool([one, second], tmp_path / "both", progress=False)
    found = {finding.name: finding for finding in audit(both).findings}
    assert found["same_signal"].status == "FAIL"
    assert found["same_signal"].numbers["subjects"] == ["one_sub-02", "two_sub-04"]
    assert found["shared_files"].status == "FAIL"
    hashes = {s: both.records[s].signal_hash for s in ("one_sub-02", "two_sub-04")}
    assert len(set(hashes.values())) == 1


def test_a_pool_is_the_same_whenever_it_is_made_and_another_is_refused(
    sites: tuple[Cohort, Cohort], tmp_path: Path
) -> None:
    paths = [one.path for one in sites]
    out = tmp_path / "both"
    first = pool(paths, out, progress=False)
    before = (out / "manifest.json").stat().st_mtime_ns
    assert pool(paths, out, progress=False).hash == first.hash
    assert (out / "manifest.json").stat().st_mtime_ns == before
    with pytest.raises(BadUse, match="exists and is not this pool"):
        pool(paths, out, sites=["x", "y"], progress=False)


def test_cohorts_prepared_otherwise_are_refused_with_what_differs(sites: tuple[Cohort, Cohort], tmp_path: Path) -> None:
    other = cohort(tmp_path, "other", high=30, notch=(20.0,), window_seconds=2.0)
    with pytest.raises(BadData) as error:
        pool([sites[0], other], tmp_path / "both", progress=False)
    assert "--window 2, not 1, --high 30, not 40, --notch 20, not none" in str(error.value)
    assert f"prepare these again with the options of {sites[0].path}" in str(error.value)
    assert not (tmp_path / "both").exists()


def test_what_cannot_be_pooled_is_refused(sites: tuple[Cohort, Cohort], tmp_path: Path) -> None:
    def refused(kind: type[Exception], match: str, cohorts: object = sites, **options: object) -> None:
        with pytest.raises(kind, match=match):
            pool(cohorts, tmp_path / "both", progress=False, **options)

    refused(BadUse, "two cohorts or more, got 1", sites[:1])
    refused(BadUse, "a site's name of its own", sites, sites=["x", "x"])
    refused(BadUse, "--classes names 'B', but the labels are A, C, healthy", classes={"B": "HC"})
    refused(BadData, "kyiv: no subject is of the classes", classes=["C"])
    refused(BadData, "'a' and 'A' differ only", classes={"A": "A", "healthy": "a", "C": "C"})
    frontal = cohort(tmp_path, "frontal", names=("F3", "F4"))
    refused(BadData, "no electrode in common: athens has Fp1 .*; frontal has F3 F4", [sites[0], frontal])
    array = Cohort.from_arrays([np.random.default_rng(0).normal(0, 9, (4, 6, 100))], ["A"], sfreq=100, channels=FIRST)
    refused(BadData, "--low unknown .from arrays., not ", [sites[0], array])


def test_the_command(sites: tuple[Cohort, Cohort], tmp_path: Path) -> None:
    paths = [one.path for one in sites]
    done = command("pool", *paths, tmp_path / "both.cohort", "--classes", "A=AD,C=HC,healthy=HC", "--json")
    assert done.returncode == 0, done.stderr
    content = json.loads(done.stdout)
    assert {name: own["subjects"] for name, own in content["classes"].items()} == {"AD": 5, "HC": 5}
    assert [origin["site"] for origin in content["pooled"]] == ["athens", "kyiv"]
    assert content == summary(Cohort.open(tmp_path / "both.cohort")) | {"pooled": content["pooled"]}
    assert command("verify", tmp_path / "both.cohort").returncode == 0
    few = command("pool", paths[0], tmp_path / "x")
    assert few.returncode == 2
    assert "bridgemil pool A.cohort B.cohort OUT" in few.stderr
