"""A synthetic EEG cohort with known truth, written as a BIDS folder of real EDF files.

Every person has a fingerprint that has nothing to do with the class: how strong each band is and where, the alpha
frequency, sources of their own; blinks and muscles leave traces. In version 2, the default, people differ from each
other and from moment to moment about as much as the healthy controls of ``adftd-300s`` do
(benchmarks/people_spread.py), as recorded and to the average reference; version 1 gives the cohorts of before. What
tells patients from controls is *evidence*, written to each recording's events.tsv:

- ``state``: slowing (a theta rhythm comes, alpha fades) whose strength rises and falls in states of 5-20 s that cover
  30-60 % of a patient's windows and under 10 % of a control's;
- ``burst``: isolated sharp waves of under a second, many in patients and hardly any in controls;
- ``trait``: a background that is shifted everywhere (slower and weaker alpha, more theta). No window is special: the
  events.tsv of a patient has one row over the whole recording, which is no evidence to find.

With three classes, the second kind of patient has slower (delta) evidence over the front of the head.

The strengths of the evidence were accepted on the numbers of benchmarks/synthetic_acceptance.py over five seeds and
frozen before any learning method of this package was run on them.
"""

from bridgemil.cohort.synthetic.folder import synthesise
from bridgemil.cohort.synthetic.people import simulate
from bridgemil.cohort.synthetic.scenario import CLASSES, SynthSettings
from bridgemil.cohort.synthetic.truth import (
    Event,
    Person,
    evidence_windows,
    has_evidence_windows,
    patients,
    true_evidence,
)

__all__ = [
    "CLASSES",
    "Event",
    "Person",
    "SynthSettings",
    "evidence_windows",
    "has_evidence_windows",
    "patients",
    "simulate",
    "synthesise",
    "true_evidence",
]
