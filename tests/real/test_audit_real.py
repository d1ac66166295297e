"""The audit of real recordings: artefacts and two sites are no leak, and a recording cleaned twice is one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bridgemil.audit import AuditInput, audit, same_signal
from bridgemil.cohort.prepare import prepare
from leaky import Signals, cleaned_again, made, with_artefacts

# The electrodes of the 10-20 system that are nearest to those of a 14-electrode consumer headset.
HEADSET = ("Fp1", "F7", "F3", "T3", "C3", "T5", "O1", "O2", "T6", "C4", "T4", "F4", "F8", "Fp2")


@pytest.fixture(scope="module")
def people(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Signals:
    """The first 120 s of 97 people of two sites, at 14 electrodes and 128 Hz."""
    found: Signals = {}
    for source, label in (("adftd-300s", "Group"), ("eegmat-rest", "sex")):
        out = tmp_path_factory.mktemp(source) / "cohort"
        cohort = prepare(shared / source, out, label=label, sfreq=128.0, progress=False)
        rows = [cohort.channels.index(name) for name in HEADSET]
        for subject in cohort.subjects:
            found[f"{source}-{subject}"] = np.concatenate(list(cohort.windows(subject)[:120]), axis=1)[rows]
    return dict(list(found.items())[-97:])


def test_real_recordings_with_electrode_pops_do_not_fail(people: Signals) -> None:
    noisy = with_artefacts(people, sfreq=128.0, pops=5)
    looked = audit(made(noisy, sfreq=128.0, n_times=128))
    assert looked.failed == []
    assert looked.named("same_signal")[0].status == "PASS"


def test_one_real_recording_cleaned_twice_is_found(people: Signals) -> None:
    first, second = list(people)[:2]
    noisy = with_artefacts(people, sfreq=128.0, pops=5)
    part = slice(40 * 128, 68 * 128)
    noisy[second][:, part] = cleaned_again(people[first], 128.0)[:, part]
    (finding,) = same_signal.check(AuditInput(made(noisy, sfreq=128.0, n_times=128)))
    assert finding.status == "FAIL"
    (copy,) = finding.numbers["copies"]
    assert {copy["first"], copy["second"]} == {first, second}
    assert abs(copy["offset"]) == pytest.approx(1.0, abs=0.02)
