"""What a study found (sentences, tables, figures), and what studies share: scores of pooled results, and drawing."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bridgemil import methods
from bridgemil.evaluation import metrics
from bridgemil.evaluation.results import Results, compare_splits
from bridgemil.evaluation.statistics import Comparison
from bridgemil.report.tables import Sheet
from bridgemil.report.templating import macro, text
from bridgemil.runs import AuditWarning
from bridgemil.storage.files import new_file

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CHANCE = "chance level (largest class)"
CLASS_MARKERS = "osD^vP"
_MARKERS = {"circle": "o", "square": "s", "diamond": "D", "triangle": "^"}


@dataclass(frozen=True)
class Findings:
    """What a study found.

    Parameters
    ----------
    title : str
        What was studied.
    sentences : sequence of str
        What the numbers show, and what they do not.
    tables : mapping of str to DataFrame
        Each is written as CSV and included in findings.md. Accuracies are in percent.
    figures : mapping of str to Figure
        Each is written as PNG and SVG.
    data : mapping of str to DataFrame
        What is drawn in the figures, where it is more than a table; written as CSV.
    footnotes : sequence of str
        What a reader must know to interpret them.
    warnings : sequence of mapping
        The audit warnings of the cohorts: cohort, check, level, message.
    runs : mapping of (cohort hash, name) to list of Results
        What is compared with the known evidence of a synthetic cohort.
    """

    title: str
    sentences: Sequence[str]
    tables: Mapping[str, pd.DataFrame]
    figures: Mapping[str, Figure]
    data: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    footnotes: Sequence[str] = ()
    warnings: Sequence[AuditWarning] = ()
    runs: Mapping[tuple[str, str], Sequence[Results]] = field(default_factory=dict, repr=False)

    def write(self, folder: Path) -> list[Path]:
        """Write everything, each file atomically; files of an earlier call that this one lacks are removed."""
        content = {
            f"{name}.csv": table.to_csv(index=False, float_format="%.6g").encode()
            for name, table in (*self.tables.items(), *self.data.items())
        }
        for name, figure in self.figures.items():
            content |= {f"{name}.{ending}": _drawn(figure, ending) for ending in ("png", "svg")}
        content["findings.md"] = self.markdown().encode()
        folder.mkdir(parents=True, exist_ok=True)
        listing = folder / ".written.json"
        try:
            earlier = {str(name) for name in json.loads(listing.read_text("utf-8"))}
        except (OSError, ValueError):
            earlier = set()
        for name, data in content.items():
            with new_file(folder / name) as stream:
                stream.write(data)
        for name in earlier - set(content):
            if Path(name).name == name and not (folder / name).is_symlink():
                (folder / name).unlink(missing_ok=True)
        with new_file(listing) as stream:
            stream.write(json.dumps(sorted(content)).encode())
        return [folder / name for name in content]

    def to_dict(self) -> dict[str, Any]:
        """As JSON holds it."""
        tables = {name: json.loads(table.to_json(orient="records")) for name, table in self.tables.items()}
        texts = {"sentences": list(self.sentences), "notes": list(self.footnotes), "warnings": list(self.warnings)}
        return {"title": self.title, **texts, "tables": tables}

    @staticmethod
    def plain(table: pd.DataFrame) -> str:
        """A table for the terminal."""
        shown = readable(table)
        rows = [list(map(str, shown.columns)), *shown.to_numpy().tolist()]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)) for row in rows]
        return "\n".join(line.rstrip() for line in lines)

    def markdown(self) -> str:
        """As findings.md holds it."""
        tables = []
        for name, table in self.tables.items():
            shown = readable(table)
            tables.append(Sheet(name.replace("_", " "), list(shown.columns), shown.to_numpy().tolist()))
        values = {"title": self.title, "warnings": self.warnings, "sentences": self.sentences, "notes": self.footnotes}
        return text("findings.md.j2", **values, tables=tables, figures=list(self.figures)) + "\n"


def prose(template: str, /, **values: Any) -> list[str]:
    """Sentences or notes of a study, one per line of a macro in ``studies.txt.j2``."""
    return [line for line in macro("studies.txt.j2", template)(**values).splitlines() if line]


def _drawn(figure: Figure, ending: str) -> bytes:
    """The same figure gives the same bytes: no date, and names in the SVG that do not change."""
    import matplotlib as mpl

    stream = io.BytesIO()
    with mpl.rc_context({"svg.hashsalt": "bridgemil"}):
        figure.savefig(stream, format=ending, dpi=130, metadata={"Date": None} if ending == "svg" else None)
    return stream.getvalue()


def readable(table: pd.DataFrame) -> pd.DataFrame:
    """A table as text: a number with its interval in one cell; columns that do not vary are left out."""
    import pandas as pd

    columns: dict[str, list[str]] = {}
    for name in (name for name in table if not str(name).endswith(("95_low", "95_high"))):
        bounds = [f"{'ci' if name == 'accuracy' else name}95_{end}" for end in ("low", "high")]
        if bounds[0] in table:
            form = _points if name in ("accuracy", "gain") else _cell_text  # percent and points, whatever their size
            columns[f"{name} (95 %)"] = [
                "" if value != value else f"{form(value)} ({form(low)} to {form(high)})"
                for value, low, high in table[[name, *bounds]].itertuples(index=False)
            ]
        else:
            columns[str(name)] = [_cell_text(value) for value in table[name]]
    for name in ("sd", "cohort", "runs_of_all_folds", "subjects"):
        different = set(columns.get(name, ()))
        if len(table) > 1 and len(different) == 1 and (name != "sd" or different == {"0.0"}):
            del columns[name]
    return pd.DataFrame(columns)


def _points(value: float) -> str:
    return f"{round(value, 1) + 0.0:.1f}"


def _cell_text(value: Any) -> str:
    if not isinstance(value, float):
        return "" if value is None else str(value)
    if value != value:
        return ""
    if abs(value) >= 1 or value == 0:
        return f"{value:.1f}"
    return f"{value:.3f}" if abs(value) >= 0.01 else f"{value:.1e}"


# ------------------------------------------------------------------ scores of results pooled over seeds and splits


def pooled(results: Sequence[Results]) -> pd.DataFrame:
    """Held-out predictions of several results (splits), each seed of each with a number of its own."""
    import pandas as pd

    tables, first = [], 0
    for result in results:
        codes = {seed: first + i for i, seed in enumerate(sorted(result.predictions["seed"].unique()))}
        tables.append(result.predictions.assign(seed=result.predictions["seed"].map(codes)))
        first += len(codes)
    return pd.concat(tables, ignore_index=True)


def score(results: Sequence[Results]) -> dict[str, Any]:
    """Accuracy (%) with its SD over seeds and splits and a 95 % interval over subjects; and other scores."""
    predictions, classes = pooled(results), results[0].classes
    per_seed = [rows for _, rows in predictions.groupby("seed")]
    each = [metrics.accuracy(rows) for rows in per_seed]
    others = [metrics.scores(rows, classes) for rows in per_seed]
    low, high = metrics.accuracy_interval(predictions)
    return {
        "accuracy": 100 * metrics.accuracy(predictions),
        "sd": round(100 * float(np.std(each)), 9),  # a rounding error is no spread
        "ci95_low": 100 * low,
        "ci95_high": 100 * high,
        "fold_mean": 100 * metrics.fold_mean(predictions),
        **{name: float(np.mean([row[name] for row in others])) for name in ("balanced_accuracy", "auroc")},
        "subjects": int(predictions["subject"].nunique()),
        "runs_of_all_folds": len(per_seed),
    }


def compared(one: Sequence[Results], other: Sequence[Results], names: tuple[str, str] | None = None) -> Comparison:
    """A condition against its reference on the same subjects, seeds and splits, by the one test of the package."""
    found = compare_splits(one, other)
    return found if names is None else replace(found, one=names[0], other=names[1])


def comparison_columns(c: Comparison | None) -> dict[str, Any]:
    """A comparison as columns of a table; differences in points."""
    if c is None:
        return {}
    gains = {"gain": 100 * c.difference, "gain95_low": 100 * c.low, "gain95_high": 100 * c.high}
    return gains | {"p": c.p, "p_holm": c.p_holm}


def paper_columns(number: Sequence[float]) -> dict[str, float]:
    """A mean and standard deviation of the paper as columns; none where there is no number."""
    return {"paper": float(number[0]), "paper_sd": float(number[1])} if number else {}


def correctness(results: Sequence[Results]) -> pd.DataFrame:
    """By subject: its ``label`` and the share of its predictions that are ``correct``, over all results and seeds."""
    predictions = pooled(results)
    labels = predictions.groupby("subject")["label"].first()
    return labels.to_frame().assign(correct=metrics.correctness(predictions))


def balanced_resamples(
    correct: NDArray[np.float64], labels: Sequence[str], resamples: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Balanced accuracy, and that of subjects resampled with replacement within their class.

    Parameters
    ----------
    correct : array (subjects, conditions)
        Share of correct predictions, 0 to 1.
    labels : sequence of str (subjects)
        Their classes.
    resamples : int
        How many; the same subjects are drawn for every condition.

    Returns
    -------
    observed : array (conditions)
    resampled : array (resamples, conditions)
    """
    rng, names = np.random.default_rng(0), np.asarray(labels)
    observed, drawn = [], []
    for name in sorted(set(labels)):
        mine = correct[names == name]
        observed.append(mine.mean(axis=0))
        counts = rng.multinomial(len(mine), np.full(len(mine), 1 / len(mine)), resamples)
        drawn.append(counts @ mine / len(mine))
    return np.mean(observed, axis=0), np.mean(drawn, axis=0)


# ------------------------------------------------------------------ drawing


def canvas(columns: int = 1, rows: int = 1, width: float = 5.0, height: float = 3.8) -> tuple[Figure, list[Axes]]:
    """A figure outside pyplot, with its axes from left to right and top to bottom."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(axis="y", color="0.92", linewidth=0.8)
        ax.set_axisbelow(True)
    return figure, axes


def look(method: str) -> dict[str, Any]:
    """Colour and marker of a method, for matplotlib."""
    style = methods.entry(method)
    return {"color": style.colour, "marker": _MARKERS[style.marker]}


def class_marker(number: int) -> str:
    """The marker of a class, by its number in the cohort; its colour is ``registry.class_colour``."""
    return CLASS_MARKERS[number % len(CLASS_MARKERS)]


def interval_rows(ax: Axes, rows: Sequence[Mapping[str, Any]], keys: Sequence[str], names: Sequence[str]) -> None:
    """Values with their 95 % intervals, one below the other, each in the colour of its method.

    Parameters
    ----------
    ax : Axes
        Where to draw.
    rows : sequence of mapping
        Rows of a table; one without the value is left out.
    keys : sequence of str
        The columns of the value and of both ends of its interval.
    names : sequence of str
        The method of each row.
    """
    for y, (row, name) in enumerate(zip(rows, names, strict=True)):
        if keys[0] in row:
            value, low, high = (row[key] for key in keys)
            ax.plot([low, high], [y, y], color=look(name)["color"], linewidth=2)
            ax.plot(value, y, markersize=7, linestyle="none", **look(name))
    ax.set_yticks(range(len(rows)), names)
    ax.grid(axis="y", visible=False)
    ax.grid(axis="x", color="0.92", linewidth=0.8)
    ax.set_ylim(len(rows) - 0.4, -0.6)


def chance_line(ax: Axes, level: float, *, vertical: bool = False, named: bool = False) -> None:
    """The chance level in percent; ``named`` writes what it is next to it, for axes without a legend."""
    draw = ax.axvline if vertical else ax.axhline
    draw(level, color="0.45", linewidth=1, linestyle=":", label=CHANCE, zorder=1)
    if named:
        ax.annotate(
            CHANCE, (level, 0) if vertical else (1, level), xytext=(3, 4) if vertical else (0, 2),
            xycoords=("data", "axes fraction") if vertical else ("axes fraction", "data"), textcoords="offset points",
            rotation=90 if vertical else 0, ha="left" if vertical else "right", va="bottom", fontsize=7, color="0.35",
        )  # fmt: skip
