"""A grid of runs: cohorts x backbones x methods x seeds x folds, and which of them are done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bridgemil import methods
from bridgemil.cohort.folds import Round
from bridgemil.cohort.store import Cohort
from bridgemil.errors import BadUse
from bridgemil.evaluation.protocol import fold_plan
from bridgemil.methods import Settings
from bridgemil.runs import RunStore, run_identity, stage1_identity


@dataclass(frozen=True)
class Job:
    """A run as a worker needs it: it opens the cohort itself."""

    identity: str
    stage1: str | None  # the encoder it will train, or find trained
    cohort: str  # a path that every worker can read
    cohort_hash: str
    settings: Settings
    seed: int
    subjects: Round

    @property
    def experiment(self) -> tuple[str, str]:
        """What it shares with the other seeds and folds."""
        return self.cohort_hash, self.settings.hash

    def __str__(self) -> str:
        what = f"{Path(self.cohort).name}, {self.settings.method}, {self.settings.backbone}"
        return f"{what}, seed {self.seed}, fold {self.subjects.fold + 1}"


def grid(
    cohorts: Sequence[Cohort],
    method_names: Sequence[str],
    backbone_names: Sequence[str],
    seeds: int,
    budget: str,
    *,
    folds: int | None = None,
    split_seed: int = 0,
    changes: Mapping[str, Any] | None = None,
) -> list[Job]:
    """All runs, in the order they will be started: seed after seed, so that whole tables appear early."""
    if not (cohorts and method_names and backbone_names and seeds >= 1):
        raise BadUse("a grid needs at least one cohort, method, backbone and seed")
    rows = []
    for cohort in cohorts:
        if cohort.path is None:
            raise BadUse("workers open a cohort by its path; save a cohort made in memory first: cohort.save(path)")
        rounds = fold_plan(cohort, folds, split_seed=split_seed).rounds()
        for backbone in backbone_names:
            for method in method_names:
                own = methods.settings(method, backbone, budget, cohort.burn_in, _fitting(method, changes or {}))
                if own.stage2.kind == "bandpower" and backbone != backbone_names[0]:
                    continue  # it has no backbone: once is enough
                rows.append((cohort, rounds, own))
    return [_job(cohort, one, own, seed) for seed in range(seeds) for cohort, rounds, own in rows for one in rounds]


def remaining(jobs: Sequence[Job], store: RunStore) -> list[Job]:
    """Those that are not done."""
    done = store.finished()
    return [job for job in jobs if job.identity not in done]


def _job(cohort: Cohort, subjects: Round, own: Settings, seed: int) -> Job:
    trained = None if own.stage1 is None else stage1_identity(own, cohort.hash, subjects, seed)
    identity = run_identity(own, cohort.hash, subjects, seed)
    path = str(Path(cohort.path or "").resolve())  # a worker may stand in another folder
    return Job(identity, trained, path, cohort.hash, own, seed, subjects)


def _fitting(method: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    """The changes that concern this method: in a grid, ``stage1.epochs`` is for those that have a Stage 1."""
    recipe = (methods.METHODS | methods.ABLATIONS).get(method)
    if recipe is None:
        return {}
    if recipe.stage2["kind"] == "bandpower":
        return {}
    return {key: value for key, value in changes.items() if recipe.stage1 is not None or not key.startswith("stage1")}
