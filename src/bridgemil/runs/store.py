"""A folder of runs: where things are in it, and reading them back."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from bridgemil.cohort.folds import FoldPlan
from bridgemil.errors import BadData, BridgeMILError, BridgeMILWarning
from bridgemil.methods import Settings, digest
from bridgemil.models import Model, build_encoder, read_model
from bridgemil.runs.identity import IDENTITY
from bridgemil.runs.warnings import AuditWarning, merged
from bridgemil.storage.artifact import MANIFEST, Artifact, new_artifact
from bridgemil.storage.files import lock, refuse_link, write_json

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor, nn

    from bridgemil.cohort.signal import Signal

PARTS = ("runs", "stage1", "features", "splits", "ensembles", "audits", "unfinished", "failed")
KINDS = {  # what the artifacts in each part are
    "runs": "run", "stage1": "encoder", "features": "features", "splits": "split", "ensembles": "ensemble",
    "audits": "audit",
}  # fmt: skip
METADATA = "run.json"
WEIGHTS, NOTE = "encoder.safetensors", "encoder.json"
RECORD = "record.json"
ADVICE = "delete the folder it lies in and run again"


@dataclass(frozen=True)
class RunStore:
    """A folder of runs."""

    root: Path

    @property
    def unfinished(self) -> Path:
        """Where checkpoints and folders being written are; made if it is not there."""
        return self._made("unfinished")

    def run(self, identity: str) -> Path:
        """Where a finished run is."""
        return self.root / "runs" / identity

    def stage1(self, identity: str) -> Path:
        """Where a finished Stage 1 encoder is."""
        return self.root / "stage1" / identity

    def is_done(self, identity: str) -> bool:
        """Whether the run is finished."""
        return (self.run(identity) / MANIFEST).is_file()

    def finished(self) -> set[str]:
        """The identities of all finished runs: a run's folder is there only when it is complete."""
        return {name for name in self.names("runs") if IDENTITY.fullmatch(name)}

    def checkpoint(self, identity: str) -> Path:
        """Where an unfinished loop keeps its state."""
        return self.unfinished / f"{identity}.safetensors"

    @contextmanager
    def lock(self, identity: str) -> Iterator[None]:
        """Wait until nobody else works on this run or encoder; a dead owner holds nothing."""

        def told() -> None:
            message = f"{self.root}: another process is doing {identity}; waiting for it"
            warnings.warn(message, BridgeMILWarning, stacklevel=5)

        with lock(self.lock_file(identity), told=told):
            yield

    def lock_file(self, name: str) -> Path:
        """The lock of a run, an encoder or another piece of work; the empty files stay, out of sight."""
        return self._made(".locks") / f"{name}.lock"

    @contextmanager
    def writing(self, part: str, identity: str) -> Iterator[Path]:
        """The folder of a run or encoder to fill; it takes its place when it is complete, and its checkpoint goes."""
        refuse_link(self.root / part)
        final = self.root / part / identity
        with new_artifact(final, KINDS[part], self.unfinished / f"{identity}.folder") as folder:
            yield folder
        self.checkpoint(identity).unlink(missing_ok=True)

    def artifact(self, part: str, name: str) -> Artifact:
        """One of the artifacts in a part of the folder, its manifest checked."""
        refuse_link(self.root / part, self.root / part / name)
        return Artifact.open(self.root / part / name, KINDS[part], ADVICE, named=True)

    def about(self, identity: str) -> dict[str, Any]:
        """What run.json says."""
        return self.artifact("runs", identity).json(METADATA)

    def predictions(self, identity: str) -> pd.DataFrame:
        """The held-out predictions of a run: seed, fold, subject, label, predicted, p_<class>…"""
        return self.artifact("runs", identity).frame("predictions.parquet")

    def curves(self, identity: str) -> pd.DataFrame:
        """One row per epoch of either stage; empty for a baseline."""
        return self._table(identity, "curves.parquet")

    def windows(self, identity: str) -> pd.DataFrame:
        """One row per window of the test subjects: subject, window, second, and gate, contributions or probabilities.

        Empty for a baseline, which does not look at windows one by one.
        """
        return self._table(identity, "windows.parquet")

    def _table(self, identity: str, name: str) -> pd.DataFrame:
        import pandas as pd

        artifact = self.artifact("runs", identity)
        return artifact.frame(name) if name in artifact.files else pd.DataFrame()

    def model(self, identity: str, **how: Any) -> Model:
        """The fitted model of a run; ``how`` as for ``bridgemil.models.load``."""
        return read_model(self.artifact("runs", identity), **how)

    def model_facts(self, identity: str) -> dict[str, Any]:
        """What model.json says."""
        return self.artifact("runs", identity).json("model.json")

    def encoder_tensors(self, identity: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The weights of a Stage 1 encoder, and its metadata: seconds, curve, training subjects."""
        from bridgemil.learning.checkpoint import read_tensors

        artifact, metadata = self.artifact("stage1", identity), self.encoder_metadata(identity)
        return read_tensors(artifact.path(WEIGHTS)), metadata

    def encoder_metadata(self, identity: str) -> dict[str, Any]:
        """What is known of a Stage 1 encoder beside its weights."""
        artifact = self.artifact("stage1", identity)
        artifact.path(WEIGHTS)
        return artifact.json(NOTE)

    def encoder(self, identity: str, settings: Settings, signal: Signal) -> nn.Module:
        """The Stage 1 encoder of this identity; ``settings`` and ``signal`` are those of a run that started from it."""
        return build_encoder(self.encoder_tensors(identity)[0], settings, signal)

    def features(self, key: str, signal_hash: str) -> Path:
        """Where the features of one subject are, computed or not."""
        return self.root / "features" / digest(key)[:24] / signal_hash[:32]

    def note_split(self, cohort_hash: str, plan: FoldPlan, found: Sequence[AuditWarning] = ()) -> None:
        """Record a split that runs here follow, so that a report can tell which runs belong together.

        Parameters
        ----------
        cohort_hash, plan
            What is split, and how.
        found
            Audit warnings of this cohort and split. They stay, and are those of every result on it, also of runs that
            were finished before the warning was known or the risk accepted.
        """
        name = _split_name(cohort_hash, plan.hash)
        before = self.warnings(cohort_hash, plan.hash)
        if name in self.names("splits") and merged(before, found) == before:
            return
        with lock(self.lock_file(name)):  # two calls at once may each find something
            every = merged(self.warnings(cohort_hash, plan.hash), found)
            self._note("splits", name, plan.for_json() | {"cohort": cohort_hash, "warnings": every})

    def warnings(self, cohort_hash: str, split_hash: str) -> list[AuditWarning]:
        """The audit warnings of a cohort and split; none where the split was not recorded."""
        name = _split_name(cohort_hash, split_hash)
        return list(self.record("splits", name)["warnings"]) if name in self.names("splits") else []

    def splits(self) -> list[tuple[str, FoldPlan]]:
        """The splits that were planned here, each with its cohort's hash."""
        records = [self.record("splits", name) for name in self.names("splits")]
        return [(str(record["cohort"]), FoldPlan.from_json(record)) for record in records]

    def note_ensemble(self, settings: Settings) -> None:
        """Record an ensemble whose members are run here, so that a report can show it."""
        if settings.hash[:24] not in self.names("ensembles"):
            self._note("ensembles", settings.hash[:24], settings.model_dump(mode="json"))

    def ensembles(self) -> list[Settings]:
        """The ensembles that were planned here."""
        found = []
        for name in self.names("ensembles"):
            try:
                found.append(Settings.model_validate(self.record("ensembles", name)))
            except ValidationError:
                place = self.root / "ensembles" / name
                raise BadData(f"{place}: is no ensemble of this version's methods; delete it and run again") from None
        return found

    def note_audit(self, name: str, cohort_hash: str, findings: list[dict[str, Any]]) -> None:
        """Keep the quick audit of a cohort, unless it is there."""
        if name not in self.names("audits"):
            self._note("audits", name, {"cohort": cohort_hash, "findings": findings})

    def audit(self, name: str) -> list[dict[str, Any]]:
        """The findings of one of the audits."""
        findings: list[dict[str, Any]] = self.record("audits", name)["findings"]
        return findings

    def record(self, part: str, name: str) -> dict[str, Any]:
        """The content of a split, ensemble or audit."""
        return self.artifact(part, name).json(RECORD)

    def _note(self, part: str, name: str, content: Mapping[str, Any]) -> None:
        with new_artifact(self._made(part) / name, KINDS[part]) as folder:
            write_json(folder / RECORD, content)

    def failures(self) -> list[dict[str, Any]]:
        """What is recorded of runs that failed: ``experiment``, ``error``."""
        files = [self.root / "failed" / name for name in self.names("failed")]
        try:
            return [json.loads(file.read_text("utf-8")) for file in files]
        except (OSError, ValueError) as error:
            raise BadData(f"{self.root / 'failed'}: a record cannot be read ({error}); delete it") from None

    def names(self, part: str) -> list[str]:
        """What is in one of the folder's parts."""
        folder = self.root / part
        refuse_link(folder)
        entries = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
        return sorted(name for name in entries if not name.startswith("."))

    def _made(self, part: str) -> Path:
        """One of the folder's parts, made if it is not there."""
        folder = self.root / part
        refuse_link(folder)
        folder.mkdir(parents=True, exist_ok=True)
        return folder


def _split_name(cohort_hash: str, split_hash: str) -> str:
    return f"{cohort_hash[:12]}-{split_hash[:12]}"


def find_store(folder: Path) -> RunStore:
    """The runs in a folder; of a folder of studies, those in its ``runs``.

    Parameters
    ----------
    folder
        As the user names it.
    """
    return RunStore(folder / "runs" if (folder / "runs" / "runs").is_dir() else folder)


def open_store(root: str | Path) -> RunStore:
    """A folder of runs, made if it is not there."""
    root = Path(root)
    refuse_link(*(root / part for part in PARTS))
    try:
        (root / "runs").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BridgeMILError(f"{root}: cannot be written ({error.strerror}); choose another --out") from None
    return RunStore(root)
