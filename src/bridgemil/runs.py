"""Runs on disk: their identity, their folders, what they share, and reading them back.

    RUNS/runs/<identity>/             run.json, predictions.parquet, curves.parquet, windows.parquet, the fitted model
    RUNS/stage1/<identity>/           encoder.safetensors, encoder.json
    RUNS/features/<key>/<signal>/     features.npy: what is computed once per subject
    RUNS/splits/                      the splits that were planned here, each with the audit warnings of its cohort
    RUNS/ensembles/                   the ensembles that were planned here
    RUNS/audits/                      the quick audits of the cohorts
    RUNS/unfinished/                  checkpoints
    RUNS/failed/                      the errors of runs that failed

All but the last two are artifacts (see ``bridgemil.storage.artifact``): a folder appears in one rename with a manifest
of checksums, which are compared when a file is read. Nothing here is ever unpickled, and nothing is written or removed
through a link.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pydantic import ValidationError

from bridgemil.cohort.folds import Fold, FoldPlan
from bridgemil.errors import BadData, BridgeMILError
from bridgemil.methods import Settings
from bridgemil.methods.registry import HARMONISATION
from bridgemil.models import FitCache, Model, read_model
from bridgemil.models.features import Encoder
from bridgemil.storage.artifact import MANIFEST, Artifact, digest, new_artifact
from bridgemil.storage.files import Taken, lock, refuse_link, remove, write_json

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from bridgemil.cohort.cohort import Cohort

IDENTITY = re.compile("[0-9a-f]{24}")
RESULTS_VERSION = 6  # raised by hand when the same settings would give other numbers; docs/results.md states why
KINDS = {  # what the artifacts in each part of the folder are
    "runs": "run", "stage1": "encoder", "features": "features", "splits": "split", "ensembles": "ensemble",
    "audits": "audit",
}  # fmt: skip
PARTS = (*KINDS, "unfinished", "failed")
METADATA, RECORD, FEATURES = "run.json", "record.json", "features.npy"
WEIGHTS, NOTE = "encoder.safetensors", "encoder.json"
ADVICE = "delete the folder it lies in and run again"


def run_identity(settings: Settings, cohort_hash: str, fold: Fold, seed: int) -> str:
    """Hash of everything that determines a run's result: not the device, threads, paths or the fold's number."""
    ids = _ids(fold, fold.train, fold.validation, fold.test)
    ids += [[sorted(part) for part in fold.inner]] if settings.candidates else []
    return digest([settings.changed, cohort_hash, ids, seed, RESULTS_VERSION])[:24]


def stage1_identity(settings: Settings, cohort_hash: str, fold: Fold, seed: int) -> str | None:
    """Hash of what determines a Stage 1 encoder, which runs with the same one share. None without a Stage 1."""
    if settings.stage1 is None:
        return None
    changed = settings.changed
    network = [changed["backbone"], settings.backbone_options, settings.code]
    ids = _ids(fold, fold.train) + ([settings.bags] if settings.bags != "subject" else [])
    if settings.harmonises:
        ids.append({name: getattr(settings, name) for name in HARMONISATION})
    return digest([changed["stage1"], network, cohort_hash, *ids, seed, RESULTS_VERSION])[:24]


def _ids(fold: Fold, *parts: Sequence[str]) -> list[Any]:
    """What an identity holds of subjects: ids, the windows used if not all, sites and columns of a harmonisation."""
    used = {subject for part in parts for subject in part}
    kept = {subject: list(rows) for subject, rows in fold.kept.items() if subject in used}
    ids: list[Any] = [*map(sorted, parts), *([kept] if kept else [])]
    if fold.rows:
        ids.append({site: sorted(own) for site, own in fold.sites.items()})
        ids.append({subject: dict(row) for subject, row in fold.rows.items()})
    return ids


def _trained(fold: Fold) -> tuple[frozenset[str], frozenset[str]]:
    return frozenset(fold.train), frozenset(fold.validation)


def fold_of(metadata: Mapping[str, Any]) -> Fold:
    """The training, validation and test subjects of a run, from the content of its run.json."""
    kept = {subject: tuple(rows) for subject, rows in (metadata.get("kept") or {}).items()}
    train, validation, test = (tuple(metadata.get(side) or ()) for side in ("train", "validation", "test"))
    sites = {site: tuple(own) for site, own in (metadata.get("sites") or {}).items()}
    inner = tuple(map(tuple, (metadata.get("tuning") or {}).get("inner", ())))
    return Fold(int(metadata.get("fold") or 1), train, validation, test, kept, sites, metadata.get("rows") or {}, inner)


def latest(runs: Mapping[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Of run.json by identity, one run of each fold and seed of an experiment: the last of the current results version.

    There are several where columns that features are adjusted for were corrected, or the results version was raised.
    """

    def age(identity: str) -> tuple[bool, str]:
        return runs[identity].get("results_version") == RESULTS_VERSION, str(runs[identity].get("finished"))

    last = dict[tuple[Any, ...], str]()
    for identity in sorted(runs, key=age):
        run = runs[identity]
        experiment = run["settings_hash"], run["cohort"]["hash"], json.dumps(run.get("split"), sort_keys=True)
        last[*experiment, *_trained(fold_of(run)), run["seed"]] = identity
    return {identity: runs[identity] for identity in sorted(last.values())}


def fitted_settings(metadata: Mapping[str, Any]) -> Settings:
    """The settings that the model of a run was fitted with: where it chose some, those it chose."""
    settings = Settings.model_validate(metadata["settings"])
    return settings.candidates[metadata["tuning"]["chosen"]][1] if settings.candidates else settings


# Audit warnings stay with results: each WARN of a cohort's quick audit, and each FAIL that was accepted. They belong to
# a cohort and a split, not to a run: a finished run is not run again when an audit learns something new.
AuditWarning = dict[str, str]  # check, level (WARN or FAIL) and message; where several cohorts are shown, cohort
TITLE = "Audit warnings of the cohort"


def merged(*groups: Iterable[Mapping[str, str]]) -> list[AuditWarning]:
    """Warnings of several audits without repetition, FAIL first; of one check and cohort, the last group's message."""
    by_check = {(w.get("cohort", ""), w["check"]): dict(w) for group in groups for w in group}
    return [by_check[key] for key in sorted(by_check, key=lambda key: (by_check[key]["level"] != "FAIL", *key))]


def warning_text(warning: Mapping[str, str]) -> str:
    """One warning as one line of text."""
    accepted = " (accepted; results are not valid as they stand)" if warning["level"] == "FAIL" else ""
    return f"{warning_names([warning])}{accepted}: {' '.join(warning['message'].split())}"


def warning_names(found: Iterable[Mapping[str, str]]) -> str:
    """Levels and checks alone, for a column of a table: ``FAIL same_signal; WARN size``."""
    return "; ".join((f"{w['cohort']}: " if "cohort" in w else "") + f"{w['level']} {w['check']}" for w in found)


@dataclass(frozen=True)
class RunStore:
    """A folder of runs."""

    root: Path

    def place(self, part: str, *names: str, made: bool = False) -> Path:
        """Path of an entry of a part; creates the folder of the part if ``made``. Links are refused."""
        paths = [(self.root / part).joinpath(*names[:depth]) for depth in range(len(names) + 1)]
        refuse_link(*paths)
        if made:
            paths[0].mkdir(parents=True, exist_ok=True)
        return paths[-1]

    def run_folder(self, identity: str) -> Path:
        """Where a finished run is."""
        return self.root / "runs" / identity

    def features(self, key: str, signal_hash: str) -> Path:
        """Where the features of one subject are, computed or not."""
        return self.place("features", digest(key)[:24], signal_hash[:32])

    def checkpoint(self, identity: str) -> Path:
        """Where an unfinished loop keeps its state."""
        return self.place("unfinished", f"{identity}.safetensors", made=True)

    def names(self, part: str) -> list[str]:
        """What is in one of the folder's parts."""
        folder = self.place(part)
        entries = folder.iterdir() if folder.is_dir() else []
        return sorted(entry.name for entry in entries if not entry.name.startswith("."))

    def finder(self, settings: Settings, cohort_hash: str, identities: Iterable[str]) -> Callable[[Fold, int], str]:
        """Gives the run of a fold and a seed, among those of one method on one cohort; "" if it is not there.

        Sites and columns, which decide a run whose features are harmonised, are known from the run only.
        """
        if not settings.harmonises:
            return lambda fold, seed: run_identity(settings, cohort_hash, fold, seed)
        runs = latest({identity: self.metadata(identity) for identity in identities})
        last = {(_trained(fold_of(run)), run["seed"]): identity for identity, run in runs.items()}
        return lambda fold, seed: last.get((_trained(fold), seed), "")

    def is_done(self, identity: str) -> bool:
        """Whether the run is finished."""
        return (self.run_folder(identity) / MANIFEST).is_file()

    def finished(self) -> set[str]:
        """The identities of all finished runs: a run's folder is there only when it is complete."""
        return {name for name in self.names("runs") if IDENTITY.fullmatch(name)}

    def lock_file(self, name: str) -> Path:
        """The lock of a run, an encoder or another piece of work; the empty files stay, out of sight."""
        return self.place(".locks", f"{name}.lock", made=True)

    def lock(self, identity: str) -> AbstractContextManager[None]:
        """Wait until nobody else works on this run or encoder; a dead owner holds nothing."""
        return lock(self.lock_file(identity), told=f"{self.root}: another process is doing {identity}; waiting for it")

    @contextmanager
    def writing(self, part: str, name: str) -> Iterator[Path]:
        """An artifact to fill, which takes its place when it is complete; the checkpoint of a run or encoder goes."""
        final = self.place(part, name)
        with new_artifact(final, KINDS[part]) as folder:
            yield folder
        if part in ("runs", "stage1"):  # whose lock is held: nobody else writes them now
            for path in (*final.parent.glob(f".{name}.*.part"), self.checkpoint(name)):
                remove(path)

    def artifact(self, part: str, name: str) -> Artifact:
        """One of the artifacts in a part of the folder, its manifest checked."""
        return Artifact.open(self.place(part, name), KINDS[part], ADVICE, named=True)

    def metadata(self, identity: str) -> dict[str, Any]:
        """The content of run.json."""
        return self.record("runs", identity, METADATA)

    def predictions(self, identity: str) -> pd.DataFrame:
        """The held-out predictions of a run: seed, fold, subject, label, predicted, p_<class>…"""
        return self.table(identity, "predictions.parquet")

    def table(self, identity: str, name: str) -> pd.DataFrame:
        """One of the tables of a run; empty where it has none of this name, as a baseline.

        ``curves.parquet`` has one row per epoch of either stage; ``windows.parquet`` has one per window of the test
        subjects: subject, window, second, ``gate``, contributions or probabilities.
        """
        import pandas as pd

        artifact = self.artifact("runs", identity)
        return artifact.table(name).to_pandas(use_threads=False) if name in artifact.files else pd.DataFrame()

    def model(self, identity: str, **how: Any) -> Model:
        """The fitted model of a run; ``how`` as for ``bridgemil.models.load``."""
        return read_model(self.artifact("runs", identity), **how)

    def encoder(self, identity: str) -> Encoder:
        """The weights of a Stage 1 encoder, and its metadata: seconds, curve, training subjects."""
        from bridgemil.learning.checkpoint import read_tensors

        artifact = self.artifact("stage1", identity)
        return read_tensors(artifact.path(WEIGHTS)), artifact.json(NOTE)

    def record(self, part: str, name: str, file: str = RECORD) -> dict[str, Any]:
        """The content of a split, ensemble or audit, or of another JSON file of an artifact."""
        return self.artifact(part, name).json(file)

    def note(self, part: str, name: str, content: Mapping[str, Any]) -> None:
        """Write an ensemble or audit, unless it is there, or a split."""
        if part == "splits" or name not in self.names(part):
            with self.writing(part, name) as folder:
                write_json(folder / RECORD, content)

    def note_split(self, cohort_hash: str, plan: FoldPlan, found: Sequence[AuditWarning] = ()) -> None:
        """Record a split that runs here follow, so that a report can tell which runs belong together.

        The audit warnings ``found`` of this cohort and split are those of every result on it, earlier ones included.
        """
        name, before = _split_name(cohort_hash, plan.hash), self.warnings(cohort_hash, plan.hash)
        if name in self.names("splits") and merged(before, found) == before:
            return
        with lock(self.lock_file(name)):  # two calls at once may each find something
            every = merged(self.warnings(cohort_hash, plan.hash), found)
            self.note("splits", name, plan.for_json() | {"cohort": cohort_hash, "warnings": every})

    def warnings(self, cohort_hash: str, split_hash: str) -> list[AuditWarning]:
        """The audit warnings of a cohort and split; none where the split was not recorded."""
        name = _split_name(cohort_hash, split_hash)
        return list(self.record("splits", name)["warnings"]) if name in self.names("splits") else []

    def splits(self) -> list[tuple[str, FoldPlan]]:
        """The splits that were planned here, each with its cohort's hash."""
        records = [self.record("splits", name) for name in self.names("splits")]
        return [(str(record["cohort"]), FoldPlan.from_json(record)) for record in records]

    def ensembles(self) -> list[Settings]:
        """The ensembles that were planned here."""
        try:
            return [Settings.model_validate(self.record("ensembles", name)) for name in self.names("ensembles")]
        except ValidationError:
            where = f"{self.root / 'ensembles'}: holds an ensemble that is none of this version's methods"
            raise BadData(f"{where}; delete it and run again") from None

    def failures(self) -> list[dict[str, Any]]:
        """What is recorded of runs that failed: ``experiment``, ``error``."""
        files = [self.root / "failed" / name for name in self.names("failed")]
        try:
            return [json.loads(file.read_text("utf-8")) for file in files]
        except (OSError, ValueError) as error:
            raise BadData(f"{self.root / 'failed'}: a record cannot be read ({error}); delete it") from None


def _split_name(cohort_hash: str, split_hash: str) -> str:
    return f"{cohort_hash[:12]}-{split_hash[:12]}"


def find_store(folder: Path) -> RunStore:
    """The runs in a folder as the user names it; of a folder of studies, those in its ``runs``."""
    return RunStore(folder / "runs" if (folder / "runs" / "runs").is_dir() else folder)


def refuse_own_encoder(weights: str, cohort: Cohort) -> None:
    """Refuse weights for a frozen encoder if the note beside them says that Stage 1 learned them from this cohort."""
    note, learned = Path(weights).parent / NOTE, list[str]()
    with suppress(OSError, ValueError, AttributeError):  # there is none, or it is another program's
        content = json.loads(note.read_text("utf-8"))
        second = str((content.get("settings") or {}).get("pretrain_on")).rpartition("@")[2]
        learned = [str(content.get("cohort"))[:24], second]
    if cohort.hash[:24] in learned:
        raise BadData(
            f"{weights}: is a Stage 1 encoder that learned from this cohort (stated in {note.name} next to it): "
            "subjects of test folds trained it; use weights that were trained on other subjects, or without --frozen a "
            "method with Stage 1 (bridgemil), which trains it within every fold"
        )


def open_store(root: str | Path) -> RunStore:
    """A folder of runs, made if it is not there."""
    store = RunStore(Path(root))
    try:
        for part in PARTS:
            store.place(part)
        store.place("runs", made=True)
    except OSError as error:
        raise BridgeMILError(f"{root}: cannot be written ({error.strerror}); choose another --out") from None
    return store


@dataclass(frozen=True)
class RunCache(FitCache):
    """Checkpoints, Stage 1 encoders and features that fits share in a folder of runs; features only without a run."""

    store: RunStore
    identity: str = ""
    stage1_identity: str | None = None
    note: Mapping[str, Any] = field(default_factory=dict)  # to write beside a Stage 1 encoder

    @classmethod
    def of_run(cls, store: RunStore, settings: Settings, cohort_hash: str, fold: Fold, seed: int) -> Self:
        """The cache of the run with these settings."""
        note: dict[str, Any] = {"seed": seed, "cohort": cohort_hash, "train": sorted(fold.train)}
        if settings.stage1 is not None:
            note |= {"settings": settings.stage1.model_dump(mode="json"), "backbone": settings.backbone}
        identity = run_identity(settings, cohort_hash, fold, seed)
        return cls(store, identity, stage1_identity(settings, cohort_hash, fold, seed), note)

    def checkpoint(self) -> Path:
        """Where the run resumes from."""
        return self.store.checkpoint(self.identity)

    def stage1(self, train: Callable[[Path | None], Encoder]) -> Encoder:
        """The stored encoder; whoever comes first trains it while the others wait."""
        from bridgemil.learning.checkpoint import write_tensors

        identity = self.stage1_identity
        assert identity is not None
        with self.store.lock(identity):
            if self.store.place("stage1", identity).exists():
                return self.store.encoder(identity)
            tensors, learned = train(self.store.checkpoint(identity))
            with self.store.writing("stage1", identity) as folder:
                write_tensors(folder / WEIGHTS, tensors)
                write_json(folder / NOTE, dict(self.note) | learned)
            return tensors, learned

    def features(self, key: str, signal_hash: str, compute: Callable[[], NDArray[Any]]) -> NDArray[Any]:
        """Computed once per subject, stored as an array that is memory-mapped; a second process waits for the first."""
        self.prepare_features(key, signal_hash, compute, wait=True)
        return read_features(self.store.features(key, signal_hash))

    def prepare_features(
        self, key: str, signal_hash: str, compute: Callable[[], NDArray[Any]], *, wait: bool = False
    ) -> None:
        """Compute missing features; if another process is computing them, wait for it (``wait``) or return."""
        import numpy as np

        place = self.store.features(key, signal_hash)
        if os.path.lexists(place):
            return
        with suppress(Taken), lock(self.store.lock_file(f"{place.parent.name}-{place.name}"), wait=wait):
            if not os.path.lexists(place):
                with new_artifact(place, KINDS["features"]) as folder:
                    np.save(folder / FEATURES, np.ascontiguousarray(compute()), allow_pickle=False)


def read_features(folder: Path) -> NDArray[Any]:
    """The stored features of one subject, memory-mapped."""
    return Artifact.open(folder, KINDS["features"], ADVICE, named=True).array(FEATURES)
