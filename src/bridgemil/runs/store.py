"""A folder of runs: where things are in it, and reading them back."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from bridgemil.cohort.folds import FoldPlan
from bridgemil.disk import lock, new_folder, refuse_link
from bridgemil.errors import BadData, BridgeMILError, BridgeMILWarning
from bridgemil.methods import Settings
from bridgemil.models import Model, load, load_encoder
from bridgemil.runs.files import (
    ABOUT,
    ADVICE,
    PARTS,
    PREDICTIONS,
    RUN_ADVICE,
    TABLES,
    WINDOWS,
    AuditFile,
    FailureFile,
    RunFile,
    SplitFile,
)
from bridgemil.runs.identity import IDENTITY, RESULTS_VERSION
from bridgemil.runs.warnings import AuditWarning, merged
from bridgemil.stored import StoredFolder, file_hash, write_sealed

if TYPE_CHECKING:
    import pandas as pd
    from torch import nn

    from bridgemil.cohort.signal import Signal

ENCODER = "encoder.safetensors"


@dataclass(frozen=True)
class RunStore:
    """A folder of runs."""

    root: Path

    @property
    def unfinished(self) -> Path:
        """Where checkpoints, locks and folders being written are; made if it is not there."""
        return self._made("unfinished")

    def run(self, identity: str) -> Path:
        """Where a finished run is."""
        return self.root / "runs" / identity

    def stage1(self, identity: str) -> Path:
        """Where a finished Stage 1 encoder is."""
        return self.root / "stage1" / identity

    def is_done(self, identity: str) -> bool:
        """Whether the run is finished."""
        return (self.run(identity) / ABOUT).is_file()

    def finished(self) -> set[str]:
        """The identities of all finished runs: a run's folder is there only when it is whole."""
        folder = self.root / "runs"
        entries = folder.iterdir() if folder.is_dir() else ()
        return {entry.name for entry in entries if IDENTITY.fullmatch(entry.name)}

    def checkpoint(self, identity: str) -> Path:
        """Where an unfinished loop keeps its state."""
        return self.unfinished / f"{identity}.safetensors"

    @contextmanager
    def lock(self, identity: str) -> Iterator[None]:
        """Wait until nobody else works on this run or encoder; a dead owner holds nothing."""

        def told() -> None:
            words = f"{self.root}: another process is doing {identity}; waiting for it"
            warnings.warn(words, BridgeMILWarning, stacklevel=5)

        with lock(self.unfinished / f"{identity}.lock", told=told):
            yield

    @contextmanager
    def writing(self, final: Path) -> Iterator[Path]:
        """A folder to fill; it takes its place when it is whole, and its checkpoint goes."""
        refuse_link(final.parent)
        with new_folder(final, self.unfinished / f"{final.name}.folder") as folder:
            yield folder
            if (folder / ABOUT).is_file():
                _seal_run(folder, final.name)
        self.checkpoint(final.name).unlink(missing_ok=True)

    def about(self, identity: str) -> dict[str, Any]:
        """What run.json says."""
        folder = self._folder(identity)
        if not folder.has(ABOUT):
            raise BadData(f"{self.run(identity)}: is damaged (no run.json); {ADVICE}")
        content = folder.json(ABOUT, RunFile)
        if content.get("identity", identity) != identity:
            raise folder.bad(ABOUT, "is the record of another run")
        if content["results_version"] == RESULTS_VERSION:
            try:
                Settings.model_validate(content["settings"])
            except ValidationError:
                raise folder.bad(ABOUT, "its settings are none of this version's") from None
        return content

    def hashes(self, identity: str) -> dict[str, str] | None:
        """The hash of every file beside run.json, as it states them; None if an earlier version wrote none."""
        status = self._folder(identity).file(ABOUT)
        return _stated(self.run(identity), status.st_size, status.st_mtime_ns, status.st_ino)

    def _folder(self, identity: str) -> StoredFolder:
        refuse_link(self.root / "runs", self.run(identity))
        return StoredFolder(self.run(identity), RUN_ADVICE)

    def predictions(self, identity: str) -> pd.DataFrame:
        """The held-out predictions of a run: seed, fold, subject, label, predicted, p_<class>…"""
        table = self._table(identity, "predictions.parquet", PREDICTIONS)
        shares = table[[name for name in table.columns if name.startswith("p_")]]
        if table.empty or shares.empty or not ((shares >= 0) & (shares <= 1)).all(axis=None):
            raise self._folder(identity).bad("predictions.parquet", "holds no predictions, or no probabilities")
        return table

    def curves(self, identity: str) -> pd.DataFrame:
        """A row an epoch of either stage; empty for a baseline."""
        return self._table(identity, "curves.parquet", {}, may_lack=True)

    def windows(self, identity: str) -> pd.DataFrame:
        """A row a window of the test subjects: subject, window, second, and gate, contributions or probabilities.

        Empty for a baseline, which does not look at windows one by one.
        """
        return self._table(identity, "windows.parquet", WINDOWS, may_lack=True)

    def model(self, identity: str, **how: Any) -> Model:
        """The fitted model of a run; ``how`` as for ``bridgemil.models.load``."""
        self.check_model(identity)
        return load(self.run(identity), **how)

    def encoder(self, identity: str, settings: Settings, signal: Signal) -> nn.Module:
        """The Stage 1 encoder of this identity; ``settings`` and ``signal`` are those of a run that started from it."""
        return load_encoder(self.stage1(identity) / ENCODER, settings, signal)

    def check_model(self, identity: str) -> None:
        """Refuse a model whose files are not those that the run left."""
        folder, hashes = self._folder(identity), self.hashes(identity) or {}
        for name in sorted(set(hashes) - set(TABLES)):
            folder.file(name)
            if file_hash(folder.root / name) != hashes[name]:
                raise folder.bad(name, "was changed or cut short since it was written")

    def model_facts(self, identity: str) -> dict[str, Any]:
        """What model.json says."""
        return self._folder(identity).json("model.json", sha256=(self.hashes(identity) or {}).get("model.json"))

    def _table(self, identity: str, name: str, columns: Mapping[str, str], *, may_lack: bool = False) -> pd.DataFrame:
        import pandas as pd

        folder, hashes = self._folder(identity), self.hashes(identity)
        if may_lack and not folder.has(name) and name not in (hashes or {}):
            return pd.DataFrame()
        if hashes is not None and name not in hashes:
            raise folder.bad(name, "is not a part of this run")
        return folder.frame(name, columns, None if hashes is None else hashes[name])

    def note_split(self, cohort_hash: str, plan: FoldPlan, found: Sequence[AuditWarning] = ()) -> None:
        """Write down a split that runs here follow, so that a report can tell which runs belong together.

        Parameters
        ----------
        cohort_hash, plan
            What is split, and how.
        found
            Audit warnings of this cohort and split. They stay, and are those of every result on it, also of runs that
            were finished before the warning was known or the risk accepted.
        """
        file = self._made("splits") / _split_name(cohort_hash, plan.hash)
        before = self.warnings(cohort_hash, plan.hash)
        if file.is_file() and merged(before, found) == before:
            return
        with lock(self.unfinished / f"{file.stem}.lock"):  # two calls at once may each find something
            every = merged(self.warnings(cohort_hash, plan.hash), found)
            write_sealed(file, plan.for_json() | {"cohort": cohort_hash, "warnings": every})

    def warnings(self, cohort_hash: str, split_hash: str) -> list[AuditWarning]:
        """The audit warnings of a cohort and split; none where the split was not written down."""
        name = _split_name(cohort_hash, split_hash)
        if name not in self.names("splits"):
            return []
        content = StoredFolder(self.root, ADVICE).json(f"splits/{name}", SplitFile)
        return [dict(warning) for warning in content.get("warnings", ())]

    def note_ensemble(self, settings: Settings) -> None:
        """Write down an ensemble whose members are run here, so that a report can show it."""
        write_sealed(self._made("ensembles") / f"{settings.hash[:24]}.json", settings.model_dump(mode="json"))

    def ensembles(self) -> list[Settings]:
        """The ensembles that were planned here."""
        return [self.ensemble(name) for name in self.names("ensembles")]

    def ensemble(self, name: str) -> Settings:
        """The settings in one of the files of ``ensembles/``."""
        folder = StoredFolder(self.root, ADVICE)
        try:
            return Settings.model_validate(folder.json(f"ensembles/{name}"))
        except ValidationError:
            raise folder.bad(f"ensembles/{name}", "is no ensemble of this version's methods") from None

    def splits(self) -> list[tuple[str, FoldPlan]]:
        """The splits that were planned here, each with its cohort's hash."""
        return [self.split(name) for name in self.names("splits")]

    def split(self, name: str) -> tuple[str, FoldPlan]:
        """The split in one of the files of ``splits/``, and its cohort's hash."""
        folder = StoredFolder(self.root, ADVICE)
        content = folder.json(f"splits/{name}", SplitFile)
        try:
            return str(content["cohort"]), FoldPlan.from_json(content)
        except BridgeMILError as error:
            raise folder.bad(f"splits/{name}", f"is no split ({error})") from None

    def note_audit(self, name: str, cohort_hash: str, findings: list[dict[str, Any]]) -> None:
        """Keep the quick audit of a cohort, unless it is there."""
        file = self._made("audits") / name
        if not file.is_file():
            write_sealed(file, {"cohort": cohort_hash, "findings": findings})

    def audit(self, name: str) -> list[dict[str, Any]]:
        """The findings in one of the files of ``audits/``."""
        content = StoredFolder(self.root, ADVICE).json(f"audits/{name}", AuditFile, must_be_sealed=True)
        findings: list[dict[str, Any]] = content["findings"]
        return findings

    def failures(self) -> list[dict[str, Any]]:
        """What is written down of runs that failed: ``experiment``, ``error``."""
        folder = StoredFolder(self.root, "delete it to forget the failure")
        return [folder.json(f"failed/{name}", FailureFile) for name in self.names("failed")]

    def names(self, part: str, suffix: str = ".json") -> list[str]:
        """The files in one of the folder's parts."""
        folder = self.root / part
        refuse_link(folder)
        entries = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
        return sorted(name for name in entries if name.endswith(suffix) and not name.startswith("."))

    def _made(self, part: str) -> Path:
        """One of the folder's parts, made if it is not there."""
        folder = self.root / part
        refuse_link(folder)
        folder.mkdir(parents=True, exist_ok=True)
        return folder


def _split_name(cohort_hash: str, split_hash: str) -> str:
    return f"{cohort_hash[:12]}-{split_hash[:12]}.json"


@lru_cache(maxsize=2**14)
def _stated(folder: Path, *written: int) -> dict[str, str] | None:
    """The hashes that run.json states; read once as long as it is not written anew."""
    files: dict[str, str] | None = StoredFolder(folder, RUN_ADVICE).json(ABOUT, RunFile).get("files")
    return files


def _seal_run(folder: Path, identity: str) -> None:
    """Write into run.json whose record it is and the hash of every file beside it."""
    beside = sorted(file for file in folder.rglob("*") if file.is_file() and file != folder / ABOUT)
    files = {file.relative_to(folder).as_posix(): file_hash(file) for file in beside}
    content = StoredFolder(folder, ADVICE).json(ABOUT)
    write_sealed(folder / ABOUT, content | {"identity": identity, "files": files})


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
