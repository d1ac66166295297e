"""What the stages do to the space of windows (RQ4): t-SNE maps, and how well classes and subjects separate.

Spaces of the first fold's test subjects, on whom no encoder was trained: raw windows, a front end's features, the
embeddings after each Stage 1, and after Stage 2 with and without retention. With them the accuracy over all folds.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bridgemil import methods
from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.signal import evenly
from bridgemil.engine.plan import Job
from bridgemil.errors import BadUse
from bridgemil.evaluation.results import Results
from bridgemil.registry import class_colour
from bridgemil.report.figures import canvas, class_look
from bridgemil.studies.context import StudyContext
from bridgemil.studies.findings import Findings, prose, score

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from torch import nn

Values = NDArray[Any]

RAW, FRONT_END, STAGE1, STAGE2 = "raw", "front end", "Stage 1", "Stage 2"
UNTRAINED = "wo_stage1"  # whose accuracy is given with spaces that nothing was trained for
PER_SUBJECT, IN_ALL = 200, 3000  # windows of one subject, and of all: t-SNE and silhouettes cost their square
NEIGHBOURS = 5
PERMUTATIONS, LEVEL = 999, 0.05
PERPLEXITY = 30.0
COMPONENTS = 50  # of a PCA before t-SNE, in spaces with more dimensions
PANELS, LAYERS = 4, 8  # panels side by side


class Space(NamedTuple):
    """A space, and the method whose accuracy is given with it."""

    kind: str
    method: str

    @property
    def name(self) -> str:
        """In tables and panels."""
        names = {RAW: "raw windows", FRONT_END: "front end, untrained", STAGE1: f"{STAGE1}: {self.method}"}
        without = self.method == "wo_retention"
        return names.get(self.kind) or f"{STAGE2} {'without' if without else 'with'} retention"


ENCODERS = ("random_encoder", "supervised", "supcon", "masked", "wo_variance_covariance", "wo_nearby", "wo_subbag")
AFTER_STAGE1, AFTER_STAGE2 = Space(STAGE1, "bridgemil"), Space(STAGE2, "bridgemil")
WITHOUT = Space(STAGE2, "wo_retention")
SPACES = (
    Space(RAW, UNTRAINED), Space(FRONT_END, UNTRAINED), *(Space(STAGE1, name) for name in ENCODERS), AFTER_STAGE1,
    WITHOUT, AFTER_STAGE2,
)  # fmt: skip


def perform(context: StudyContext) -> Findings:
    """Run every method on all folds with the first seed, and map the spaces of the first fold."""
    import pandas as pd

    seeds, backbone = context.protocol.seed_list, context.protocol.backbone
    if len(seeds) > 1 or len(context.split_seeds) > 1:
        raise BadUse("a representation is of one seed and one split: leave --seeds and --split-seeds out")
    names = [n for n in dict.fromkeys(s.method for s in SPACES) if not methods.is_senseless(n, backbone)]
    planned = {(c.hash, name): context.experiment(c, name) for c in context.cohorts for name in names}
    results = context.run(planned.items())
    rows, sentences, figures, points = list[dict[str, Any]](), list[str](), {}, []
    for cohort in context.cohorts:
        name, jobs = context.name(cohort), {name: planned[cohort.hash, name].jobs(seeds[0])[0] for name in names}
        maps = FirstFold(context, cohort, jobs)
        mine = [_row(maps, space, results[cohort.hash, space.method]) for space in maps.spaces]
        rows += mine
        sentences += _sentences(maps, mine)
        points.append(maps.points())
        title = f"{name}, {context.setup}: {maps.test_subjects} of fold 1, {len(maps.test)} windows, seed {seeds[0]}"
        several = "" if len(context.cohorts) == 1 else re.sub(r"[^\w.-]+", "_", f"_{name}")
        figures[f"representation{several}"] = _figure(points[-1], mine, cohort.classes, title)
    notes = prose(
        "representation_notes", per_subject=PER_SUBJECT, in_all=IN_ALL, permutations=PERMUTATIONS, untrained=UNTRAINED,
        neighbours=NEIGHBOURS, front_end=backbone if methods.is_senseless("masked", backbone) else "",
        paper=context.is_papers,
    )  # fmt: skip
    return Findings(
        f"Representation: {context.setup}", sentences, {"representation": pd.DataFrame(rows)}, figures,
        {"representation_points": pd.concat(points, ignore_index=True)}, notes, runs=results,
    )  # fmt: skip


# ------------------------------------------------------------------ windows and their features


def sample(cohort: Cohort, subjects: Sequence[str]) -> pd.DataFrame:
    """Windows evenly over the recordings, at most ``PER_SUBJECT`` of a subject and ``IN_ALL`` of all; deterministic.

    One row per window: subject, label, row (its index among the subject's windows) and window (its number).
    """
    import pandas as pd

    most, parts = max(1, min(PER_SUBJECT, IN_ALL // len(subjects))), []
    for subject in subjects:
        record, numbers = cohort.records[subject], cohort.window_numbers(subject)
        rows = evenly(len(numbers), most)
        parts.append(pd.DataFrame({"subject": subject, "label": record.label, "row": rows, "window": numbers[rows]}))
    return pd.concat(parts, ignore_index=True)


def take(windows: pd.DataFrame, arrays: Callable[[str], Values]) -> NDArray[np.float32]:
    """The arrays of a sample's windows, (n, …); ``arrays(subject)`` has one row per window of the subject."""
    subjects = windows.groupby("subject", sort=False)["row"]
    return np.concatenate([np.asarray(arrays(str(s))[rows.to_numpy()], dtype=np.float32) for s, rows in subjects])


class FirstFold:
    """Features of one cohort's first fold in every space; ``jobs`` are its finished runs by method."""

    def __init__(self, context: StudyContext, cohort: Cohort, jobs: Mapping[str, Job]) -> None:
        from bridgemil.learning.data import normalised
        from bridgemil.models import Features, features_of
        from bridgemil.runs import RunCache

        self.context, self.cohort, self.jobs = context, cohort, jobs
        job = jobs["bridgemil"]
        self.test, self.train = (sample(cohort, sorted(s)) for s in (job.fold.test, job.fold.train))
        encoder = self.encoder(AFTER_STAGE1)
        front_end, cache = Features.of_encoder(encoder), RunCache(context.store)
        self.spaces = [s for s in SPACES if s.method in jobs and (s.kind != FRONT_END or front_end is not None)]
        # The input of encoders, of the test and of the training windows: front-end features or normalised windows.
        scale, both = cohort.normalisation(sorted(job.fold.train)), (self.test, self.train)
        self._windows = [normalised(take(windows, cohort.windows), scale) for windows in both]
        self._inputs = self._windows
        if front_end is not None:
            self._inputs = [take(windows, partial(features_of, cache, front_end, cohort)) for windows in both]
        self.features = {space: self._features(space) for space in self.spaces}

    def encoder(self, space: Space) -> nn.Module:
        """The trained encoder of a space, on the CPU."""
        from bridgemil.models import NetworkModel, build_encoder

        job, store = self.jobs[space.method], self.context.store
        if space.kind == STAGE2:
            model = store.model(job.identity, backbone=job.settings.backbone)
            assert isinstance(model, NetworkModel)
            return model.network.encoder
        assert job.stage1 is not None
        return build_encoder(store.encoder(job.stage1)[0], job.settings, self.cohort.signal)

    def _features(self, space: Space) -> list[NDArray[np.float32]]:
        """Of the test and of the training windows, each (n, d)."""
        import torch

        from bridgemil.learning.networks import in_blocks

        if space.kind == RAW:
            return [part.reshape(len(part), -1) for part in self._windows]
        if space.kind == FRONT_END:  # as the batch norm that follows sees them
            mean, std = self._inputs[1].mean(axis=0), self._inputs[1].std(axis=0)
            return [(part - mean) / np.where(std > 0, std, 1) for part in self._inputs]
        encoder, cpu = self.encoder(space), torch.device("cpu")
        return [in_blocks(encoder, torch.from_numpy(part), cpu).numpy() for part in self._inputs]

    def moved(self, space: Space) -> float | None:
        """How far Stage 2 moved the test windows from their Stage 1 embedding, relative to its length."""
        if space.kind != STAGE2:
            return None
        # without retention too: it starts from the same encoder
        before, after = (self.features[s][0].astype(np.float64) for s in (AFTER_STAGE1, space))
        length = float(np.sqrt((before**2).sum(axis=1).mean()))
        return float(np.sqrt(((after - before) ** 2).sum(axis=1).mean())) / length if length else None

    def points(self) -> pd.DataFrame:
        """The t-SNE map of every space: one row per window."""
        import pandas as pd

        keys, windows = ["cohort", "space"], self.test[["subject", "label", "window"]]
        maps = {(self.context.name(self.cohort), space.name): tsne(self.features[space][0]).T for space in self.spaces}
        parts = {key: windows.assign(x=x, y=y) for key, (x, y) in maps.items()}
        return pd.concat(parts, names=keys).reset_index(level=keys).reset_index(drop=True)

    @property
    def test_subjects(self) -> str:
        """How many test subjects, and how many of each class."""
        counts = self.test.drop_duplicates("subject")["label"].value_counts()
        each = ", ".join(f"{counts.get(name, 0)} {name}" for name in self.cohort.classes)
        return f"{counts.sum()} test subjects ({each})"


# ------------------------------------------------------------------ scores of a space


def is_point(features: Values) -> bool:
    """Whether all windows have one embedding (n, d): an encoder that collapsed."""
    size = float(np.abs(features).max(initial=0))
    return float(np.ptp(features, axis=0).max()) <= 1e-6 * size


def separation(features: Values, windows: pd.DataFrame) -> dict[str, float | None]:
    """Silhouettes by class and by subject, and Davies-Bouldin by class, of features (n, d); None where not defined.

    ``by_chance`` is the p value of a permutation test: how often diagnoses permuted between the subjects give a
    silhouette by class as large. Windows of a subject are close whatever the class, so that few subjects seem to
    separate any classes.
    """
    from sklearn.metrics import davies_bouldin_score, pairwise_distances_chunked, silhouette_score

    even, firsts = _standardised(features), windows.drop_duplicates("subject")

    def metric(function: Callable[..., float], column: str) -> float | None:
        undefined = is_point(features) or not 1 < windows[column].nunique() < len(windows)
        return None if undefined else float(function(even, windows[column].to_numpy()))

    found = {
        "silhouette_by_class": metric(silhouette_score, "label"),
        "davies_bouldin": metric(davies_bouldin_score, "label"),
        "silhouette_by_subject": metric(silhouette_score, "subject"),
        "by_chance": None,
    }
    if found["silhouette_by_class"] is not None and len(windows) > len(firsts):
        starts, classes = firsts.index.to_numpy(), firsts["label"].to_numpy(dtype=str)
        sizes, rng = np.diff(np.append(starts, len(windows))), np.random.default_rng(0)
        far = np.concatenate([np.add.reduceat(d, starts, axis=1) for d in pairwise_distances_chunked(even)])
        true = silhouette(far, sizes, classes)
        permuted = np.array([silhouette(far, sizes, rng.permutation(classes)) for _ in range(PERMUTATIONS)])
        found["by_chance"] = float((1 + np.sum(permuted >= true - 1e-12)) / (1 + PERMUTATIONS))
    return found


def silhouette(far: Values, sizes: Values, classes: Values) -> float:
    """scikit-learn's silhouette by class, fast enough to permute the classes of subjects.

    From the sums of each window's distances to every subject's windows (n, subjects), and windows and class of each
    subject (subjects).
    """
    members = classes[:, None] == np.unique(classes)[None]  # subjects x K
    own = np.repeat(members, sizes, axis=0)  # n x K
    sums, counts = far @ members, sizes @ members
    inside = sums[own] / np.maximum(counts[own.argmax(axis=1)] - 1, 1)
    outside = np.where(own, np.inf, sums / counts).min(axis=1)
    values = (outside - inside) / np.maximum(np.maximum(inside, outside), np.finfo(float).tiny)
    return float(np.where(counts[own.argmax(axis=1)] > 1, values, 0).mean())


def distinct_permutations(classes: Sequence[str]) -> int:
    """How many permutations of the diagnoses group the subjects differently; the names of classes do not matter."""
    counts = Counter(classes)
    every = math.factorial(len(classes)) // math.prod(math.factorial(n) for n in counts.values())
    return every // math.prod(math.factorial(times) for times in Counter(counts.values()).values())


def knn_accuracy(train: Values, train_labels: Values, test: Values, test_labels: Values) -> float:
    """Balanced accuracy (0 to 1) of test windows (n, d) by their nearest training windows (m, d), of other subjects."""
    from sklearn.metrics import recall_score
    from sklearn.neighbors import KNeighborsClassifier

    predicted = KNeighborsClassifier(min(NEIGHBOURS, len(train))).fit(train, train_labels).predict(test)
    return float(recall_score(test_labels, predicted, labels=np.unique(test_labels), average="macro"))


def tsne(features: Values) -> Values:
    """The t-SNE map of a space (n, d): (n, 2), without a unit; deterministic."""
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    n, d = features.shape
    if n < 4 or is_point(features):
        return np.zeros((n, 2))
    even = _standardised(features)
    if d < 2:
        even = np.hstack([even, np.zeros((n, 1))])
    with threadpool_limits(1):  # several threads would sum in a random order
        if min(n, d) > COMPONENTS:
            even = PCA(COMPONENTS, random_state=0).fit_transform(even)
        perplexity = min(PERPLEXITY, (n - 1) / 3)
        return np.asarray(TSNE(2, perplexity=perplexity, init="pca", random_state=0).fit_transform(even))


def _standardised(features: Values) -> Values:
    """Zero mean and unit size over all dimensions: no score depends on it, but tolerances in their code do."""
    centred = features.astype(np.float64) - features.mean(axis=0, dtype=np.float64)
    size = float(np.sqrt((centred**2).mean()))
    return np.asarray(centred / size if size else centred)


# ------------------------------------------------------------------ table and sentences


def _row(maps: FirstFold, space: Space, results: Sequence[Results]) -> dict[str, Any]:
    test, train = maps.features[space]
    published = maps.context.published(maps.cohort, "representation", space.kind, space.method)
    return {
        "cohort": maps.context.name(maps.cohort), "space": space.name, "method": space.method,
        "accuracy": score(results)["accuracy"], **separation(test, maps.test),
        "knn": 100 * knn_accuracy(train, maps.train["label"].to_numpy(), test, maps.test["label"].to_numpy()),
        "moved": maps.moved(space), "dimensions": test.shape[1],
        **{f"paper_{name}": float(value) for name, value in published.items()},
    }  # fmt: skip


def _sentences(maps: FirstFold, rows: Sequence[dict[str, Any]]) -> list[str]:
    by, classes = {row["space"]: row for row in rows}, maps.test.drop_duplicates("subject")["label"].tolist()
    first = by[AFTER_STAGE1.name]
    return prose(
        "representation_sentences", name=maps.context.name(maps.cohort), raw=by[Space(RAW, UNTRAINED).name],
        untrained=by[Space(STAGE1, "random_encoder").name], after=by[AFTER_STAGE2.name], without=by[WITHOUT.name],
        neighbours=NEIGHBOURS, subjects=maps.test_subjects,
        significant=first["by_chance"] is not None and first["by_chance"] <= LEVEL, chance=100 / len(set(classes)),
        first=first, too_few=distinct_permutations(classes) < 1 / LEVEL,
    )  # fmt: skip


# ------------------------------------------------------------------ the figure


def _figure(points: pd.DataFrame, rows: Sequence[dict[str, Any]], classes: Sequence[str], title: str) -> Any:
    """One panel per space, one point per window (classes by colour and marker, subjects by shade), and a legend."""
    down = -(-(len(rows) + 1) // PANELS)
    figure, axes = canvas(PANELS, down, width=3.1, height=3.65)
    figure.suptitle(title, fontsize=11)
    for ax, row in zip(axes, rows, strict=False):
        _draw(ax, points[points["space"] == row["space"]], classes)
        numbers = "no scores"
        if row["silhouette_by_class"] is not None:
            numbers = f"silhouette {row['silhouette_by_class']:.3f}, Davies-Bouldin {row['davies_bouldin']:.2f}"
        ax.set_title(f"{row['space']}\naccuracy {row['accuracy']:.1f} %\n{numbers}", fontsize=9)
    axes[(down - 1) * PANELS].set(xlabel="t-SNE 1 (no unit)", ylabel="t-SNE 2 (no unit)")
    for ax in axes[len(rows) :]:
        ax.set_axis_off()
    for number, name in enumerate(classes):
        n = points.loc[points["label"] == name, "subject"].nunique()
        axes[len(rows)].scatter([], [], s=64, label=f"{name}: {n} subjects", **class_look(number))
    note = "point: window,\nshade: subject;\naccuracy: all folds"
    axes[len(rows)].legend(loc="center", frameon=False, fontsize=10, title=note, title_fontsize=10)
    return figure


def shade(number: int, position: int, n: int) -> tuple[float, ...]:
    """The colour of a subject: its class's, from dark to light by its position among the n subjects of the class."""
    from matplotlib.colors import to_rgb

    plain = np.array(to_rgb(class_colour(number)))
    place = 2 * position / (n - 1) - 1 if n > 1 else 0.0  # -1 darkest, 1 lightest
    return tuple((plain + 0.55 * place * ((1 - plain) if place > 0 else plain)).tolist())


def _draw(ax: Axes, points: pd.DataFrame, classes: Sequence[str]) -> None:
    size, turn = float(np.clip(12000 / max(len(points), 1), 6, 22)), np.arange(len(points)) % LAYERS
    for number, name in enumerate(classes):
        mine = points["label"] == name
        subjects = sorted(points.loc[mine, "subject"].unique())
        tint = {subject: shade(number, i, len(subjects)) for i, subject in enumerate(subjects)}
        for layer in range(LAYERS):  # classes in turns, so that none covers the others
            own = points[mine & (turn == layer)]
            ax.scatter(
                own["x"], own["y"], s=size, c=[tint[s] for s in own["subject"]], marker=class_look(number)["marker"],
                linewidths=0, alpha=0.75, rasterized=True, zorder=1 + layer / LAYERS,
            )  # fmt: skip
    ax.set(xticks=[], yticks=[])
    ax.margins(0.04)
    ax.set_box_aspect(1)
    ax.grid(visible=False)
    ax.spines[:].set(visible=True, color="0.75")
