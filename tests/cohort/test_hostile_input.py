"""Hostile recordings and side files: refused in our own words, with the file and the line, and nothing hangs."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import mne
import numpy as np
import pytest

from bridgemil import Cohort, prepare
from bridgemil.cohort.folds import FoldPlan, SubjectKFold
from bridgemil.cohort.manifest_template import write_manifest_template
from bridgemil.cohort.new_recording import find
from bridgemil.cohort.scan import scan_recording
from bridgemil.cohort.settings import PrepareSettings
from bridgemil.cohort.sources import Recording
from bridgemil.errors import BadData, BadUse, plain
from bridgemil.methods import settings as method_settings
from bridgemil.report.figures import draw_cohort
from bridgemil.report.terminal import print_summary
from bridgemil.settings import parse
from named_pipes import make_pipe
from recordings import MONTAGE, noise, write_edf

NAME = "Jane Roe"


@pytest.fixture(autouse=True)
def _no_hanging() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise TimeoutError("hangs")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(300)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def quiet(source: Path, out: Path, **more: object) -> Cohort:
    return prepare(source, out, jobs=1, progress=False, **({"label": "Group"} | more))


def recording(root: Path, number: int = 4) -> Path:
    return root / f"sub-{number:02d}/eeg/sub-{number:02d}_task-rest_eeg.edf"


def side_file(root: Path, kind: str) -> Path:
    return recording(root).with_name(f"sub-04_task-rest_{kind}")


def patched(path: Path, position: int, text: str | bytes, width: int) -> None:
    """Write a header's field anew."""
    content = bytearray(path.read_bytes())
    field = text if isinstance(text, bytes) else text.encode()
    content[position : position + width] = field.ljust(width)
    path.write_bytes(content)


def n_signals(path: Path) -> int:
    return int(path.read_bytes()[252:256])


def of_signal(path: Path, start: int, number: int) -> int:
    """Where the 8 bytes of a signal's field are; ``start``: bytes of the fields before it, for one signal."""
    return 256 + start * n_signals(path) + 8 * number


PHYSICAL_MIN, PHYSICAL_MAX, DIGITAL_MIN, DIGITAL_MAX, SAMPLES = 104, 112, 120, 128, 216


# --- BIDS side files ----------------------------------------------------------------------------------------------

EVENTS = {
    "begin\tduration\ttrial_type\n1\t2\tBAD_x\n": r"sub-04_task-rest_events.tsv: has no column onset",
    "onset,duration,trial_type\n1,2,BAD_x\n": r"events.tsv: has no column onset; are its columns separated by tabs",
    "onset\tduration\ttrial_type\n0\t1\tgo\n1\t-2\tBAD_x\n": r"events.tsv, line 3: marks a bad stretch.* duration",
    "onset\tduration\ttrial_type\nsoon\t2\tBAD_x\n": r"events.tsv, line 2: marks a bad stretch, and its onset",
    "onset\tduration\ttrial_type\ninf\t2\tBAD_x\n": r"events.tsv, line 2: marks a bad stretch, and its onset",
    "onset\tduration\ttrial_type\n1\t2\tBAD_x\textra\n": r"events.tsv, line 2: has 4 cells, there are 3 columns",
    "onset\tduration\tonset\n1\t2\t3\n": r"events.tsv, line 1: has the column 'onset' more than once",
    "onset\tduration\ttrial_type\n1\t2\tBAD\x1b[2J\n": r"events.tsv, line 2: holds a control character",
    "onset\tduration\t\u200etrial_type\n1\t2\tBAD\n": r"events.tsv, line 1: holds a control character or an invisible",
}


@pytest.mark.parametrize("text", EVENTS)
def test_an_events_file_that_cannot_be_read_is_named_with_its_line(bids: Path, tmp_path: Path, text: str) -> None:
    side_file(bids, "events.tsv").write_text(text)
    with pytest.raises(BadData, match=EVENTS[text]) as caught:
        quiet(bids, tmp_path / "c")
    assert "unreadable" not in str(caught.value)
    assert "sub-04, sub-04/eeg" in str(caught.value)


def test_a_lone_quotation_mark_hides_no_later_mark(bids: Path, tmp_path: Path) -> None:
    side_file(bids, "events.tsv").write_text(
        'onset\tduration\ttrial_type\tsaid\n0\t0\tgo\t"oh\n2.5\tn/a\tBAD_pop\t\n4.2\t0\t"BAD ""x"""\tno\n'
    )
    assert len(quiet(bids, tmp_path / "c").windows("sub-04")) == 6


def test_marks_without_a_duration_are_points_and_other_events_do_not_matter(bids: Path, tmp_path: Path) -> None:
    side_file(bids, "events.tsv").write_text(
        "onset\tduration\ttrial_type\t\n2.5\tn/a\tBAD_pop\t\nn/a\t-1\tgo\t\n4.2\t-3\tboundary\n"
    )
    assert len(quiet(bids, tmp_path / "c").windows("sub-04")) == 6


OTHERS = {
    ("channels.tsv", "name,type\nFp1,EEG\n"): "channels.tsv: has no column name; are its columns",
    ("channels.tsv", "name\tstatus\nFp1\tbad\tx\n"): "channels.tsv, line 2: has 3 cells",
    ("eeg.json", "{"): "eeg.json: is no JSON",
    ("eeg.json", "[" * 100_000): "eeg.json: is no JSON",
    ("eeg.json", "[1]"): "eeg.json: is no JSON object",
}


@pytest.mark.parametrize("case", OTHERS, ids=lambda case: f"{case[0]}-{case[1][:12]}")
def test_other_side_files_that_cannot_be_read_are_named(bids: Path, tmp_path: Path, case: tuple[str, str]) -> None:
    side_file(bids, case[0]).write_text(case[1])
    with pytest.raises(BadData, match=OTHERS[case]):
        quiet(bids, tmp_path / "c")


PARTICIPANTS = {
    "participant_id\tGroup\tGroup\nsub-01\tA\tC\n": "participants.tsv, line 1: has the column 'Group' more than once",
    "participant_id\tGroup\nsub-01\tA\nsub-02\tC\tA\n": "participants.tsv, line 3: has 3 cells, there are 2 columns",
    "participant_id\tGroup\nsub-01\tA\x1b]0;x\x07\n": "participants.tsv, line 2: holds a control character",
    b"participant_id\tGroup\nsub-01\t\xff\n": "participants.tsv: is no text in UTF-8",
}


@pytest.mark.parametrize("text", PARTICIPANTS)
def test_participants_that_cannot_be_read_as_written(bids: Path, tmp_path: Path, text: str | bytes) -> None:
    (bids / "participants.tsv").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(BadData, match=PARTICIPANTS[text]):
        quiet(bids, tmp_path / "c")


def test_invisible_marks_matter_only_in_columns_that_are_used(bids: Path, tmp_path: Path) -> None:
    file = bids / "participants.tsv"
    header, *rows = file.read_text().splitlines()
    file.write_text("\n".join([f"{header}\tremark\x92s", *(f"{row}\tit\x92s \u200efine" for row in rows)]))
    assert quiet(bids, tmp_path / "c").column("remark\\x92s")[0] == "it\\x92s \\u200efine"
    file.write_text("\n".join([header, *(row.replace("\t", "\t\u200e") for row in rows)]))
    with pytest.raises(BadData, match=r"participants.tsv, line 2: holds a control character or an invisible mark"):
        quiet(bids, tmp_path / "d")


@pytest.mark.parametrize("cell", ['"x', '"x"y', '"x\ny"'])
def test_quotation_marks_of_a_manifest_must_be_closed_in_their_line(tmp_path: Path, cell: str) -> None:
    (tmp_path / "m.csv").write_text(f"subject,label,file\na,x,0.edf\nb,{cell},0.edf\nc,x,0.edf\n")
    with pytest.raises(BadData, match=r"m.csv, line 3: .*quotation mark"):
        quiet(tmp_path / "m.csv", tmp_path / "c", label=None)


def test_lines_of_a_manifest_count_empty_ones_too(tmp_path: Path) -> None:
    write_edf(tmp_path / "0.edf", noise(0, 3, 250), 250, MONTAGE)
    (tmp_path / "m.csv").write_text("subject,label,file\n\n\na,x,0.edf\n,y,0.edf\n")
    with pytest.raises(BadData, match="line 5: needs both"):
        quiet(tmp_path / "m.csv", tmp_path / "c", label=None)


# --- headers ------------------------------------------------------------------------------------------------------


def fewer_samples(path: Path) -> None:
    for number in range(len(MONTAGE)):
        patched(path, of_signal(path, SAMPLES, number), "249", 8)


def one_fewer_sample(path: Path) -> None:
    patched(path, of_signal(path, SAMPLES, 2), "249", 8)


def no_duration(path: Path) -> None:
    patched(path, 244, "0", 8)


def duration_nan(path: Path) -> None:
    patched(path, 244, "nan", 8)


def inverted(path: Path) -> None:
    patched(path, of_signal(path, DIGITAL_MIN, 1), "32767", 8)
    patched(path, of_signal(path, DIGITAL_MAX, 1), "-32768", 8)


def narrow(path: Path) -> None:
    patched(path, of_signal(path, DIGITAL_MIN, 1), "5", 8)
    patched(path, of_signal(path, DIGITAL_MAX, 1), "5", 8)


def physical_infinite(path: Path) -> None:
    patched(path, of_signal(path, PHYSICAL_MAX, 1), "1e999", 8)


def physical_huge(path: Path) -> None:
    patched(path, of_signal(path, PHYSICAL_MAX, 1), "9e307", 8)


def many_signals(path: Path) -> None:
    patched(path, 252, "9999", 4)


def many_records(path: Path) -> None:
    patched(path, 236, "99999999", 8)


def longer(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\0" * 96)


HEADERS: dict[Callable[[Path], None], str] = {
    fewer_samples: "its size contradicts its header",
    one_fewer_sample: "its size contradicts its header",
    no_duration: "a record lasts 0 s",
    duration_nan: "no number for the duration of a record",
    inverted: "channel Fp2 has a digital minimum in the header that is not below its maximum",
    narrow: "channel Fp2 has a digital minimum",
    physical_infinite: "channel Fp2 has a range in the header that is no number",
    physical_huge: "channel Fp2 varies by more than 100 mV|channel Fp2 has 2000 NaN or infinite",
    many_signals: "the header's length contradicts its number of signals",
    many_records: "truncated: its header says 99999999 records",
    longer: "its size contradicts its header",
}


@pytest.mark.parametrize("damage", HEADERS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("ending", [".edf", ".bdf"])
def test_a_header_that_contradicts_the_file_or_itself(tmp_path: Path, damage: object, ending: str) -> None:
    path = write_edf(tmp_path / f"x{ending}", noise(1, 8, 250), 250, MONTAGE)
    damage(path)
    write_edf(tmp_path / "y.edf", noise(2, 8, 250), 250, MONTAGE)
    (tmp_path / "m.csv").write_text(f"subject,label,file\na,x,x{ending}\nb,y,y.edf\n")
    with pytest.raises(BadData, match=f"a, x{ending}: .*({HEADERS[damage]})"):
        quiet(tmp_path / "m.csv", tmp_path / "c", label=None)


FIELDS = {184: 8, 236: 8, 244: 8, 252: 4}


@pytest.mark.parametrize("position", [*FIELDS, PHYSICAL_MIN, DIGITAL_MAX, SAMPLES])
def test_messages_never_repeat_the_headers_text(bids: Path, tmp_path: Path, position: int) -> None:
    path = recording(bids)
    place = position if position in FIELDS else of_signal(path, position, 1)
    patched(path, place, NAME[: FIELDS.get(position, 8)], FIELDS.get(position, 8))
    with pytest.raises(BadData) as caught:
        quiet(bids, tmp_path / "c")
    assert NAME[:4] not in str(caught.value)
    cohort = quiet(bids, tmp_path / "c", skip_bad=True)
    assert NAME[:4] not in json.dumps(cohort.metadata)


def test_names_and_dates_of_a_header_do_not_reach_the_cohort(bids: Path, tmp_path: Path) -> None:
    for number in range(1, 7):
        path = recording(bids, number)
        patched(path, 8, f"MCH-0234567 F 02-MAY-1951 {NAME.replace(' ', '_')}", 80)
        patched(path, 88, "Startdate 03-APR-2019 X X Roe_clinic", 80)
        patched(path, 168, "31.04.19", 8)  # there is no such day: the reader warns
        patched(path, 256 + 136 * n_signals(path), f"HP:{NAME}", 80)  # where a filter's edge stands
    cohort = quiet(bids, tmp_path / "c")
    assert len(cohort) == 6
    for file in (tmp_path / "c").rglob("*"):
        if file.is_file():
            content = file.read_bytes()
            for word in (b"Roe", b"MCH-02", b"MAY-1951", b"APR-2019", b"31.04.19"):
                assert word not in content, (file, word)


def vhdr(path: Path, **changes: str) -> Path:
    """A BrainVision recording with other values in its header."""
    raw = mne.io.RawArray(noise(1, 8, 250) * 1e-6, mne.create_info(list(MONTAGE), 250, "eeg"), verbose="ERROR")
    mne.export.export_raw(path, raw, verbose="ERROR", overwrite=True)
    text = path.read_text(encoding="utf-8")
    for key, value in changes.items():
        lines = [f"{key}={value}" if line.startswith(f"{key}=") else line for line in text.splitlines()]
        text = "\n".join(lines) + "\n"
    path.write_text(text, encoding="utf-8")
    return path


def error_of(path: Path) -> str:
    return scan_recording(Recording("a", path, path.name)).error or ""


@pytest.mark.parametrize("interval", ["nan", "inf", "0", "-4000", "1e-12", "1e999"])
def test_a_sampling_rate_that_cannot_be(tmp_path: Path, interval: str) -> None:
    error = error_of(vhdr(tmp_path / "x.vhdr", SamplingInterval=interval))
    assert "sampling rate" in error or "gave up" in error


def test_a_resolution_that_no_number_can_hold(tmp_path: Path) -> None:
    path = vhdr(tmp_path / "x.vhdr")
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("Ch2=Fp2,,0.1", "Ch2=Fp2,,1e300"), encoding="utf-8")
    assert "1e300" in path.read_text(encoding="utf-8")
    write_edf(tmp_path / "y.edf", noise(2, 8, 250), 250, MONTAGE)
    (tmp_path / "m.csv").write_text("subject,label,file\na,x,x.vhdr\nb,y,y.edf\n")
    with pytest.raises(BadData, match=r"a, x.vhdr: channel Fp2"):
        quiet(tmp_path / "m.csv", tmp_path / "c", label=None)


def test_the_same_recording_rounded_by_another_format_is_a_copy(tmp_path: Path) -> None:
    data = noise(5, 60, 250)
    write_edf(tmp_path / "x.edf", data, 250, MONTAGE)
    write_edf(tmp_path / "z.edf", noise(6, 60, 250), 250, MONTAGE)
    rounded = mne.io.RawArray(np.round(data, 1) * 1e-6, mne.create_info(list(MONTAGE), 250, "eeg"), verbose="ERROR")
    mne.export.export_raw(tmp_path / "y.set", rounded, verbose="ERROR")
    (tmp_path / "m.csv").write_text("subject,label,file\na,x,x.edf\nb,y,y.set\nc,y,z.edf\n")
    with pytest.raises(BadData, match=r"b, y.set: duplicate: sample for sample identical to x.edf of a"):
        quiet(tmp_path / "m.csv", tmp_path / "c", label=None)


# --- files that are none, links, names ----------------------------------------------------------------------------


def test_links_that_lead_in_circles_are_refused(bids: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (bids / "sub-02" / name).symlink_to(bids / "sub-02")
    with pytest.raises(BadData, match=r"sub-02/[ab]: is a link that leads back to a folder it lies in"):
        quiet(bids, tmp_path / "c")
    assert len(find([bids])) == 6


def test_links_to_recordings_and_folders_elsewhere_are_followed(bids: Path, tmp_path: Path) -> None:
    objects = tmp_path / "objects"
    objects.mkdir()
    recording(bids, 3).rename(objects / "key.edf")
    recording(bids, 3).symlink_to(objects / "key.edf")
    (bids / "sub-05").rename(objects / "sub-05")
    (bids / "sub-05").symlink_to(objects / "sub-05")
    assert len(quiet(bids, tmp_path / "c")) == 6


def test_a_pipe_named_like_a_recording_is_refused_at_once(bids: Path, tmp_path: Path) -> None:
    recording(bids).unlink()
    make_pipe(recording(bids))
    with pytest.raises(BadData, match=r"sub-04: listed in participants.tsv but has no EEG recording"):
        quiet(bids, tmp_path / "c")
    cohort = quiet(bids, tmp_path / "c", skip_bad=True)
    assert any("is no regular file" in item["why"] for item in cohort.metadata["left_out"])
    (bids / "m.csv").write_text(f"subject,label,file\na,x,{recording(bids)}\nb,y,{recording(bids, 1)}\n")
    with pytest.raises(BadData, match=r"_eeg.edf: is no regular file but a pipe"):
        quiet(bids / "m.csv", tmp_path / "d", label=None)
    assert error_of(find([recording(bids)])[0].path).startswith("is no regular file")


@pytest.mark.parametrize("kind", ["events.tsv", "channels.tsv", "eeg.json"])
def test_a_pipe_named_like_a_side_file_hangs_nothing(bids: Path, tmp_path: Path, kind: str) -> None:
    make_pipe(side_file(bids, kind))
    try:
        quiet(bids, tmp_path / "c")
    except BadData as error:
        assert "is no regular file" in str(error)  # noqa: PT017  (or it is no side file at all)


def test_names_that_are_no_text_are_problems_before_anything_is_cut(bids: Path, tmp_path: Path) -> None:
    strange = os.fsencode(recording(bids).parent) + b"/sub-04_task-r\xe9st_run-2_eeg.edf"
    recording(bids).rename(os.fsdecode(strange))
    with pytest.raises(BadData, match=r"its name is not UTF-8") as caught:
        quiet(bids, tmp_path / "c")
    str(caught.value).encode()
    cohort = quiet(bids, tmp_path / "c", skip_bad=True)
    assert "sub-04" not in cohort.subjects


def test_escape_codes_never_reach_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert plain("a\x1b[2J\x9b\u202eb\udce9\tc\n") == "a\\x1b[2J\\x9b\\u202eb\\udce9\tc\n"
    assert "\x1b" not in str(BadUse("no \x1b[2J"))
    name = "a\x1b[2J.edf"
    write_edf(tmp_path / name, noise(1, 8, 250), 250, MONTAGE)
    assert "\x1b" not in find([tmp_path])[0].name
    labels = ["x\x1b[31m"] * 3 + ["y"] * 3
    bags = [np.random.default_rng(i).normal(0, 9, (4, 2, 200)).astype(np.float32) for i in range(6)]
    cohort = Cohort.from_arrays(bags, labels, sfreq=200, channels=["C3", "C4"])
    print_summary(cohort)
    assert "\x1b[31m" not in capsys.readouterr().out


def test_a_class_may_be_called_anything_in_a_picture(tmp_path: Path) -> None:
    labels = [r"$\frac{a$"] * 3 + ["<b>"] * 3
    bags = [np.random.default_rng(i).normal(0, 9, (4, 2, 200)).astype(np.float32) for i in range(6)]
    draw_cohort(Cohort.from_arrays(bags, labels, sfreq=200, channels=["C3", "C4"]), tmp_path / "p.png", show=False)
    assert (tmp_path / "p.png").is_file()


# --- settings -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "values",
    [{"sfreq": np.inf}, {"sfreq": 1e12}, {"sfreq": np.nan}, {"low": 1e-5}, {"high": np.inf}, {"notch": (np.inf,)},
     {"window_seconds": 1e9}, {"reject_uv": np.inf}, {"folds": 10**9}, {"burn_in": 10**12}, {"overlap": np.nan}],
    ids=str,
)  # fmt: skip
def test_absurd_settings_of_prepare_are_refused(values: dict) -> None:
    with pytest.raises(BadUse, match=next(iter(values))):
        parse(PrepareSettings, values)


def test_an_overlap_that_would_fill_the_memory_is_refused(bids: Path, tmp_path: Path) -> None:
    with pytest.raises(BadData, match=r"its windows would need .* GB of memory"):
        quiet(bids, tmp_path / "c", window_seconds=4, sfreq=100_000, overlap=1 - 1e-9)


@pytest.mark.parametrize(
    ("key", "value"),
    [("stage1.subbag_pairs", 1e12), ("stage1.batch_windows", 10**15), ("stage1.epochs", 10**18), ("stage2.lr", np.inf),
     ("stage2.retention", np.nan), ("stage1.radius", 10**12), ("stage2.min_steps", 10**12)],
)  # fmt: skip
def test_absurd_settings_of_training_are_refused(key: str, value: float) -> None:
    with pytest.raises(BadUse, match=key):
        method_settings("bridgemil", changes={key: value})


SPLITS = (
    b"",
    b"{",
    b"[]",
    b"null",
    b'{"folds": 3}',
    b'{"folds": ["abc", "def", "ghi"]}',
    b'{"folds": [[1.5], ["b"], ["c"]]}',
    b'{"folds": [[[]], ["b"], ["c"]]}',
    b'{"folds": [["a"]]}',
    b'{"folds": [["a"], ["b"], ["b"]]}',
    b'{"folds": [["a"], ["b"], []]}',
    b'{"folds": [["a"], ["b"], ["c"]], "split_seed": [1]}',
    b"\xff\xfe",
    b"[" * 99_999,
    b'{"folds": [["a"], ["b"], ["c"]], "kind": {}}',
)


@pytest.mark.parametrize("content", SPLITS, ids=lambda content: str(content[:30]))
def test_a_split_file_that_is_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "s.json").write_bytes(content)
    with pytest.raises((BadData, BadUse)):
        FoldPlan.load(tmp_path / "s.json")


def test_a_pipe_is_no_split_file(tmp_path: Path) -> None:
    make_pipe(tmp_path / "s.json")
    with pytest.raises(BadData, match="no split file"):
        FoldPlan.load(tmp_path / "s.json")


def test_a_manifests_skeleton_lists_names_that_are_no_text(tmp_path: Path) -> None:
    write_edf(tmp_path / "a1.edf", noise(1, 3, 250), 250, MONTAGE)
    (tmp_path / "a1.edf").rename(os.fsdecode(os.fsencode(tmp_path) + b"/b\xe9.edf"))
    write_edf(tmp_path / "a1.edf", noise(1, 3, 250), 250, MONTAGE)
    _, template = write_manifest_template(tmp_path)
    assert [row.file for row in template.rows] == ["a1.edf"]
    assert "not UTF-8" in template.left_out[0].why


# --- content that was not fetched (git-annex, DataLad) ---------------------------------------------------------------


def unfetched(file: Path) -> None:
    file.unlink()
    file.symlink_to("../../.git/annex/objects/ab/cd/key/key")


def test_a_recording_whose_content_was_not_fetched_is_said_to_be_so(bids: Path, tmp_path: Path) -> None:
    more = recording(bids, 3).with_name("sub-03_task-rest_run-2_eeg.edf")
    shutil.copy(recording(bids, 3), more)
    unfetched(more)
    unfetched(recording(bids, 4))
    with pytest.raises(BadData, match="2 problems") as caught:
        quiet(bids, tmp_path / "c")
    assert str(caught.value).count("its content is not here (a broken link; `datalad get`") == 2
    assert "sub-03/eeg/sub-03_task-rest_run-2_eeg.edf" in str(caught.value)
    for file in bids.rglob("*_eeg.edf"):
        unfetched(file)
    with pytest.raises(BadData, match=r"the recordings below .* its content is not here"):
        quiet(bids, tmp_path / "c")
    (tmp_path / "m.csv").write_text(f"subject,label,file\na,x,{recording(bids, 4)}\n")
    with pytest.raises(BadData, match="its content is not here"):
        quiet(tmp_path / "m.csv", tmp_path / "c", label=None)


def test_circles_elsewhere_in_a_bids_folder_do_not_matter(bids: Path, tmp_path: Path) -> None:
    (bids / "derivatives").mkdir()
    (bids / "derivatives/back").symlink_to(bids)
    (bids / "sub-02/itself").symlink_to("itself")
    assert len(quiet(bids, tmp_path / "c")) == 6
    (bids / "sub-99").symlink_to(bids)
    with pytest.raises(BadData, match="sub-99: is a link that leads back"):
        quiet(bids, tmp_path / "d")


@pytest.mark.parametrize("out", ["circle", "circle/inside", "to nothing"])
def test_an_out_that_is_a_link_to_itself_or_to_nothing_is_refused(bids: Path, tmp_path: Path, out: str) -> None:
    (tmp_path / "circle").symlink_to("circle")
    (tmp_path / "to nothing").symlink_to("nowhere")
    with pytest.raises(BadUse, match="is a file or a link to nothing, not a folder; remove it, or choose another OUT"):
        quiet(bids, tmp_path / out)


@pytest.mark.parametrize("option", ["task", "session"])
@pytest.mark.parametrize("value", ["*", "(", "a_b", "ses-1", "", "[0-9]"])
def test_a_task_or_session_is_no_pattern(bids: Path, tmp_path: Path, option: str, value: str) -> None:
    with pytest.raises(BadUse, match=f"--{option}: a BIDS {option} has letters and digits only"):
        quiet(bids, tmp_path / "c", **{option: value})


@pytest.mark.parametrize("seed", [-1, 2**32, 10**30])
@pytest.mark.parametrize("scheme", ["array_split", "sklearn"])
def test_a_split_seed_that_cannot_be(seed: int, scheme: str) -> None:
    with pytest.raises(BadUse, match="the split seed must be a whole number from 0 to 4294967295"):
        SubjectKFold(3, seed, scheme).plan(list("abcdef"), list("xyxyxy"))


@pytest.mark.parametrize("label", ['"A', 'A"'])
def test_an_open_quotation_mark_in_a_label_is_a_problem(bids: Path, tmp_path: Path, label: str) -> None:
    table = bids / "participants.tsv"
    lines = table.read_text().splitlines()
    lines[1] = "\t".join(["sub-01", label, "60"])
    table.write_text("\n".join(lines))
    with pytest.raises(BadData, match=r"sub-01: label .* has a quotation mark that is not closed"):
        quiet(bids, tmp_path / "c")
    rows = [f"S{i},{'AC'[i % 2]},sub-{i:02d}/eeg/sub-{i:02d}_task-rest_eeg.edf" for i in range(2, 7)]
    manifest = bids / "list.csv"
    manifest.write_text("\n".join(["subject,label,file", f'S1,A",{rows[0].split(",")[2].replace("02", "01")}', *rows]))
    with pytest.raises(BadData, match=r"S1: label 'A\"' has a quotation mark that is not closed"):
        quiet(manifest, tmp_path / "c", label=None)
