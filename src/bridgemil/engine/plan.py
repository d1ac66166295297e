"""Experiments, the runs (jobs) they consist of, and which of these are done; ``grid`` makes many experiments."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

from bridgemil import backbones, methods
from bridgemil.audit import store_quick_audit
from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.folds import Fold, FoldPlan
from bridgemil.cohort.tables import natural_key
from bridgemil.cohort.views import tag_of
from bridgemil.errors import BadData, BadUse, BridgeMILWarning
from bridgemil.evaluation.protocol import Protocol
from bridgemil.evaluation.results import Results, averaged, gather
from bridgemil.evaluation.run import Run
from bridgemil.evaluation.sites import harmonised
from bridgemil.methods import Settings, changed_from_budget
from bridgemil.runs import AuditWarning, RunStore, merged, open_store, run_identity, stage1_identity


@dataclass(frozen=True)
class Job:
    """A run as a worker needs it: it opens the cohort itself."""

    identity: str
    stage1: str | None  # identity of its Stage 1 encoder, which runs that would train the same one share
    cohort: str  # a path that every worker can read; empty for a cohort in memory
    cohort_hash: str
    settings: Settings
    seed: int
    fold: Fold
    split: Mapping[str, Any]
    pretrain_on: str = ""  # the path of the second cohort for Stage 1, if there is one

    @property
    def part(self) -> str:
        """The name of the part of the split that is used (``Experiment.part``); empty if all of it is."""
        return str(self.split.get("part", ""))

    def make_run(self, cohort: Cohort, pretrain_on: Cohort | None) -> Run:
        """The run, on the opened cohorts."""
        return Run(cohort, self.fold, self.settings, self.seed, self.split, pretrain_on)

    @property
    def inner_fits(self) -> int:
        """Fits by which the run chooses its settings, beside its own."""
        return len(self.settings.candidates) * len(self.fold.inner)

    @property
    def experiment(self) -> tuple[str, str, str]:
        """What it shares with the other seeds and folds."""
        return self.cohort_hash, self.settings.hash, self.part

    @property
    def title(self) -> str:
        """Cohort, method, changed settings and part of the experiment."""
        changed = (f"{key}={value}" for key, value in changed_from_budget(self.settings).items())
        return ", ".join(filter(None, (Path(self.cohort).name, self.settings.title, *changed, self.part)))

    def __str__(self) -> str:
        dealt = f", split seed {self.split['split_seed']}" if self.split.get("split_seed") else ""
        return f"{self.title}, seed {self.seed}{dealt}, fold {self.fold.number}"


@dataclass(frozen=True)
class Experiment:
    """All folds and seeds of one method on one split of one cohort; of an ensemble, those of its members."""

    cohort: Cohort
    split: FoldPlan
    settings: Settings
    seeds: tuple[int, ...]
    part: str = ""  # names what is used of the split, if not all; ``report`` leaves such runs out of its tables
    drawn: Callable[[list[Fold]], list[Fold]] | None = None  # makes the folds of this part from those of the split
    warnings: tuple[AuditWarning, ...] = ()  # of the audit of the cohort and split
    pretrain_on: Cohort | None = None  # the second cohort for Stage 1, where the settings name one

    def cv_folds(self, member: Settings | None = None) -> list[Fold]:
        """Who trains, selects and tests in each run of a seed, by an ensemble's member or the method itself.

        A method that selects nothing trains on all folds but the test fold.
        """
        chosen = member or self.settings
        folds = self.split.cv_folds(chosen.selects)
        folds = folds if self.drawn is None else self.drawn(folds)
        if chosen.candidates and min(len(fold.inner) for fold in folds) < (least := 3 if chosen.selects else 2):
            raise BadUse(f"--tune needs a split of {least + 1} folds or more: it divides the training folds again")
        for fold in folds:
            self._check_classes(fold, chosen)
            for inner in FoldPlan(fold.inner).cv_folds(chosen.selects) if chosen.candidates else ():
                self._check_classes(inner, chosen, fold)
                if chosen.harmonises:
                    harmonised(inner, self.cohort, chosen)  # refuses what it cannot adjust
        return [harmonised(fold, self.cohort, chosen) for fold in folds] if chosen.harmonises else folds

    def _check_classes(self, fold: Fold, chosen: Settings, outer: Fold | None = None) -> None:
        """Refuse a fold, or an inner fold of an ``outer`` one, whose training subjects lack a class."""
        labels, split = dict(zip(self.cohort.subjects, self.cohort.labels, strict=True)), self.split
        absent = sorted(set(self.cohort.classes) - {labels[subject] for subject in fold.train})
        if not absent:
            return
        names, lost, whole = ", ".join(absent), "", outer or fold
        if split.column:
            column = dict(zip(self.cohort.subjects, self.cohort.column(split.column), strict=True))
            values = {str(column[s]) for s in (*whole.train, *whole.validation, *whole.test) if labels[s] in absent}
            lost = (
                f": without {split.column} {', '.join(sorted(values, key=natural_key))} there is no {names} to train on"
            )
        least = 2 + chosen.selects if outer is None else 3 + 2 * chosen.selects
        left_out = split.kind == "leave_out"
        ways = ["use another split" if outer is None else "leave --tune out"]
        ways += ["select no epoch (--set stage2.selection=last)"] * chosen.selects
        ways += ["use `bridgemil study transfer`"] * left_out
        raise BadData(
            f"fold {whole.number} has no training subject of class {names}{lost}; every class is needed "
            f"{f'at {least} values of {split.column}' if left_out else f'in {least} folds'} or more: "
            f"{', or '.join(ways)}"
        )

    def jobs(self, seed: int) -> list[Job]:
        """The runs of one seed, member after member and fold after fold."""
        path, other = (
            "" if one is None or one.path is None else str(one.path.resolve())  # a worker may stand elsewhere
            for one in (self.cohort, self.pretrain_on)
        )
        split, data = self.split.metadata | ({"part": self.part} if self.part else {}), self.cohort.hash
        jobs = []
        for member in self.settings.each:
            second = other if member.stage1 is not None and member.stage1.pretrain_on is not None else ""
            for fold in self.cv_folds(member):
                what = member, data, fold, seed
                jobs.append(
                    Job(run_identity(*what), stage1_identity(*what), path, data, member, seed, fold, split, second)
                )
        return jobs

    def results(self, store: RunStore) -> Results:
        """From the finished runs."""
        parts = []
        for member in self.settings.each:
            identities = [job.identity for seed in self.seeds for job in self.jobs(seed) if job.settings == member]
            parts.append(gather(store, identities, member, self.split))
        results = parts[0] if len(parts) == 1 else averaged(parts, self.settings)
        return replace(results, warnings=merged(results.warnings, self.warnings))


@dataclass
class Plan:
    """The runs of several experiments, and which of them remain to be done."""

    experiments: list[Experiment]
    store: RunStore
    jobs: list[Job] = field(init=False)
    todo: list[Job] = field(init=False)

    def __post_init__(self) -> None:
        once: dict[str, Job] = {}
        for seed in sorted({seed for experiment in self.experiments for seed in experiment.seeds}):
            for experiment in self.experiments:  # seed after seed, so that whole tables appear early
                for job in experiment.jobs(seed) if seed in experiment.seeds else ():
                    once.setdefault(job.identity, job)  # a run that experiments share is done once, for the first
        self.jobs = list(once.values())
        self.look()

    def look(self) -> None:
        """Look up which runs are finished, and update ``todo``."""
        done = self.store.finished()
        self.todo = [job for job in self.jobs if job.identity not in done]

    @property
    def cohorts(self) -> dict[str, Cohort]:
        """By hash."""
        return {experiment.cohort.hash: experiment.cohort for experiment in self.experiments}

    @property
    def warnings(self) -> list[AuditWarning]:
        """The audit warnings of every cohort: cohort, check, level, message."""
        return merged(
            {"cohort": one.cohort.path.name if one.cohort.path else "(in memory)", **warning}
            for one in self.experiments
            for warning in one.warnings
        )

    def pretrain_on(self, job: Job) -> Cohort | None:
        """The second cohort of a run's Stage 1, if there is one."""
        named = None if job.settings.stage1 is None else job.settings.stage1.pretrain_on
        others = (experiment.pretrain_on for experiment in self.experiments)
        return next((one for one in others if one is not None and tag_of(one) == named), None)

    def make_run(self, job: Job) -> Run:
        """A job on the cohorts of this process."""
        return job.make_run(self.cohorts[job.cohort_hash], self.pretrain_on(job))

    def note(self) -> None:
        """Store the audits, splits and ensembles of the experiments in the folder of the runs."""
        open_store(self.store.root)
        for cohort in self.cohorts.values():
            store_quick_audit(cohort, self.store.root)
        for experiment in [one for one in self.experiments if not one.part]:
            self.store.note_split(experiment.cohort.hash, experiment.split, experiment.warnings)
            if (settings := experiment.settings).members:  # so that a report can show the ensemble
                self.store.note("ensembles", settings.hash[:24], settings.model_dump(mode="json"))


def grid(
    cohorts: Sequence[Cohort],
    method_names: Sequence[str],
    backbone_names: Sequence[str],
    protocol: Protocol,
    vary: Mapping[str, Sequence[Any]] | None = None,
) -> list[Experiment]:
    """Every method on every backbone and cohort; each mistake is refused here, before any work.

    The protocol says everything else; its ``settings`` go to the methods that have them. ``vary`` gives a setting
    several values, ``{"stage2.retention": [0, 1e-5]}``: every combination of them is run by the methods that have these
    settings.
    """
    if not (cohorts and method_names and backbone_names):
        raise BadUse("a grid needs at least one cohort, method, backbone and seed")
    for name in backbone_names:
        backbones.check(name)
    if protocol.pretrain_on is not None:
        methods.refuse_pretraining(method_names)
    vary, changes = vary or {}, methods.flat(protocol.settings or {})
    for key in [key for key, values in vary.items() if not len(values)]:
        raise BadUse(f"{key} is to vary, but has no value: give some, {key}=1,2,3")
    varied = [changes | dict(zip(vary, values, strict=True)) for values in product(*vary.values())]
    combinations = [_fitting(method_names, changes) for changes in varied]
    experiments = dict[tuple[str, str], Experiment]()
    for place, cohort in enumerate(cohorts):
        if cohort.hash in [earlier.hash for earlier in cohorts[:place]]:
            _warn(f"{cohort.path}: holds the same windows as another cohort here; it is run once")
            continue
        plan = protocol.fold_plan(cohort)
        for backbone in backbone_names:
            for method in _possible(method_names, backbone):
                for fitting in combinations:
                    made = protocol.method_settings(cohort, method, backbone, fitting[method])
                    # Once is enough: a baseline has no backbone, and a user may name something twice.
                    experiment = Experiment(cohort, plan, made, protocol.seed_list, pretrain_on=protocol.second(cohort))
                    experiments.setdefault((cohort.hash, made.hash), experiment)
    return list(experiments.values())


def _possible(method_names: Sequence[str], backbone: str) -> list[str]:
    """Of several methods, those that make sense on this backbone; a single one is left to be refused."""
    senseless = [name for name in method_names if methods.is_senseless(name, backbone)]
    if not senseless or len(method_names) == 1:
        return list(method_names)
    _warn(f"{', '.join(senseless)} on {backbone} is left out: a front end's features have no samples to hide")
    return [name for name in method_names if name not in senseless]


def _fitting(method_names: Sequence[str], changes: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Per method the changes that concern it: ``stage1.epochs`` is for those that have a Stage 1, and so on."""
    fitting, unused = methods.shares(method_names, changes)
    for key in unused:
        if not any(methods.has_setting(name, key) for name in [*methods.names(), *methods.ablations()]):
            if not key.startswith("baseline."):
                methods.settings("bridgemil", changes={key: changes[key]})  # refuses it, and lists what there is
            raise BadUse(f"no method has a setting {key}")
    if unused:
        _warn(f"no method of this grid has a setting {', '.join(unused)}; it changes nothing")
    return fitting


def _warn(message: str) -> None:
    warnings.warn(message, BridgeMILWarning, stacklevel=5)
