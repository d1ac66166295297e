"""What a study found: sentences, tables and figures, and writing them down."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bridgemil.report.markdown import md_text, md_warnings
from bridgemil.runs import AuditWarning
from bridgemil.storage.files import new_file

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Findings:
    """What a study found.

    Parameters
    ----------
    title
        What was studied, on what.
    sentences
        What the numbers show, and what they do not.
    tables
        By name; each is written as CSV and stands in findings.md. Accuracies are in percent.
    figures
        By name; each is written as PNG and SVG.
    data
        By name: what is drawn in the figures, where it is more than a table; written as CSV.
    footnotes
        What a reader must know to read them right.
    warnings
        The audit warnings of the cohorts: cohort, check, level, message.
    """

    title: str
    sentences: Sequence[str]
    tables: Mapping[str, pd.DataFrame]
    figures: Mapping[str, Figure]
    data: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    footnotes: Sequence[str] = ()
    warnings: Sequence[AuditWarning] = ()

    def write(self, folder: Path) -> list[Path]:
        """Write everything; each file appears whole. Returns the files."""
        folder.mkdir(parents=True, exist_ok=True)
        written = []
        for name, table in (*self.tables.items(), *self.data.items()):
            text = table.to_csv(index=False, float_format="%.6g")
            written.append(_write(folder / f"{name}.csv", text.encode()))
        for name, figure in self.figures.items():
            for ending in ("png", "svg"):
                written.append(_write(folder / f"{name}.{ending}", _drawn(figure, ending)))
        written.append(_write(folder / "findings.md", self.markdown().encode()))
        _remove_stale(folder, [path.name for path in written])
        return written

    def to_dict(self) -> dict[str, Any]:
        """As JSON holds it."""
        import json

        tables = {name: json.loads(table.to_json(orient="records")) for name, table in self.tables.items()}
        words = {"sentences": list(self.sentences), "notes": list(self.footnotes), "warnings": list(self.warnings)}
        return {"title": self.title, **words, "tables": tables}

    @staticmethod
    def plain(table: pd.DataFrame) -> str:
        """A table for the terminal."""
        shown = readable(table)
        rows = [list(map(str, shown.columns)), *shown.to_numpy().tolist()]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(f"{text:{width}}" for text, width in zip(row, widths, strict=True)) for row in rows]
        return "\n".join(line.rstrip() for line in lines)

    def markdown(self) -> str:
        """As findings.md holds it."""
        warnings = md_warnings(self.warnings)
        lines = [f"# {md_text(self.title)}", *(["", warnings] if warnings else []), ""]
        lines += [f"- {md_text(sentence)}" for sentence in self.sentences]
        for name, table in self.tables.items():
            lines += ["", f"## {name.replace('_', ' ')}", "", *_rows(table)]
        for name in self.figures:
            lines += ["", f"![{name.replace('_', ' ')}]({name}.png)"]
        if self.footnotes:
            lines += ["", "## To be read with", "", *(f"- {md_text(note)}" for note in self.footnotes)]
        return "\n".join(lines) + "\n"


def _remove_stale(folder: Path, names: list[str]) -> None:
    """Remove what an earlier call wrote and this one did not: it would stand beside findings that do not know it."""
    import json

    listing = folder / ".written.json"
    try:
        earlier = json.loads(listing.read_text("utf-8"))
    except (OSError, ValueError):
        earlier = []
    for name in {str(name) for name in earlier} - set(names):
        if Path(name).name == name and not (folder / name).is_symlink():
            (folder / name).unlink(missing_ok=True)
    _write(listing, json.dumps(sorted(names)).encode())


def _write(path: Path, content: bytes) -> Path:
    with new_file(path) as stream:
        stream.write(content)
    return path


def _drawn(figure: Figure, ending: str) -> bytes:
    """The same picture gives the same bytes: no date, and names in the SVG that do not change."""
    import io

    import matplotlib as mpl

    stream = io.BytesIO()
    with mpl.rc_context({"svg.hashsalt": "bridgemil"}):
        figure.savefig(stream, format=ending, dpi=130, metadata={"Date": None} if ending == "svg" else None)
    return stream.getvalue()


def readable(table: pd.DataFrame) -> pd.DataFrame:
    """A table as people read it: a number with its interval in one cell; what is the same in every row left out."""
    import pandas as pd

    columns: dict[str, list[str]] = {}
    bounds = {name for name in table if str(name).endswith(("95_low", "95_high"))}
    for name in table:
        if name in bounds:
            continue
        interval_name = "ci" if name == "accuracy" else name
        low, high = f"{interval_name}95_low", f"{interval_name}95_high"
        if low in bounds and high in bounds:
            spans = table[[name, low, high]].itertuples(index=False)
            form = _points if name in ("accuracy", "gain") else cell_text  # percent and points, whatever their size
            columns[f"{name} (95 %)"] = [_with_interval(value, lower, upper, form) for value, lower, upper in spans]
        else:
            columns[str(name)] = [cell_text(value) for value in table[name]]
    dull = [name for name in ("sd", "cohort", "runs_of_all_folds", "subjects") if name in columns]
    for name in dull:
        if len(table) > 1 and len(set(columns[name])) == 1 and (name != "sd" or columns[name][0] == "0.0"):
            del columns[name]
    return pd.DataFrame(columns)


def _with_interval(value: float, low: float, high: float, form: Callable[[float], str]) -> str:
    return "" if value != value else f"{form(value)} ({form(low)} to {form(high)})"


def _points(value: float) -> str:
    return f"{round(value, 1) + 0.0:.1f}"


def _rows(wide: pd.DataFrame) -> list[str]:
    """A Markdown table."""
    table = readable(wide)
    lines = ["| " + " | ".join(map(str, table.columns)) + " |", "|" + "---|" * len(table.columns)]
    return lines + ["| " + " | ".join(map(md_text, row)) + " |" for row in table.itertuples(index=False)]


def cell_text(value: Any) -> str:
    """A table's cell as people read it."""
    if isinstance(value, float):
        if value != value:
            return ""
        return (
            f"{value:.1f}"
            if abs(value) >= 1 or value == 0
            else f"{value:.3f}"
            if abs(value) >= 0.01
            else f"{value:.1e}"
        )
    return "" if value is None else str(value)
