"""The reporting checklist: every item is there, what is filled in is recorded, and what is not recorded is not said."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from bridgemil import methods
from bridgemil.cli import app
from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.settings import PrepareSettings
from bridgemil.engine.evaluate import evaluate
from bridgemil.errors import BadUse
from bridgemil.evaluation.calibration import calibration_summary
from bridgemil.evaluation.metrics import score_intervals
from bridgemil.report.benchmark import BenchmarkReport, build
from bridgemil.report.checklist import (
    Checklist,
    build_checklist,
    checklist_page,
    domain_of,
    markdown,
    texts,
)
from bridgemil.report.pages.results import model_text
from bridgemil.runs import RunStore
from leaky import labelled, made, signals, with_files

NUMBERS = (
    "1 2 3a 3b 3c 4 5a 5b 6a 6b 6c 7 8a 8b 8c 9a 9b 9c 10 11 12a 12b 12c 12d 12e 12f 12g 13 14 15 16 17 18a 18b 18c "
    "18d 18e 18f 19 20a 20b 20c 21 22 23a 23b 24 25 26 27a 27b 27c"
).split()
HOSTILE = "<script>alert(1)</script>|`*x*"
N = 30


def prepared(folder: Path, classes: tuple[str, str] = ("control", "patient"), **changes: object) -> Cohort:
    """A cohort as ``prepare`` would have written it, with what it left out, and columns of sex and age."""
    columns = {
        "Sex": ["f" if i % 2 else "M" for i in range(N)],
        "Age": [str(50 + i) for i in range(N - 1)] + ["n/a"],
        "site": ["north" if i < 24 else "south" for i in range(N)],
    }
    people = signals(N, seconds=6, n_channels=3)
    made_up = with_files(made(people, labelled(N, classes), columns=columns), dropped_marked_bad=lambda _: 2)
    made_up.metadata |= {
        "settings": PrepareSettings(notch=(50.0,)).model_dump(mode="json"),
        "versions": {"bridgemil": "0.1.0", "mne": "1.2.3"},
        "left_out": [
            {"what": "sub-77", "why": "class 'other' is not among the classes asked for"},
            {"what": "channel ECG", "why": "not of type EEG"},
        ],
        "skipped": ["sub-88, sub-88/eeg.edf: no usable window: 0.50 s long, a window is 1 s"],
        "notes": [f"sub-01, a.edf: E1 is flat; interpolated {HOSTILE}", "sub-02, b.edf: E2 is flat; interpolated"],
        **changes,
    }
    return made_up.save(folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cohort and two baselines on it."""
    root = tmp_path_factory.mktemp("checklist")
    cohort = prepared(root / "clinic.cohort")
    evaluate(cohort, "tangent", folds=3, out=root / "runs", progress=False)
    return root


@pytest.fixture(scope="module")
def report(folder: Path) -> BenchmarkReport:
    return build(RunStore(folder / "runs"))


@pytest.fixture(scope="module")
def section(report: BenchmarkReport) -> SimpleNamespace:
    (only,) = build_checklist(report).sections
    return only


def item(section: SimpleNamespace, number: str) -> SimpleNamespace:
    return next(entry for entry in section.entries if entry.number == number)


def words(entry: SimpleNamespace) -> str:
    cells = [cell for sheet in entry.sheets for row in sheet.rows for cell in row]
    return " ".join([*entry.lines, *cells, *entry.to_add])


def test_all_27_items_are_there_with_their_parts_and_each_says_who_writes_it(section: SimpleNamespace) -> None:
    assert [item.number for item in texts()["items"]] == NUMBERS
    assert {int(re.match(r"\d+", number)[0]) for number in NUMBERS} == set(range(1, 28))
    for entry in section.entries:
        assert entry.state in ("filled", "partly", "author")
        assert entry.state == "filled" or entry.to_add, entry.number
        assert entry.state != "author" or not (entry.lines or entry.sheets)
    states = {entry.number: entry.state for entry in section.entries}
    assert {states[n] for n in ("1", "2", "8c", "17", "18a", "19", "25", "27b")} == {"author"}
    assert {states[n] for n in ("12a", "13", "21", "23a")} == {"filled"}


def test_what_prepare_left_out_and_why_is_there(section: SimpleNamespace) -> None:
    excluded = words(item(section, "6b"))
    assert "class 'other' is not among the classes asked for 1 sub-77" in excluded
    assert "skipped as bad: no usable window: 0.50 s long, a window is 1 s 1 sub-88, sub-88/eeg.edf" in excluded
    assert "ECG" not in excluded
    assert "not of type EEG 1 ECG" in words(item(section, "9a"))
    missing = words(item(section, "11"))
    assert f"of which {2 * N} were excluded" in missing
    assert "Age of 1 subject" in missing
    assert "notch at 50 Hz" in words(item(section, "7"))
    assert "class 'other'" not in words(item(section, "20a")), "counted there, and explained under 6b"


def test_intervals_are_those_of_the_report(report: BenchmarkReport, section: SimpleNamespace) -> None:
    scores, clinical, calibration, _ = item(section, "23a").sheets
    measures = report.cells[0].results.clinical.measures
    assert list(clinical.rows[0][1:]) == [str(value) for value in measures.values()]
    cells = [cell for cell in report.cells if not cell.averaged]
    assert {cell.method for cell in cells} == {"bandpower", "tangent"}
    for cell, row, calibrated in zip(cells, scores.rows, calibration.rows, strict=True):
        summary, intervals = (
            cell.results.summary.iloc[0],
            score_intervals(cell.results.predictions, cell.results.classes),
        )
        low, high = 100 * summary["ci95_low"], 100 * summary["ci95_high"]
        assert row[2] == f"{100 * summary['accuracy']:.2f} ({low:.1f} - {high:.1f})"
        assert row[4] == f"{summary['auroc']:.3f} ({intervals['auroc'][0]:.3f} - {intervals['auroc'][1]:.3f})"
        error = calibration_summary(cell.results.predictions, cell.results.classes)
        assert calibrated[2] == f"{error['value']:.3f} ({error['low']:.3f} - {error['high']:.3f})"
    assert f"Chance level (largest class): {100 * summary['chance']:.1f}" in words(item(section, "23a"))


def test_results_by_sex_age_and_site_have_their_numbers_and_say_where_people_are_too_few(
    report: BenchmarkReport, section: SimpleNamespace
) -> None:
    rows = item(section, "23a").sheets[3].rows
    tangent = {row[2]: row for row in rows if row[0] == "tangent"}
    assert list(tangent) == ["Sex M", "Sex f", "Age 64 or less", "Age above 64"]
    assert [row[3] for row in tangent.values()] == ["15", "15", "15", "14"]
    predictions = next(cell for cell in report.cells if cell.method == "tangent").results.predictions
    men = predictions[predictions["subject"].isin([f"sub-{i + 1:02d}" for i in range(0, N, 2)])]
    share = 100 * (men["label"] == men["predicted"]).mean()
    assert tangent["Sex M"][5].startswith(f"{share:.1f} (")
    (by_site,) = item(section, "23b").sheets
    south = next(row for row in by_site.rows if row[2] == "site south")
    assert south[3] == "6"
    assert south[5] == "too few subjects (under 10)"
    assert "site north: 24, site south: 6" in words(item(section, "6a"))


def test_two_seeds_and_an_ensemble_are_described(runs: Path) -> None:
    (section,) = build_checklist(build(RunStore(runs))).sections
    scores = item(section, "23a").sheets[0]
    names = [row[0] for row in scores.rows]
    assert "tangent+attention, eegnet, budget demo" in names
    assert not any("seeds averaged" in name for name in names)
    assert "results by sex" in words(item(section, "23a"))
    assert item(section, "23a").state == "partly", "the cohort has no columns of sex and age"
    built = words(item(section, "12c"))
    assert "stage2.epochs = 2" in built
    assert "highest accuracy on validation subjects" in built
    assert "the validation set, used only to select the training epoch" in words(item(section, "12a"))
    assert "made from arrays" in words(item(section, "6b"))
    assert item(section, "6b").state == "author"


def test_risk_of_bias_follows_the_audit_and_is_no_assessment(section: SimpleNamespace, report: BenchmarkReport) -> None:
    risks = {judgement.key: judgement.risk for judgement in section.judgements}
    assert list(risks) == ["participants", "predictors", "outcome", "analysis"]
    assert risks["outcome"] == "unclear", "no record speaks to it"
    assert "high" not in risks.values()
    assert all(judgement.questions for judgement in section.judgements)
    assert any(line.startswith("PASS same_signal") for line in section.judgements[0].evidence)
    assert any(line.startswith("PASS provenance") for line in section.judgements[3].evidence)
    assert "not the assessment" in markdown(build_checklist(report))
    names = ("shortcut_line_50", "shortcut_site", "shortcut_age_missing", "groups_person")
    assert list(map(domain_of, names)) == ["predictors", "predictors", "participants", "analysis"]


def test_an_accepted_risk_is_shown_and_makes_its_domain_high(tmp_path: Path) -> None:
    people = signals(12, seconds=6, n_channels=3)
    people["sub-02"] = -people["sub-07"]
    cohort = made(people).save(tmp_path / "copies")
    evaluate(
        cohort,
        "bandpower",
        folds=3,
        out=tmp_path / "runs",
        progress=False,
        baselines=False,
        accept_risk=["same_signal"],
    )
    checklist = build_checklist(build(RunStore(tmp_path / "runs")))
    (section,) = checklist.sections
    assert checklist.warnings[0]["check"] == "same_signal"
    assert section.judgements[0].risk == "high"
    assert "--accept-risk" in section.judgements[0].evidence[0]
    assert "sub-02 and sub-07" in " ".join(section.judgements[0].evidence)
    for text in (markdown(checklist), checklist_page(checklist)):
        assert text.count("FAIL same_signal (accepted") >= 3


def test_without_the_cohort_the_runs_fill_in_what_they_can_and_every_domain_is_unclear(tmp_path: Path) -> None:
    cohort = prepared(tmp_path / "first.cohort")
    evaluate(cohort, "bandpower", folds=3, out=tmp_path / "runs", progress=False, baselines=False)
    (tmp_path / "first.cohort").rename(tmp_path / "moved.cohort")
    report = build(RunStore(tmp_path / "runs"))
    (section,) = build_checklist(report).sections
    assert {judgement.risk for judgement in section.judgements} == {"unclear"}
    assert "first.cohort is no longer at its recorded path" in section.judgements[0].why
    assert str(tmp_path) not in markdown(build_checklist(report)), "where it lay is nobody's business"
    assert "notch at 50 Hz" in words(item(section, "7"))
    assert item(section, "6b").state == "author"
    assert item(section, "23a").state == "partly"
    (found,) = build_checklist(report, [tmp_path / "moved.cohort"]).sections
    assert found.judgements[0].risk == "low"
    assert "sub-77" in words(item(found, "6b"))
    other = made(signals(6, seconds=4, n_channels=2)).save(tmp_path / "other")
    with pytest.raises(BadUse, match="no run shown here is of that cohort"):
        build_checklist(report, [other.path])


def test_every_method_and_ablation_can_be_described() -> None:
    for name in (*methods.names(), *methods.ablations()):
        assert model_text("it", methods.settings(name)).startswith("it: ")
    assert "kept its random weights" in model_text("it", methods.settings("random_encoder"))
    assert "the epoch with the highest validation accuracy" in model_text(
        "it", methods.settings("attention", recipe="paper")
    )
    assert "The weights of the last epoch were used" in model_text("it", methods.settings("attention", recipe="ours"))


def test_splits_that_differ_in_their_seed_share_a_sentence_and_a_row(many: Path) -> None:
    (section,) = build_checklist(build(RunStore(many))).sections
    dealt = words(item(section, "12a"))
    assert dealt.count("Subjects, not windows, were assigned") == 2, "3 folds and 4"
    assert "This was repeated for 4 splits, split seeds 0, 1, 2, 3." in dealt
    (experiments,) = item(section, "12c").sheets
    assert sorted((row[0], row[2]) for row in experiments.rows) == [
        ("attention, eegnet, budget demo", "3"), ("bandpower", "5"), ("tangent", "4"),
    ]  # fmt: skip
    assert "3 methods or settings on 5 splits" in words(item(section, "12c"))


class _Balance(HTMLParser):
    """Whether every element that is opened is closed in its place."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.scripts = 0

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.scripts += tag == "script"
        if tag not in ("meta", "link", "br", "img", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_hostile_names_mean_nothing_in_markdown_and_html(tmp_path: Path) -> None:
    cohort = prepared(tmp_path / "odd.cohort", ("control", HOSTILE))
    evaluate(cohort, "bandpower", folds=3, out=tmp_path / "runs", progress=False, baselines=False)
    plain = prepared(tmp_path / "plain.cohort")
    evaluate(plain, "bandpower", folds=3, out=tmp_path / "runs", progress=False, baselines=False)
    checklist = build_checklist(build(RunStore(tmp_path / "runs")))
    assert sorted(section.name for section in checklist.sections) == ["odd.cohort", "plain.cohort"]
    text, page = markdown(checklist), checklist_page(checklist)
    assert not re.search(r"(?<!\\)<script", text)
    for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        assert len({re.sub(r"\\.", "", line).count("|") for line in block.splitlines()}) == 1, "no cell more"
    parser = _Balance()
    parser.feed(page)
    parser.close()
    assert parser.open == []
    assert parser.scripts == 1, "the page's own"
    assert "&lt;script&gt;alert(1)" in page


def test_control_characters_are_shown_as_codes(tmp_path: Path) -> None:
    odd = "group\x1b[31m\u202eb"
    cohort = made(signals(12, seconds=6, n_channels=3), labelled(12, ("a", odd))).save(tmp_path / "cohort")
    evaluate(cohort, "bandpower", folds=3, out=tmp_path / "runs", progress=False, baselines=False)
    checklist: Checklist = build_checklist(build(RunStore(tmp_path / "runs")))
    for text in (markdown(checklist), checklist_page(checklist)):
        assert "\x1b" not in text
        assert "\u202e" not in text
        assert "u202e" in text


def test_the_command_writes_both_files_and_names_them(folder: Path, tmp_path: Path) -> None:
    run = CliRunner().invoke
    options = [str(folder / "runs"), "--out", str(tmp_path), "--no-windows"]
    done = run(app, ["report", *options, "--checklist", "--json"])
    assert done.exit_code == 0, done.output
    files = {Path(file).name for file in json.loads(done.stdout)["files"]}
    assert {"checklist.md", "checklist.html"} <= files
    assert all((tmp_path / name).is_file() for name in files)
    assert not {"checklist.md", "checklist.html"} & {
        Path(file).name for file in json.loads(run(app, ["report", *options, "--json"]).stdout)["files"]
    }
    alone = run(app, ["report", *options, "--cohort", str(folder / "clinic.cohort")])
    assert isinstance(alone.exception, BadUse) or alone.exit_code == 2
