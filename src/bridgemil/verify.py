"""Compare everything in a cohort, a folder of runs, a bundle or a saved classifier with its checksums."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bridgemil.bundle import bundle as bundles
from bridgemil.cohort import folder as cohorts
from bridgemil.errors import BadData, BadUse, BridgeMILError, plain
from bridgemil.methods import Settings
from bridgemil.parallel import each
from bridgemil.runs import ADVICE, KINDS, PARTS, RunStore, find_store
from bridgemil.storage.artifact import MANIFEST, Artifact, regular_file
from bridgemil.storage.files import refuse_link

OWN_FILES = {"inspect.png"}  # what `bridgemil inspect` puts beside a cohort's files
FILES = {  # by which a folder is known
    "bundle": (bundles.METADATA, bundles.REFERENCE),
    "cohort": (cohorts.METADATA, cohorts.TABLE, cohorts.SUBJECTS),
    "classifier": ("estimator.json",),
    "runs": ("runs",),
}
# What is one artifact by itself, and may be renamed; and what to do if it is damaged.
WHOLE = {bundles.KIND: bundles.ADVICE, cohorts.KIND: cohorts.ADVICE, "classifier": "save it again"}
Place = tuple[Path, str, str]  # a folder that must be an artifact, its kind, and what to do if it is damaged


@dataclass
class VerificationReport:
    """What was compared, and what is wrong."""

    kind: str  # cohort, runs, bundle or classifier
    path: Path
    checked: int = 0  # artifacts that were compared
    findings: list[str] = field(default_factory=list)  # sentences that name what is wrong
    remarks: list[str] = field(default_factory=list)  # files that do not belong there
    is_empty: bool = False  # a folder of runs without a finished run, encoder or feature

    def to_dict(self) -> dict[str, Any]:
        """As ``--json`` prints it."""
        whole = not self.findings and not self.is_empty
        counts = {"kind": self.kind, "path": shown(str(self.path)), "checked": self.checked, "whole": whole}
        return counts | {"empty": self.is_empty, "findings": self.findings, "remarks": self.remarks}


def shown(name: str) -> str:
    """A file's name on one line, without characters that a terminal would interpret."""
    return plain(name).replace("\n", "\\n").replace("\t", "\\t")


def verify(path: str | Path, *, progress: bool = True) -> VerificationReport:
    """Compare every file of a cohort, a folder of runs, a bundle or a saved classifier with its checksum.

    Parameters
    ----------
    path : str or Path
        The folder (for runs also the folder of a study), or the name of a model in the package.
    progress : bool, default True
        Show a progress bar on standard error.

    Returns
    -------
    VerificationReport
        What was compared, and what differs.
    """
    folder = Path(path) if os.path.lexists(path) else bundles.locate(path)
    kind = kind_of(folder)
    folder = find_store(folder).root if kind == "runs" else folder
    report = VerificationReport(kind, folder)
    try:
        places = list(_places(folder, kind))
    except BridgeMILError as error:
        report.findings.append(str(error))
        return report
    for _, (findings, remarks) in each(_compare, places, jobs=1, label="verifying", show=progress):
        report.checked += 1
        report.findings += findings
        report.remarks += remarks
    if kind == "runs" and not {"run", "encoder", "features"} & {stored for _, stored, *_ in places}:
        report.is_empty = True
        report.remarks.append("runs: no finished run, encoder or feature is there: nothing could be compared")
    if kind == "bundle" and not report.findings:
        _load(folder, report)
    return report


def kind_of(folder: Path) -> str:
    """What a folder is, by the files in it."""
    for kind, names in FILES.items():
        if any(os.path.lexists(folder / name) for name in names):
            return kind
    raise BadUse(f"{folder}: is not a cohort, a folder of runs or a bundle (by the files in it); name one of these")


def _compare(place: Place) -> tuple[list[str], list[str]]:
    """What is wrong with an artifact, and which files do not belong to it."""
    folder, kind, advice = place
    try:
        artifact = Artifact.open(folder, kind, advice, named=kind not in WHOLE)
    except BadData as error:
        return [str(error)], []
    findings, remarks = artifact.verify(), []
    for name in artifact.strangers():
        try:
            regular_file(folder, name, advice)
        except BadData as error:
            findings.append(str(error))
        else:
            remarks += [] if name in OWN_FILES else [f"{shown(name)}: does not belong there"]
    return findings, remarks


def _places(folder: Path, kind: str) -> Iterator[Place]:
    """The artifacts of a cohort (its subjects'), a bundle, a classifier or a folder of runs."""
    if kind in WHOLE:
        yield folder, kind, WHOLE[kind]
    if kind == "cohort":
        with suppress(BadData):  # what is wrong with the cohort's own files is found there
            own = [folder / name for name in cohorts.open_cohort(folder).files if name.endswith(f"/{MANIFEST}")]
            yield from ((manifest.parent, cohorts.SUBJECT_KIND, cohorts.ADVICE) for manifest in own)
    if kind == "runs":
        refuse_link(*(folder / part for part in PARTS))
        store = RunStore(folder)
        store.failures()
        for part, stored in KINDS.items():
            for name in store.names(part):
                for inner in store.names(f"{part}/{name}") if part == "features" else [""]:
                    yield folder / part / name / inner, stored, ADVICE


def _load(folder: Path, report: VerificationReport) -> None:
    """Load a bundle; one with the user's own code is not, since looking at a folder must not run code."""
    try:
        settings = Settings.model_validate(bundles.open_bundle(folder).json(bundles.METADATA)["settings"])
        if not any(member.code for member in settings.each):
            bundles.load(folder)
    except ValueError:
        message = "has settings that this version does not know; use the version that wrote it"
        report.findings.append(f"{folder / bundles.METADATA}: {message}")
    except BridgeMILError as error:
        report.findings.append(str(error))
