"""A grid of runs: cohorts x backbones x methods x seeds x folds, and which of them are done."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bridgemil import backbones, methods
from bridgemil.cohort.folds import FoldPlan, Round
from bridgemil.cohort.store import Cohort
from bridgemil.errors import BadUse, BridgeMILWarning
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

    @property
    def title(self) -> str:
        """The experiment in words."""
        return f"{Path(self.cohort).name}, {self.settings.method}, {self.settings.backbone}"

    def __str__(self) -> str:
        return f"{self.title}, seed {self.seed}, fold {self.subjects.fold + 1}"


def grid(
    cohorts: Sequence[Cohort],
    method_names: Sequence[str],
    backbone_names: Sequence[str],
    seeds: int,
    budget: str,
    *,
    folds: int | None = None,
    split: FoldPlan | str | Path | None = None,
    groups: str | None = None,
    split_seed: int = 0,
    changes: Mapping[str, Any] | None = None,
) -> list[Job]:
    """All runs, in the order they will be started: seed after seed, so that whole tables appear early."""
    if not (cohorts and method_names and backbone_names and seeds >= 1):
        raise BadUse("a grid needs at least one cohort, method, backbone and seed")
    for name in backbone_names:
        backbones.check(name)
    fitting, rows = _fitting(method_names, changes or {}), []
    seen: set[str] = set()
    for cohort in cohorts:
        if cohort.path is None:
            raise BadUse("workers open a cohort by its path; save a cohort made in memory first: cohort.save(path)")
        if cohort.hash in seen:
            warnings.warn(
                f"{cohort.path}: holds the same windows as another cohort here; it is run once",
                BridgeMILWarning,
                stacklevel=3,
            )
            continue
        seen.add(cohort.hash)
        rounds = fold_plan(cohort, folds, split, groups, split_seed).rounds()
        for backbone in backbone_names:
            for method in method_names:
                own = methods.settings(method, backbone, budget, cohort.burn_in, fitting[method])
                if own.stage2.kind == "bandpower" and backbone != backbone_names[0]:
                    continue  # it has no backbone: once is enough
                rows.append((cohort, rounds, own))
    jobs = (_job(cohort, one, own, seed) for seed in range(seeds) for cohort, rounds, own in rows for one in rounds)
    return list({job.identity: job for job in jobs}.values())  # a cohort or method named twice is run once


def remaining(jobs: Sequence[Job], store: RunStore) -> list[Job]:
    """Those that are not done."""
    done = store.finished()
    return [job for job in jobs if job.identity not in done]


def _job(cohort: Cohort, subjects: Round, own: Settings, seed: int) -> Job:
    trained = None if own.stage1 is None else stage1_identity(own, cohort.hash, subjects, seed)
    identity = run_identity(own, cohort.hash, subjects, seed)
    path = str(Path(cohort.path or "").resolve())  # a worker may stand in another folder
    return Job(identity, trained, path, cohort.hash, own, seed, subjects)


def _fitting(method_names: Sequence[str], changes: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Per method the changes that concern it: ``stage1.epochs`` is for those that have a Stage 1, and so on."""
    flat = methods.flat(changes)
    own = {name: {key: v for key, v in flat.items() if methods.has_setting(name, key)} for name in method_names}
    unused = [key for key in flat if not any(key in found for found in own.values())]
    unknown = [key for key in unused if not any(methods.has_setting(name, key) for name in methods.METHODS)]
    for key in unknown:
        methods.settings("bridgemil", changes={key: flat[key]})  # refuses it, and lists what there is
        raise BadUse(f"no method has a setting {key}")
    if unused:
        warnings.warn(
            f"no method of this grid has a setting {', '.join(unused)}; it changes nothing",
            BridgeMILWarning,
            stacklevel=3,
        )
    return own
