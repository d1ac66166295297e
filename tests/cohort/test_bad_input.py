"""Bad input: every problem named with its file and subject, all at once, and nothing written."""

from __future__ import annotations

import shutil
from pathlib import Path

import mne
import numpy as np
import pytest

from bridgemil import Cohort, prepare
from bridgemil.cohort import formats
from bridgemil.errors import BadData, BadUse
from bridgemil.report.terminal import print_summary
from recordings import MONTAGE, build_bids, noise, write_edf


def quiet(source: Path, out: Path, **more: object) -> Cohort:
    return prepare(source, out, jobs=1, progress=False, **({"label": "Group"} | more))


def recording(root: Path, number: int) -> Path:
    return root / f"sub-{number:02d}/eeg/sub-{number:02d}_task-rest_eeg.edf"


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5000])


def garbage(path: Path) -> None:
    path.write_bytes(b"not a recording " * 100)


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def header_only(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:236] + b"0       " + content[244 : 256 * (1 + len(MONTAGE))])


def flat(path: Path) -> None:
    data = noise(31, 8, 250)
    data[3] = 12.0
    write_edf(path, data, 250, MONTAGE)


def short(path: Path) -> None:
    write_edf(path, noise(32, 0.8, 250), 250, MONTAGE)


def all_marked(path: Path) -> None:
    write_edf(path, noise(33, 8, 250), 250, MONTAGE, [(0, 8, "BAD_all")])


def slow(path: Path) -> None:
    write_edf(path, noise(34, 8, 80), 80, MONTAGE)


def copied(path: Path) -> None:
    shutil.copy(path.parents[2] / "sub-01/eeg/sub-01_task-rest_eeg.edf", path)


def copied_under_another_header(path: Path) -> None:
    write_edf(path, noise(0, 8, 250), 250, [f"EEG {name}-LE" for name in MONTAGE])  # the samples of sub-01


DAMAGE = {
    truncated: "truncated",
    garbage: "unreadable",
    emptied: "empty .0 bytes",
    header_only: "zero length|unreadable",
    flat: "channel C4 is flat",
    short: r"no usable window: 0\.80 s long",
    all_marked: "no usable window: all 8 touch",
    slow: "45 Hz is at or beyond its Nyquist, 40 Hz",
    copied: "duplicate: byte for byte identical to sub-01/eeg/sub-01_task-rest_eeg.edf of sub-01",
    copied_under_another_header: "duplicate: sample for sample identical to .* of sub-01",
}


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda f: f.__name__)
def test_a_bad_recording_is_named_and_nothing_is_written(bids: Path, tmp_path: Path, damage: object) -> None:
    damage(recording(bids, 4))
    with pytest.raises(BadData, match=f"sub-04, sub-04/eeg/sub-04_task-rest_eeg.edf: .*({DAMAGE[damage]})"):
        quiet(bids, tmp_path / "c")
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda f: f.__name__)
def test_skip_bad_goes_on_without_it_and_lists_it(bids: Path, tmp_path: Path, damage: object) -> None:
    damage(recording(bids, 4))
    cohort = quiet(bids, tmp_path / "c", skip_bad=True)
    gone = {"sub-04"} | ({"sub-01"} if damage in (copied, copied_under_another_header) else set())
    assert set(cohort.subjects) == {f"sub-{i:02d}" for i in range(1, 7)} - gone
    assert any(line.startswith("sub-04") for line in cohort.metadata["skipped"])


def test_all_problems_are_listed_at_once(bids: Path, tmp_path: Path) -> None:
    garbage(recording(bids, 1))
    flat(recording(bids, 2))
    write_edf(recording(bids, 9), noise(9, 8, 250), 250, MONTAGE)  # no row
    table = (bids / "participants.tsv").read_text().replace("sub-05\tC", "sub-05\tn/a") + "sub-07\tA\t70\n"
    (bids / "participants.tsv").write_text(table)
    with pytest.raises(BadData) as caught:
        quiet(bids, tmp_path / "c")
    text = str(caught.value)
    for line in (
        "sub-01/eeg/sub-01_task-rest_eeg.edf: unreadable",
        "channel C4 is flat",
        "sub-05: missing label: Group is empty or n/a",
        "sub-07: listed in participants.tsv but has no EEG recording",
        "sub-09: missing label: has recordings but no row",
    ):
        assert line in text
    cohort = quiet(bids, tmp_path / "c", skip_bad=True)
    assert cohort.subjects == ["sub-03", "sub-04", "sub-06"]


def test_what_was_skipped_for_one_reason_is_one_line_of_the_summary(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = build_bids(tmp_path / "b", {f"sub-{i:02d}": "AC"[i % 2] for i in range(10)})
    for i in range(4):
        file = source / f"sub-{i:02d}/eeg/sub-{i:02d}_task-rest_eeg.edf"
        write_edf(file, noise(i, 8, 250, 5), 250, MONTAGE[:5])
    cohort = quiet(source, tmp_path / "c", channels=MONTAGE, skip_bad=True)
    assert len(cohort.metadata["skipped"]) == 4
    print_summary(cohort)
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.count("missing electrode") == 1
    assert "4 recordings: missing electrode O2 (it has" in shown


def test_missing_electrode(bids: Path, tmp_path: Path) -> None:
    line = r"  - 6 recordings: missing electrode Pz \(it has Fp1, .*: sub-01, .*; and 3 more$"
    with pytest.raises(BadData, match=line):
        quiet(bids, tmp_path / "c", channels=("C3", "Pz"))


def test_no_shared_electrode(bids: Path, tmp_path: Path) -> None:
    write_edf(recording(bids, 1), noise(1, 8, 250), 250, [f"E{i}" for i in range(1, 7)])
    with pytest.raises(BadData, match="no scalp electrode is shared by all recordings"):
        quiet(bids, tmp_path / "c")


def test_an_electrode_twice_is_ambiguous(bids: Path, tmp_path: Path) -> None:
    write_edf(recording(bids, 1), noise(77, 8, 250), 250, ["Fp1", "Fp2", "C3-A1", "C3-A2", "O1", "O2"])
    with pytest.raises(BadData, match="electrode C3 is there more than once: C3-A1, C3-A2"):
        quiet(bids, tmp_path / "c", channels=("C3", "O1"))


def test_nan_samples(bids: Path, tmp_path: Path) -> None:
    data = noise(1, 8, 250) * 1e-6
    data[1, 100:110] = np.nan
    raw = mne.io.RawArray(data, mne.create_info(list(MONTAGE), 250, "eeg"), verbose="ERROR")
    path = recording(bids, 1).with_suffix(".set")
    mne.export.export_raw(path, raw, verbose="ERROR")
    recording(bids, 1).unlink()
    with pytest.raises(BadData, match="channel Fp2 has 10 NaN or infinite samples"):
        quiet(bids, tmp_path / "c")
    assert np.isfinite(quiet(bids, tmp_path / "d", bad_channels="interpolate").windows("sub-01")).all()


def test_a_copy_within_one_subject_is_skipped_and_the_original_kept(bids: Path, tmp_path: Path) -> None:
    shutil.copy(recording(bids, 1), bids / "sub-01/eeg/sub-01_task-rest_run-2_eeg.edf")
    with pytest.raises(BadData, match=r"duplicate: byte for byte identical to .* of the same subject"):
        quiet(bids, tmp_path / "c")
    cohort = quiet(bids, tmp_path / "c", skip_bad=True)
    assert cohort.records["sub-01"].recording_windows == (8,)


def test_a_low_rate_is_allowed_when_said_so_and_recorded(bids: Path, tmp_path: Path) -> None:
    slow(recording(bids, 4))
    cohort = quiet(bids, tmp_path / "c", allow_low_rate=True)
    assert len(cohort) == 6
    assert any("sub-04" in note and "left out" in note for note in cohort.metadata["notes"])


@pytest.mark.parametrize("label", [None, "diagnosis"])
def test_a_label_column_that_does_not_exist_says_which_do(bids: Path, tmp_path: Path, label: str | None) -> None:
    with pytest.raises(BadUse, match="the columns are: Group, Age"):
        quiet(bids, tmp_path / "c", label=label)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"low": 50}, "must lie below the high edge"),
        ({"high": 120}, "below half the (windows' rate|rate of the windows)"),
        ({"overlap": 1}, "overlap: should be less than 1"),
        ({"window_seconds": 0.333}, "no whole number of samples"),
        ({"nonsense": 1}, "nonsense: there is no such setting; the settings are channels, low"),
        ({"preset": "other"}, "preset must be one of adftd"),
        ({"channels": ("C3", "C3")}, "named twice"),
    ],
)
def test_bad_settings(bids: Path, tmp_path: Path, settings: dict, message: str) -> None:
    with pytest.raises(BadUse, match=message):
        quiet(bids, tmp_path / "c", **settings)


def test_bad_manifests(tmp_path: Path) -> None:
    for i in range(5):
        write_edf(tmp_path / f"{i}.edf", noise(i, 3, 250), 250, MONTAGE)
    manifest = tmp_path / "list.csv"
    manifest.write_text("subject,diagnosis,file\na,x,0.edf\n")
    with pytest.raises(BadUse, match="lacks the column label; it has subject, diagnosis, file"):
        quiet(manifest, tmp_path / "c", label=None)
    manifest.write_text(
        "subject,label,file\na,x,0.edf\nb,,1.edf\nc,y,9.edf\ne,y,2.edf\n,y,2.edf\nd,y,0.edf\ne,x,3.edf\n"
    )
    with pytest.raises(BadData) as caught:
        quiet(manifest, tmp_path / "c", label=None)
    for line in (
        "b, 1.edf: missing label (line 3)",
        "c, 9.edf: no such file",
        "e, 3.edf: labelled 'x' in line 8 but 'y' before",
        "line 6: needs both a subject and a file",
        "d, 0.edf: duplicate: byte for byte identical to 0.edf of a",
        "a, 0.edf: duplicate: 0.edf of d is the same recording",
    ):
        assert line in str(caught.value)
    assert "no usable recording is left" not in str(caught.value)
    with pytest.raises(BadUse, match="no such folder or manifest"):
        quiet(tmp_path / "nowhere", tmp_path / "c")


def test_a_reader_that_needs_a_package_names_it(tmp_path: Path) -> None:
    from mne.utils import _soft_import

    with pytest.raises(RuntimeError) as missing:
        _soft_import("no_such_reader", "reading EGI MFF data")
    assert formats.trouble(tmp_path / "x.mff", missing.value) == (
        "the reader of EGI needs another package: pip install no_such_reader"
    )
