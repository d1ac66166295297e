"""A bundle on disk: a trained, calibrated model with everything needed to use it on a new recording, and its card.

    bundle.json             classes, signal, preparation, calibration, performance, provenance
    card.md                 the same as text
    reference.safetensors   statistics of the training subjects and hashes of their signals, without data of any one
    model/                  the fitted model (see ``bridgemil.models``); of an ensemble one folder per member
    manifest.json           checksums (see ``bridgemil.storage.artifact``)

Nothing in it executes. Every file is compared with its checksum before anything is built from it; a file that is
missing, changed, truncated or not listed is refused. Use bundles from sources you trust: checksums find damage, not
fraud.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bridgemil import plots
from bridgemil.bundle.conformal import PredictionSets
from bridgemil.bundle.novelty import Reference, TrainingSignals
from bridgemil.cohort.signal import Signal
from bridgemil.cohort.tables import control_classes
from bridgemil.errors import BadData, BadUse, BridgeMILError, NotFound
from bridgemil.evaluation import calibration
from bridgemil.evaluation.calibration import Calibration
from bridgemil.evaluation.clinical import positive_class
from bridgemil.models import BaselineModel, Features, Model, read_model
from bridgemil.report.window_values import leaves
from bridgemil.runs import AuditWarning, warning_text
from bridgemil.storage.artifact import Artifact, digest, new_artifact
from bridgemil.storage.files import refuse_link, write_json, write_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

KIND = "bundle"
METADATA, CARD, REFERENCE, MODEL = "bundle.json", "card.md", "reference.safetensors", "model"
SHIPPED = ("alzheimer",)  # models of the package: folders of src/bridgemil/bundles
ADVICE = "get the bundle again, or make one with `bridgemil train COHORT --out MODEL`"
NOTICE = "Research use only: not a medical device, and no basis for a decision about a person."


@dataclass(frozen=True)
class Bundle:
    """A trained model ready for new recordings."""

    model: Model
    calibration: Calibration  # applied to its probabilities
    sets: PredictionSets
    reference: Reference  # statistics of the training subjects
    signals: TrainingSignals  # hashes of their signals
    metadata: Mapping[str, Any]  # the content of ``bundle.json``: name, warnings, performance, provenance and more
    card: str = ""  # Markdown, as it was read
    folder: Path | None = None  # where it was read from
    checksum: str = ""  # of everything in the folder: identifies the model

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of its K classes."""
        return self.model.facts.classes

    @property
    def signal(self) -> Signal:
        """The windows it takes."""
        return self.model.facts.signal

    @property
    def name(self) -> str:
        """The model's name."""
        return str(self.metadata["name"])

    @property
    def warnings(self) -> list[AuditWarning]:
        """The audit warnings of the cohort it was trained on."""
        return list(self.metadata.get("warnings", ()))

    @property
    def title(self) -> str:
        """Name and the first digits of the checksum."""
        return f"{self.name} {self.checksum[:12]}".strip()

    def probabilities(self, bag: NDArray[np.float32]) -> NDArray[np.float64]:
        """Calibrated class probabilities of one subject.

        Parameters
        ----------
        bag : ndarray of shape (n_windows, n_channels, n_times)
            In microvolts, prepared as the training cohort was.

        Returns
        -------
        ndarray of shape (K,)
        """
        return self.calibration(self.model.predict(bag).probabilities)

    def plot_patterns(
        self,
        bags: Sequence[NDArray[np.float32]] | None = None,
        class_name: str | None = None,
        quantity: str | None = None,
        axes: Sequence[Axes] | None = None,
    ) -> list[Axes]:
        """Scalp maps of the model's activation patterns over its training subjects (Haufe et al., 2014), one per band.

        Parameters
        ----------
        bags : sequence of ndarray of shape (n_windows, n_channels, n_times), optional
            Prepared windows at which the weights of networks are evaluated; without them, the maps are those of the
            model's linear members.
        class_name : str, optional
            By default the patient class of two.
        quantity : {"own", "coupling", "power"}, optional
            Log-variance, covariance with other electrodes, or log relative band power; by default the first that the
            model has.
        axes : sequence of matplotlib.axes.Axes, optional
            One per band; new ones by default.

        Returns
        -------
        list of matplotlib.axes.Axes
        """
        from bridgemil.report.explanation import plot_patterns

        return plot_patterns(self.model, bags, self.background, class_name, quantity, axes)

    @property
    def background(self) -> NDArray[np.float64] | None:
        """Features with the mean and the covariance of the training subjects', over which patterns are computed."""
        rows = self.reference.covariance_rows
        return np.concatenate([rows, -rows]).astype(np.float64) if len(rows) else None  # their mean is zero

    def _repr_html_(self) -> str:
        """Name, classes, performance on held-out subjects and warnings, for notebooks."""
        import pandas as pd

        from bridgemil.bundle.prediction import describe

        found, notes = self.metadata["performance"], describe(self)["cautions"]
        names = {"accuracy": "accuracy", "balanced_accuracy": "balanced accuracy", "auroc": "AUROC"}
        values = [f"{found[name]['value']:.3f}" for name in names]
        ends = ["{:.3f} to {:.3f}".format(*found[name]["ci95"]) for name in names]
        table = pd.DataFrame({f"{found['n_subjects']} held-out subjects": names.values(), "": values, "95 %": ends})
        notes = [*notes, *map(warning_text, self.warnings)]
        return plots.html(f"{self.title}: {', '.join(self.classes)}", table, notes)

    @property
    def not_adaptable(self) -> str:
        """Why it cannot be adapted to another site; empty if it can."""
        for leaf in leaves(self.model):
            title, harmonisation = leaf.facts.settings.title, leaf.harmonisation
            if leaf.features is None:
                return (
                    f"{title} learns from the raw signal and has no fixed features that could be mapped; bandpower, "
                    "tangent and networks on covariance can be adapted"
                )
            if harmonisation is not None and harmonisation.covariates is not None:
                return f"{title} is adjusted for {', '.join(harmonisation.covariates.codes)}, which no recording states"
            if population_name(leaf) not in self.reference.populations:
                return "the bundle keeps no statistics of its training controls; train it again"
        return ""

    def save(self, folder: str | Path, *, overwrite: bool = False) -> Bundle:
        """Write the bundle atomically, and read it back.

        Another bundle there is replaced only with ``overwrite``, anything else never.
        """
        folder = Path(folder)
        refuse_taken(folder, overwrite)
        try:
            with new_artifact(folder.absolute(), KIND) as partial:
                self._write(partial)
        except OSError as error:
            problem = f"{folder}: cannot be written ({error.strerror}); make room, or choose another --out"
            raise BridgeMILError(problem) from None
        settings = self.model.facts.settings
        own_code = any(member.code is not None for member in settings.each)
        return load(folder, backbone=settings.backbone if own_code else None)

    def _write(self, folder: Path) -> None:
        import torch

        from bridgemil.bundle.page import write_card
        from bridgemil.learning.checkpoint import write_tensors

        self.model.write(folder / MODEL)
        tensors = self.reference.tensors() | self.signals.tensors()
        arrays = {name: torch.from_numpy(np.array(values)) for name, values in tensors.items()}
        write_tensors(folder / REFERENCE, arrays)
        facts = self.model.facts.for_json()
        write_text(folder / CARD, write_card(self.metadata, facts))
        content = {
            "notice": NOTICE, **self.metadata,
            "calibration": {**self.metadata["calibration"], **self.calibration.for_json()},
            "prediction_sets": {**self.metadata["prediction_sets"], **self.sets.for_json()},
            **{key: facts[key] for key in ("settings", "classes", "signal", "preparation", "seed", "versions")},
            "reference": {"bands": {name: list(band) for name, band in self.reference.bands.items()},
                          "windows": self.reference.reference},
        }  # fmt: skip
        write_json(folder / METADATA, content)


def refuse_taken(folder: Path, overwrite: bool) -> None:
    """Refuse a folder that holds anything but a bundle that may be replaced."""
    refuse_link(folder)
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    if not (folder / METADATA).is_file():
        raise BadUse(f"{folder}: exists and is no bundle; choose another --out")
    if not overwrite:
        raise BadUse(f"{folder}: holds a bundle already; choose another --out, or --overwrite")


def locate(model: str | Path) -> Path:
    """The folder of a model: an existing folder, or else a model of the package by its name."""
    path = Path(model)
    if path.exists():
        return path
    if str(model) in SHIPPED:
        return Path(str(files("bridgemil").joinpath("bundles", str(model))))
    raise NotFound(
        f"{model}: no such folder, and no model of the package ({', '.join(SHIPPED)}); make one with "
        "`bridgemil train COHORT --out MODEL`"
    )


def load(folder: str | Path, *, backbone: str | None = None, device: str = "cpu") -> Bundle:
    """Read a bundle; every file is compared with its checksum first.

    Parameters
    ----------
    folder : str or Path
        Its folder, or the name of a model in the package.
    backbone : str, optional
        The address ``file.py:NAME`` of the user-defined backbone, if it was trained with one. A bundle contains no
        code.
    device : str, default "cpu"
        Where to predict.

    Returns
    -------
    Bundle
    """
    from bridgemil.learning.checkpoint import read_tensors

    folder = locate(folder)
    artifact = open_bundle(folder)
    metadata = artifact.json(METADATA)
    if strangers := artifact.strangers():
        raise BadData(f"{folder}: {', '.join(strangers)} is not part of the bundle; remove it, or {ADVICE}")
    arrays = {name: value.numpy() for name, value in read_tensors(artifact.path(REFERENCE)).items()}
    return Bundle(
        read_model(artifact, f"{MODEL}/", backbone=backbone, device=device),
        calibration.from_json(metadata["calibration"]),
        PredictionSets.from_json(metadata["prediction_sets"]),
        Reference.from_tensors(arrays, metadata["reference"]),
        TrainingSignals(arrays["signals.subjects"], arrays["signals.windows"]),
        metadata,
        artifact.path(CARD).read_text("utf-8"),
        folder,
        artifact.checksum,
    )


def open_bundle(folder: Path) -> Artifact:
    """The artifact of a bundle, its manifest checked."""
    return Artifact.open(folder, KIND, ADVICE)


def control_class(classes: Sequence[str], positive: str | None = None) -> str | None:
    """The class of the controls: of two the one that is not positive; of more, the one named as controls, if any."""
    if len(classes) == 2:
        return next(name for name in classes if name != positive_class(classes, positive)[0])
    named = control_classes(classes)
    return named[0] if len(named) == 1 else None


def population_name(model: Model) -> str:
    """Equal for members of an ensemble whose subjects have the same mean features; the site "" does not count."""
    named, own = model.features, dict[str, Any]()
    if isinstance(model, BaselineModel) and model.baseline.front_end is not None:
        named = Features.of_front_end(model.baseline.front_end)
    assert named is not None
    if model.harmonisation is not None:
        tensors = model.harmonisation.tensors().items()
        own = {name: values.tolist() for name, values in tensors if not name.endswith(".")}
    return digest([named.key, own])[:16]


def by_population(model: Model) -> dict[str, Model]:
    """One member for every population of features, by its name."""
    found: dict[str, Model] = {}
    for leaf in leaves(model):
        if leaf.features is not None:
            found.setdefault(population_name(leaf), leaf)
    return found


def not_better_than_chance(performance: Mapping[str, Any]) -> str | None:
    """A caution if cross-validation does not show a performance above chance (of a bundle's metadata), else None."""
    low, chance = performance["balanced_accuracy"]["ci95"][0], 1 / len(performance["confusion"]["classes"])
    p = performance["p_guessing"]
    if low > chance and p < 0.025:
        return None
    return (
        f"not shown to be better than chance: balanced accuracy {performance['balanced_accuracy']['value']:.2f} on "
        f"{performance['n_subjects']} held-out subjects (lower limit of the 95 % interval {low:.2f}, chance level "
        f"{chance:.2f}, permutation p = {p:.3f})"
    )
