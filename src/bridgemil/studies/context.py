"""What every study works with: cohorts, how to train, and the engine that does the runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from bridgemil import backbones, methods
from bridgemil.audit import guard
from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.folds import Fold, FoldPlan
from bridgemil.engine.benchmark import benchmark
from bridgemil.engine.execute import Where
from bridgemil.engine.plan import Experiment, Plan
from bridgemil.errors import BadData, BadUse
from bridgemil.evaluation.protocol import fold_plan
from bridgemil.evaluation.results import Results
from bridgemil.methods import BACKBONE, BUDGET
from bridgemil.runs import AuditWarning, RunStore


@dataclass(frozen=True)
class StudyContext:
    """Where a study is done.

    Parameters
    ----------
    cohorts
        On disk: workers open them by their path.
    out
        The folder of the study's runs (``out / "runs"``), tables and figures.
    backbone, recipe, budget
        How to train; recipe None is the budget's.
    seeds
        Of weights and sampling.
    split_seeds
        Each deals the subjects anew; results are pooled over them.
    folds
        The cohort's own number by default.
    groups
        A column of the cohorts; subjects of one group stay in one fold.
    accept_risk
        Names of findings of the quick audit that are accepted; written into every result.
    changes
        The user's settings, for the methods that have them.
    options
        Of single studies: ``{"vary": …}``.
    truth
        The folder that ``bridgemil synth`` wrote, of a cohort whose evidence is known.
    where
        This machine's cores by default.
    progress
        Show it.
    used_changes
        Those of ``changes`` that some method of the study had, as its experiments are made.
    """

    cohorts: tuple[Cohort, ...]
    out: Path
    backbone: str = BACKBONE
    recipe: str | None = None
    budget: str = BUDGET
    seeds: tuple[int, ...] = (0,)
    split_seeds: tuple[int, ...] = (0,)
    folds: int | None = None
    groups: str | None = None
    accept_risk: tuple[str, ...] = ()
    changes: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    truth: Path | None = None
    where: Where = field(default_factory=Where)
    progress: bool = True
    used_changes: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not (self.cohorts and self.seeds and self.split_seeds):
            raise BadUse("a study needs at least one cohort, seed and split seed")
        for cohort in self.cohorts:
            if cohort.path is None:
                raise BadUse("workers open a cohort by its path; save a cohort made in memory first: cohort.save(path)")
        if len({cohort.hash for cohort in self.cohorts}) < len(self.cohorts):
            raise BadUse("two of the cohorts hold the same windows; name each once")
        backbones.check(self.backbone)
        every = [*methods.names(), *methods.ablations()]
        for key in methods.flat(self.changes):
            if not any(methods.has_setting(name, key) for name in every):
                raise BadUse(f"no method has a setting {key}")

    @property
    def store(self) -> RunStore:
        """Its runs; ``bridgemil report`` reads them too."""
        return RunStore(self.out / "runs")

    @property
    def used_recipe(self) -> str:
        """The recipe by name."""
        return self.recipe or methods.recipe_for(self.budget)

    @property
    def setup(self) -> str:
        """In words: backbone, recipe and budget."""
        return f"{methods.short_name(self.backbone)}, recipe {self.used_recipe}, budget {self.budget}"

    def title(self, method: str) -> str:
        """A method in words, with how it was trained; a baseline has neither backbone nor budget."""
        network = any(member.is_network for member in self.experiment(self.cohorts[0], method).settings.each)
        return f"{method}, {self.setup}" if network else method

    def name(self, cohort: Cohort) -> str:
        """A cohort's name in tables; its path where another has the same name."""
        assert cohort.path is not None
        same = [other for other in self.cohorts if other.path is not None and other.path.name == cohort.path.name]
        return cohort.path.name if len(same) == 1 else str(cohort.path)

    def option(self, name: str, usual: Any) -> Any:
        """What the user chose, or what is usual."""
        value = self.options.get(name)
        return usual if value is None else value

    def refuse_foreign(self, name: str, known: Sequence[str]) -> None:
        """Refuse an option that the study would not look at."""
        for option, value in self.options.items():
            if value is not None and option not in known:
                words = ", ".join(f"--{word.replace('_', '-')}" for word in known) or "none"
                raise BadUse(f"--{option.replace('_', '-')} is no option of the study {name}; its own: {words}")

    def split(self, cohort: Cohort, split_seed: int) -> FoldPlan:
        """How the subjects are dealt."""
        return fold_plan(cohort, self.folds, groups=self.groups, split_seed=split_seed)

    @cached_property
    def warnings(self) -> dict[str, tuple[AuditWarning, ...]]:
        """The warnings of the quick audit, by cohort hash; a FAIL that was not accepted is refused."""
        plans = {cohort: [self.split(cohort, seed) for seed in self.split_seeds] for cohort in self.cohorts}
        return guard(plans, self.store.root, self.accept_risk)

    def experiment(
        self,
        cohort: Cohort,
        method: str,
        split: FoldPlan | None = None,
        *,
        changes: Mapping[str, Any] | None = None,
        seeds: Sequence[int] | None = None,
        part: str = "",
        drawn: Callable[[list[Fold]], list[Fold]] | None = None,
    ) -> Experiment:
        """One method on one split.

        Parameters
        ----------
        cohort, method
            On what, and which; ensembles too.
        split
            That of the first split seed by default.
        changes
            Settings of the study, beside the user's.
        seeds
            The context's by default.
        part, drawn
            Where not all of the split is used: in words, and its rounds from those of the split.
        """
        flat, fixed = methods.flat(self.changes), methods.fixed(method)
        wanted = {key: flat[key] for key in flat if methods.has_setting(method, key) and key not in fixed}
        self.used_changes.update(wanted)
        wanted |= dict(changes or {})
        settings = methods.for_cohort(cohort, method, self.backbone, self.budget, wanted, recipe=self.recipe)
        return Experiment(
            cohort, split or self.split(cohort, self.split_seeds[0]), settings, tuple(seeds or self.seeds), part, drawn,
            self.warnings[cohort.hash],
        )  # fmt: skip

    def perform(self, experiments: Sequence[Experiment]) -> list[Results]:
        """Do what remains of them, and read all; results in the order of the experiments."""
        plan = Plan(list(experiments), self.store)
        outcome = benchmark(plan, self.where, progress=self.progress)
        if outcome.failed:
            words = next(iter(outcome.failed.values())).strip().splitlines()
            raise BadData(
                f"{len(outcome.failed)} of {len(plan.jobs)} runs failed: {(words or ['?'])[-1]}; their errors are in "
                f"{self.store.root / 'failed'}, and the same command tries them again"
            )
        return [experiment.results(self.store) for experiment in experiments]
