"""Output for the terminal: reports, results of an evaluation, cohorts, audits and their warnings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from bridgemil.audit.acquisition import channel_sd, implausible
from bridgemil.cohort.cleaning import summarise
from bridgemil.cohort.sources.bids import derivative_sentence
from bridgemil.engine.forecast import duration
from bridgemil.errors import Problem, grouped, plain
from bridgemil.evaluation.metrics import SCORES
from bridgemil.evaluation.results import GROUPED, TOGETHER
from bridgemil.evaluation.statistics import COMPARED, SCORE_INTERVALS, corrected, counted
from bridgemil.methods import changed_from_budget, short_name
from bridgemil.report import tables, templating
from bridgemil.report.benchmark import BenchmarkReport, percent_row
from bridgemil.report.characteristics import left_out
from bridgemil.report.splits import over_splits, pool_of
from bridgemil.report.tables import VERDICT, Sheet
from bridgemil.runs import TITLE, AuditWarning, merged, warning_text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from bridgemil.audit.findings import Audit
    from bridgemil.cohort.cohort import Cohort
    from bridgemil.evaluation.results import Results

MANY_SPLITS = 3  # with more splits of one cohort, only their means are shown
MANY_PAIRS = 10  # of more pairs of methods, only significant differences are listed
FEW_ITEMS = 3  # with one reason of exclusion, that are named one by one
STYLES = {"best": "bold", "second": "underline", None: ""}
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
    for block in tables.blocks(report):
        if pool_of(block.cells[0]) in many:
            continue
        _say(console, [Text(block.title, "bold reverse")])
        print_sheets([*block.scores, *block.published])
        _say(console, [tables.facts(block.cells), tables.INTERVAL, *tables.caveats(block.cells)])
        print_sheets([*block.sites, *block.clinical])
        for sheet in block.pairs:
            n = len(sheet.rows)
            shown = [row for row in sheet.rows if n <= MANY_PAIRS or row[-1] != "n.s."]
            print_sheets([replace(sheet, rows=shown)] if shown else [])
            if rest := n - len(shown):
                _say(console, [f"{sheet.title}: no significant difference in {rest} of {n}; all are in report.md."])
        _say(console, [f"{COMPARED} {VERDICT}"] if block.pairs else [])
    for table in averages:
        _say(console, [Text(table.title, "bold reverse")])
        print_sheets(table.sheets())
        _say(console, table.facts)
        if table.n_splits > MANY_SPLITS:
            seed = next(iter(table.rows[0].values())).split.split_seed
            _say(console, [f'Single splits: in report.md, or with --split "split seed {seed}".'])
    _say(console, [*report.remarks, *remarks])


def print_sheets(sheets: Iterable[Sheet]) -> None:
    """Print tables one below the other, each with its title and the sentences below it."""
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table
    from rich.text import Text

    console = _console()
    for sheet in sheets:
        table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
        first, *others = map(escape, sheet.columns)  # in a narrow terminal a method's name is wrapped, never a number
        table.add_column(first, overflow="fold", min_width=16)
        for name in others:
            table.add_column(name, justify="right", no_wrap=True)
        for i, row in enumerate(sheet.rows):
            table.add_row(*(Text(text, STYLES[sheet.marks.get((i, j))]) for j, text in enumerate(row)))
        console.print(Text(sheet.title, "bold"))
        console.print(table)
        _say(console, sheet.after)


def print_warnings(warnings: Sequence[AuditWarning]) -> None:
    """Print audit warnings between two rules, one line each; nothing if there are none."""
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
    """Print results of one cohort and split, one per method, and of the baselines on the same subjects.

    Scores, comparisons, clinical metrics and confusion matrices.
    """
    console, every = _console(), [*results, *baselines]
    print_warnings(merged(*(result.warnings for result in results)))
    pairs = [[one, one.ensemble] if one.seeds > 1 and not one.steady else [one] for one in results]
    rows = [*chain(*pairs), *baselines]
    print_sheets([_scores(rows)])
    for result in every:
        adjusted = f"{result.name}: {result.adjustment}" if result.adjustment and not len(result.groups) else ""
        for line in filter(None, (recipe(result), adjusted, result.bands_sentence)):
            text = fill(line, console.width, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False)
            console.print(text, markup=False, soft_wrap=True)
    print_sheets(tables.sites([(result.name, result) for result in every]))
    print_sheets(tables.tuning(result) for result in results if result.tuning)
    lines = [templating.macro(tables.TEXTS, "chance_level")(percent_row(results[0])), SCORE_INTERVALS]
    lines += [GROUPED] if results[0].split.get("kind") == "groups" else []
    lines += [COMPARED] if baselines else []
    for result in results:
        compared = corrected([result.compare(baseline) for baseline in baselines])
        lines += [comparison.corrected_sentence for comparison in compared]
    for line in lines:
        console.print(line, markup=False)
    print_sheets([*tables.clinical([(_label(row), row) for row in rows]), *map(_confusion, results)])


def _label(result: Results) -> str:
    return "  seeds averaged" if result.predictions["seed"].iloc[0] == TOGETHER else result.name


def _scores(results: Sequence[Results]) -> Sheet:
    rows = [percent_row(result) for result in results]
    texts = [[_label(one), *tables.score_texts(row, *SCORES, digits=1)] for one, row in zip(results, rows, strict=True)]
    split = results[0].split.get("title", f"{rows[0]['folds']} folds")
    title = f"{rows[0]['n_subjects']} subjects, each held out once: {split}, {counted(rows[0]['seeds'], 'seed')}"
    return Sheet(title, ["method", "accuracy", "95 %", "fold\nmean", "bal.\nacc.", "F1", "AUROC", "MCC"], texts)


def _confusion(result: Results) -> Sheet:
    rows = [[str(name), *(f"{round(value, 1):g}" for value in row)] for name, row in result.confusion.iterrows()]
    return Sheet(f"{result.name}: confusion matrix of subjects", ["true \\ predicted", *result.classes], rows)


def recipe(result: Results) -> str:
    """What was run: backbone, recipe, budget, sub-bag pairs, and how long it took."""
    row = dict(result.summary.iloc[0])
    row["backbone"] = short_name(row["backbone"] or "")  # not where its file lies
    changed = changed_from_budget(result.settings)
    return templating.macro(tables.TEXTS, "recipe")(result.name, row, changed, duration(row["seconds"]))


def print_evidence(found: Mapping[str, Mapping[str, Any]]) -> None:
    """Print how well the attention weights of each method rank true evidence (synthetic data)."""
    title = "Do attention weights find the true evidence? Within held-out patients; chance level .5"
    rows = [
        [name, f"{row['auroc']:.3f}", f"{row['auroc95_low']:.3f} to {row['auroc95_high']:.3f}", str(row["patients"])]
        for name, row in found.items()
    ]
    print_sheets([Sheet(title, ["method", "AUROC", "95 %", "patients"], rows)] if rows else [])


def summary(cohort: Cohort) -> dict[str, Any]:
    """Content of a cohort as ``inspect --json`` prints it, with everything that was excluded."""
    files, settings, records = cohort.metadata["files"], cohort.metadata["settings"], cohort.records.values()
    seconds = cohort.n_times / cohort.sfreq * (1 - settings.get("overlap", 0))
    windows = {n: [r.n_windows for r in records if r.label == n] for n in cohort.classes or [""]}
    dropped = ("marked_bad", "dropped_marked_bad", "dropped_amplitude")
    return {
        "path": str(cohort.path) if cohort.path else None,
        "hash": cohort.hash,
        "source": cohort.metadata["source"],
        "n_subjects": len(cohort),
        "classes": {name: {"subjects": len(own), "windows": sum(own)} for name, own in windows.items()},
        "n_recordings": sum(len(record.recordings) for record in records),
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
        **{f"windows_{name}": sum(file[name] for file in files) for name in dropped},
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
    print_sheets([Sheet(title, ["class", "subjects", "windows"], rows)])
    excluded = list[str]()
    for why, names in left_out(cohort).items():
        few, of_channels = len(names) <= FEW_ITEMS, "channel " in names[0] or "electrode" in why
        what = "channels" if of_channels else "subjects" if why.startswith("class ") else "recordings"
        excluded += [f"{n}: {why}" for n in names] if few else [f"{len(names)} {what} ({names[0]}, …): {why}"]
    text = templating.text(
        "cohort.txt.j2", content=content, implausible=implausible(content["median_channel_sd"]), excluded=excluded,
        skipped=_grouped(content["skipped"]), notes=_grouped(content["notes"]),
        provenance=derivative_sentence(content["provenance"]) if content["provenance"] else "",
    )  # fmt: skip
    console.print(text, emoji=False)


def _grouped(lines: Sequence[str]) -> list[str]:
    """Lines ``subject, file: what``; more than three with the same text are one."""
    found = []
    for line in lines:
        place, colon, what = line.partition(": ")
        subject, comma, file = place.partition(", ")
        found.append(Problem(what, subject, file) if colon and comma else Problem(line))
    return grouped(found)


def print_audit(audit: Audit) -> None:
    """Print the findings of an audit: status and message, evidence, what to do; the most severe first."""
    text = templating.text("audit.txt.j2", audit=audit, colours=COLOURS)
    _console().print(text, emoji=False, soft_wrap=True)
