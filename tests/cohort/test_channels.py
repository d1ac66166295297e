from __future__ import annotations

import pytest

from bridgemil.cohort import channels


@pytest.mark.parametrize(
    ("spelling", "site"),
    [
        ("EEG Fp1-LE", "Fp1"), ("Fp1.", "Fp1"), ("FP1", "Fp1"), ("fp1", "Fp1"), ("EEG FP1-REF", "Fp1"),
        ("T3", "T7"), ("T4", "T8"), ("EEG T5-LE", "P7"), ("t6", "P8"), ("T7", "T7"), ("C3-A2", "C3"), ("Cz", "Cz"),
        ("EEG CZ", "Cz"), ("FCZ", "FCz"), ("AFF1H", "AFF1h"), ("PO10", "PO10"), (" O1 ", "O1"), ("C3-(A1+A2)", "C3"),
    ],
)  # fmt: skip
def test_one_electrode_however_it_is_spelled(spelling: str, site: str) -> None:
    assert channels.electrode(spelling) == site


@pytest.mark.parametrize(
    ("names", "reference"),
    [
        (("Fp1", "Fp2"), ""), (("EEG Fp1-LE", "EEG Fp2-LE"), "LE"), (("C3-A2", "C4-A1"), "A1+A2"),
        (("C3-(A1+A2)",), "A1A2"), (("Fp1-0", "Fp1-1"), ""), (("EEG-Fp1-Ref", "A1-AVG", "Fp1-F7"), "REF"),
    ],
)  # fmt: skip
def test_the_reference_is_what_electrodes_names_end_in(names: tuple[str, ...], reference: str) -> None:
    assert channels.reference(names) == reference


@pytest.mark.parametrize(
    ("name", "spellings"),
    [
        ("linked ears", ("LE", "A1A2", "A1-A2", "A2+A1", "(A1+A2)/2", "linked ears", "Linked earlobes (A1, A2)",
                         "A1/A2", "average of A1 and A2", "left and right ear", "linked")),
        ("linked mastoids", ("M1M2", "M1-M2", "(M1+M2)/2", "linked mastoids", "average mastoids", "M2 and M1",
                             "left and right mastoid")),
        ("average", ("average", "AVG", "AV", "CAR", "common average reference")),
        ("M1", ("M1", "left mastoid")), ("A2", ("A2", "right ear")), ("Cz", ("Cz", "CZ", "referenced to Cz")),
        ("T7", ("T3", "T7")), ("A1+Cz", ("A1, Cz",)), ("CMS DRL", ("CMS/DRL", "DRL, CMS")),
        (None, ("REF", "n/a", "", "common reference", "G2")),
    ],
)  # fmt: skip
def test_spellings_of_one_reference_have_one_name(name: str | None, spellings: tuple[str, ...]) -> None:
    for spelling in spellings:
        assert channels.reference_name(spelling) == name, spelling


@pytest.mark.parametrize(
    "name",
    [
        "EEG A2-A1",
        "EEG 23A-23R",
        "EEG 24A-24R",
        "EXG1",
        "Status",
        "Fp1-F7",
        "A1",
        "M2",
        "ECG",
        "EOG1",
        "E12",
        "Fpz-Cz",
        "Fp1-()",
        "",
    ],
)
def test_what_is_no_single_scalp_electrode_is_not_taken_for_one(name: str) -> None:
    assert channels.electrode(name) is None


def test_order_is_adftd_first_then_front_to_back_and_left_to_right() -> None:
    adftd = [channels.key(name) for name in channels.ADFTD_ORDER]
    others = [
        "AF3",
        "AFz",
        "AF4",
        "FC5",
        "FC1",
        "FCz",
        "FC2",
        "FC6",
        "TP9",
        "CP1",
        "CP2",
        "TP10",
        "PO3",
        "POz",
        "Oz",
        "Iz",
    ]
    assert channels.order(reversed(adftd + others)) == adftd + others


def test_display_keeps_the_recordings_own_generation_of_names() -> None:
    assert channels.display(["Fp1", "T7", "P7"], ["EEG FP1-LE", "EEG T3-LE", "EEG T5-LE"]) == ["Fp1", "T3", "T5"]
    assert channels.display(["Fp1", "T7"], ["Fp1", "T7"]) == ["Fp1", "T7"]
