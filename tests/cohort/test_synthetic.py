from __future__ import annotations

import csv
import hashlib
import itertools
import subprocess
import sys
from collections import Counter
from pathlib import Path

import mne
import numpy as np
import pytest

from bridgemil import prepare
from bridgemil.cohort.synthetic import (
    SITE_SHIFTS,
    Event,
    SynthSettings,
    evidence_windows,
    has_evidence_windows,
    simulate,
    synthesise,
    true_evidence,
)
from bridgemil.cohort.synthetic.generator import TRAITS, standard_scores
from bridgemil.errors import BadUse
from command import bridgemil as command

ROOT = Path(__file__).parents[2]
# Of the recordings and events of a small cohort: a change of the generator must be noticed.
COHORTS = {
    ("state", 2, 0): "7b628aceb81ddacb5d09eb00a834215807e3aee5ac8db3f45f5e4a9bf91fd300",
    ("burst", 3, 3): "5e7360ac6ed07f030f3234acb3c15d1c536acf6524f32d2f1274e7c9d3b6fa5a",
}


@pytest.mark.parametrize(("evidence", "classes", "seed"), COHORTS)
def test_the_default_cohorts_are_bit_identical(evidence: str, classes: int, seed: int, tmp_path: Path) -> None:
    settings = SynthSettings(evidence=evidence, classes=classes, seed=seed, subjects=6, seconds=60, sfreq=128)
    root = synthesise(tmp_path / "s", settings, jobs=1, progress=False)
    digest = hashlib.sha256()
    for file in sorted(path for path in root.glob("sub-*/**/*") if path.is_file()):
        digest.update(file.relative_to(root).as_posix().encode())
        digest.update(file.read_bytes())
    assert digest.hexdigest() == COHORTS[evidence, classes, seed]


def spreads(**settings: float) -> dict[str, tuple[float, float]]:
    """The spread of ten controls, to the average reference, measured as the benchmark does."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        import people_spread
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))
    chosen = SynthSettings(subjects=20, seconds=60, sfreq=200, **settings)
    return people_spread.measure(people_spread.to_average(people_spread.synthetic_people(chosen)), 200)


def test_people_differ_as_much_as_real_controls_do() -> None:
    # Between and within people, of the 29 controls of adftd-300s (benchmarks/people_spread.py), average reference.
    measured = spreads()
    for name, real in (("power, all bands", (0.565, 0.801)), ("covariance, all bands", (0.135, 0.211))):
        np.testing.assert_allclose(measured[name], real, rtol=0.25)  # ten people: a wider margin than the benchmark's


def test_what_all_electrodes_share_makes_no_difference_to_the_average_reference() -> None:
    with_it, without = (simulate(SynthSettings(subjects=6, seconds=60, common_uv=uv), 0).signal for uv in (32.5, 0))
    assert with_it.std() > 3 * without.std()
    np.testing.assert_allclose(with_it - with_it.mean(axis=0), without - without.mean(axis=0), atol=1e-9)


@pytest.mark.parametrize("classes", [2, 3])
def test_a_trait_shifts_patients_everywhere_and_has_no_special_windows(classes: int, tmp_path: Path) -> None:
    settings = SynthSettings(evidence="trait", subjects=6, classes=classes, seconds=60)
    root = synthesise(tmp_path / "s", settings, jobs=1, progress=False)
    assert not has_evidence_windows(root)
    for index in range(6):
        person = simulate(settings, index)
        whole = [e for e in person.events if e.kind == "background_shifted"]
        assert whole == ([] if person.label == "control" else [Event(0.0, 60.0, "background_shifted")])
        assert not person.evidence.any()
        truth = true_evidence(root, person.subject, np.arange(60.0))
        assert truth.shape == (60,)
        assert not truth.any()


def test_the_trait_is_slowing_in_every_part_of_the_recording() -> None:
    usual = SynthSettings(evidence="trait", subjects=6, seconds=60, trait_strength=1e-9)
    shifted = usual.model_copy(update={"trait_strength": 1.7})
    ratios = []
    for settings in (usual, shifted):
        signal = simulate(settings, 1).signal
        windows = (signal - signal.mean(axis=0)).reshape(19, 60, settings.sfreq)
        power = np.abs(np.fft.rfft(windows * np.hanning(settings.sfreq), axis=-1)) ** 2
        slow, fast = power[..., 4:8].sum(axis=-1), power[..., 9:13].sum(axis=-1)
        ratios.append(np.log(slow / fast).mean(axis=0).reshape(6, 10).mean(axis=1))  # of every ten seconds
    assert (ratios[1] > ratios[0] + 0.5).all()


def test_folders_of_evidence_say_so(tmp_path: Path) -> None:
    root = synthesise(tmp_path / "s", SynthSettings(subjects=6, seconds=60, sfreq=128), jobs=1, progress=False)
    assert has_evidence_windows(root)


def test_the_spread_benchmark_runs() -> None:
    script = ROOT / "benchmarks" / "people_spread.py"
    done = subprocess.run([sys.executable, script, "--quick"], capture_output=True, text=True, check=True)
    assert done.stdout.count("| covariance, all bands |") == 2


@pytest.mark.parametrize("evidence", ["state", "burst"])
def test_patients_have_evidence_and_controls_hardly_any(evidence: str) -> None:
    settings = SynthSettings(evidence=evidence, subjects=12, seed=5)
    people = [simulate(settings, i) for i in range(12)]
    patients = [p.evidence.mean() for p in people if p.label != "control"]
    controls = [p.evidence.mean() for p in people if p.label == "control"]
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
    settings = SynthSettings(subjects=8, seed=1, common_uv=0)
    person = simulate(settings, 1)
    windows = person.signal.reshape(19, settings.seconds, settings.sfreq).transpose(1, 0, 2)
    power = np.abs(np.fft.rfft(windows, axis=-1)) ** 2
    theta = np.log(power[..., 4:8].sum(axis=-1)).mean(axis=1)
    assert theta[person.evidence].mean() > theta[~person.evidence].mean() + 0.5


def test_fingerprints_do_not_depend_on_the_class() -> None:
    settings = SynthSettings(subjects=20)
    scores = [standard_scores(settings, i) for i in range(20)]
    for trait in TRAITS:
        patients = sorted(person[trait] for person in scores[1::2])
        controls = sorted(person[trait] for person in scores[::2])
        np.testing.assert_allclose(patients, controls)


def test_evidence_windows_need_half_an_overlap() -> None:
    events = [Event(1.4, 1.2, "evidence_state"), Event(3.0, 0.9, "blink"), Event(4.8, 0.4, "evidence_burst")]
    assert evidence_windows(events, np.arange(6.0)).tolist() == [False, True, True, False, True, True]


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
    assert np.array_equal(evidence_windows(events, np.arange(60.0)), person.evidence)
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
    for text in ("[1]", "no JSON"):
        (root / "dataset_description.json").write_text(text)
        with pytest.raises(BadUse, match="another data set"):
            synthesise(root, settings, jobs=1, progress=False)
    (tmp_path / "x").mkdir()
    (tmp_path / "x/y").write_text("")
    with pytest.raises(BadUse, match="not empty"):
        synthesise(tmp_path / "x", settings, jobs=1, progress=False)


def test_sites_differ_as_asked_and_never_in_the_disease() -> None:
    plain = SynthSettings(subjects=18, seconds=60, sfreq=128, sites=3, evidence="trait")
    one = {shift: simulate(plain.model_copy(update={"site_shift": (shift,)}), 2).signal for shift in SITE_SHIFTS}
    before = simulate(plain, 2).signal  # of the second site
    assert plain.site(2).name == "site2"
    np.testing.assert_allclose(one["gain"], 1.6 * before)
    np.testing.assert_allclose(one["reference"], before - before[[7, 11]].mean(axis=0))  # T3 and T4
    average = one["reference"] - one["reference"].mean(axis=0)
    np.testing.assert_allclose(average, before - before.mean(axis=0), atol=1e-9)
    assert (one["noise"] - before).std() == pytest.approx(2.0, rel=0.02)
    assert np.diff(one["slope"]).std() > 1.1 * np.diff(before).std()
    assert not np.array_equal(one["age"], before)
    first = simulate(plain.model_copy(update={"site_shift": tuple(SITE_SHIFTS)}), 0)
    alone = simulate(plain.model_copy(update={"sites": 1}), 0)
    assert first.label == alone.label
    shifted = plain.model_copy(update={"site_shift": ("reference", "gain", "noise", "slope")})
    np.testing.assert_array_equal(simulate(shifted, 0).signal, alone.signal)  # the first site is as without shifts


def test_sites_are_a_column_and_ages_differ_where_asked(tmp_path: Path) -> None:
    done = command("synth", tmp_path / "s", "--subjects", 12, "--seconds", 60, "--sites", 2, "--site-shift", "age,gain")
    assert done.returncode == 0, done.stderr
    rows = [line.split("\t") for line in (tmp_path / "s" / "participants.tsv").read_text().splitlines()]
    assert rows[0] == ["participant_id", "group", "age", "sex", "site"]
    counts = Counter((row[1], row[4]) for row in rows[1:])
    assert counts == {(group, site): 3 for group in ("control", "slowing") for site in ("site1", "site2")}
    ages = {site: np.mean([float(row[2]) for row in rows[1:] if row[4] == site]) for site in ("site1", "site2")}
    assert ages["site2"] > ages["site1"]
    for wrong, match in (
        (["--sites", 3], "3 sites with 3 subjects of each class need 18"),
        (["--site-shift", "gain"], "sites=2"),
        (["--sites", 2, "--site-shift", "colour"], "reference"),
    ):
        refused = command("synth", tmp_path / "x", "--subjects", 12, *wrong)
        assert refused.returncode == 2
        assert match in " ".join(refused.stderr.split())
