"""A bundle: whole or refused, equal numbers from every format of a signal, warnings of what is out of distribution."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import mne
import numpy as np
import pytest

from bridgemil import bundle as bundles
from bridgemil.bundle.bundle import Bundle
from bridgemil.bundle.page import explain_recording, write_page
from bridgemil.bundle.prediction import RecordingPrediction, Refused, describe, predict
from bridgemil.bundle.training import train
from bridgemil.cli.predict import print_prediction
from bridgemil.cohort import formats
from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.new_recording import find, read, settings_for
from bridgemil.cohort.prepare import prepare
from bridgemil.cohort.signal import Signal
from bridgemil.errors import BadData, BadUse
from bridgemil.report.characteristics import class_rows
from bridgemil.report.explanation import Ranking, Removal, top_windows
from leaky import resealed
from people import people
from recordings import MONTAGE, noise, write_edf

SFREQ = 250.0


def eeg(seed: int, seconds: float = 20, slow: float = 0.0, n_channels: int = len(MONTAGE)) -> np.ndarray:
    """Noise with a common part and, in patients, slow waves; channels x time, microvolts."""
    rng = np.random.default_rng(seed)
    signal = noise(seed, seconds, SFREQ, n_channels)
    signal += 10 * rng.normal(size=signal.shape[1])
    time = np.arange(signal.shape[1]) / SFREQ
    return signal + slow * np.sin(2 * np.pi * 5 * time + rng.uniform(0, 6)) * rng.uniform(0.8, 1.2)


@pytest.fixture(scope="module")
def cohort(tmp_path_factory: pytest.TempPathFactory) -> Cohort:
    """24 people, two classes."""
    root = tmp_path_factory.mktemp("cohort")
    rows = ["subject,label,file,age"]
    for i in range(24):
        write_edf(root / f"p{i:02d}.edf", eeg(i, 20 + i % 3, slow=15.0 * (i % 2)), SFREQ, MONTAGE)
        rows.append(f"p{i:02d},{('control', 'patient')[i % 2]},p{i:02d}.edf,{50 + i}")
    (root / "manifest.csv").write_text("\n".join(rows) + "\n")
    return prepare(root, root / "cohort", jobs=1, progress=False)


@pytest.fixture(scope="module")
def made(cohort: Cohort, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of band power."""
    out = tmp_path_factory.mktemp("bundle") / "slow waves"
    train(cohort, out, "bandpower", folds=4, baselines=False, progress=False)
    return out


@pytest.fixture
def bundle(made: Path) -> Bundle:
    return bundles.load(made)


def said(bundle: Bundle, path: Path, **how: Any) -> RecordingPrediction:
    (answer,) = predict(bundle, [path], **how)
    assert isinstance(answer, RecordingPrediction), answer
    return answer


def refused(bundle: Bundle, path: Path, **how: Any) -> str:
    (answer,) = predict(bundle, [path], **how)
    assert isinstance(answer, Refused)
    return answer.why


# On disk


def test_a_bundle_holds_what_is_needed_and_nothing_of_a_person(made: Path, cohort: Cohort) -> None:
    about = json.loads((made / "bundle.json").read_text())
    assert about["classes"] == ["control", "patient"]
    assert about["signal"]["channels"] == cohort.channels
    assert about["preparation"] == json.loads(json.dumps(cohort.preparation))
    assert about["provenance"]["cohort_hash"] == cohort.hash
    assert about["provenance"]["n_subjects"] == 24
    assert about["ensemble"] == "folds"
    low, high = about["performance"]["accuracy"]["ci95"]
    assert low <= about["performance"]["accuracy"]["value"] <= high
    clinical = about["performance"]["clinical"]
    assert clinical["positive"] == "patient"
    assert {"sensitivity", "specificity", "ppv", "npv"} <= set(clinical)
    assert "roc" not in clinical, "curves are of single people"
    assert set(about["calibration"]["error"]) == {"before", "after"}
    assert set(json.loads((made / "manifest.json").read_text())["files"]) == {
        "bundle.json",
        "card.md",
        "reference.safetensors",
        "model/model.json",
        *(f"model/fold-{i:02d}/model.{kind}" for i in range(1, 5) for kind in ("json", "safetensors")),
    }
    text = (made / "bundle.json").read_text()
    assert not [subject for subject in cohort.subjects if f'"{subject}"' in text]
    card = (made / "card.md").read_text()
    for words in (
        "Research use only",
        "## Intended use",
        "## Limitations",
        "| accuracy |",
        "| sensitivity |",
        "24 subjects",
        "61 (50 to 72)",
    ):
        assert words in card, words


def test_who_is_in_a_card() -> None:
    """Ages as a range, sexes counted also where they are codes in numbers, and nothing made of what is missing."""
    columns = {"age": [60, 70, None, 80.5], "Sex": [1, 2, 1, None], "gender": ["f", "NaN", "N/A", "f"]}
    bags = np.random.default_rng(0).normal(size=(4, 2, 1, 100))
    cohort = Cohort.from_arrays(bags, list("aaab"), sfreq=100, channels=["Cz"], columns=columns)
    first, second = class_rows(cohort)
    assert (first["age"], first["sex"], first["gender"]) == ("65 (60 to 70)", "1: 2, 2: 1", "f: 1")
    assert (second["age"], second["sex"]) == ("80 (80 to 80)", "not known")


def damage() -> dict[str, tuple[Callable[[Path], Any], str]]:
    def edit(name: str, change: Callable[[bytes], bytes]) -> Callable[[Path], Any]:
        return lambda folder: (folder / name).write_bytes(change((folder / name).read_bytes()))

    weights = "model/fold-02/model.safetensors"
    return {
        "weights changed": (edit(weights, lambda b: b[:-1] + bytes([b[-1] ^ 1])), f"{weights}: was changed"),
        "weights cut short": (edit(weights, lambda b: b[:-50]), f"{weights}: was changed"),
        "weights gone": (lambda folder: (folder / weights).unlink(), "is missing"),
        "card changed": (edit("card.md", lambda b: b.replace(b"Research", b"Clinical")), "card.md: was changed"),
        "foreign file": (lambda folder: (folder / "model/evil.pkl").write_bytes(b"x"), "model/evil.pkl is not part"),
        "classes renamed": (edit("bundle.json", lambda b: b.replace(b'"patient"', b'"someone"')), "json: was changed"),
        "json cut short": (edit("bundle.json", lambda b: b[:-20]), "json: was changed"),
        "json empty": (edit("bundle.json", lambda b: b"{}"), "json: was changed"),
        "another kind": (lambda folder: resealed(folder, "run"), "is a run in format .*, and a bundle in format"),
        "manifest damaged": (edit("manifest.json", lambda b: b[:-20]), r"manifest.json: is damaged"),
        "no bundle": (lambda folder: (folder / "manifest.json").unlink(), "no bundle there"),
    }


@pytest.mark.parametrize("what", damage())
def test_a_damaged_bundle_is_refused_by_name(made: Path, tmp_path: Path, what: str) -> None:
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(made, copy)
    (copy / ".DS_Store").write_bytes(b"a file browser was here")
    assert bundles.load(copy).name == "slow waves"
    spoil, words = damage()[what]
    spoil(copy)
    with pytest.raises(BadData, match=words):
        bundles.load(copy)


def test_writing_never_replaces_what_is_no_bundle(bundle: Bundle, cohort: Cohort, tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").write_text("all there is")
    for overwrite in (False, True):
        with pytest.raises(BadUse, match="is no bundle"):
            bundle.save(tmp_path / "thesis", overwrite=overwrite)
    bundle.save(tmp_path / "m")
    with pytest.raises(BadUse, match="holds a bundle already"):
        bundle.save(tmp_path / "m")
    assert bundle.save(tmp_path / "m", overwrite=True).title == bundle.title


def test_the_same_training_again_is_the_same_bundle_and_another_needs_leave(cohort: Cohort, tmp_path: Path) -> None:
    how: dict[str, Any] = {"folds": 3, "baselines": False, "progress": False}
    first = train(cohort, tmp_path / "m", "bandpower", **how)
    again = train(cohort, tmp_path / "m", "bandpower", **how)
    assert again.bundle.checksum == first.bundle.checksum
    with pytest.raises(BadUse, match="holds a bundle already"):
        train(cohort, tmp_path / "m", "tangent", **how)
    replaced = train(cohort, tmp_path / "m", "tangent", overwrite=True, **how).bundle
    assert replaced.metadata["settings"]["method"] == "tangent"


# Predictions


def test_a_recording_gets_the_windows_and_probabilities_its_cohort_would(bundle: Bundle, cohort: Cohort) -> None:
    file = Path(str(cohort.path)).parent / "p03.edf"
    answer = said(bundle, file)
    assert np.array_equal(answer.recording.windows, cohort.windows("p03"))
    assert np.array_equal(answer.recording.starts, cohort.window_starts("p03"))
    expected = bundle.calibration(bundle.model.predict(cohort.windows("p03")).probabilities)
    assert np.array_equal(answer.probabilities, expected)
    assert answer.predicted == "patient"
    content = answer.to_dict()
    keys = {"file", "probabilities", "predicted", "prediction_set", "out_of_distribution", "windows_used", "warnings",
            "model"}  # fmt: skip
    assert keys <= set(content)
    assert "patient" in content["prediction_set"]
    assert content["windows_used"] == 20
    json.dumps(content, allow_nan=False)


def test_the_order_of_channels_their_spelling_and_other_channels_do_not_matter(bundle: Bundle, tmp_path: Path) -> None:
    signal = eeg(77, slow=15)
    plain = said(bundle, write_edf(tmp_path / "a.edf", signal, SFREQ, MONTAGE))
    order = [4, 2, 0, 5, 1, 3]
    more = np.vstack([signal[order], noise(3, 20, SFREQ, 3)])
    names = [*(f"EEG {MONTAGE[i].upper()}-Ref" for i in order), "ECG", "Photic", "Pz"]
    other = said(bundle, write_edf(tmp_path / "b.edf", more, SFREQ, names))
    assert np.array_equal(other.probabilities, plain.probabilities)


def test_formats_of_one_signal_agree(bundle: Bundle, tmp_path: Path) -> None:
    signal = eeg(78, slow=15)
    raw = mne.io.RawArray(signal * 1e-6, mne.create_info(list(MONTAGE), SFREQ, "eeg"), verbose="ERROR")
    mne.export.export_raw(tmp_path / "a.set", raw, verbose="ERROR")
    raw.save(tmp_path / "a_raw.fif", verbose="ERROR")
    files = [write_edf(tmp_path / name, signal, SFREQ, MONTAGE) for name in ("a.edf", "a.bdf")]
    answers = [said(bundle, file) for file in (*files, tmp_path / "a.set", tmp_path / "a_raw.fif")]
    exact = answers[2].probabilities
    for answer, bound in zip(answers, (1e-3, 1e-5, 0, 1e-5), strict=True):  # EDF rounds to 0.09 µV, BDF to 0.0004 µV
        assert np.abs(answer.probabilities - exact).max() <= bound


def write_fif(path: Path, signal: np.ndarray) -> Path:
    """A FIF file, which has no range to fit into; ``signal`` in microvolts."""
    raw = mne.io.RawArray(signal * 1e-6, mne.create_info(list(MONTAGE), SFREQ, "eeg"), verbose="ERROR")
    raw.save(path, verbose="ERROR")
    return path


def test_gain_changes_little_but_a_wrong_unit_is_refused(bundle: Bundle, tmp_path: Path) -> None:
    signal = eeg(79, slow=15)
    plain = said(bundle, write_fif(tmp_path / "plain_raw.fif", signal))
    for gain in (0.1, 0.2, 5.0, 10.0):
        answer = said(bundle, write_fif(tmp_path / f"{gain}_raw.fif", gain * signal))
        assert answer.probabilities == pytest.approx(plain.probabilities, abs=1e-3), "band power knows no gain"
        assert answer.percentile == pytest.approx(plain.percentile, abs=1e-3)
        assert gain in (0.1, 10.0) or not any("gain" in warning for warning in answer.warnings)
    for gain in (0.03, 30):
        answer = said(bundle, write_fif(tmp_path / f"{gain}_raw.fif", gain * signal))
        assert any("check the unit and the amplifier's gain" in warning for warning in answer.warnings)
    for gain in (1e-6, 1e-3, 1e3, 1e6):
        assert "unit" in refused(bundle, write_fif(tmp_path / f"{gain}_raw.fif", gain * signal)), gain


def bad_recordings(folder: Path) -> dict[str, tuple[Path, str]]:
    names, signal = list(MONTAGE), eeg(80)
    flat = signal.copy()
    flat[2] = 0
    whole = write_edf(folder / "whole.edf", signal, SFREQ, names).read_bytes()
    (folder / "cut.edf").write_bytes(whole[:-5000])
    (folder / "empty.edf").write_bytes(b"")
    (folder / "junk.edf").write_bytes(b"this is no recording" * 50)
    (folder / "notes.xyz").write_text("hello")
    return {
        "missing electrodes": (write_edf(folder / "few.edf", signal[:4], SFREQ, names[:4]), "missing electrode O1, O2"),
        "too short": (
            write_edf(folder / "short.edf", signal[:, :1500], SFREQ, names),
            "too short: 6.0 s give 6 windows",
        ),
        "rate": (
            write_edf(folder / "slow.edf", noise(1, 20, 64), 64, names),
            "sampled at 64 Hz it holds nothing above 32",
        ),
        "flat": (write_edf(folder / "flat.edf", flat, SFREQ, names), "C3 is flat"),
        "cut short": (folder / "cut.edf", "truncated"),
        "empty": (folder / "empty.edf", "empty"),
        "junk": (folder / "junk.edf", "unreadable"),
        "format": (folder / "notes.xyz", "no known format"),
        "nothing": (folder / "nothing.edf", "no such file"),
        "all marked": (
            write_edf(folder / "marked.edf", signal, SFREQ, names, [(0, 20, "BAD all")]),
            "no usable window",
        ),
        "mostly marked": (write_edf(folder / "most.edf", signal, SFREQ, names, [(0, 15, "BAD")]), "were marked bad"),
    }


def test_what_cannot_be_judged_is_refused_in_words_and_stops_nobody(bundle: Bundle, tmp_path: Path) -> None:
    cases = bad_recordings(tmp_path)
    paths = [path for path, _ in cases.values()]
    answers = list(predict(bundle, [*paths, tmp_path / "whole.edf"]))
    for (name, (_, words)), answer in zip(cases.items(), answers[:-1], strict=True):
        assert isinstance(answer, Refused), name
        assert words in answer.why, (name, answer.why)
        assert answer.to_dict()["probabilities"] is None
    assert isinstance(answers[-1], RecordingPrediction)


def test_a_recording_as_short_as_a_training_persons_is_judged(bundle: Bundle, tmp_path: Path) -> None:
    file = write_edf(tmp_path / "short.edf", eeg(80, seconds=6), SFREQ, MONTAGE)
    assert "at least 10 are needed" in refused(bundle, file)
    windows = np.array([6.0, 20.0, 22.0])
    shorter = replace(bundle, reference=replace(bundle.reference, windows=windows))  # as of windows of a minute
    assert len(said(shorter, file).recording.windows) == 6
    file = write_edf(tmp_path / "shorter.edf", eeg(80, seconds=5), SFREQ, MONTAGE)
    assert "at least 6 are needed" in refused(shorter, file)


@pytest.mark.parametrize("changes", [{"high": None}, {"allow_low_rate": True}])
def test_a_rate_too_low_for_the_bands_of_training_is_refused_whatever_the_filter(
    bundle: Bundle, changes: dict[str, Any], tmp_path: Path
) -> None:
    prepared = dict(bundle.model.facts.preparation) | changes
    bundle.model.facts = replace(bundle.model.facts, preparation=prepared)
    slow = write_edf(tmp_path / "slow.edf", noise(1, 20, 64), 64, MONTAGE)
    assert "holds nothing above 32 Hz" in refused(bundle, slow)
    assert "trained on 0.5 to 45 Hz" in refused(bundle, slow)
    just = write_edf(tmp_path / "just.edf", noise(1, 20, 90), 90, MONTAGE)
    assert said(bundle, just).recording.native_sfreq == 90


def test_a_recording_much_longer_than_the_training_peoples_is_warned_of(bundle: Bundle, tmp_path: Path) -> None:
    usual = write_edf(tmp_path / "usual.edf", eeg(80, seconds=44), SFREQ, MONTAGE)  # training: 20 to 22 s
    assert not any(warning.startswith("long") for warning in said(bundle, usual).warnings)
    long = write_edf(tmp_path / "long.edf", eeg(80, seconds=45), SFREQ, MONTAGE)
    assert "long: 45 windows, training recordings had 22 or fewer" in said(bundle, long).warnings


def test_cautions_of_the_model_are_kept_apart_from_a_recordings_own_warnings(bundle: Bundle, tmp_path: Path) -> None:
    file = write_edf(tmp_path / "one.edf", eeg(80), SFREQ, MONTAGE)
    where = bundle.metadata["provenance"]
    assert where["recordings_per_person"] == 1
    several = where | {"recordings_per_person": 2.0}
    for provenance, stated in ((where, False), (several, True)):
        asked = replace(bundle, metadata={**bundle.metadata, "provenance": provenance, "cautions": ["one site only"]})
        found = said(asked, file)
        cautions = found.to_dict()["model"]["cautions"]
        assert cautions == describe(asked)["cautions"]
        assert cautions[-1] == "one site only"
        assert any("Research use only" in line for line in cautions)
        assert any("2 recordings per subject" in line for line in cautions) is stated
        assert not found.warnings


def test_a_bundle_says_how_many_recordings_its_people_had(tmp_path: Path) -> None:
    made = people(12, windows=8)
    bags = [[made.windows(subject)[:4], made.windows(subject)[4:]] for subject in made.subjects]
    cohort = Cohort.from_arrays(bags, made.labels, sfreq=200.0, channels=list(made.channels), burn_in=1)
    trained = train(cohort, tmp_path / "m", "bandpower", folds=3, baselines=False, progress=False)
    assert trained.bundle.metadata["provenance"]["recordings_per_person"] == 2


def test_a_recording_of_training_is_warned_of_everywhere(bundle: Bundle, cohort: Cohort, tmp_path: Path) -> None:
    found = said(bundle, cohort.path.parent / "p00.edf")
    warning = "this recording was used to train the model; its probability is not held out"
    assert found.warnings[0] == found.to_dict()["warnings"][0] == warning
    write_page(tmp_path / "page.html", bundle, found)
    assert warning in (tmp_path / "page.html").read_text()
    assert warning not in said(bundle, write_edf(tmp_path / "new.edf", eeg(77), SFREQ, MONTAGE)).warnings


def test_a_flat_electrode_can_be_rebuilt_and_is_said(bundle: Bundle, tmp_path: Path) -> None:
    signal = eeg(81, slow=15)
    signal[2] = 0
    file = write_edf(tmp_path / "flat.edf", signal, SFREQ, MONTAGE)
    answer = said(bundle, file, bad_channels="interpolate")
    assert any("C3 is flat" in warning and "interpolated" in warning for warning in answer.warnings)
    with pytest.raises(BadUse, match="bad_channels must be"):
        list(predict(bundle, [file], bad_channels="guess"))


def test_another_reference_changes_neither_probabilities_nor_percentile(tmp_path: Path) -> None:
    names, rows = [*MONTAGE, "Cz"], ["subject,label,file"]
    gains = np.linspace(0, 2, len(names))[:, None]  # what all electrodes have alike is the reference's

    def signal(i: int) -> np.ndarray:
        return eeg(i, n_channels=len(names)) + gains * eeg(i + 100, slow=15.0 * (i % 2), n_channels=1)

    for i in range(12):
        write_edf(tmp_path / f"p{i}.edf", signal(i), SFREQ, names)
        rows.append(f"p{i},{'ab'[i % 2]},p{i}.edf")
    (tmp_path / "manifest.csv").write_text("\n".join(rows) + "\n")
    cohort = prepare(tmp_path, tmp_path / "cohort", jobs=1, progress=False)
    how: dict[str, Any] = {"folds": 3, "baselines": False, "progress": False, "recorded_reference": "A1-A2"}
    tangent = train(cohort, tmp_path / "tangent", "tangent", **how).bundle
    x = signal(50)
    original = said(tangent, write_edf(tmp_path / "new" / "original.edf", x, SFREQ, names))
    cz = write_edf(tmp_path / "new" / "cz.edf", x - x[-1], SFREQ, names)
    copies = {
        "occipital": (write_edf(tmp_path / "new" / "o.edf", x - x[[4, 5]].mean(axis=0), SFREQ, names), None),
        "average": (write_edf(tmp_path / "new" / "average.edf", x - x.mean(axis=0), SFREQ, names), None),
        "flat Cz": (cz, "Cz"),
        "no Cz": (write_edf(tmp_path / "new" / "absent.edf", (x - x[-1])[:-1], SFREQ, names[:-1]), "Cz"),
    }
    for name, (file, reference) in copies.items():
        copy = said(tangent, file, recorded_reference=reference)
        np.testing.assert_allclose(copy.probabilities, original.probabilities, atol=0.01, err_msg=name)
        assert abs(copy.percentile - original.percentile) < 1, name
        assert not any("reference" in warning for warning in copy.warnings), name
    for file, _ in (copies["flat Cz"], copies["no Cz"]):
        assert "--recorded-reference Cz if it is the reference electrode" in refused(tangent, file)
    recorded = train(cohort, tmp_path / "recorded", "bandpower", settings={"baselines.reference": "recorded"}, **how)
    assert any("reference: " in text for text in said(recorded.bundle, cz, recorded_reference="Cz").warnings)


def test_a_stated_filter_inside_the_band_is_a_word(bundle: Bundle, tmp_path: Path) -> None:
    raw = mne.io.RawArray(eeg(82) * 1e-6, mne.create_info(list(MONTAGE), SFREQ, "eeg"), verbose="ERROR")
    raw.filter(2, 30, verbose="ERROR").save(tmp_path / "narrow_raw.fif", verbose="ERROR")
    warnings = said(bundle, tmp_path / "narrow_raw.fif").warnings
    assert any("low-pass filtered at 30 Hz" in warning for warning in warnings)
    assert any("high-pass filtered at 2 Hz" in warning for warning in warnings)


def test_what_reader_and_filter_warn_of_is_said_once(bundle: Bundle, tmp_path: Path) -> None:
    raw = mne.io.RawArray(eeg(82, 12) * 1e-6, mne.create_info(list(MONTAGE), SFREQ, "eeg"), verbose="ERROR")
    raw.save(tmp_path / "odd.fif", verbose="ERROR")
    settings = settings_for(bundle.signal, dict(bundle.model.facts.preparation) | {"low": 0.1})
    (recording,) = find([tmp_path / "odd.fif"])
    (note,) = read(recording, settings).notes  # the file's name is no matter
    assert note.startswith("a warning from reading or filtering: filter_length (")
    filters = write_edf(tmp_path / "filters.edf", eeg(82), SFREQ, MONTAGE)
    content = bytearray(filters.read_bytes())
    prefilter = 256 + len(MONTAGE) * (16 + 80 + 8 * 5)
    content[prefilter : prefilter + 80] = b"HP:0.2Hz LP:100Hz".ljust(80)
    filters.write_bytes(content)
    notes = [note for note in said(bundle, filters).warnings if "reading or filtering" in note]
    assert notes
    assert all("Channels contain different" in note for note in notes)
    assert len(notes) == len(set(notes))


def test_what_is_out_of_distribution_is_warned_of_first(bundle: Bundle, tmp_path: Path) -> None:
    usual = [said(bundle, write_edf(tmp_path / f"{i}.edf", eeg(200 + i, slow=15.0 * (i % 2)), SFREQ, MONTAGE))
             for i in range(10)]  # fmt: skip
    assert sum(answer.percentile > 95 for answer in usual) <= 2
    strange = eeg(300)
    strange[1] += 200 * np.sin(2 * np.pi * 10 * np.arange(strange.shape[1]) / SFREQ)
    answer = said(bundle, write_edf(tmp_path / "strange.edf", strange, SFREQ, MONTAGE))
    assert answer.percentile == 100
    assert answer.warnings[0].startswith("prediction withheld")
    assert answer.warnings[1].startswith("out of distribution: percentile 100")
    assert "Fp2" in answer.warnings[1]
    buzz = np.sin(2 * np.pi * 40 * np.arange(20 * 250) / SFREQ)
    buzzing = eeg(302) + np.linspace(0, 40, len(MONTAGE))[:, None] * buzz
    answer = said(bundle, write_edf(tmp_path / "buzzing.edf", buzzing, SFREQ, MONTAGE))
    assert any(warning.startswith("out of distribution") for warning in answer.warnings[:2])
    recorded = said(bundle, write_edf(tmp_path / "recorded.edf", eeg(301), SFREQ, MONTAGE))
    for name, common in {"nearly Fp1": 0.9 * eeg(301)[0], "a buzz at the reference": 20 * buzz}.items():
        answer = said(bundle, write_edf(tmp_path / "reference.edf", eeg(301) - common, SFREQ, MONTAGE))
        assert answer.percentile == pytest.approx(recorded.percentile, abs=1), name  # the average reference removes it


def test_a_folder_of_recordings_bids_or_not(bundle: Bundle, bids: Path, tmp_path: Path) -> None:
    for i in range(2):
        write_edf(tmp_path / "deep" / f"{i}" / "rec.edf", eeg(i), SFREQ, MONTAGE)
    assert [a.name for a in predict(bundle, [tmp_path / "deep"])] == [
        str(tmp_path / f"deep/{i}/rec.edf") for i in range(2)
    ]
    found = list(predict(bundle, [bids]))
    assert len(found) == 6
    assert all("too short: 8.0 s" in answer.why for answer in found if isinstance(answer, Refused))
    (tmp_path / "empty").mkdir()
    assert "no recording in this folder" in refused(bundle, tmp_path / "empty")


@pytest.mark.parametrize(
    "files",
    [
        ("sub-01.edf", "sub-02.edf"), ("sub-01/rest.edf",), ("a.edf", "sub-notes.txt"),
        ("BIDS/sub-01/eeg/sub-01_task-rest_eeg.edf",), ("sub-01_task-rest_eeg.edf",),
    ],
)  # fmt: skip
def test_a_folder_is_bids_only_if_it_has_bids_folders(bundle: Bundle, files: tuple[str, ...], tmp_path: Path) -> None:
    for i, name in enumerate(files):
        if name.endswith(".edf"):
            write_edf(tmp_path / name, eeg(i), SFREQ, MONTAGE)
        else:
            (tmp_path / name).write_text("notes")
    answers = list(predict(bundle, [tmp_path]))
    assert [a.name for a in answers] == [str(tmp_path / name) for name in files if name.endswith(".edf")]
    assert all(isinstance(answer, RecordingPrediction) for answer in answers)


def test_a_folder_that_cannot_be_searched_does_not_stop_the_others(bundle: Bundle, bids: Path, tmp_path: Path) -> None:
    (bids / "sub-02" / "loop").symlink_to(bids / "sub-02")  # is not followed
    (tmp_path / "empty").mkdir()
    good = write_edf(tmp_path / "good.edf", eeg(1), SFREQ, MONTAGE)
    empty, last, *others = predict(bundle, [tmp_path / "empty", good, bids])
    assert empty.name == str(tmp_path / "empty")
    assert "no recording in this folder" in empty.why
    assert isinstance(last, RecordingPrediction)
    assert len(others) == 6


def test_recordings_that_were_not_fetched_are_refused(bundle: Bundle, bids: Path, tmp_path: Path) -> None:
    write_edf(tmp_path / "plain" / "a.edf", eeg(1), SFREQ, MONTAGE)
    for name in ("b.edf", "c.set", "c.fdt", "d.vhdr", "d.eeg"):  # as git-annex leaves them; samples are no recordings
        (tmp_path / "plain" / name).symlink_to(tmp_path / "objects" / name)
    answers = list(predict(bundle, [tmp_path / "plain"]))
    assert [Path(a.name).name for a in answers] == ["a.edf", "b.edf", "c.set", "d.vhdr"]
    assert all("git annex get" in answer.why for answer in answers[1:] if isinstance(answer, Refused))
    assert "git annex get" in refused(bundle, tmp_path / "plain" / "b.edf")
    lost = bids / "sub-02" / "eeg" / "sub-02_task-rest_eeg.edf"
    lost.unlink()
    lost.symlink_to(tmp_path / "objects" / "sub-02.edf")
    assert [a.why for a in predict(bundle, [bids]) if a.name == str(lost)] == [formats.ABSENT]


def test_a_bids_recording_with_a_name_that_is_no_text_is_refused(bundle: Bundle, bids: Path) -> None:
    file = bids / "sub-02" / "eeg" / "sub-02_task-rest_eeg.edf"
    file.rename(file.with_name("sub-02_task-re\x1bst_eeg.edf"))
    answers = list(predict(bundle, [bids]))
    assert len(answers) == 6
    assert "holds control characters" in answers[1].why


def test_sidecars_of_a_bids_recording_count_as_in_training(bids: Path, tmp_path: Path) -> None:
    folder = bids / "sub-01" / "eeg"
    (folder / "sub-01_task-rest_channels.tsv").write_text("name\ttype\tstatus\nC3\tEEG\tbad\n")
    for where in (folder / "sub-01_task-rest_eeg.edf", bids):
        first = find([where])[0]
        assert first.subject == "sub-01"
        assert first.channels_tsv is not None
        assert first.channels_tsv.name == "sub-01_task-rest_channels.tsv"
    signal = Signal(MONTAGE, 200.0, 200)
    with pytest.raises(BadData, match="C3 marked bad"):
        read(find([folder / "sub-01_task-rest_eeg.edf"])[0], settings_for(signal, {"low": 0.5, "high": 45.0}))


def test_a_bundle_trained_on_arrays_says_why_it_takes_no_recording(tmp_path: Path) -> None:
    made = train(people(12, effect=2.0), tmp_path / "m", "bandpower", folds=3, baselines=False, progress=False)
    with pytest.raises(BadUse, match="trained on arrays"):
        list(predict(made.bundle, [tmp_path / "a.edf"]))
    bag = people(12, effect=2.0).windows("subject-002")
    assert made.bundle.probabilities(bag).sum() == pytest.approx(1)
    assert "prepares a recording" not in made.bundle.card
    assert "given windows in Python" in made.bundle.card


ELSEWHERE = """
import json, sys
from bridgemil.bundle import load, predict
for folder in sys.argv[2:]:
    (said,) = predict(load(folder), [sys.argv[1]])
    print(json.dumps(said.to_dict()))
heavy = {"pandas", "sklearn", "matplotlib", "pyarrow"} & set(sys.modules)
assert not heavy, heavy
"""
QUICK = {"stage1.epochs": 1, "stage2.epochs": 2, "stage2.burn_in": 0}
EVERY = {
    "bandpower": {}, "tangent": {}, "bridgemil": QUICK, "millet": {"stage2.epochs": 2},
    "majority_vote": {"stage2.epochs": 2}, "attention+tangent": {"stage2.epochs": 2},
}  # fmt: skip


def test_every_kind_of_bundle_says_the_same_in_another_process_that_loads_nothing_heavy(
    cohort: Cohort, tmp_path: Path
) -> None:
    file = write_edf(tmp_path / "new.edf", eeg(90, slow=15), SFREQ, MONTAGE)
    here = []
    cases = [*((method, False) for method in EVERY), ("bridgemil", True), ("attention+tangent", True)]
    for method, single in cases:
        made = train(
            cohort, tmp_path / f"{method}-{single}", method, budget="demo", folds=3, baselines=False, progress=False,
            single=single, settings=EVERY[method], runs=tmp_path / "runs", threads=1,
        )  # fmt: skip
        here.append(said(made.bundle, file).to_dict())
        expected = {"bandpower": ["contribution"], "tangent": ["contribution"], "majority_vote": ["probability"]}
        assert list(here[-1]["windows"]) == expected.get(method, ["gate", "contribution"]), method
    folders = [str(tmp_path / f"{method}-{single}") for method, single in cases]
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE, str(file), *folders], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert [json.loads(line) for line in done.stdout.splitlines()] == json.loads(json.dumps(here))
    assert not list((tmp_path / "runs" / "unfinished").glob("*.safetensors"))


@pytest.mark.parametrize("recipe", ["ours", "paper"])
def test_a_single_model_learns_from_everyone_whom_no_selection_needs(
    cohort: Cohort, recipe: str, tmp_path: Path
) -> None:
    made = train(
        cohort, tmp_path / "m", "bridgemil", recipe=recipe, budget="demo", folds=3, baselines=False, progress=False,
        single=True, settings=QUICK, runs=tmp_path / "runs", threads=1,
    )  # fmt: skip
    encoders = (tmp_path / "runs" / "stage1").rglob("encoder.json")
    learnt = [set(json.loads(file.read_text())["train"]) for file in encoders]
    most = max(learnt, key=len)
    assert len(learnt) == 4, "of three folds and of the model"
    assert most == set(cohort.subjects) if recipe == "ours" else len(most) == 16
    words = "fitted on all subjects" if recipe == "ours" else "all but the first of 3 folds, which selected its epoch"
    assert words in made.bundle.card


def test_an_ensemble_of_folds_is_the_mean_of_its_folds(bundle: Bundle, cohort: Cohort) -> None:
    bag = cohort.windows("p05")
    members = [member.predict(bag).probabilities for member in bundle.model.members.values()]  # type: ignore[attr-defined]
    assert len(members) == 4
    np.testing.assert_allclose(bundle.model.predict(bag).probabilities, np.mean(members, axis=0), rtol=1e-12)


def test_predict_lists_windows_only_where_explain_does_and_else_gives_its_verdict(
    bundle: Bundle, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = said(bundle, write_edf(tmp_path / "a.edf", eeg(1), SFREQ, MONTAGE))
    explanation = explain_recording(bundle, answer)
    assert [r.to_dict() for r in answer.rankings] == [r.to_dict() for r in explanation.rankings]
    assert answer.to_dict()["top_windows"] == explanation.to_dict()["top_windows"]
    values, none = np.arange(20.0), np.full(20, 0.01)
    strong, weak = Removal("A", 2, -0.3, none), Removal("A", 2, 0.001, none)
    equal = np.full(20, 0.5)
    cases = (
        (Ranking("contribution", values, strong), "highest contribution to {}: 0:19, 0:18, 0:17, 0:16, 0:15"),
        (Ranking("gate", values, weak), "Attention weights do not single out windows: without the highest tenth"),
        (Ranking("gate", equal, strong), "Attention weights do not single out windows: they are nearly equal"),
        (Ranking("probability", values[:1], None), "Window probabilities do not single out windows: there is one"),
    )
    for ranking, line in cases:
        print_prediction(replace(answer, rankings=[ranking]))
        assert line.format(answer.predicted) in capsys.readouterr().out
        assert (len(top_windows(answer.person, ranking)) == 5) is ranking.singles_out


TINY = """
from torch import nn

class Tiny(nn.Module):
    def __init__(self, n_channels, n_times):
        super().__init__()
        self.embedding_dim = 3
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(n_channels * n_times, 3))

    def forward(self, x):
        return self.net(x)
"""


def test_a_bundle_on_ones_own_code_runs_it_only_when_named(cohort: Cohort, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(TINY)
    code = f"{tmp_path / 'net.py'}:Tiny"
    made = train(
        cohort, tmp_path / "m", "attention", code, budget="demo", folds=3, baselines=False, progress=False, threads=1,
        settings={"stage2.epochs": 1, "stage2.burn_in": 0},
    )  # fmt: skip
    with pytest.raises(BadUse, match="never makes code run"):
        bundles.load(tmp_path / "m")
    again, bag = bundles.load(tmp_path / "m", backbone=code), cohort.windows("p01")
    assert np.array_equal(again.probabilities(bag), made.bundle.probabilities(bag))
