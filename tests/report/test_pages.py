"""The pages in a real browser: they load without an error or a request, react, and show what they say they show."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bridgemil.cohort.channels import ADFTD_ORDER
from bridgemil.cohort.signal import Signal
from bridgemil.evaluation.results import Results
from bridgemil.report.benchmark import build
from bridgemil.report.checklist import build_checklist, checklist_page
from bridgemil.report.explanation import Person, Removal, explain
from bridgemil.report.held_out import find
from bridgemil.report.pages import eeg
from bridgemil.report.pages.charts import calibration_chart
from bridgemil.report.pages.results import demo_page, report_page
from bridgemil.report.pages.subject import subject_page
from bridgemil.report.templating import write
from bridgemil.runs import RunStore
from browser_of_tests import chromium, load, logs

WHO = "subject-004"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with chromium(tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.fixture(scope="module")
def pages(explained: RunStore, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """subject.html, report.html, checklist.html and demo.html in one folder."""
    folder = tmp_path_factory.mktemp("pages")
    held = find(explained, WHO, method="attention")
    model = held.model()
    subject = subject_page(
        explain(model, held.person, *held.background(model)),
        model.facts,
        sentence=held.sentence,
        warnings=["The recording is out of distribution."],
        calibration=["Of 21 other people given between 60% and 80%, 71% had it."],
        bands=held.bands(model.facts.settings),
        provenance={"Run": held.identity},
    )
    write(folder / "subject.html", subject)
    report = build(explained)
    write(folder / "report.html", report_page(report))
    write(folder / "checklist.html", checklist_page(build_checklist(report)))
    results: list[Results] = [cell.results for cell in report.cells]
    write(folder / "demo.html", demo_page(held.cohort, results))
    return folder


@pytest.mark.parametrize("name", ["subject", "report", "demo", "checklist"])
def test_a_page_loads_without_an_error_or_a_request_and_says_what_it_is_for(
    browser: Any, pages: Path, name: str
) -> None:
    load(browser, pages / f"{name}.html")
    text = browser.find_element("tag name", "body").text
    assert "Research use only" in text
    assert "undefined" not in text
    assert "NaN" not in text
    assert browser.execute_script("return document.querySelectorAll('main section').length") >= 1


@pytest.mark.parametrize("name", ["subject", "report", "demo"])
def test_the_theme_follows_the_system_and_the_button(browser: Any, pages: Path, name: str) -> None:
    colour = "return getComputedStyle(document.body).backgroundColor"
    seen = {}
    for scheme in ("light", "dark"):
        _emulate(browser, scheme)
        load(browser, pages / f"{name}.html")
        browser.execute_script("localStorage.clear(); delete document.documentElement.dataset.theme")
        seen[scheme] = browser.execute_script(colour)
    assert seen["light"] == "rgb(255, 255, 255)"
    assert seen["dark"] != seen["light"]
    browser.get((pages / f"{name}.html").as_uri())
    button = browser.find_element("id", "theme")
    assert button.text == "Light"
    button.click()
    assert browser.execute_script(colour) == seen["light"]
    button.click()
    assert browser.execute_script(colour) == seen["dark"]
    browser.execute_script("localStorage.clear()")
    _emulate(browser, "light")


def _emulate(browser: Any, scheme: str, media: str = "") -> None:
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})


@pytest.mark.parametrize("name", ["subject", "report", "demo", "checklist"])
def test_a_page_fits_a_telephone_and_prints_dark_on_white(browser: Any, pages: Path, name: str) -> None:
    metrics = {"width": 380, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    load(browser, pages / f"{name}.html")
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 380
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    _emulate(browser, "dark", "print")
    assert browser.execute_script("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert browser.execute_script("return getComputedStyle(document.querySelector('nav')).display") == "none"
    _emulate(browser, "light")


def test_warnings_stand_before_the_probabilities(browser: Any, pages: Path) -> None:
    load(browser, pages / "subject.html")
    text = browser.find_element("tag name", "main").text
    assert text.index("out of distribution") < text.index("Prediction: ")
    assert "71% had it" in text
    assert "fold 2 of 3" in browser.find_element("tag name", "header").text


def test_the_timeline_reacts_to_the_pointer_and_the_keyboard(browser: Any, pages: Path) -> None:
    from selenium.webdriver import ActionChains, Keys

    load(browser, pages / "subject.html")
    timeline = browser.find_element("id", "timeline")
    now = browser.find_element("id", "timeline-now")
    before = now.text
    ActionChains(browser).move_to_element_with_offset(timeline, 100, 0).perform()
    assert now.text.startswith("Here: window")
    assert now.text != before
    ActionChains(browser).move_to_element_with_offset(timeline, -200, 0).click().perform()
    chosen = int(timeline.get_attribute("aria-valuenow"))
    assert f"window {chosen + 1} " in now.text
    timeline.send_keys(Keys.ARROW_RIGHT)
    assert int(timeline.get_attribute("aria-valuenow")) == chosen + 1
    timeline.send_keys(Keys.HOME)
    assert timeline.get_attribute("aria-valuenow") == "0"
    gate = browser.find_element("css selector", "#choose-ranking button")
    gate.click()
    assert gate.get_attribute("aria-pressed") == "true"
    assert "Attention weight" in browser.find_element("css selector", ".timeline-title:not([hidden])").text
    assert logs(browser) == ([], [])


def test_clicking_a_top_window_shows_its_eeg(browser: Any, pages: Path, explained: RunStore) -> None:
    load(browser, pages / "subject.html")
    buttons = browser.find_elements("css selector", "#tops button")
    assert len(buttons) >= 6
    shown = set()
    for button in buttons[:3]:
        button.click()
        window = int(button.get_attribute("data-window"))
        assert button.get_attribute("aria-pressed") == "true"
        shade = browser.find_element("css selector", "#traces .chosen")
        assert int(shade.get_attribute("data-window")) == window
        assert f"shaded: window {window + 1}." in browser.find_element("id", "traces-now").text
        paths = browser.execute_script(
            "return [...document.querySelectorAll('#traces .trace')].map((p) => p.getAttribute('d'))"
        )
        assert len(paths) == 19
        shown.add((paths[0], shade.get_attribute("x")))
    assert len(shown) == 3, "each window has a place of its own"
    assert logs(browser) == ([], [])


def test_the_eeg_zooms_scrolls_and_hides_channels(browser: Any, pages: Path) -> None:
    from selenium.webdriver import Keys

    load(browser, pages / "subject.html")
    now, traces = browser.find_element("id", "traces-now"), browser.find_element("id", "traces")
    seen = [now.text]
    for name in ("in", "back", "forward", "out", "louder", "softer"):
        browser.find_element("css selector", f"button[data-do={name}]").click()
        assert now.text != seen[-1], name
        seen.append(now.text)
    browser.find_element("css selector", "button[data-do=louder]").click()
    browser.find_element("css selector", "button[data-do=auto]").click()
    assert now.text == seen[-1], "the automatic gain"
    traces.send_keys(Keys.ARROW_LEFT)
    assert now.text != seen[-1]
    count = "return document.querySelectorAll('#traces .trace').length"
    browser.find_element("css selector", "#eeg summary").click()
    browser.find_element("css selector", "#channels input").click()
    assert browser.execute_script(count) == 18
    browser.find_element("css selector", "button[data-do=none]").click()
    assert browser.execute_script(count) == 0
    browser.find_element("css selector", "button[data-do=all]").click()
    assert browser.execute_script(count) == 19
    assert logs(browser) == ([], [])


def test_the_bipolar_montage_is_the_double_banana(browser: Any, pages: Path) -> None:
    load(browser, pages / "subject.html")
    names = "return [...document.querySelectorAll('#traces .trace')].map((path) => path.dataset.channel)"
    assert browser.execute_script(names) == list(ADFTD_ORDER)
    browser.find_element("css selector", "button[data-montage=bipolar]").click()
    shown = browser.execute_script(names)
    assert shown[:5] == ["Fp1-F7", "F7-T3", "T3-T5", "T5-O1", "Fp1-F3"]
    assert len(shown) == 18
    assert logs(browser) == ([], [])


@pytest.mark.parametrize("factor", [1e-6, 1.0, 1e4])
def test_the_eeg_opens_readable_whatever_the_amplitude(
    browser: Any, explained: RunStore, tmp_path: Path, factor: float
) -> None:
    held = find(explained, WHO, method="tangent")
    model = held.model()
    bag = (factor * (held.person.bag + 3000)).astype(np.float32)  # an offset is no amplitude
    explanation = replace(explain(model, held.person), person=replace(held.person, bag=bag))
    write(tmp_path / "page.html", subject_page(explanation, model.facts))
    load(browser, tmp_path / "page.html")
    boxes = browser.execute_script(
        "return [...document.querySelectorAll('#traces .trace')].map((p) => [p.getBBox().y, p.getBBox().height])"
    )
    bottom = browser.execute_script("const b = document.querySelector('#inside rect').getBBox(); return b.y + b.height")
    row = float(np.median(np.diff([y + height / 2 for y, height in boxes])))
    heights = np.array([height for _, height in boxes])
    assert 0.5 * row < np.median(heights) < 4 * row
    assert boxes[-1][0] + boxes[-1][1] <= bottom, "the last trace is not clipped"
    assert browser.find_elements("css selector", "#traces .scale-bar")
    assert re.fullmatch(r"[125]0*(\.\d)? [mµnp]V", browser.find_element("css selector", ".scale-text").text)


def test_numbers_stand_below_the_pictures_and_the_subject_has_maps(pages: Path) -> None:
    text = (pages / "subject.html").read_text("utf-8")
    assert text.index('id="timeline"') < text.index("Attention weights: mean")
    assert text.index("This subject: relative band power") < text.index("Group pattern: log-variance")
    bands = re.findall(r'alt="Scalp map, ([^;]*);', text)
    assert bands == 4 * bands[: len(bands) // 4], "the subject's own maps and three patterns, in the same bands"


def test_a_term_of_the_glossary_has_a_tooltip(browser: Any, pages: Path) -> None:
    load(browser, pages / "report.html")
    term = browser.find_element("css selector", "section .term")
    browser.execute_script("arguments[0].focus()", term)
    tip = browser.find_element("id", "tip")
    assert tip.is_displayed()
    assert len(tip.text) > 20
    assert term.get_attribute("aria-describedby") == "tip"
    browser.execute_script("arguments[0].blur()", term)
    assert not tip.is_displayed()
    titled = browser.execute_script(
        "return [...document.querySelectorAll('thead th[title]')].map((th) => th.innerText)"
    )
    assert {"AUROC", "MCC"} <= set(titled)


def test_the_checklist_can_be_filtered_to_what_the_author_must_fill_in(browser: Any, pages: Path) -> None:
    load(browser, pages / "checklist.html")
    states = "return [...document.querySelectorAll('.item')].filter((i) => !i.hidden).map((i) => i.dataset.state)"
    before = browser.execute_script(states)
    assert "filled" in before
    browser.find_element("id", "only-author").click()
    assert browser.execute_script(states) == [state for state in before if state != "filled"]
    parts = browser.find_elements("css selector", ".part:not([hidden]):has(.item)")
    assert all(part.find_elements("css selector", ".item:not([hidden])") for part in parts)


def test_an_ensemble_does_not_repeat_its_members_curves(runs: Path) -> None:
    report = build(RunStore(runs))
    labels = [cell.label for cells in report.groups().values() for cell in cells]
    assert "tangent+attention" in labels
    text = report_page(report)
    titles = re.findall(r"<figcaption>([^<]*training on[^<]*)</figcaption>", text)
    assert titles == ["majority_vote, training on windows", "attention, training on bags"]


def test_the_report_sorts_its_tables_and_lists_who_is_always_wrong(
    browser: Any, pages: Path, explained: RunStore
) -> None:
    load(browser, pages / "report.html")
    head = browser.find_elements("css selector", "table.sortable th button")[1]
    head.click()
    rows = "return [...document.querySelector('table.sortable').tBodies[0].rows]"
    cells = f"{rows}.map((row) => Number(row.cells[1].dataset.value))"
    assert browser.execute_script(cells) == sorted(browser.execute_script(cells), reverse=True)
    head.click()
    assert browser.execute_script(cells) == sorted(browser.execute_script(cells))
    boxes = browser.find_elements("css selector", "input[data-only]")
    wrong = int(re.search(r"(\d+) of 12 subjects were misclassified", browser.find_element("tag name", "main").text)[1])
    assert bool(wrong) == bool(boxes)
    if boxes:
        boxes[0].click()
        rows = (
            "return [...document.querySelectorAll('table.outcomes')[0].tBodies[0].rows].filter((r) => !r.hidden).length"
        )
        assert browser.execute_script(rows) == wrong
    assert logs(browser) == ([], [])


def test_the_report_holds_every_part(pages: Path) -> None:
    text = (pages / "report.html").read_text("utf-8")
    for words in ("Scores", "Clinical metrics", "AUROC 0.", "Decision curve at a prevalence of 50 %",
                  "Confusion matrices", "Calibration", "Subjects", "Comparisons of methods",
                  "Training curves", "Methods section", "12 subjects (6 control, 6 patient)", "split seed 0",
                  "Stage 1 trained the encoder for 2 epochs", "&#34;retention&#34;"):  # fmt: skip
        assert words in text, words
    for method in ("attention", "bridgemil", "millet", "majority_vote", "tangent"):
        assert f"{method}:" in text, method


def test_words_of_the_data_cannot_become_code(browser: Any, explained: RunStore, tmp_path: Path) -> None:
    held = find(explained, WHO, method="tangent")
    model = held.model()
    odd = '</script><script>document.title = "taken"</script><b>'
    person = Person(odd, held.person.bag, held.person.starts, [(odd, len(held.person.bag))], odd)
    facts = replace(model.facts, classes=(odd, "patient"))
    explanation = replace(explain(model, person), classes=(odd, "patient"))
    page = tmp_path / "odd.html"
    page.write_text(subject_page(explanation, facts, warnings=[odd], sentence=odd, provenance={odd: odd}), "utf-8")
    load(browser, page)
    assert browser.title != "taken"
    assert browser.find_element("tag name", "h1").text == odd


def _signal(n_channels: int) -> Signal:
    return Signal(tuple(f"E{i}" for i in range(n_channels)), 200.0, 200)


def _decoded(packed: dict[str, Any], n_channels: int) -> list[np.ndarray]:
    """The stretches in microvolts, as the page's script reads them."""
    samples = np.frombuffer(base64.b64decode(packed["samples"]), np.int8)
    scales = np.frombuffer(base64.b64decode(packed["scales"]), "<f4")
    found, at, scale_at = [], 0, 0
    for stretch in packed["stretches"]:
        n, blocks = stretch["n"], -(-stretch["n"] // packed["block"])
        values = samples[at : at + n * n_channels].reshape(n_channels, n).astype(float)
        scale = scales[scale_at : scale_at + blocks * n_channels].reshape(n_channels, blocks)
        found.append(values * np.repeat(scale, packed["block"], axis=1)[:, :n])
        at, scale_at = at + n * n_channels, scale_at + blocks * n_channels
    return found


def test_the_eeg_in_the_page_is_the_eeg() -> None:
    time = np.arange(4000) / 200
    wave = 50 * np.sin(2 * np.pi * 7 * time)
    signal = np.stack([wave, 2 * wave])
    bag = signal.reshape(2, 20, 200).transpose(1, 0, 2).astype(np.float32)
    person = Person("x", bag, np.arange(20.0))
    places, _ = eeg.positions(person, 1.0)
    packed = eeg.pack(person, _signal(2), places, [0])
    (shown,) = _decoded(packed, 2)
    assert shown.shape == (2, 2000)
    np.testing.assert_allclose(shown[:, 50:-50], signal[:, ::2][:, 50:-50], atol=1.5)


def test_overlaps_are_joined_gaps_and_recordings_are_kept_apart() -> None:
    signal = 10 * np.random.default_rng(0).normal(size=(1, 2000)).cumsum(axis=1).astype(np.float32)
    starts = np.arange(0, 4.5, 0.5)
    bag = np.stack([signal[:, int(s * 200) : int(s * 200) + 200] for s in starts])
    half = Person("x", bag, starts)
    places, _ = eeg.positions(half, 1.0)
    assert [s["n"] for s in eeg.pack(half, _signal(1), places, [0])["stretches"]] == [500]
    gap = Person("x", bag[:4], np.array([0.0, 1.0, 5.0, 0.0]), [("a", 3), ("b", 1)])
    places, recordings = eeg.positions(gap, 1.0)
    np.testing.assert_allclose(places, [0, 1, 5, 6])
    assert [r["offset"] for r in recordings] == [0.0, 6.0]
    packed = eeg.pack(gap, _signal(1), places, [0])
    assert [(s["start"], s["n"]) for s in packed["stretches"]] == [(0.0, 200), (5.0, 100), (6.0, 100)]


@pytest.mark.parametrize("top", [0.0, 0.5])
def test_windows_are_listed_only_where_the_removal_test_singles_them_out(
    browser: Any, explained: RunStore, tmp_path: Path, top: float
) -> None:
    held = find(explained, WHO, method="attention")
    model = held.model()
    explanation = explain(model, held.person)
    removal = Removal("patient", 2, top, np.full(20, 0.1))
    rankings = [replace(ranking, removal=removal) for ranking in explanation.rankings]
    write(tmp_path / "page.html", subject_page(replace(explanation, rankings=rankings), model.facts))
    load(browser, tmp_path / "page.html")
    assert bool(browser.find_elements("css selector", "#tops button")) is bool(top)
    assert bool(browser.find_elements("css selector", "#timeline .top")) is bool(top)
    assert re.match(r"Chosen: window \d+ of", browser.find_element("id", "timeline-now").text)
    assert browser.find_elements("css selector", "#traces path")
    buttons = [button.text for button in browser.find_elements("css selector", "#choose-ranking button")]
    assert buttons == ["attention weight", "contribution"]


def test_too_much_eeg_is_kept_around_the_top_windows_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eeg, "MOST_BYTES", 40 * 100 * 3)
    bag = np.random.default_rng(0).normal(size=(100, 3, 200)).astype(np.float32)
    person = Person("x", bag, np.arange(100.0))
    packed = eeg.pack(person, _signal(3), person.starts, [50, 10, 80, 30])
    assert not packed["complete"]
    assert [s["start"] for s in packed["stretches"]] == [5.0, 45.0, 75.0]
    assert len(base64.b64decode(packed["samples"])) <= eeg.MOST_BYTES


def test_twenty_minutes_of_nineteen_channels_stay_under_8_megabytes(explained: RunStore) -> None:
    held = find(explained, WHO, method="tangent")
    model = held.model()
    explanation = explain(model, held.person)
    bag = (20 * np.random.default_rng(0).normal(size=(1200, 19, 200))).astype(np.float32)
    rankings = [replace(r, values=np.resize(r.values, 1200)) for r in explanation.rankings]
    long = replace(explanation, person=Person("long", bag, np.arange(1200.0)), rankings=rankings)
    text = subject_page(long, model.facts)
    data = json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])
    assert data["eeg"]["complete"]
    assert data["eeg"]["channels"] == list(ADFTD_ORDER)
    assert len(text.encode()) < 8e6


def test_electrodes_without_a_place_get_bars(explained: RunStore) -> None:
    held = find(explained, WHO, method="tangent")
    model = held.model()
    explanation = explain(model, held.person)
    numbered = {name: f"E{i}" for i, name in enumerate(ADFTD_ORDER)}
    facts = replace(model.facts, signal=replace(model.facts.signal, channels=tuple(numbered.values())))
    text = subject_page(replace(explanation, electrodes=explanation.electrodes.replace({"electrode": numbered})), facts)
    assert "data:image/png" not in text
    assert "Electrode positions are unknown for E0, E1" in text
    assert 'class="bars"' in text


def test_calibration_bins_are_predicted_against_observed(explained: RunStore) -> None:
    predictions = build(explained).cells[0].results.predictions.assign(label="patient", p_patient=0.75)
    marks = calibration_chart(predictions, ["control", "patient"], "#000").marks
    spots, whiskers = ([mark for mark in marks if mark.style == style] for style in ("spot", "whisker"))
    assert sum(int(re.search(r"\((\d+) predictions", spot.note)[1]) for spot in spots) == len(predictions)
    assert all(spot.points[0] == pytest.approx((0.75, 1)) for spot in spots)
    assert all(whisker.points[0][1] < 1 and whisker.points[1][1] == pytest.approx(1) for whisker in whiskers)
