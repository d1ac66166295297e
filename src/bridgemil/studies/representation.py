"""What the stages do to the space that windows lie in (RQ4): pictures, and how far classes and people stand apart.

Spaces of the first fold's test subjects, who taught no encoder anything: raw windows, a front end's features, what each
Stage 1 makes of them, and Stage 2 with and without retention. Beside them the accuracy of the method over all folds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bridgemil import methods
from bridgemil.cohort.cohort import Cohort
from bridgemil.engine.plan import Job
from bridgemil.errors import BadUse
from bridgemil.evaluation.results import Results
from bridgemil.report.benchmark import paper
from bridgemil.studies import published, space_maps, spaces, truth
from bridgemil.studies import scores as subject_scores
from bridgemil.studies.context import StudyContext
from bridgemil.studies.findings import Findings
from bridgemil.studies.spaces import Sample

if TYPE_CHECKING:
    import pandas as pd
    from torch import nn

OPTIONS = ()
RAW, FRONT_END, STAGE1, STAGE2 = "raw", "front end", "Stage 1", "Stage 2"
BEYOND = 0.05  # of random deals may be as large where classes are said to stand apart
UNTRAINED = "wo_stage1"  # whose accuracy stands beside what nobody learnt


@dataclass(frozen=True)
class Space:
    """A space, and the method whose accuracy stands beside it."""

    kind: str
    method: str

    @property
    def name(self) -> str:
        """As tables and panels call it."""
        names = {RAW: "raw windows", FRONT_END: "front end, untrained"}
        if self.kind == STAGE2:
            return f"{STAGE2} {'without' if self.method == 'wo_retention' else 'with'} retention"
        return names.get(self.kind) or f"{STAGE1}: {self.method}"


SPACES = (
    Space(RAW, UNTRAINED),
    Space(FRONT_END, UNTRAINED),
    *(Space(STAGE1, name) for name in (
        "random_encoder", "supervised", "supcon", "masked", "wo_variance_covariance", "wo_nearby", "wo_subbag",
        "bridgemil",
    )),
    Space(STAGE2, "wo_retention"),
    Space(STAGE2, "bridgemil"),
)  # fmt: skip


def perform(context: StudyContext) -> Findings:
    """Run every method on all folds with the first seed, and look at the spaces of the first fold."""
    import pandas as pd

    if len(context.seeds) > 1 or len(context.split_seeds) > 1:
        raise BadUse("a representation is of one seed and one split: leave --seeds and --split-seeds out")
    names = [n for n in dict.fromkeys(s.method for s in SPACES) if not methods.is_senseless(n, context.backbone)]
    keys = [(cohort, name) for cohort in context.cohorts for name in names]
    experiments = [context.experiment(cohort, name) for cohort, name in keys]
    results: dict[tuple[str, str], list[Results]] = {}
    jobs: dict[tuple[str, str], Job] = {}
    for (cohort, name), experiment, done in zip(keys, experiments, context.perform(experiments), strict=True):
        results[cohort.hash, name] = [done]
        jobs[cohort.hash, name] = experiment.jobs(context.seeds[0])[0]
    rows: list[dict[str, Any]] = []
    sentences: list[str] = []
    figures, points = {}, []
    for cohort in context.cohorts:
        look = Look(context, cohort, {name: jobs[cohort.hash, name] for name in names})
        mine = [_row(look, space, results[cohort.hash, space.method]) for space in look.spaces]
        rows += mine
        sentences += _sentences(look, mine)
        table = look.points()
        points.append(table)
        figures[_figure_name(context, cohort)] = space_maps.draw(table, mine, cohort.classes, _title(look))
    tables = {"representation": pd.DataFrame(rows)} | truth.tables(context, results)
    return Findings(
        f"Representation: {context.setup}", sentences, tables, figures,
        {"representation_points": pd.concat(points, ignore_index=True)}, _footnotes(context),
    )  # fmt: skip


class Look:
    """One cohort's first fold, as every space has it.

    Parameters
    ----------
    context, cohort
        What is studied.
    jobs
        By method, its finished run of the first fold.
    """

    def __init__(self, context: StudyContext, cohort: Cohort, jobs: Mapping[str, Job]) -> None:
        self.context, self.cohort, self.jobs = context, cohort, jobs
        self.subjects = next(iter(jobs.values())).subjects
        self.test = Sample.draw(cohort, sorted(self.subjects.test))
        self.train = Sample.draw(cohort, sorted(self.subjects.train))
        any_encoder = self.encoder(Space(STAGE1, "bridgemil"))
        self.has_front_end = getattr(any_encoder, "front_end", None) is not None
        self.spaces = [
            space for space in SPACES if space.method in jobs and (space.kind != FRONT_END or self.has_front_end)
        ]
        self._inputs = self._read(any_encoder)
        self.features = {space: self._features(space) for space in self.spaces}

    def encoder(self, space: Space) -> nn.Module:
        """The trained encoder that makes a space, on the CPU."""
        from bridgemil.models import NetworkModel

        job, store = self.jobs[space.method], self.context.store
        if space.kind == STAGE2:
            model = store.model(job.identity, backbone=job.settings.backbone)
            assert isinstance(model, NetworkModel)
            return model.network.encoder
        assert job.stage1 is not None
        return store.encoder(job.stage1, job.settings, self.cohort.signal)

    def _read(self, encoder: nn.Module) -> list[NDArray[np.float32]]:
        """What encoders take, of the test and of the training windows: front-end features or normalised windows."""
        from bridgemil.models import Features, features_of
        from bridgemil.runs import RunCache

        job = self.jobs["bridgemil"]
        cache = RunCache(self.context.store, job.identity, job.stage1, {})
        features, parts = Features.of_encoder(encoder), (self.test, self.train)
        if features is None:
            return [self._normalised(part) for part in parts]
        return [part.take(partial(features_of, cache, features, self.cohort)) for part in parts]

    def _normalised(self, sample: Sample) -> NDArray[np.float32]:
        from bridgemil.learning.data import normalised

        scale = self.cohort.normalisation(sorted(self.subjects.train))
        return normalised(sample.take(self.cohort.windows), scale)

    def _features(self, space: Space) -> list[NDArray[np.float32]]:
        """Of the test and of the training windows, each n x d."""
        import torch

        from bridgemil.learning.networks import in_blocks

        if space.kind == RAW:
            windows = [self._normalised(s) for s in (self.test, self.train)] if self.has_front_end else self._inputs
            return [part.reshape(len(part), -1) for part in windows]
        if space.kind == FRONT_END:  # as the batch norm that follows sees them
            mean, std = self._inputs[1].mean(axis=0), self._inputs[1].std(axis=0)
            return [(part - mean) / np.where(std > 0, std, 1) for part in self._inputs]
        encoder, cpu = self.encoder(space), torch.device("cpu")
        return [in_blocks(encoder, torch.from_numpy(part), cpu).numpy() for part in self._inputs]

    def moved(self, space: Space) -> float | None:
        """How far Stage 2 moved the test windows from where its Stage 1 had them, relative to their length."""
        start = Space(STAGE1, "bridgemil")  # without retention too: it starts from the same encoder
        if space.kind != STAGE2:
            return None
        before, after = (self.features[s][0].astype(np.float64) for s in (start, space))
        length = float(np.sqrt((before**2).sum(axis=1).mean()))
        return float(np.sqrt(((after - before) ** 2).sum(axis=1).mean())) / length if length else None

    def points(self) -> pd.DataFrame:
        """t-SNE's picture of every space: a row a window."""
        import pandas as pd

        parts = []
        for space in self.spaces:
            x, y = spaces.map_of(self.features[space][0]).T
            parts.append(
                pd.DataFrame({
                    "cohort": self.context.name(self.cohort), "space": space.name, "subject": self.test.subjects,
                    "label": self.test.labels, "window": self.test.numbers, "x": x, "y": y,
                })
            )  # fmt: skip
        return pd.concat(parts, ignore_index=True)

    @property
    def people(self) -> str:
        """How many test subjects of each class."""
        labels = [self.cohort.records[subject].label for subject in self.subjects.test]
        return ", ".join(f"{labels.count(name)} {name}" for name in self.cohort.classes)


def _row(look: Look, space: Space, results: list[Results]) -> dict[str, Any]:
    test, train = look.features[space]
    near = spaces.across_people(train, look.train.labels, test, look.test.labels)
    row: dict[str, Any] = {
        "cohort": look.context.name(look.cohort), "space": space.name, "method": space.method,
        "accuracy": subject_scores.score(results)["accuracy"], **spaces.scores(test, look.test),
        "by_chance": spaces.by_chance(test, look.test), "knn": 100 * near,
        "moved": look.moved(space), "dimensions": test.shape[1],
    }  # fmt: skip
    return row | _published(look.context, look.cohort, space)


def _published(context: StudyContext, cohort: Cohort, space: Space) -> dict[str, float]:
    """The paper's accuracy, silhouette and Davies-Bouldin, as far as its text gives them."""
    if not published.comparable(context, cohort):
        return {}
    place = paper()["representation"].get(cohort.about["source"], {}).get(space.kind, {})
    return {f"paper_{name}": float(value) for name, value in place.get(space.method, {}).items()}


def _figure_name(context: StudyContext, cohort: Cohort) -> str:
    import re

    several = "" if len(context.cohorts) == 1 else f"_{context.name(cohort)}"
    return "representation" + re.sub(r"[^\w.-]+", "_", several)


def _title(look: Look) -> str:
    return (
        f"{look.context.name(look.cohort)}, {look.context.setup}: {len(look.test.rows)} test subjects of fold 1 "
        f"({look.people}), {len(look.test)} windows, seed {look.context.seeds[0]}"
    )


def _sentences(look: Look, rows: list[dict[str, Any]]) -> list[str]:
    name, by = look.context.name(look.cohort), {row["space"]: row for row in rows}
    raw, first = by[Space(RAW, UNTRAINED).name], by[Space(STAGE1, "bridgemil").name]
    without, with_ = by[Space(STAGE2, "wo_retention").name], by[Space(STAGE2, "bridgemil").name]
    level = 100 / len(set(look.test.labels.tolist()))

    def said(row: dict[str, Any], key: str, form: str = ".3f") -> str:
        return "none" if row[key] is None else format(row[key], form)

    reference = by[Space(STAGE1, "random_encoder").name]
    apart = "are not shown to stand"
    if first["by_chance"] is not None and first["by_chance"] <= BEYOND:
        apart = "stand"
    elif spaces.different_deals(look.test) < 1 / BEYOND:
        apart = "could not be shown, with so few people, to stand"
    return [
        f"{name}: after bridgemil's Stage 1 classes {apart} further apart "
        f"than diagnoses dealt at random to the same people (silhouette {said(first, 'silhouette_by_class')}; as large "
        f"in {said(first, 'by_chance', '.1%')} of the deals); raw windows {said(raw, 'silhouette_by_class')} "
        f"({said(raw, 'by_chance', '.1%')}), an encoder never trained {said(reference, 'silhouette_by_class')} "
        f"({said(reference, 'by_chance', '.1%')}).",
        f"{name}: silhouette by person: raw windows {said(raw, 'silhouette_by_subject')}, an encoder never trained "
        f"{said(reference, 'silhouette_by_subject')}, after Stage 1 {said(first, 'silhouette_by_subject')}, after "
        f"Stage 2 {said(with_, 'silhouette_by_subject')}.",
        f"{name}: among a window's {spaces.NEIGHBOURS} nearest windows of training subjects its class is the commonest "
        f"for {raw['knn']:.1f} % of raw windows, {reference['knn']:.1f} % with an encoder never trained, "
        f"{first['knn']:.1f} % after Stage 1, {with_['knn']:.1f} % after Stage 2 (classes weigh the same; guessing "
        f"gives {level:.1f} %).",
        f"{name}: Stage 2 moves windows by {said(with_, 'moved', '.1%')} of their length with retention and by "
        f"{said(without, 'moved', '.1%')} without; silhouette by class {said(with_, 'silhouette_by_class')} and "
        f"{said(without, 'silhouette_by_class')}, accuracy {with_['accuracy']:.1f} % and {without['accuracy']:.1f} %.",
        f"{name}: one fold's {len(look.test.rows)} people ({look.people}) and one seed: t-SNE is a picture, not "
        "evidence, and none of these numbers says how another fold would look.",
    ]  # fmt: skip


def _footnotes(context: StudyContext) -> list[str]:
    notes = [
        f"Of each person at most {spaces.A_SUBJECT} windows, evenly over the recordings, and at most {spaces.IN_ALL} "
        "of all people together; of test and of training subjects alike.",
        "Silhouette (1 at best, below 0 if windows lie nearer to another group) and Davies-Bouldin (0 at best) are of "
        "the space itself, not of the picture; both take windows of one person for independent, which they are not. "
        "silhouette_by_subject: how much of the space is the person's fingerprint.",
        f"by_chance: of {spaces.DEALS} deals of the same diagnoses to the same people, the share with a silhouette by "
        "class as large: a person's windows lie together, so that few people seem to separate any classes.",
        f"knn: balanced accuracy (%) of windows by their {spaces.NEIGHBOURS} nearest windows of training subjects; no "
        "window votes on its own person's.",
        "moved: root mean square distance of a test window from where Stage 1 had it, relative to its length.",
        f"accuracy: held-out subjects of all folds, one seed. Beside what nobody learnt stands {UNTRAINED}, Stage 2 "
        "from random weights.",
        "t-SNE keeps neighbours; sizes of groups and distances between them mean nothing.",
    ]  # fmt: skip
    if methods.is_senseless("masked", context.backbone):
        notes.append(f"masked is left out: the features of {context.backbone}'s front end have no samples to hide.")
        notes.append(
            "The front end's features are standardised on the training windows, as the batch norm after it does."
        )
    if any(published.comparable(context, cohort) for cohort in context.cohorts):
        notes.append(
            "The paper's numbers: its raw accuracy (63.52) equals its Additive cell of five seeds; 62.76 without "
            "variance and covariance is 71.81 in its Appendix E; several of its seed-0 accuracies lie on the grid of "
            "five seeds; retention's gradient is about 1e-5 of the classification gradient, yet 3.34 points are "
            "ascribed to it."
        )
    return notes
