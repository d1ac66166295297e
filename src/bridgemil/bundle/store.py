"""A bundle on disk: a trained, calibrated model with everything needed to use it on a new recording, and its card.

    bundle.json             what it is: classes, signal, preparation, calibration, performance, provenance; hashes
    card.md                 the same for people
    reference.safetensors   statistics of the training subjects; no subject's own data
    model/                  the fitted model (see ``bridgemil.models``), of an ensemble with a folder a member

Nothing in it executes. Every file is checked against its hash before anything is built from it; a file that is missing,
changed, cut short or not listed is refused. The hashes show damage and meddling by mistake: who wants to deceive can
write a new bundle, so take bundles from people you trust.
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
from bridgemil.disk import new_folder, refuse_link, write_json
from bridgemil.errors import BadData, BadUse, BridgeMILError
from bridgemil.evaluation import calibration
from bridgemil.evaluation.calibration import Calibration
from bridgemil.runs import AuditWarning
from bridgemil.stored import StoredFolder, file_hash
from bridgemil.stored.hashes import content_hash

FORMAT = 2
KIND = "bridgemil bundle"
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
    """

    model: models.Model
    calibration: Calibration
    reference: Reference
    about: Mapping[str, Any]
    card: str
    folder: Path | None = None

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
        return f"{self.name} {str(self.about.get('sha256', ''))[:12]}".strip()

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
            with new_folder(folder) as partial:
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

        from bridgemil.learning import checkpoint

        self.model.save(folder / MODEL)
        arrays = {name: torch.from_numpy(np.array(values)) for name, values in self.reference.tensors().items()}
        checkpoint.write(folder / REFERENCE, arrays, {})
        (folder / CARD).write_text(self.card, encoding="utf-8")
        facts = self.model.facts.for_json()
        content = {
            "kind": KIND, "format": FORMAT, "notice": NOTICE, **self.about,
            **{key: facts[key] for key in ("settings", "classes", "signal", "preparation", "seed", "versions")},
            "reference": {"bands": {name: list(band) for name, band in self.reference.bands.items()}},
            "files": {name: file_hash(folder / name) for name in _inside(folder)},
        }  # fmt: skip
        content.pop("sha256", None)
        write_json(folder / ABOUT, content | {"sha256": content_hash(content)})


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
    from bridgemil.learning import checkpoint

    folder = locate(folder)
    about = read_about(folder)
    check_files(folder, about["files"])
    tensors, _ = checkpoint.read(folder / REFERENCE, ADVICE)
    try:
        bands, decision = about["reference"]["bands"], calibration.from_json(about["calibration"])
        reference = Reference.from_tensors({name: value.numpy() for name, value in tensors.items()}, bands)
    except BridgeMILError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, IndexError):
        raise StoredFolder(folder, ADVICE).bad(ABOUT, "lacks a reference or calibration that can be read") from None
    model = models.load(folder / MODEL, backbone=backbone, device=device)
    if list(model.facts.classes) != about.get("classes") or model.facts.signal.for_json() != about.get("signal"):
        raise BadData(f"{folder}: bundle.json and the model in it do not belong together")
    card = (folder / CARD).read_text("utf-8")
    return Bundle(model, decision, reference, about, card, folder)


def read_about(folder: Path) -> dict[str, Any]:
    """The content of bundle.json, which must be whole and unchanged."""
    file = folder / ABOUT
    stored = StoredFolder(folder, ADVICE)
    if not stored.has(ABOUT):
        raise BadData(f"{folder}: no bundle there (no {ABOUT}); make one with `bridgemil train COHORT --out MODEL`")
    about = stored.json(ABOUT)
    try:
        kind, form, stated, files = about["kind"], about["format"], about["sha256"], about["files"]
    except KeyError as error:
        raise stored.bad(ABOUT, f"is damaged, or no bundle's (no {error})") from None
    if kind != KIND:
        raise BadData(f"{file}: is of another program, not a {KIND}")
    if form != FORMAT:
        which = f"{form}" if isinstance(form, int) else "unknown"
        raise BadData(f"{file}: bundle format {which}, this version reads {FORMAT}; use the version that wrote it")
    if stated != content_hash({key: value for key, value in about.items() if key != "sha256"}):
        raise BadData(f"{file}: was changed after the bundle was written; get the bundle again")
    if not isinstance(files, dict) or not {CARD, REFERENCE, f"{MODEL}/{models.model.ABOUT}"} <= set(files):
        raise BadData(f"{file}: does not list its files; it is no whole bundle")
    return about


def check_files(folder: Path, files: Mapping[str, str]) -> None:
    """Refuse a bundle of which a file is missing, changed, not listed or no regular file.

    Parameters
    ----------
    folder
        Where it is.
    files
        By name, the hash of each, as bundle.json states them.
    """
    present = _inside(folder)
    missing, foreign = sorted(set(files) - set(present)), sorted(set(present) - set(files) - {ABOUT})
    if missing:
        raise BadData(f"{folder}: {', '.join(missing)} is missing; get the bundle again")
    if foreign:
        raise BadData(f"{folder}: {', '.join(foreign)} is not a part of the bundle; take it out, or get it again")
    stored = StoredFolder(folder, ADVICE)
    for name in files:
        stored.file(name)
    changed = [name for name, stated in files.items() if file_hash(folder / name) != stated]
    if changed:
        raise BadData(
            f"{folder}: {', '.join(changed)} was changed or cut short since the bundle was written; get it again"
        )


def _inside(folder: Path) -> list[str]:
    """Its files by name, but for hidden ones that file browsers leave."""
    files = (file.relative_to(folder) for file in folder.rglob("*") if file.is_symlink() or not file.is_dir())
    return sorted(file.as_posix() for file in files if not file.name.startswith("."))
