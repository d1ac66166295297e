"""What every study works with: cohorts, how to train, the engine that does the runs, and the paper's numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from bridgemil import backbones, methods
from bridgemil.audit import guard
from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.folds import Fold, FoldPlan
from bridgemil.cohort.sources import changed_from_preset
from bridgemil.engine.benchmark import benchmark
from bridgemil.engine.execute import Where
from bridgemil.engine.plan import Experiment, Plan
from bridgemil.errors import BadData, BadUse
from bridgemil.evaluation.protocol import Protocol
from bridgemil.evaluation.results import GROUPED, Results, subbag_pairs
from bridgemil.evaluation.statistics import COMPARED
from bridgemil.report.benchmark import differences, paper
from bridgemil.report.figures import canvas
from bridgemil.runs import AuditWarning, RunStore, merged
from bridgemil.studies.evidence import Evidence, evidence_found, known_evidence
from bridgemil.studies.findings import Findings, prose

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TESTS = f"{COMPARED} p_holm: Holm-corrected for the comparisons on the cohort; significant where below .05."
Key = TypeVar("Key")


@dataclass(frozen=True)
class StudyContext:
    """Cohorts, training settings and where to run, for any study.

    Parameters
    ----------
    cohorts : tuple of Cohort
        On disk: workers open them by their path.
    out : Path
        The folder of the study's runs (``out / "runs"``), tables and figures.
    protocol : Protocol
        How to train and evaluate; studies choose the methods themselves. Its ``settings`` are for the methods that have
        them, and ``split_seeds`` replace its ``split_seed``.
    split_seeds : tuple of int
        Each assigns the subjects to folds; results are pooled over them.
    options : mapping
        Of single studies: ``{"vary": …}``.
    truth : Path or None
        The folder that ``bridgemil synth`` wrote, of a cohort whose evidence is known.
    where : Where
        This machine's cores by default.
    progress : bool
        Show progress on standard error.
    used_settings : dict
        Those of the protocol's settings that some method of the study had; filled as its experiments are made.
    """

    cohorts: tuple[Cohort, ...]
    out: Path
    protocol: Protocol = field(default_factory=Protocol)
    split_seeds: tuple[int, ...] = (0,)
    options: Mapping[str, Any] = field(default_factory=dict)
    truth: Path | None = None
    where: Where = field(default_factory=Where)
    progress: bool = True
    used_settings: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not (self.cohorts and self.split_seeds):
            raise BadUse("a study needs at least one cohort and split seed")
        if any(cohort.path is None for cohort in self.cohorts):
            raise BadUse("workers open a cohort by its path; save a cohort made in memory first: cohort.save(path)")
        if len({cohort.hash for cohort in self.cohorts}) < len(self.cohorts):
            raise BadUse("two of the cohorts hold the same windows; name each once")
        backbones.check(self.protocol.backbone)
        every = [*methods.names(), *methods.ablations()]
        for key in self._settings:
            if not any(methods.has_setting(name, key) for name in every):
                raise BadUse(f"no method has a setting {key}")

    @property
    def store(self) -> RunStore:
        """Its runs; ``bridgemil report`` reads them too."""
        return RunStore(self.out / "runs")

    @property
    def setup(self) -> str:
        """Backbone, recipe and budget, for titles."""
        name = methods.short_name(self.protocol.backbone)
        return f"{name}, recipe {self._recipe}, budget {self.protocol.budget}"

    @property
    def is_papers(self) -> bool:
        """Whether the numbers of any cohort can be compared with the paper's."""
        return any(map(self.matches_paper, self.cohorts))

    @property
    def _recipe(self) -> str:
        return self.protocol.recipe or methods.recipe_for(self.protocol.budget)

    @property
    def _settings(self) -> dict[str, Any]:
        return methods.flat(self.protocol.settings or {})

    def title(self, method: str) -> str:
        """A method with how it was trained; a baseline has neither backbone nor budget."""
        network = any(member.is_network for member in self.experiment(self.cohorts[0], method).settings.each)
        return f"{method}, {self.setup}" if network else method

    def name(self, cohort: Cohort) -> str:
        """A cohort's name in tables; its path where another has the same name."""
        assert cohort.path is not None
        same = [other for other in self.cohorts if other.path is not None and other.path.name == cohort.path.name]
        return cohort.path.name if len(same) == 1 else str(cohort.path)

    def option(self, name: str, default: Any) -> Any:
        """What the user chose, or the default."""
        value = self.options.get(name)
        return default if value is None else value

    def split(self, cohort: Cohort, split_seed: int) -> FoldPlan:
        """The assignment of subjects to folds."""
        return replace(self.protocol, split_seed=split_seed).fold_plan(cohort)

    def splits(self, cohort: Cohort) -> list[FoldPlan]:
        """One for each split seed."""
        return [self.split(cohort, seed) for seed in self.split_seeds]

    @cached_property
    def warnings(self) -> dict[str, tuple[AuditWarning, ...]]:
        """The warnings of the quick audit, by cohort hash; a FAIL that was not accepted is refused."""
        splits = {cohort: self.splits(cohort) for cohort in self.cohorts}
        return guard(splits, self.store.root, self.protocol.accept_risk)

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
        """One method (an ensemble, too) on one split, by default that of the first split seed.

        ``changes`` are settings in addition to the user's, ``seeds`` by default the protocol's. Where not all of the
        split is used, ``part`` says which, and ``drawn`` makes its folds from those of the split.
        """
        fixed = methods.fixed(method)
        wanted = {k: v for k, v in self._settings.items() if methods.has_setting(method, k) and k not in fixed}
        self.used_settings.update(wanted)
        settings = self.protocol.method_settings(cohort, method, settings=wanted | dict(changes or {}))
        return Experiment(
            cohort, split or self.split(cohort, self.split_seeds[0]), settings, tuple(seeds or self.protocol.seed_list),
            part, drawn, self.warnings[cohort.hash],
        )  # fmt: skip

    def perform(self, experiments: Sequence[Experiment]) -> list[Results]:
        """Do what remains of them; results in the order of the experiments."""
        plan = Plan(list(experiments), self.store)
        outcome = benchmark(plan, self.where, progress=self.progress)
        if outcome.failed:
            lines = next(iter(outcome.failed.values())).strip().splitlines()
            raise BadData(
                f"{len(outcome.failed)} of {len(plan.jobs)} runs failed: {(lines or ['?'])[-1]}; their errors are in "
                f"{self.store.root / 'failed'}, and the same command tries them again"
            )
        return [experiment.results(self.store) for experiment in experiments]

    def run(self, planned: Iterable[tuple[Key, Experiment]]) -> dict[Key, list[Results]]:
        """Do what remains of experiments with a key each; results by key, those of one key in their order."""
        pairs, found = list(planned), dict[Key, list[Results]]()
        for (key, _), results in zip(pairs, self.perform([made for _, made in pairs]), strict=True):
            found.setdefault(key, []).append(results)
        return found

    def matches_paper(self, cohort: Cohort) -> bool:
        """Whether cohort, backbone, recipe, budget and split are the paper's, so that its numbers can be compared."""
        source, how = cohort.metadata["source"], self.protocol
        theirs = paper()["cohorts"].get(source)
        if theirs is None or (how.backbone, self._recipe, how.budget) != ("eegnet", "paper", "paper"):
            return False
        return (
            not differences(theirs, cohort.classes, len(cohort), cohort.n_windows)
            and not changed_from_preset(source, cohort.metadata.get("settings", {}))
            and self.split_seeds == (0,)
            and how.folds in (None, theirs["folds"])
            and not any((how.settings, how.groups, how.split, how.leave_out))
        )

    def published(self, cohort: Cohort, *keys: Any) -> Any:
        """The paper's numbers below ``table, key, key …`` for the cohort; {} if there are none to compare with."""
        table, *rest = keys
        found = paper()[table].get(cohort.metadata["source"], {}) if self.matches_paper(cohort) else {}
        for key in rest:
            found = found.get(key, {}) if isinstance(found, dict) else {}
        return found

    def panels(
        self, columns: int, rows: Sequence[dict[str, Any]], **size: float
    ) -> tuple[Figure, list[tuple[Cohort, list[Axes], list[dict[str, Any]]]]]:
        """A figure with a line of panels for each cohort; with each cohort its axes, and its rows of a table."""
        figure, axes = canvas(columns, len(self.cohorts), **size)
        lines = [axes[first : first + columns] for first in range(0, len(axes), columns)]
        own = [[row for row in rows if row["cohort"] == self.name(cohort)] for cohort in self.cohorts]
        return figure, list(zip(self.cohorts, lines, own, strict=True))

    def explained(self, findings: Findings) -> Findings:
        """Findings of a study with the evidence found, the audit warnings and the notes that all studies share."""
        import pandas as pd

        tables = dict(findings.tables)
        if self.evidence:
            found = {name: evidence_found(results, self.evidence) for (_, name), results in findings.runs.items()}
            names = {"cohort": self.name(self.cohorts[0])}
            rows = [names | {"what": name} | row for name, several in found.items() for row in several]
            tables |= {"evidence_found": pd.DataFrame(rows)} if rows else {}
        pairs = subbag_pairs(self.experiment(self.cohorts[0], self.option("method", "bridgemil")).settings)
        shared = prose(
            "shared_notes", cohorts=[(self.name(c), len(c)) for c in self.cohorts], seeds=len(self.protocol.seed_list),
            splits=len(self.split_seeds), pairs=pairs, grouped=GROUPED if self.protocol.groups else "",
            used=self.used_settings, unused=[key for key in self._settings if key not in self.used_settings],
            tests=TESTS if any("p" in table for table in tables.values()) else "",
            paper_seeds=paper()["seeds"] if any("paper" in table for table in tables.values()) else None,
        )  # fmt: skip
        warnings = [{"cohort": self.name(c), **warning} for c in self.cohorts for warning in self.warnings[c.hash]]
        return replace(findings, tables=tables, warnings=merged(warnings), footnotes=[*findings.footnotes, *shared])

    @cached_property
    def evidence(self) -> Evidence:
        """By patient: which windows hold evidence, where ``truth`` is given; {} elsewhere."""
        if self.truth is None:
            return {}
        if len(self.cohorts) > 1:
            raise BadUse("--truth is of one cohort; study the others without it")
        return known_evidence(self.truth, self.cohorts[0])
