"""What a cohort holds, for people (terminal) and machines (JSON)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from bridgemil.audit.amplitude import channel_sd, implausible
from bridgemil.cohort.cohort import Cohort
from bridgemil.errors import Problem, grouped, plain


def summary(cohort: Cohort) -> dict[str, Any]:
    """The cohort in numbers, with everything that was left out."""
    files = cohort.about["files"]
    step = cohort.about["settings"].get("overlap", 0)
    seconds = cohort.n_times / cohort.sfreq * (1 - step)
    per_class = Counter(cohort.labels)
    return {
        "path": str(cohort.path) if cohort.path else None,
        "hash": cohort.hash,
        "source": cohort.about["source"],
        "n_subjects": len(cohort),
        "classes": {
            name: {
                "subjects": per_class[name],
                "windows": sum(r.n_windows for r in cohort.records.values() if r.label == name),
            }
            for name in cohort.classes or [""]
        },
        "n_recordings": sum(len(r.recordings) for r in cohort.records.values()),
        "n_windows": cohort.n_windows,
        "minutes": round(cohort.n_windows * seconds / 60, 1),
        "channels": cohort.channels,
        "sfreq": cohort.sfreq,
        "window_samples": cohort.n_times,
        "native_rates": sorted({file.get("native_sfreq") or file["sfreq"] for file in files}),
        "median_channel_sd": float(np.median(channel_sd(cohort))),
        "folds": cohort.folds,
        "burn_in": cohort.burn_in,
        "settings": cohort.about["settings"],
        "windows_marked_bad": sum(file["marked_bad"] for file in files),
        "windows_dropped_marked_bad": sum(file["dropped_marked_bad"] for file in files),
        "windows_dropped_amplitude": sum(file["dropped_amplitude"] for file in files),
        "left_out": cohort.about["left_out"],
        "skipped": cohort.about.get("skipped", []),
        "notes": cohort.about["notes"],
    }


def print_summary(cohort: Cohort) -> None:
    """Print the summary for a person."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    facts = summary(cohort)
    console = Console(highlight=False)
    title = escape(plain(f"{cohort.path or 'cohort in memory'} ({facts['source']})"))
    table = Table("class", "subjects", "windows", title=title, title_justify="left", title_style="bold")
    for name, own in facts["classes"].items():
        table.add_row(escape(plain(name or "no label")), str(own["subjects"]), f"{own['windows']:,}")
    table.add_section()
    table.add_row("all", str(facts["n_subjects"]), f"{facts['n_windows']:,}")
    console.print(table)
    rates = ", ".join(f"{rate:g}" for rate in facts["native_rates"])
    recorded = f", recorded at {rates} Hz" if rates else ""
    console.print(f"{facts['n_recordings']} recordings, {facts['minutes']:,} minutes{recorded}")
    console.print(f"windows: {len(cohort.channels)} channels x {cohort.n_times} samples at {cohort.sfreq:g} Hz")
    console.print(plain(f"channels: {' '.join(cohort.channels)}"), markup=False)
    band = cohort.about["settings"]
    if band:
        edges = f"{band['low'] or 0:g}-{band['high']:g} Hz" if band["high"] else f"above {band['low'] or 0:g} Hz"
        notch = f", notch {', '.join(f'{f:g}' for f in band['notch'])} Hz" if band["notch"] else ""
        console.print(f"band: {edges}{notch}; overlap {band['overlap']:.0%}; default folds {cohort.folds}")
    wrong = implausible(facts["median_channel_sd"])
    console.print(
        f"[yellow]{wrong}: see `bridgemil audit`[/yellow]" if wrong else _amplitude(facts["median_channel_sd"])
    )
    marked, dropped = facts["windows_marked_bad"], facts["windows_dropped_marked_bad"]
    if marked:
        console.print(f"windows touching a bad mark: {marked} ({'dropped' if dropped else 'kept'})")
    if facts["windows_dropped_amplitude"]:
        console.print(f"windows dropped for their amplitude: {facts['windows_dropped_amplitude']}")
    _print_list(console, "Left out", _by_reason(facts["left_out"]))
    _print_list(console, "Skipped as bad", _grouped(facts["skipped"]))
    _print_list(console, "Notes", _grouped(facts["notes"]))


def _grouped(lines: list[str]) -> list[str]:
    """Lines ``subject, file: what``; more than three that say the same are one."""
    found = []
    for line in lines:
        place, colon, what = line.partition(": ")
        subject, comma, file = place.partition(", ")
        found.append(Problem(what, subject, file) if colon and comma else Problem(line))
    return grouped(found)


def _amplitude(median_sd: float) -> str:
    return f"amplitude: median channel SD {median_sd:.3g} µV"


def _by_reason(left_out: list[dict[str, str]]) -> list[str]:
    """A line per thing left out; more than three of one reason share a line."""
    reasons: dict[str, list[str]] = {}
    for item in left_out:
        reasons.setdefault(item["why"], []).append(item["what"])
    lines = []
    for why, what in reasons.items():
        alone = len(what) <= 3
        lines += [f"{name}: {why}" for name in what] if alone else [f"{len(what)}, {what[0]} and so on: {why}"]
    return lines


def _print_list(console: Any, title: str, lines: list[str], most: int = 20) -> None:
    if lines:
        console.print(f"\n[bold]{title}[/bold]")
        for line in lines[:most]:
            console.print(plain(f"  - {line}"), markup=False)
        if len(lines) > most:
            console.print(f"  ... and {len(lines) - most} more, in cohort.json")
