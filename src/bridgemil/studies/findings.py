"""What a study found (sentences, tables, figures); scores and comparisons of results over several seeds and splits."""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from bridgemil.evaluation import metrics
from bridgemil.evaluation.results import Results
from bridgemil.evaluation.statistics import Comparison, corrected
from bridgemil.report.figures import drawn
from bridgemil.report.tables import Sheet
from bridgemil.report.templating import macro, text
from bridgemil.runs import AuditWarning
from bridgemil.storage.files import new_file

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

Key = TypeVar("Key", bound=Hashable)


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
            content |= {f"{name}.{ending}": drawn(figure, ending) for ending in ("png", "svg")}
        content["findings.md"] = self.markdown().encode()
        folder.mkdir(parents=True, exist_ok=True)
        listing = folder / ".written.json"
        earlier = json.loads(listing.read_text("utf-8")) if listing.is_file() else []
        for name in {Path(name).name for name in earlier} - set(content):
            (folder / name).unlink(missing_ok=True)
        for name, data in (content | {listing.name: json.dumps(sorted(content)).encode()}).items():
            with new_file(folder / name) as stream:
                stream.write(data)
        return [folder / name for name in content]

    def to_dict(self) -> dict[str, Any]:
        """As JSON holds it."""
        tables = {name: json.loads(table.to_json(orient="records")) for name, table in self.tables.items()}
        texts = {"sentences": list(self.sentences), "notes": list(self.footnotes), "warnings": list(self.warnings)}
        return {"title": self.title, **texts, "tables": tables}

    @staticmethod
    def plain(table: pd.DataFrame) -> str:
        """A table for the terminal."""
        import pandas as pd

        sheet = readable("", table)
        return str(pd.DataFrame(list(sheet.rows), columns=list(sheet.columns)).to_string(index=False))

    def markdown(self) -> str:
        """As findings.md holds it."""
        tables = [readable(name, table) for name, table in self.tables.items()]
        values = {"title": self.title, "warnings": self.warnings, "sentences": self.sentences, "notes": self.footnotes}
        return text("findings.md.j2", **values, tables=tables, figures=list(self.figures)) + "\n"


def prose(template: str, /, **values: Any) -> list[str]:
    """Sentences or notes of a study, one per line of a macro in ``studies.txt.j2``."""
    return [line for line in macro("studies.txt.j2", template)(**values).splitlines() if line]


def readable(name: str, table: pd.DataFrame) -> Sheet:
    """A table as text: a number with its interval in one cell; columns that do not vary are left out."""
    columns: dict[str, list[str]] = {}
    for column in (column for column in map(str, table) if not column.endswith(("95_low", "95_high"))):
        bounds = [f"{'ci' if column == 'accuracy' else column}95_{end}" for end in ("low", "high")]
        percent = column in ("accuracy", "gain")  # percent and points, whatever their size
        if bounds[0] in table:
            columns[f"{column} (95 %)"] = [
                "" if value != value else f"{_text(value, percent)} ({_text(low, percent)} to {_text(high, percent)})"
                for value, low, high in table[[column, *bounds]].itertuples(index=False)
            ]
        else:
            columns[column] = [_text(value) for value in table[column]]
    for column in ("sd", "cohort", "runs_of_all_folds", "subjects"):
        different = set(columns.get(column, ()))
        if len(table) > 1 and len(different) == 1 and (column != "sd" or different == {"0.0"}):
            del columns[column]
    return Sheet(name.replace("_", " "), list(columns), list(zip(*columns.values(), strict=True)))


def _text(value: Any, percent: bool = False) -> str:
    if not isinstance(value, float) or value != value:
        return "" if value is None or value != value else str(value)
    if percent or abs(value) >= 1 or value == 0:
        return f"{round(value, 1) + 0.0:.1f}"
    return f"{value:.3f}" if abs(value) >= 0.01 else f"{value:.1e}"


def pooled(results: Sequence[Results]) -> pd.DataFrame:
    """Held-out predictions of several results (splits), each seed of each with a number of its own."""
    import pandas as pd

    table = pd.concat([result.predictions.assign(result=i) for i, result in enumerate(results)], ignore_index=True)
    return table.assign(seed=table.groupby(["result", "seed"]).ngroup()).drop(columns="result")


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


def family(found: Mapping[Key, Comparison]) -> dict[Key, Comparison]:
    """The comparisons with their Holm-corrected p, all of them as one family; by the same keys."""
    return dict(zip(found, corrected(list(found.values())), strict=True))


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
