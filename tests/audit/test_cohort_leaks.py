"""The leak zoo, cohorts: each has one planted defect, which its check finds and no other check calls a failure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bridgemil.audit import AuditInput, AuditOptions, audit, fold_membership, measures, same_signal
from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.folds import FoldPlan, SubjectKFold
from leaky import cut, labelled, made, signals, with_artefacts, with_files

N = 24
Planted = tuple[Cohort, dict[str, Any]]
PATIENT = [label == "patient" for label in labelled(N)]


def _scaled(folder: Path) -> Planted:
    people = signals(N)
    people["sub-05"] = people["sub-11"] * np.float32(1.7)
    return made(people), {}


def _flipped(folder: Path) -> Planted:
    people = signals(N)
    people["sub-05"] = -people["sub-11"] + np.float32(3)
    return made(people), {}


def _part_at_an_odd_offset(folder: Path) -> Planted:
    people = signals(N)
    people["sub-05"][:, 1333:3600] = people["sub-11"][:, 700:2967]
    return made(people), {}


def _part_of_a_long_recording(folder: Path) -> Planted:
    people = signals(8, seconds=240, n_channels=4)
    people["sub-05"][:, 20_011:28_011] = people["sub-02"][:, 3_000:11_000]
    return made(people), {}


def _resampled(folder: Path) -> Planted:
    from scipy.signal import resample

    people = signals(N)
    longer = np.pad(people["sub-11"][:, 77:], ((0, 0), (0, 77)))
    at_another_rate = resample(longer, round(longer.shape[1] * 128 / 200), axis=1)
    people["sub-05"] = np.round(resample(at_another_rate, longer.shape[1], axis=1), 1).astype(np.float32)
    return made(people), {}


def _half_a_sample_later(folder: Path) -> Planted:
    people = signals(N, sfreq=400.0)
    people["sub-05"] = np.roll(people["sub-11"], 201, axis=1)
    return made({name: signal[:, ::2] for name, signal in people.items()}), {}


def _scattered_windows(folder: Path) -> Planted:
    bags = {name: cut(signal) for name, signal in signals(N).items()}
    bags["sub-05"][[3, 9, 14]] = -0.8 * bags["sub-11"][[12, 1, 7]]
    return made(bags), {}


def _a_single_window(folder: Path) -> Planted:
    bags = {name: cut(signal) for name, signal in signals(N).items()}
    bags["sub-05"][3] = -0.8 * bags["sub-11"][12]
    return made(bags), {}


def _one_file_twice(folder: Path) -> Planted:
    return with_files(made(signals(N)), sha256=lambda s: "ab" * 32 if s in ("sub-03", "sub-09") else s), {}


def _one_recording_in_two_subjects(folder: Path) -> Planted:
    cohort = with_files(made(signals(N)))
    for subject in ("sub-03", "sub-09"):
        cohort.records[subject] = replace(cohort.records[subject], recordings=("night.edf",))
    return cohort, {}


def _one_identity(folder: Path) -> Planted:
    numbers = {f"sub-{i:02d}": i for i in range(1, N + 1)}
    return with_files(made(signals(N)), identity=lambda s: 3 if s == "sub-09" else numbers.get(s, 1 + N)), {}


def _a_form_that_nobody_filled_in(folder: Path) -> Planted:
    return with_files(made(signals(N)), identity=lambda s: 1), {}


def _channels(folder: Path) -> Planted:
    cohort = made(signals(N))
    more = dict(zip(cohort.subjects, PATIENT, strict=True))
    return with_files(cohort, n_channels=lambda s: 32 if more[s] else 21), {}


def _day(folder: Path) -> Planted:
    cohort = made(signals(N))
    days = {s: 400 * patient + i for i, (s, patient) in enumerate(zip(cohort.subjects, PATIENT, strict=True))}
    return with_files(cohort, day=lambda s: days[s]), {}


def _day_that_only_patients_have(folder: Path) -> Planted:
    cohort = made(signals(N))
    days = {s: i if patient else None for i, (s, patient) in enumerate(zip(cohort.subjects, PATIENT, strict=True))}
    return with_files(cohort, day=lambda s: days[s]), {}


def _subject_in_two_folds(folder: Path) -> Planted:
    cohort = made(signals(N))
    content = SubjectKFold(3).plan(cohort.subjects, cohort.labels).for_json()
    content["folds"][1].append(content["folds"][0][0])
    return cohort, {"split": _written(folder, content)}


def _person_torn_apart(folder: Path) -> Planted:
    cohort = made(signals(N), columns={"person_id": [f"p{i // 2}" for i in range(N)]})
    content = SubjectKFold(3).plan(cohort.subjects, cohort.labels).for_json()
    return cohort, {"split": _written(folder, content)}


def _site_torn_apart(folder: Path) -> Planted:
    cohort = made(signals(N), columns={"ward": [f"w{i % 5}" for i in range(N)]})
    content = SubjectKFold(3).plan(cohort.subjects, cohort.labels).for_json()
    return cohort, {"split": _written(folder, content), "groups": "ward"}


def _length(folder: Path) -> Planted:
    return made(signals(N, seconds=[22 if patient else 17 + i % 4 for i, patient in enumerate(PATIENT)])), {}


def _two_lengths_around_another(folder: Path) -> Planted:
    """Patients have 10 or 30 windows, controls 20: perfectly separated, and not by any one boundary."""
    lengths = [(10, 30)[i % 2] if patient else 20 for i, patient in enumerate(PATIENT)]
    return made(signals(N, seconds=lengths)), {}


def _ages_around_others(folder: Path) -> Planted:
    """Patients are younger or older than all controls."""
    order = iter(range(N))
    ages = [(30.5 + next(order) if i % 2 else 80.5 + next(order)) if p else 60.5 + i / 4 for i, p in enumerate(PATIENT)]
    return made(signals(N), columns={"age": ages}), {}


def _rate(folder: Path) -> Planted:
    return with_files(made(signals(N)), native_sfreq=lambda s: 256.0 if PATIENT[int(s[-2:]) - 1] else 512.0), {}


def _reference(folder: Path) -> Planted:
    return with_files(made(signals(N)), reference=lambda s: "LE" if PATIENT[int(s[-2:]) - 1] else "REF"), {}


def _missing_segments(folder: Path) -> Planted:
    return with_files(
        made(signals(N)), dropped_marked_bad=lambda s: 5 + int(s[-1]) if PATIENT[int(s[-2:]) - 1] else 0
    ), {}


def _site(folder: Path) -> Planted:
    return made(signals(N), columns={"site": ["Lyon" if patient else "Oslo" for patient in PATIENT]}), {}


def _site_codes(folder: Path) -> Planted:
    return made(
        signals(N), columns={"site": [2 if patient else 1 + 2 * (i % 2) for i, patient in enumerate(PATIENT)]}
    ), {}


def _codes_with_some_missing(folder: Path) -> Planted:
    codes = [None if i % 7 == 0 else 2 if patient else 1 + 2 * (i % 2) for i, patient in enumerate(PATIENT)]
    return made(signals(N), columns={"ward": codes}), {}


def _birth_date(folder: Path) -> Planted:
    days = [f"{1941 if patient else 1968}-03-{i % 28 + 1:02d}" for i, patient in enumerate(PATIENT)]
    return made(signals(N), columns={"birthdate": days}), {}


def _date(folder: Path) -> Planted:
    days = [f"{2021 if patient else 2018}-03-{i % 28 + 1:02d}" for i, patient in enumerate(PATIENT)]
    return made(signals(N), columns={"acquired": days}), {}


def _sex(folder: Path) -> Planted:
    sex = ["M" if patient and i % 10 else "F" for i, patient in enumerate(PATIENT)]
    return made(signals(N), columns={"sex": sex}), {}


def _age(folder: Path) -> Planted:
    return made(signals(N), columns={"age": [str(60 + 10 * patient + i % 7) for i, patient in enumerate(PATIENT)]}), {}


def _test_only_patients_take(folder: Path) -> Planted:
    return made(
        signals(N), columns={"updrs": [str(30 + i) if patient else "n/a" for i, patient in enumerate(PATIENT)]}
    ), {}


def _order(folder: Path) -> Planted:
    return made(signals(N), ["control"] * 12 + ["patient"] * 12), {}


def _amplitude(folder: Path) -> Planted:
    people = signals(N)
    return made({s: x * np.float32(3 if p else 1) for (s, x), p in zip(people.items(), PATIENT, strict=True)}), {}


def _line_noise(folder: Path) -> Planted:
    people = signals(N)
    for signal, patient in zip(people.values(), PATIENT, strict=True):
        signal += np.float32(4 * patient) * np.sin(2 * np.pi * 50 * np.arange(signal.shape[1]) / 200).astype(np.float32)
    return made(people), {}


def _a_gain_of_a_hundredth(folder: Path) -> Planted:
    return made({s: x * np.float32(1e-2) for s, x in signals(N).items()}), {}


def _wrong_gain(folder: Path) -> Planted:
    """A median SD of some 400 µV and peaks of millivolts."""
    return made({s: x * np.float32(25) for s, x in signals(N).items()}), {}


def _one_persons_gain(folder: Path) -> Planted:
    people = signals(N)
    people["sub-05"] *= np.float32(24)
    return made(people), {}


def _low_passed(people: dict[str, np.ndarray], chosen: list[str]) -> dict[str, np.ndarray]:
    from scipy.signal import butter, sosfiltfilt

    sos = butter(4, 27.0, fs=200.0, output="sos")
    return {s: sosfiltfilt(sos, x).astype(np.float32) if s in chosen else x for s, x in people.items()}


def _two_filters_in_a_class(folder: Path) -> Planted:
    patients = [f"sub-{i + 1:02d}" for i, patient in enumerate(PATIENT) if patient]
    return made(_low_passed(signals(N), patients[::2])), {}


def _two_filters_between_classes(folder: Path) -> Planted:
    return made(_low_passed(signals(N), [f"sub-{i + 1:02d}" for i, patient in enumerate(PATIENT) if patient])), {}


def _flat_stretches(folder: Path) -> Planted:
    people = signals(N)
    for i, (signal, patient) in enumerate(zip(people.values(), PATIENT, strict=True)):
        if patient:
            signal[2, : 400 + 200 * (i % 4)] *= np.float32(1e-4)
    return made(people), {}


def _two_references(folder: Path) -> Planted:
    """The electrodes of all subjects share little; the patients' reference was noisy."""
    people, rng = signals(N, n_channels=12), np.random.default_rng(5)
    for signal, patient in zip(people.values(), PATIENT, strict=True):
        signal -= signal.mean(axis=0)
        signal += rng.normal(0, 1, signal.shape[1]).astype(np.float32) * (6 if patient else 2)
    return made(people), {}


def _few_people(folder: Path) -> Planted:
    return made(signals(N), ["patient"] * 4 + ["control"] * 20), {}


def _written(folder: Path, content: Any) -> Path:
    import json

    file = folder / "split.json"
    file.write_text(json.dumps(content))
    return file


# What is planted: the finding that must be there.
ZOO: dict[Callable[[Path], Planted], tuple[str, str]] = {
    _scaled: ("same_signal", "FAIL"),
    _flipped: ("same_signal", "FAIL"),
    _part_at_an_odd_offset: ("same_signal", "FAIL"),
    _part_of_a_long_recording: ("same_signal", "FAIL"),
    _resampled: ("same_signal", "FAIL"),
    _half_a_sample_later: ("same_signal", "FAIL"),
    _scattered_windows: ("same_signal", "FAIL"),
    _a_single_window: ("same_signal", "WARN"),
    _one_file_twice: ("shared_files", "FAIL"),
    _one_recording_in_two_subjects: ("same_time", "FAIL"),
    _one_identity: ("shared_header", "FAIL"),
    _a_form_that_nobody_filled_in: ("shared_header", "WARN"),
    _channels: ("shortcut_channels", "WARN"),
    _day: ("shortcut_date", "WARN"),
    _day_that_only_patients_have: ("shortcut_date_missing", "WARN"),
    _subject_in_two_folds: ("folds", "FAIL"),
    _person_torn_apart: ("groups_person_id", "FAIL"),
    _site_torn_apart: ("groups_ward", "FAIL"),
    _length: ("shortcut_length", "FAIL"),
    _two_lengths_around_another: ("shortcut_length", "FAIL"),
    _ages_around_others: ("shortcut_age", "WARN"),
    _rate: ("shortcut_rate", "FAIL"),
    _reference: ("shortcut_recording_reference", "FAIL"),
    _missing_segments: ("shortcut_missing", "FAIL"),
    _site: ("shortcut_site", "FAIL"),
    _site_codes: ("shortcut_site", "FAIL"),
    _codes_with_some_missing: ("shortcut_ward", "WARN"),
    _birth_date: ("shortcut_birthdate", "WARN"),
    _date: ("shortcut_acquired", "FAIL"),
    _sex: ("shortcut_sex", "WARN"),
    _age: ("shortcut_age", "WARN"),
    _test_only_patients_take: ("shortcut_updrs_missing", "WARN"),
    _order: ("shortcut_order", "WARN"),
    _amplitude: ("shortcut_amplitude", "WARN"),
    _line_noise: ("shortcut_line_50", "WARN"),
    _flat_stretches: ("shortcut_flatness", "WARN"),
    _a_gain_of_a_hundredth: ("amplitude", "WARN"),
    _wrong_gain: ("amplitude", "WARN"),
    _one_persons_gain: ("amplitude", "WARN"),
    _two_filters_in_a_class: ("filter_edges", "WARN"),
    _two_filters_between_classes: ("filter_edges", "WARN"),
    _two_references: ("reference_shortcut", "FAIL"),
    _few_people: ("size", "WARN"),
}


@pytest.mark.parametrize("plant", ZOO, ids=lambda plant: plant.__name__.strip("_"))
def test_a_planted_defect_is_found_by_its_check_and_fails_no_other(
    plant: Callable[[Path], Planted], tmp_path: Path
) -> None:
    cohort, wishes = plant(tmp_path)
    name, status = ZOO[plant]
    looked = audit(cohort.save(tmp_path / "cohort"), **wishes)
    (finding,) = looked.named(name)
    assert finding.status == status, finding
    assert finding.evidence, "a finding shows its evidence"
    assert finding.fix, "and what to do"
    also = {"_one_file_twice": {"same_time"}}.get(plant.__name__, set())  # one file is one recording
    assert {failed.name for failed in looked.failed} - also == ({name} if status == "FAIL" else set())
    if name == "filter_edges":
        groups = [set(finding.numbers["groups"][group]) for group in ("filtered", "others")]
        assert [len(group) for group in groups] == ([6, 18] if plant is _two_filters_in_a_class else [12, 12])
        assert all(PATIENT[int(subject[-2:]) - 1] for subject in groups[0])
    if plant is _one_persons_gain:
        assert finding.numbers["subjects"] == ["sub-05"]
    if name == "same_signal":
        pair = {"sub-05", "sub-02" if plant is _part_of_a_long_recording else "sub-11"}
        assert set(finding.numbers["subjects"]) == pair


def _noise(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 9, (3, 1600)).astype(np.float32)


def _with_an_empty_recording(cohort: Cohort) -> Cohort:
    """As if all windows of a second session of everybody had been left out, of some the first's."""
    records = []
    for i, record in enumerate(cohort.records.values()):
        sizes = (record.n_windows, 0) if i % 3 else (0, record.n_windows)
        records.append(replace(record, recordings=("a", "b"), recording_windows=sizes))
    return Cohort(records, cohort.metadata, cohort._columns, arrays=cohort._arrays)


# Cohorts of different shapes, with nothing planted. Checks by label have a false positive rate of 5 %; with these seeds
# there is none.
CLEAN: dict[str, Callable[[], Cohort]] = {
    "two classes": lambda: made(signals(24, seed=10)),
    "three classes": lambda: made(signals(30, seed=11), labelled(30, ("A", "C", "F"))),
    "two channels": lambda: made(signals(20, n_channels=2, seed=12)),
    "one channel": lambda: made(signals(20, n_channels=1, seed=13)),
    "40 channels": lambda: made(signals(16, n_channels=40, seconds=8, seed=14)),
    "unequal lengths": lambda: made(signals(24, seconds=[8 + 3 * (i % 5) for i in range(24)], seed=15)),
    "several recordings": lambda: made(
        {s: [cut(x[:, :1800]), cut(x[:, 1800:])] for s, x in signals(24, seconds=18, seed=16).items()}
    ),
    "a recording without windows": lambda: _with_an_empty_recording(made(signals(24, seed=26))),
    "250 Hz, 2 s": lambda: made(signals(24, sfreq=250.0, seed=17), sfreq=250.0, n_times=500),
    "128 Hz, half a second": lambda: made(signals(24, sfreq=128.0, seed=18), sfreq=128.0, n_times=64),
    "columns": lambda: made(
        signals(24, seed=19),
        columns={"age": [50 + 7 * i % 31 for i in range(24)], "sex": ["MF"[i % 2] for i in range(24)],
                 "Group": labelled(24), "note": [f"free words {i}" for i in range(24)], "empty": [None] * 24},
    ),
    "files": lambda: with_files(made(signals(24, seed=27))),
    "few people": lambda: made(signals(6, seed=21)),
    "two windows": lambda: made(signals(12, seconds=2, seed=22)),
    "a headset with pops, drifts and line noise": lambda: made(
        with_artefacts(signals(40, n_channels=14, seconds=60, sfreq=128.0, seed=23), sfreq=128.0),
        sfreq=128.0, n_times=128,
    ),
    "plain noise": lambda: made({f"s{i}": _noise(i) for i in range(14)}),
}  # fmt: skip


@pytest.mark.parametrize("shape", CLEAN)
def test_clean_cohorts_of_every_shape_do_not_fail(shape: str) -> None:
    looked = audit(CLEAN[shape]())
    assert looked.failed == []
    assert [f.name for f in looked.findings if f.status == "WARN" and f.name != "size"] == []


def test_the_column_of_which_classes_were_joined_is_the_label_itself() -> None:
    groups = labelled(N, ("A", "C", "F"))
    labels = ["HC" if group == "C" else "dementia" for group in groups]
    looked = audit(made(signals(N), labels, columns={"Group": groups}))
    assert not looked.named("shortcut_Group")
    (finding,) = looked.named("shortcuts")  # never under two statuses
    assert finding.status == "PASS"
    assert "Group (is the label itself)" in finding.message


@pytest.mark.parametrize(
    ("column", "values", "status"),
    [
        ("family", ["yes" if i % 3 else "no" for i in range(N)], "INFO"),
        ("twin", [int(i % 5 == 0) for i in range(N)], "INFO"),
        ("twin", [1 if i < 3 else None for i in range(N)], "INFO"),
        ("patient", ["inpatient" if i % 2 else "outpatient" for i in range(N)], "INFO"),
        ("family_id", [f"f{i // 2}" for i in range(N)], "FAIL"),
        ("twin", [f"t{i // 2}" if i < 6 else "n/a" for i in range(N)], "FAIL"),
    ],
)
def test_a_column_called_like_an_identity_is_one_only_if_its_values_are(
    column: str, values: list[Any], status: str
) -> None:
    cohort = made(signals(N, seconds=4, n_channels=2), columns={column: values})
    folds = tuple(tuple(cohort.subjects[i::3]) for i in range(3))
    (finding,) = fold_membership.check(AuditInput(cohort, None, AuditOptions(plan=FoldPlan(folds))))[1:]
    assert (finding.name, finding.status) == (f"groups_{column}", status)


@pytest.mark.parametrize("plant", [_scaled, _half_a_sample_later, _resampled])
def test_among_very_many_people_whole_copies_are_found_still(
    plant: Callable[[Path], Planted], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(same_signal, "MOST_PAIRS", 60)
    assert max(map(len, same_signal.groups_of(N))) > 4, "people are compared in groups"
    found = same_signal.overlapping(plant(tmp_path)[0])
    assert [(copy.first, copy.second) for copy in found] == [("sub-05", "sub-11")]


def test_among_very_many_windows_longer_codes_still_find_equal_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cohort = _scattered_windows(tmp_path)[0]
    monkeypatch.setattr(measures, "BY_CHANCE", 1e-4)
    assert measures.WindowHash(cohort, cohort.n_windows).bits == measures.MOST_BITS
    codes = measures.measure(cohort)
    assert all((one.codes >= 0).all() for one in codes.values()), "no code overflows"
    found = same_signal.same_windows(cohort, codes)
    assert [(copy.first, copy.second) for copy in found] == [("sub-05", "sub-11")]


def test_the_spectra_of_very_many_people_stay_within_their_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cohort = _scaled(tmp_path)[0]
    monkeypatch.setattr(same_signal, "ROOM", 100_000)
    assert same_signal.laid_out(cohort) < 20, "less than they have"
    phases = same_signal.all_phases(cohort)[0]
    assert phases.nbytes <= same_signal.ROOM
    assert [(copy.first, copy.second) for copy in same_signal.overlapping(cohort)] == [("sub-05", "sub-11")]
