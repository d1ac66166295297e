"""One simulated person, by the version of the generator that the settings name."""

from __future__ import annotations

from bridgemil.cohort.synthetic import version1, version2
from bridgemil.cohort.synthetic.scenario import CLASSES, SynthSettings
from bridgemil.cohort.synthetic.truth import Person, evidence_windows

VERSIONS = {1: version1.record, 2: version2.record}


def simulate(settings: SynthSettings, index: int) -> Person:
    """Simulate one person; depends on the settings and the index only.

    Parameters
    ----------
    settings
        What to simulate.
    index
        The person's number, from 0; people are dealt to the classes in turn.
    """
    label = CLASSES[index % settings.classes]
    signal, events = VERSIONS[settings.version](settings, index, label)
    events = sorted(events)
    return Person(f"sub-{index + 1:03d}", label, signal, events, evidence_windows(events, settings.seconds))
