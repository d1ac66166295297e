"""The demo's recordings: seconds 60 to 120 of the Alzheimer's and healthy people of `adftd-300s`, sample by sample.

python benchmarks/demo_recordings.py SOURCE            # writes them into the package
python benchmarks/demo_recordings.py SOURCE --check    # says whether those in the package are these
"""

from __future__ import annotations

import argparse
import csv
import json
import shutil
import sys
from pathlib import Path

import edfio
import numpy as np

FOLDER = Path(__file__).parents[1] / "src" / "bridgemil" / "recordings" / "adftd-60s"
GROUPS, SECONDS = ("A", "C"), (60, 120)
ABOUT = {
    "Name": "ADFTD (OpenNeuro ds004504), cleaned derivative, seconds 60-120 of 36 people with Alzheimer's disease and "
    "29 healthy ones, 95 Hz, 16-bit EDF",
    "BIDSVersion": "1.8.0",
    "DatasetType": "raw",
    "License": "CC0",
    "SourceDatasets": [{"DOI": "doi:10.18112/openneuro.ds004504.v1.0.8"}],
    "ReferencesAndLinks": ["Miltiadous et al. 2023, Data 8(6):95, doi:10.3390/data8060095"],
}


def people(source: Path) -> list[dict[str, str]]:
    """The rows of participants.tsv that the demo takes."""
    with (source / "participants.tsv").open(encoding="utf-8", newline="") as stream:
        return [row for row in csv.DictReader(stream, delimiter="\t") if row["Group"] in GROUPS]


def file_of(root: Path, subject: str) -> Path:
    return root / subject / "eeg" / f"{subject}_task-eyesclosed_eeg.edf"


def excerpt(source: Path, subject: str) -> edfio.Edf:
    edf = edfio.read_edf(file_of(source, subject))
    edf.slice_between_seconds(*SECONDS)
    return edf


def write(source: Path) -> None:
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    rows = people(source)
    with (FOLDER / "participants.tsv").open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]), delimiter="\t", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    (FOLDER / "dataset_description.json").write_text(json.dumps(ABOUT, indent=1) + "\n")
    for row in rows:
        file = file_of(FOLDER, row["participant_id"])
        file.parent.mkdir(parents=True)
        excerpt(source, row["participant_id"]).write(file)
        shutil.copy(file_of(source, row["participant_id"]).with_suffix(".json"), file.with_suffix(".json"))


def check(source: Path) -> int:
    """How many recordings of the package are the source's, sample by sample; stops at one that is not."""
    rows = people(source)
    for row in rows:
        ours, theirs = edfio.read_edf(file_of(FOLDER, row["participant_id"])), excerpt(source, row["participant_id"])
        for mine, other in zip(ours.signals, theirs.signals, strict=True):
            if mine.label != other.label or not np.array_equal(mine.digital, other.digital):
                sys.exit(f"{row['participant_id']}, {other.label}: not as in the source")
    return len(rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    if not arguments.check:
        write(arguments.source)
    print(f"{check(arguments.source)} recordings, each sample as in the source")
