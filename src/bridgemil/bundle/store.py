"""A bundle on disk: a trained, calibrated model with everything needed to use it on a new recording, and its card.

    bundle.json             classes, signal, preparation, calibration, performance, provenance
    card.md                 the same for people
    reference.safetensors   statistics of the training subjects, without anybody's own data
    model/                  the fitted model (see ``bridgemil.models``); of an ensemble one folder per member
    manifest.json           checksums (see ``bridgemil.storage.artifact``)

Nothing in it executes. Every file is compared with its checksum before anything is built from it; a file that is
missing, changed, cut short or not listed is refused. Take bundles from people you trust: checksums find damage, not
fraud.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bridgemil import models
from bridgemil.bundle.reference import Reference
from bridgemil.bundle.shipped import locate
from bridgemil.cohort.signal import Signal
from bridgemil.errors import BadData, BadUse, BridgeMILError
from bridgemil.evaluation import calibration
from bridgemil.evaluation.calibration import Calibration
from bridgemil.runs import AuditWarning
from bridgemil.storage.artifact import Artifact, is_artifact, new_artifact
from bridgemil.storage.files import refuse_link, write_json, write_text

KIND = "bundle"
ABOUT, CARD, REFERENCE, MODEL = "bundle.json", "card.md", "reference.safetensors", "model"
ADVICE = "get the bundle again"
NOTICE = "Research use only: not a medical device, and no basis for a decision about a person."


@dataclass(frozen=True)
class Bundle:
    """A trained model ready for new recordings.

    Parameters
    ----------
    model
        The fitted model.
    calibration
        What its probabilities go through.
    reference
        Statistics of the training subjects.
    about
        ``name``, ``warnings``, ``performance``, ``calibration``, ``provenance`` and more, as ``bundle.json`` holds
        them.
    card
        The model card, Markdown.
    folder
        Where it was read from or written to.
    checksum
        Of everything in the folder: which model it is.
    """

    model: models.Model
    calibration: Calibration
    reference: Reference
    about: Mapping[str, Any]
    card: str
    folder: Path | None = None
    checksum: str = ""

    @property
    def classes(self) -> tuple[str, ...]:
        """The diagnoses it tells apart, K."""
        return self.model.facts.classes

    @property
    def signal(self) -> Signal:
        """The windows it takes."""
        return self.model.facts.signal

    @property
    def name(self) -> str:
        """What it is called."""
        return str(self.about["name"])

    @property
    def warnings(self) -> list[AuditWarning]:
        """The audit warnings of the cohort it was trained on."""
        return list(self.about.get("warnings", ()))

    @property
    def title(self) -> str:
        """Name and hash: which model said something."""
        return f"{self.name} {self.checksum[:12]}".strip()

    def probabilities(self, bag: NDArray[np.float32]) -> NDArray[np.float64]:
        """Calibrated probabilities of one person, K.

        Parameters
        ----------
        bag : shape (n_windows, n_channels, n_times)
            In microvolts, prepared as the training cohort was.
        """
        return self.calibration(self.model.predict(bag).probabilities)

    def save(self, folder: str | Path, *, overwrite: bool = False) -> Bundle:
        """Write the bundle in one step; returns it as it stands there.

        Parameters
        ----------
        folder
            Where to. Another bundle there is replaced only with ``overwrite``, anything else never.
        overwrite
            Replace a bundle.
        """
        folder = Path(folder)
        refuse_taken(folder, overwrite)
        try:
            with new_artifact(folder.absolute(), KIND) as partial:
                self._fill(partial)
        except OSError as error:
            words = f"{folder}: cannot be written ({error.strerror}); make room, or choose another --out"
            raise BridgeMILError(words) from None
        return load(folder, backbone=self.model.facts.settings.backbone if self._has_user_code else None)

    @property
    def _has_user_code(self) -> bool:
        return any(member.code is not None for member in self.model.facts.settings.each)

    def _fill(self, folder: Path) -> None:
        import torch

        from bridgemil.learning.checkpoint import write_tensors

        self.model.write(folder / MODEL)
        arrays = {name: torch.from_numpy(np.array(values)) for name, values in self.reference.tensors().items()}
        write_tensors(folder / REFERENCE, arrays)
        write_text(folder / CARD, self.card)
        facts = self.model.facts.for_json()
        content = {
            "notice": NOTICE, **self.about,
            **{key: facts[key] for key in ("settings", "classes", "signal", "preparation", "seed", "versions")},
            "reference": {"bands": {name: list(band) for name, band in self.reference.bands.items()}},
        }  # fmt: skip
        write_json(folder / ABOUT, content)


def refuse_taken(folder: Path, overwrite: bool) -> None:
    """Refuse a place that holds something else: what lies there may be all a user has."""
    refuse_link(folder)
    if not folder.exists():
        return
    if not folder.is_dir() or (any(folder.iterdir()) and not (folder / ABOUT).is_file()):
        raise BadUse(f"{folder}: exists and is no bundle; choose another --out")
    if any(folder.iterdir()) and not overwrite:
        raise BadUse(f"{folder}: holds a bundle already; choose another --out, or --overwrite")


def load(folder: str | Path, *, backbone: str | None = None, device: str = "cpu") -> Bundle:
    """Read a bundle; every file is checked first.

    Parameters
    ----------
    folder
        Where it is, or the name of a model that comes with the package.
    backbone
        Needed if it was trained with your own code: the same address again. A folder never makes code run by itself.
    device
        Where to predict.
    """
    from bridgemil.learning.checkpoint import read_tensors

    folder = locate(folder)
    artifact = open_bundle(folder)
    about, strangers = artifact.json(ABOUT), artifact.strangers()
    if strangers:
        raise BadData(f"{folder}: {', '.join(strangers)} is not part of the bundle; remove it, or {ADVICE}")
    tensors = read_tensors(artifact.path(REFERENCE))
    numbers = {name: value.numpy() for name, value in tensors.items()}
    return Bundle(
        models.read_model(artifact, f"{MODEL}/", backbone=backbone, device=device),
        calibration.from_json(about["calibration"]),
        Reference.from_tensors(numbers, about["reference"]["bands"]),
        about,
        artifact.text(CARD),
        folder,
        artifact.checksum,
    )


def open_bundle(folder: Path) -> Artifact:
    """The artifact of a bundle, its manifest checked."""
    if not is_artifact(folder):
        raise BadData(f"{folder}: no bundle there; make one with `bridgemil train COHORT --out MODEL`")
    return Artifact.open(folder, KIND, ADVICE)
