from __future__ import annotations

import csv
import itertools
from pathlib import Path

import mne
import numpy as np
import pytest

from bridgemil import prepare
from bridgemil.cohort.synthetic import Event, SynthSettings, evidence_windows, simulate, synthesise
from bridgemil.errors import BadUse


@pytest.mark.parametrize("evidence", ["state", "burst"])
def test_patients_have_evidence_and_controls_hardly_any(evidence: str) -> None:
    settings = SynthSettings(evidence=evidence, subjects=12, seed=5)
    people = [simulate(settings, i) for i in range(12)]
    patients = [p.evidence_fraction for p in people if p.label != "control"]
    controls = [p.evidence_fraction for p in people if p.label == "control"]
    assert max(controls) < 0.1
    assert (min(patients) >= 0.3 and max(patients) <= 0.6) if evidence == "state" else min(patients) > max(controls)
    for person in people:
        for event in person.events:
            assert event.onset >= 0
            assert event.onset + event.duration <= settings.seconds
        states = [e for e in person.events if e.kind == "evidence_state"]
        assert all(5 <= e.duration <= 20 for e in states)
        assert all(a.onset + a.duration < b.onset for a, b in itertools.pairwise(states))
        assert {"blink", "muscle"} <= {e.kind for e in person.events}


def test_the_evidence_is_slowing() -> None:
    settings = SynthSettings(subjects=8, seed=1)
    person = simulate(settings, 1)
    windows = person.signal.reshape(19, settings.seconds, settings.sfreq).transpose(1, 0, 2)
    power = np.abs(np.fft.rfft(windows, axis=-1)) ** 2
    theta = np.log(power[..., 4:8].sum(axis=-1)).mean(axis=1)
    assert theta[person.evidence].mean() > theta[~person.evidence].mean() + 0.5


def test_fingerprints_do_not_depend_on_the_class() -> None:
    from bridgemil.cohort.synthetic import _traits

    settings = SynthSettings(subjects=20)
    for trait in _traits(settings, 0):
        patients = sorted(_traits(settings, i)[trait] for i in range(1, 20, 2))
        controls = sorted(_traits(settings, i)[trait] for i in range(0, 20, 2))
        np.testing.assert_allclose(patients, controls)


def test_evidence_windows_need_half_an_overlap() -> None:
    events = [Event(1.4, 1.2, "evidence_state"), Event(3.0, 0.9, "blink"), Event(4.8, 0.4, "evidence_burst")]
    assert evidence_windows(events, 6).tolist() == [False, True, True, False, True, True]


def test_written_as_bids_it_is_read_and_prepared(tmp_path: Path) -> None:
    settings = SynthSettings(subjects=9, classes=3, seconds=60, seed=2)
    root = synthesise(tmp_path / "s", settings, jobs=1, progress=False)
    raw = mne.io.read_raw(root / "sub-002/eeg/sub-002_task-rest_eeg.edf", verbose="ERROR")
    person = simulate(settings, 1)
    np.testing.assert_allclose(raw.get_data() * 1e6, person.signal, atol=0.1)
    with (root / "sub-002/eeg/sub-002_task-rest_events.tsv").open() as stream:
        events = [
            Event(float(r["onset"]), float(r["duration"]), r["trial_type"])
            for r in csv.DictReader(stream, delimiter="\t")
        ]
    assert np.array_equal(evidence_windows(events, 60), person.evidence)
    cohort = prepare(root, tmp_path / "c", label="group", jobs=1, progress=False)
    assert cohort.classes == ["control", "frontal", "slowing"]
    assert cohort.n_windows == 9 * 60


def test_it_goes_on_where_it_stopped_and_refuses_other_folders(tmp_path: Path) -> None:
    settings = SynthSettings(subjects=6, seconds=60)
    root = synthesise(tmp_path / "s", settings, jobs=1, progress=False)
    table, edf = root / "participants.tsv", root / "sub-001/eeg/sub-001_task-rest_eeg.edf"
    before, stamp = table.read_text(), edf.stat().st_mtime_ns
    table.unlink()
    synthesise(root, settings, jobs=1, progress=False)
    assert table.read_text() == before
    assert edf.stat().st_mtime_ns == stamp
    with pytest.raises(BadUse, match="another data set"):
        synthesise(root, settings.model_copy(update={"seed": 1}), jobs=1, progress=False)
    (tmp_path / "x").mkdir()
    (tmp_path / "x/y").write_text("")
    with pytest.raises(BadUse, match="not empty"):
        synthesise(tmp_path / "x", settings, jobs=1, progress=False)
