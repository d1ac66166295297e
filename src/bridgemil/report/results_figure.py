"""A picture of results: accuracy with intervals, and on synthetic data what the gates found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bridgemil.storage.files import new_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from bridgemil.evaluation.metrics import EvidenceFound
    from bridgemil.evaluation.results import Results


@dataclass(frozen=True)
class Example:
    """One held-out patient: where the evidence truly is, and the gates of each method."""

    subject: str
    starts: NDArray[np.float64]  # seconds
    truth: NDArray[np.bool_]
    gates: Mapping[str, NDArray[Any]]


def draw(path: Path, results: Sequence[Results]) -> None:
    """Write a picture of accuracies with their intervals."""
    plt = _pyplot()
    figure, ax = plt.subplots(figsize=(7, 1.2 + 0.45 * len(results)), layout="constrained")
    _draw_accuracy(ax, results)
    with new_file(path) as stream:
        figure.savefig(stream, format=path.suffix[1:].lower(), dpi=110)
    plt.close(figure)


def draw_gates(path: Path, found: Mapping[str, EvidenceFound], example: Example) -> None:
    """Write a picture of what the gates found, over patients and in one of them."""
    plt = _pyplot()
    figure, places = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained", width_ratios=[1, 2.4])
    _draw_found(places[0], found)
    _draw_example(places[1], example)
    with new_file(path) as stream:
        figure.savefig(stream, format=path.suffix[1:].lower(), dpi=110)
    plt.close(figure)


def _pyplot() -> Any:
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["text.parse_math"] = False  # a class may be called $x
    import matplotlib.pyplot as plt

    return plt


def _draw_accuracy(ax: Axes, results: Sequence[Results]) -> None:
    rows = [one.summary.iloc[0] for one in results]
    ax.axvspan(rows[0]["chance95_low"], rows[0]["chance95_high"], color="0.92", label="guessing, 95 %")
    for y, row in enumerate(rows):
        ax.plot([row["ci95_low"], row["ci95_high"]], [y, y], color="C0", linewidth=2)
        ax.plot(row["accuracy"], y, "o", color="C0")
    ax.set_yticks(range(len(rows)), [result.name for result in results])
    ax.set(
        xlim=(0, 1),
        ylim=(len(rows) + 0.2, -0.6),
        xlabel="accuracy of held-out subjects",
        title="Accuracy, 95 % over subjects",
    )
    ax.legend(loc="lower left", frameon=False)


def _draw_found(ax: Axes, found: Mapping[str, EvidenceFound]) -> None:
    jitter = np.random.default_rng(0)
    for x, (_, one) in enumerate(found.items()):
        ax.plot(x + jitter.uniform(-0.15, 0.15, len(one.subjects)), one.subjects, ".", color="0.6")
        ax.errorbar(x + 0.3, one.mean, [[one.mean - one.low], [one.high - one.mean]], fmt="o", color="C1", capsize=3)
    ax.axhline(0.5, color="0.5", linewidth=0.8, linestyle=":")
    ax.set_xticks(range(len(found)), list(found))
    ax.set(ylim=(0, 1), xlim=(-0.5, len(found) - 0.3), ylabel="AUROC of gates", title="Do gates find the evidence?")


def _draw_example(ax: Axes, example: Example) -> None:
    width = float(np.median(np.diff(example.starts))) if len(example.starts) > 1 else 1.0
    top = 1.25 * max(float(np.max(own)) for own in example.gates.values())
    ax.bar(example.starts, np.where(example.truth, top, 0), width, align="edge", color="0.9", label="true evidence")
    for name, own in example.gates.items():
        ax.plot(example.starts + width / 2, own, linewidth=1, label=name)
    ax.set(xlabel="seconds", ylabel="gate", ylim=(0, top), title=f"Gates of one held-out patient ({example.subject})")
    ax.set_xlim(example.starts[0], example.starts[-1] + width)
    ax.legend(frameon=False, ncols=3, loc="upper right")
