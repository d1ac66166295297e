"""Output for the terminal: reports, results of an evaluation, cohorts, audits and their warnings."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bridgemil.audit.acquisition import channel_sd, implausible
from bridgemil.cohort.cleaning import summarise
from bridgemil.cohort.sources.derivatives import sentence
from bridgemil.engine.forecast import duration
from bridgemil.errors import Problem, grouped, plain
from bridgemil.evaluation.results import GROUPED, TOGETHER
from bridgemil.evaluation.statistics import COMPARED, SCORE_INTERVALS, Comparison, corrected
from bridgemil.methods import changed_from_budget
from bridgemil.report import tables
from bridgemil.report.benchmark import BenchmarkReport
from bridgemil.report.splits import over_splits, pool_of
from bridgemil.report.tables import VERDICT, Sheet
from bridgemil.runs import TITLE, AuditWarning, merged, warning_text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from bridgemil.audit.findings import Audit
    from bridgemil.cohort.cohort import Cohort
    from bridgemil.evaluation.metrics import EvidenceFound
    from bridgemil.evaluation.results import Results

MANY_SPLITS = 3  # with more splits of one cohort, only their means are shown
MANY_PAIRS = 10  # of more pairs of methods, only significant differences are listed
STYLES = {"best": "bold", "second": "underline"}
COLOURS = {"PASS": "green", "INFO": "cyan", "WARN": "yellow", "FAIL": "red", "SKIP": "bright_black"}


def _console() -> Console:
    from rich.console import Console

    return Console(highlight=False)


def _say(console: Console, lines: Sequence[str | Text]) -> None:
    """Lines of plain text, and a blank line after them."""
    for line in lines:
        console.print(line, markup=False)
    if lines:
        console.print()


def print_report(report: BenchmarkReport) -> None:
    """Print a benchmark report."""
    from rich.text import Text

    console = _console()
    print_warnings(report.warnings)
    averages, remarks = over_splits(report.cells)
    many = {table.pool for table in averages if table.n_splits > MANY_SPLITS}
    for (cohort, split), block in report.blocks().items():
        cells = tables.every(block)
        if pool_of(cells[0]) in many:
            continue
        _say(console, [Text(f"{cohort}, {split}", "bold reverse")])
        for sheet in [*tables.scores(block), *tables.with_published(block)]:
            print_sheet(console, sheet)
        _say(console, [*tables.facts(cells), tables.INTERVAL, *tables.caveats(cells)])
        for sheet in tables.block_clinical(block):
            print_sheet(console, sheet)
        for place in block:
            _print_comparisons(console, place.title, report.comparisons.get(place, []))
        _say(console, [f"{COMPARED} {VERDICT}"] if any(place in report.comparisons for place in block) else [])
    for table in averages:
        _say(console, [Text(table.title, "bold reverse")])
        for sheet in table.sheets():
            print_sheet(console, sheet)
        _say(console, table.facts)
        if table.n_splits > MANY_SPLITS:
            seed = table.rows[0].first.split.split_seed
            _say(console, [f'Single splits: in report.md, or with --split "split seed {seed}".'])
    _say(console, [*report.remarks, *remarks])


def _print_comparisons(console: Console, title: str, compared: Sequence[Comparison]) -> None:
    """One row per pair; of many pairs those with a significant difference."""
    shown = compared if len(compared) <= MANY_PAIRS else [c for c in compared if c.significant]
    if shown:
        print_sheet(console, tables.comparisons(shown, f"{title}: pairs of methods"))
    if len(shown) < len(compared):
        rest = f"{len(compared) - len(shown)} of {len(compared)} pairs"
        _say(console, [f"{title}: no significant difference between {rest}; all are in report.md."])


def print_sheet(console: Console, sheet: Sheet) -> None:
    """A table with its title and the sentences below it."""
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for i, name in enumerate(sheet.columns):  # in a narrow terminal a method's name is wrapped, never a number
        if i == 0:
            table.add_column(escape(name), overflow="fold", min_width=16)
        else:
            table.add_column(escape(name), justify="right", no_wrap=True)
    for i, row in enumerate(sheet.rows):
        marks = [sheet.marks.get((i, j)) for j in range(len(row))]
        table.add_row(*(Text(text, STYLES[mark] if mark else "") for text, mark in zip(row, marks, strict=True)))
    console.print(Text(sheet.title, "bold"))
    console.print(table)
    _say(console, sheet.after)


def print_warnings(warnings: Sequence[AuditWarning]) -> None:
    """Print audit warnings between two rules, one line each; nothing if there are none.

    Parameters
    ----------
    warnings : sequence of AuditWarning
        As in ``Results.warnings``.
    """
    from rich.text import Text

    if not warnings:
        return
    console = _console()
    console.rule(Text(TITLE, "bold"), align="left", style="yellow")
    for warning in warnings:  # never wrapped here: a line can be searched for
        style = "bold red" if warning["level"] == "FAIL" else "yellow"
        console.print(Text(plain(warning_text(warning)), style), soft_wrap=True)
    console.rule(style="yellow")


def print_results(results: Sequence[Results], baselines: Sequence[Results] = ()) -> None:
    """Print results of one cohort and split: scores, comparisons, clinical metrics and confusion matrices.

    Parameters
    ----------
    results : sequence of Results
        One per method.
    baselines : sequence of Results
        Of the baselines on the same subjects.
    """
    console = _console()
    print_warnings(merged(*(result.warnings for result in results)))
    rows: list[Results] = []
    for result in results:
        rows += [result, *([result.ensemble] if result.seeds > 1 and not result.steady else [])]
    rows += baselines
    print_sheet(console, _scores(rows))
    for result in [*results, *baselines]:
        console.print(f"  {recipe(result)}", markup=False)
        if result.adjustment:
            console.print(f"  {result.name}: {result.adjustment}", markup=False)
        if result.bands_left_out:
            console.print(f"  {result.bands_sentence}", markup=False)
    for result in [*results, *baselines]:
        if len(result.groups):
            print_sheet(console, tables.left_out_groups(result))
    facts = results[0].summary.iloc[0]
    console.print(
        f"Chance level (largest class): {facts['chance']:.1%}; 95 % chance interval for n = {facts['n_subjects']}: "
        f"{facts['chance95_low']:.1%} to {facts['chance95_high']:.1%}.",
    )
    console.print(SCORE_INTERVALS)
    if results[0].split.get("kind") == "groups":
        console.print(GROUPED)
    if baselines:
        console.print(COMPARED)
    for result in results:
        for comparison in corrected([result.compare(baseline) for baseline in baselines]):
            console.print(comparison.corrected_sentence, markup=False)
    for sheet in [*tables.clinical([(_label(row), row) for row in rows]), *map(_confusion, results)]:
        print_sheet(console, sheet)


def _label(result: Results) -> str:
    return "  seeds averaged" if result.predictions["seed"].iloc[0] == TOGETHER else result.name


def _scores(results: Sequence[Results]) -> Sheet:
    rows = []
    for result in results:
        row = result.summary.iloc[0]
        spread = f" ± {100 * row['accuracy_std']:.1f}" if row["seeds"] > 1 else ""
        rows.append(
            [
                _label(result), f"{100 * row['accuracy']:.1f}{spread}",
                f"{100 * row['ci95_low']:.1f} - {100 * row['ci95_high']:.1f}", f"{100 * row['fold_mean']:.1f}",
                *(f"{row[name]:.3f}" for name in ("balanced_accuracy", "macro_f1", "auroc", "mcc")),
            ]
        )  # fmt: skip
    first = results[0].summary.iloc[0]
    split = results[0].split.get("title", f"{first['folds']} folds")
    seeds = "1 seed" if first["seeds"] == 1 else f"{first['seeds']} seeds"
    title = f"{first['n_subjects']} subjects, each held out once: {split}, {seeds}"
    return Sheet(title, ["method", "accuracy", "95 %", "fold\nmean", "bal.\nacc.", "F1", "AUROC", "MCC"], rows)


def _confusion(result: Results) -> Sheet:
    rows = [
        [str(name), *(f"{value:g}" if value == int(value) else f"{value:.1f}" for value in row)]
        for name, row in result.confusion.iterrows()
    ]
    return Sheet(f"{result.name}: confusion matrix of subjects", ["true \\ predicted", *result.classes], rows)


def recipe(result: Results) -> str:
    """What was run: backbone, recipe, budget, sub-bag pairs, and how long it took."""
    row = result.summary.iloc[0]
    changed = ", ".join(f"{key}={value}" for key, value in changed_from_budget(result.settings).items())
    parts = [] if row["budget"] is None else [row["backbone"], f"recipe {row['recipe']}", f"budget {row['budget']}"]
    parts += [f"changed: {changed}"] if changed else []
    parts += [f"subbag_pairs {row['subbag_pairs']:.0f}"] if row["subbag_pairs"] is not None else []
    return f"{result.name}: {', '.join(parts)}{'; ' if parts else ''}computed in {duration(row['seconds'])}"


def print_evidence(found: Mapping[str, EvidenceFound]) -> None:
    """Print how well the attention weights of each method rank true evidence (synthetic data)."""
    console = _console()
    if found:
        title = "\n[bold]Do attention weights find the true evidence?[/bold]"
        console.print(f"{title} AUROC within held-out patients; chance level 0.5.")
    for name, evidence in found.items():
        interval = f"95 % {evidence.low:.3f} to {evidence.high:.3f}, {len(evidence.subjects)} patients"
        console.print(f"  {name}: {evidence.mean:.3f} ({interval})")


def summary(cohort: Cohort) -> dict[str, Any]:
    """Content of a cohort as ``inspect --json`` prints it, with everything that was excluded."""
    files, settings = cohort.metadata["files"], cohort.metadata["settings"]
    seconds = cohort.n_times / cohort.sfreq * (1 - settings.get("overlap", 0))
    per_class = Counter(cohort.labels)
    dropped = {
        f"windows_{name}": sum(file[name] for file in files)
        for name in ("marked_bad", "dropped_marked_bad", "dropped_amplitude")
    }
    return {
        "path": str(cohort.path) if cohort.path else None,
        "hash": cohort.hash,
        "source": cohort.metadata["source"],
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
        "native_rates": sorted({file["native_sfreq"] for file in files}),
        "median_channel_sd": float(np.median(channel_sd(cohort))),
        "folds": cohort.folds,
        "burn_in": cohort.burn_in,
        "settings": settings,
        "cleaning": summarise(settings, files),
        "provenance": cohort.metadata.get("provenance", {}),
        **dropped,
        "left_out": cohort.metadata["left_out"],
        "skipped": cohort.metadata.get("skipped", []),
        "notes": cohort.metadata["notes"],
    }


def print_summary(cohort: Cohort) -> None:
    """Print the content of a cohort."""
    content, console = summary(cohort), _console()
    rows = [
        [plain(name or "no label"), str(own["subjects"]), f"{own['windows']:,}"]
        for name, own in content["classes"].items()
    ]
    rows.append(["all", str(content["n_subjects"]), f"{content['n_windows']:,}"])
    title = plain(f"{cohort.path or 'cohort in memory'} ({content['source']})")
    print_sheet(console, Sheet(title, ["class", "subjects", "windows"], rows))
    rates = ", ".join(f"{rate:g}" for rate in content["native_rates"])
    recorded = f", recorded at {rates} Hz" if rates else ""
    lines = [
        f"{content['n_recordings']} recordings, {content['minutes']:,} minutes{recorded}",
        f"windows: {len(cohort.channels)} channels x {cohort.n_times} samples at {cohort.sfreq:g} Hz",
        plain(f"channels: {' '.join(cohort.channels)}"),
    ]
    band = content["settings"]
    if band:
        edges = f"{band['low'] or 0:g}-{band['high']:g} Hz" if band["high"] else f"above {band['low'] or 0:g} Hz"
        notch = f", notch {', '.join(f'{f:g}' for f in band['notch'])} Hz" if band["notch"] else ""
        lines.append(f"band: {edges}{notch}; overlap {band['overlap']:.0%}; default folds {cohort.folds}")
    lines += [f"recordings: {sentence(content['provenance'])}"] if content["provenance"] else []
    lines += [plain(f"cleaned by {line}") for line in content["cleaning"]]
    for line in lines:
        console.print(line, markup=False)
    wrong, median_sd = implausible(content["median_channel_sd"]), content["median_channel_sd"]
    amplitude = f"amplitude: median channel SD {median_sd:.3g} µV"
    console.print(f"[yellow]{wrong}: see `bridgemil audit`[/yellow]" if wrong else amplitude)
    marked, dropped = content["windows_marked_bad"], content["windows_dropped_marked_bad"]
    if marked:
        console.print(f"windows overlapping a bad annotation: {marked} ({'dropped' if dropped else 'kept'})")
    if content["windows_dropped_amplitude"]:
        console.print(f"windows dropped for their amplitude: {content['windows_dropped_amplitude']}")
    _print_list(console, "Excluded", _by_reason(content["left_out"]))
    _print_list(console, "Skipped as bad", _grouped(content["skipped"]))
    _print_list(console, "Notes", _grouped(content["notes"]))


def _grouped(lines: Sequence[str]) -> list[str]:
    """Lines ``subject, file: what``; more than three with the same text are one."""
    found = []
    for line in lines:
        place, colon, what = line.partition(": ")
        subject, comma, file = place.partition(", ")
        found.append(Problem(what, subject, file) if colon and comma else Problem(line))
    return grouped(found)


def _by_reason(excluded: Sequence[Mapping[str, str]]) -> list[str]:
    """One line per excluded item; more than three with one reason share a line."""
    reasons: dict[str, list[str]] = {}
    for item in excluded:
        reasons.setdefault(item["why"], []).append(item["what"])
    lines = []
    for why, what in reasons.items():
        alone = len(what) <= 3
        lines += [f"{name}: {why}" for name in what] if alone else [f"{len(what)}, {what[0]} and so on: {why}"]
    return lines


def _print_list(console: Console, title: str, lines: Sequence[str], most: int = 20) -> None:
    if lines:
        console.print(f"\n[bold]{title}[/bold]")
        for line in lines[:most]:
            console.print(plain(f"  - {line}"), markup=False)
        if len(lines) > most:
            console.print(f"  ... and {len(lines) - most} more, in cohort.json")


def audit_levels(audit: Audit) -> Iterator[tuple[str, str]]:
    """One line per level, "3 WARN  shortcut_order, size …", with its colour; the most severe first."""
    for status, n in audit.counts.items():
        if n:
            names = dict.fromkeys(finding.name for finding in audit.findings if finding.status == status)
            yield _printable(f"{n} {status}  {', '.join(names)}"), COLOURS[status]


def audit_lines(audit: Audit, width: int = 100) -> Iterator[tuple[str, str]]:
    """Findings as lines: status and message, evidence, what to do; the most severe first.

    Parameters
    ----------
    audit : Audit
        The findings.
    width : int
        Characters per line.

    Yields
    ------
    tuple of str
        A line and the colour of its first word (empty for none).
    """
    for finding in audit.sorted:
        parts = [(f"{finding.status}  {finding.name}: {finding.message}", "      ", COLOURS[finding.status])]
        parts += [(f"      - {line}", "        ", "") for line in finding.evidence]
        parts += [(f"      fix: {finding.fix}", "           ", "")] if finding.fix else []
        for text, indent, colour in parts:
            wrapped = textwrap.wrap(_printable(text), width, subsequent_indent=indent, break_on_hyphens=False)
            for number, line in enumerate(wrapped):
                yield line, colour if number == 0 else ""


def _printable(text: str) -> str:
    """The text without control characters, which a name in a file could carry to a terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)
