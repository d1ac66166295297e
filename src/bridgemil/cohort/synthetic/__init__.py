"""A synthetic EEG cohort with known truth, written as a BIDS folder of real EDF files.

Every subject has a fingerprint that is independent of the class: how strong each band is and where, the alpha
frequency, individual sources; blinks and muscle activity are added. Variability between subjects and over time is about
that of the healthy controls of ``adftd-300s`` (benchmarks/people_spread.py), as recorded and with the average
reference. Patients differ from controls by *evidence*, which is written to each recording's events.tsv:

- ``state``: slowing (a theta rhythm appears, alpha fades) whose strength rises and falls in states of 5-20 s that cover
  30-60 % of a patient's windows and under 10 % of a control's;
- ``burst``: isolated sharp waves of under a second, many in patients and hardly any in controls;
- ``trait``: a background that is shifted throughout (slower and weaker alpha, more theta). No window is special: the
  events.tsv of a patient has one row over the whole recording, which marks no evidence window.

With three classes, the second patient class has slower (delta) evidence over the front of the head.
"""

from bridgemil.cohort.synthetic.dataset import has_evidence_windows, patients, synthesise, true_evidence
from bridgemil.cohort.synthetic.generator import CLASSES, Event, Person, SynthSettings, evidence_windows, simulate

__all__ = [
    "CLASSES", "Event", "Person", "SynthSettings", "evidence_windows", "has_evidence_windows", "patients", "simulate",
    "synthesise", "true_evidence",
]  # fmt: skip
