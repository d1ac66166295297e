"""Run a grid and gather its results: a row a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bridgemil.audit import guard, keep
from bridgemil.cohort.excerpt import excerpt
from bridgemil.cohort.folds import FoldPlan
from bridgemil.cohort.store import Cohort
from bridgemil.engine.plan import Job, Plan, grid
from bridgemil.engine.scheduler import Outcome, Workers, only_scheduler, schedule
from bridgemil.errors import BadUse
from bridgemil.methods import BACKBONE, BUDGET
from bridgemil.parallel import cores
from bridgemil.runs import RunStore, open_store

if TYPE_CHECKING:
    import pandas as pd

ENGINES = ("local", "ray")
BASELINE = 0.05  # seconds a fold of a baseline takes when the features are there
START = 0.5  # seconds a run takes beside its training, in a worker that is warm


@dataclass(frozen=True)
class Where:
    """On what to run: this machine's processes or a Ray cluster, and each run's share of it."""

    engine: str = "local"
    jobs: int | None = None  # runs at a time; by default as many as cores or GPUs allow
    threads: int = 1  # of each run
    device: str = "auto"
    gpus_per_run: float = 1.0  # where there are GPUs
    address: str | None = None  # of the Ray cluster; None starts one on this machine

    def __post_init__(self) -> None:
        if self.engine not in ENGINES:
            raise BadUse(f"engine must be one of {', '.join(ENGINES)}, got {self.engine!r}")
        if self.gpus_per_run <= 0 or self.threads < 1 or (self.jobs is not None and self.jobs < 1):
            raise BadUse("jobs and threads must be at least 1, and gpus_per_run above 0")
        if self.engine == "local" and self.address is not None:
            raise BadUse("address is of a Ray cluster; use --engine ray with it")

    def workers(self, out: Path) -> Workers:
        """Start nothing yet; processes and tasks come with the first job."""
        folder = str(out.resolve())
        if self.engine == "ray":
            from bridgemil.engine.ray import RayWorkers

            return RayWorkers(folder, self.threads, self.gpus_per_run, self.device, self.address, self.jobs)
        from bridgemil.engine.local import LocalWorkers
        from bridgemil.evaluation.run import device_of

        device_of(self.device)  # a device that is not there is better noticed now
        return LocalWorkers(folder, self.at_once, self.threads, self.device, self.gpus)

    @property
    def at_once(self) -> int:
        """How many runs this machine does at a time."""
        return self.jobs or max(1, int(self.gpus / self.gpus_per_run) if self.gpus else cores() // self.threads)

    @property
    def gpus(self) -> int:
        """How many GPUs of this machine may be used."""
        import torch

        return 0 if self.device == "cpu" else int(torch.cuda.device_count())


def expected_seconds(work: Plan, where: Where) -> dict[str, float]:
    """Seconds that each remaining run will take: as its finished siblings did, or by a step measured here."""
    from bridgemil.evaluation.estimate import estimate, torch_threads
    from bridgemil.evaluation.run import device_of

    finished = work.store.finished()
    seen: dict[tuple[str, str, str], float] = {}
    for job in work.jobs:
        if job.identity in finished and job.experiment not in seen:
            seen[job.experiment] = float(work.store.about(job.identity)["seconds"])
    device = device_of(where.device if where.engine == "local" else "auto")
    with torch_threads(where.threads):
        for job in work.todo:
            if job.experiment not in seen:
                used = excerpt(work.cohorts[job.cohort_hash], job.subjects.kept)
                measured = estimate(used, job.subjects, job.settings, device)
                seen[job.experiment] = measured.seconds + START
    expected, computed = {}, set()  # a baseline's features serve all folds
    for job in work.todo:
        plain = not job.settings.is_network
        expected[job.identity] = BASELINE if plain and job.experiment in computed else seen[job.experiment]
        if plain:
            computed.add(job.experiment)
    return expected


def plan(
    cohorts: Sequence[Cohort | str | Path],
    methods: Sequence[str],
    backbones: Sequence[str] = (BACKBONE,),
    seeds: int | Sequence[int] = 1,
    budget: str = BUDGET,
    out: str | Path = "runs",
    *,
    recipe: str | None = None,
    folds: int | None = None,
    split: FoldPlan | str | Path | None = None,
    groups: str | None = None,
    split_seed: int = 0,
    settings: Mapping[str, Any] | None = None,
    vary: Mapping[str, Sequence[Any]] | None = None,
    accept_risk: Sequence[str] = (),
    watch: Callable[[str], None] | None = None,
) -> Plan:
    """Which runs a grid has, and which of them ``out`` already holds. The arguments are those of ``evaluate``.

    ``vary`` gives settings several values, each of which is run: ``{"stage2.retention": [0, 1e-5]}``.
    ``watch`` is called with the name of each cohort that has to be audited first.
    """
    opened = [cohort if isinstance(cohort, Cohort) else Cohort.open(cohort) for cohort in cohorts]
    for cohort in opened:
        if cohort.path is None:
            raise BadUse("workers open a cohort by its path; save a cohort made in memory first: cohort.save(path)")
    how: dict[str, Any] = {"folds": folds, "split": split, "groups": groups, "split_seed": split_seed}
    experiments = grid(opened, methods, backbones, seeds, budget, recipe=recipe, **how, changes=settings, vary=vary)
    found = guard({experiment.cohort: [experiment.split] for experiment in experiments}, out, accept_risk, watch)
    audited = [replace(experiment, warnings=found[experiment.cohort.hash]) for experiment in experiments]
    return Plan(audited, RunStore(Path(out)))


def benchmark(
    grid_plan: Plan,
    where: Where | None = None,
    *,
    progress: bool = True,
    expected: Mapping[str, float] | None = None,
) -> Outcome:
    """Do what remains of a plan. Interrupted or killed, the same call goes on.

    Parameters
    ----------
    grid_plan
        From ``plan``.
    where
        This machine's cores by default.
    progress
        Show progress on standard error.
    expected
        Seconds of each remaining run, if ``expected_seconds`` was asked before.
    """
    from bridgemil.engine.display import Display

    where = where or Where()
    open_store(grid_plan.store.root)
    with only_scheduler(grid_plan.store):
        for cohort in grid_plan.cohorts.values():
            keep(cohort, grid_plan.store.root)
        grid_plan.note()
        grid_plan.look()
        if not grid_plan.todo:
            return Outcome()
        workers = where.workers(grid_plan.store.root)
        if not progress:
            return schedule(grid_plan.todo, grid_plan.store, workers)
        seconds = expected_seconds(grid_plan, where) if expected is None else expected
        with Display(grid_plan.todo, seconds, workers.slots) as display:
            return schedule(grid_plan.todo, grid_plan.store, workers, display)


def collect(store: RunStore, jobs: Sequence[Job] | None = None) -> pd.DataFrame:
    """Finished runs, a row each: of these jobs, or all that the folder holds.

    Settings in which runs differ from their method, recipe and budget are columns: ``stage2.retention``.
    """
    import pandas as pd

    wanted = store.finished()
    if jobs is not None:
        wanted &= {job.identity for job in jobs}
    rows, chosen = [], []
    for identity in sorted(wanted):
        about = store.about(identity)
        chosen.append(_settings(about))
        settings, split = about["settings"], about.get("split") or {}  # another version's run may have none
        rows.append(
            {
                "identity": identity,
                "cohort": Path(about["cohort"]["path"]).name or "(in memory)",
                "cohort_hash": about["cohort"]["hash"],
                "method": settings["method"],
                "backbone": settings["backbone"],
                "budget": settings["budget"],
                "recipe": settings.get("recipe"),
                "settings_hash": about["settings_hash"],
                "split": split.get("hash"),
                "part": split.get("part", ""),
                "seed": about["seed"],
                "fold": about["fold"],
                "accuracy": about["accuracy"],
                "selected_epoch": about["selected_epoch"],
                "seconds": about["seconds"],
                "threads": about["threads"],
                "device": about["device"],
                "results_version": about["results_version"],
            }
        )
    changed = sorted({key for usual, _ in chosen for key in usual})
    for row, (_, values) in zip(rows, chosen, strict=True):
        row |= {key: values.get(key) for key in changed}
    return pd.DataFrame(rows)


def _settings(about: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the user set of a run's settings, and all of them, flat; nothing of a version that had others."""
    from pydantic import ValidationError

    from bridgemil import methods

    try:
        settings = methods.Settings.model_validate(about["settings"])
    except ValidationError:
        return {}, {}
    return methods.changed_from_budget(settings, about["cohort"].get("burn_in")), methods.flat(about["settings"])
