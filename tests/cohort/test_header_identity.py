"""What a cohort keeps of its recordings' headers: numbers that tell who is the same and what came first, only."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime
from pathlib import Path

import mne
import pytest

from bridgemil.audit import audit
from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.prepare import prepare
from bridgemil.cohort.scan import identity_hash, recording_day
from bridgemil.verify import verify
from recordings import MONTAGE, noise

JANE = "MCH-0234567 F 02-MAY-1951 Jane_Roe"


def patch(path: Path, offset: int, text: str, width: int) -> None:
    """Put text into a field of an EDF header."""
    content = bytearray(path.read_bytes())
    content[offset : offset + width] = text.encode("latin-1").ljust(width)
    path.write_bytes(content)


def name_of(bids: Path, number: int) -> Path:
    return bids / f"sub-{number:02d}" / "eeg" / f"sub-{number:02d}_task-rest_eeg.edf"


def prepared(bids: Path, out: Path) -> Cohort:
    return prepare(bids, out, label="Group", jobs=1, progress=False)


def headers(cohort: Cohort, key: str) -> dict[str, object]:
    return {file["subject"]: file[key] for file in cohort.metadata["files"]}


@pytest.mark.parametrize(
    "text",
    ["", "X X X X", "X F X X", "X X 02-MAY-1951 X", "x M 01-JAN-1900 Anonymous", "unknown", "0000", "Anonymous^Patient",
     "NA NA NA NA", "patient", "S1", "17 M X X", "\0\0\0"],
)  # fmt: skip
def test_a_header_that_names_nobody_gives_no_identity(bids: Path, text: str) -> None:
    path = name_of(bids, 1)
    patch(path, 8, text, 80)
    assert identity_hash(path, mne.io.read_raw(path, verbose="ERROR")) is None


def test_recordings_that_name_one_person_share_a_number(bids: Path, tmp_path: Path) -> None:
    for number, text in {1: JANE, 2: "17 M 03-MAY-1951 X", 4: JANE.upper(), 5: "X X X John_Doe"}.items():
        patch(name_of(bids, number), 8, text, 80)
    cohort = prepared(bids, tmp_path / "c")
    assert list(headers(cohort, "identity").values()) == [1, 2, None, 1, 3, None]
    (finding,) = audit(cohort).named("shared_header")
    assert finding.status == "FAIL"
    assert finding.evidence == ("sub-01, sub-04: the same identity",)


def test_days_count_from_the_earliest_recording_and_fillers_are_none(bids: Path, tmp_path: Path) -> None:
    days = {1: "03.04.19", 2: "01.04.19", 3: "01.01.85", 4: "01.04.20", 5: "02.04.19", 6: "02.04.19"}
    for number, text in days.items():
        patch(name_of(bids, number), 168, text, 8)
        patch(name_of(bids, number), 88, "Startdate X X X X", 80)
    cohort = prepared(bids, tmp_path / "c")
    assert list(headers(cohort, "day").values()) == [2, 0, None, 366, 1, 1]
    assert set(headers(cohort, "n_channels").values()) == {len(MONTAGE)}


def test_nothing_of_a_header_can_be_found_in_the_cohort_or_its_audit(bids: Path, tmp_path: Path) -> None:
    """Neither text nor a hash of it: not even one who knows the name could look it up."""
    for number in range(1, 7):
        patch(name_of(bids, number), 8, JANE if number < 3 else f"code{number}77 X X X", 80)
        patch(name_of(bids, number), 168, "03.04.19", 8)
    cohort = prepared(bids, tmp_path / "c")
    path = name_of(bids, 1)
    digest = identity_hash(path, mne.io.read_raw(path, verbose="ERROR"))
    assert digest is not None
    said = json.dumps(audit(cohort).to_dict()).encode()
    for content in (said, *(file.read_bytes() for file in (tmp_path / "c").rglob("*") if file.is_file())):
        for word in (b"Roe", b"roe", b"MCH-02", b"1951", b"code377", b"2019", b"03.04", digest.encode(), b"737152"):
            assert word not in content, word


def test_other_formats_say_whose_they_are_through_their_reader(tmp_path: Path) -> None:
    info = mne.create_info(list(MONTAGE), 250, "eeg")
    raw = mne.io.RawArray(noise(1, 8, 250) * 1e-6, info, verbose="ERROR")
    path = tmp_path / "a.fif"
    assert identity_hash(path, raw) is None
    assert recording_day(raw) is None
    raw.info["subject_info"] = {"his_id": "P701", "last_name": "Roe", "sex": 2}
    raw.set_meas_date(datetime(2019, 4, 3, tzinfo=UTC))
    assert identity_hash(path, raw) is not None
    assert recording_day(raw) == datetime(2019, 4, 3, tzinfo=UTC).date().toordinal()
    raw.anonymize(verbose="ERROR")
    assert identity_hash(path, raw) is None
    assert recording_day(raw) is None


def test_the_cohorts_hash_does_not_depend_on_headers_and_resuming_numbers_them_anew(bids: Path, tmp_path: Path) -> None:
    shutil.copytree(bids, tmp_path / "named")
    named = tmp_path / "named"
    plain = prepared(bids, tmp_path / "plain")
    for number in range(1, 7):
        patch(name_of(named, number), 8, f"code{number}77 X X X", 80)
    out = tmp_path / "c"
    cohort = prepared(named, out)
    assert cohort.hash == plain.hash
    before = (out / "subjects/sub-01/windows.npy").stat().st_mtime_ns
    assert prepared(named, out).metadata == cohort.metadata
    (out / "cohort.json").unlink()  # interrupted just before the end
    shutil.rmtree(out / "subjects/sub-03")
    assert prepared(named, out).metadata["files"] == cohort.metadata["files"]
    assert (out / "subjects/sub-01/windows.npy").stat().st_mtime_ns == before, "nothing was cut anew"
    assert verify(out, progress=False).findings == []
