"""A real browser for tests of pages: headless Chromium, which may not ask anything of any network."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest


@contextmanager
def chromium(profile: Path) -> Iterator[Any]:
    """A browser with an empty profile; skips the test where there is none."""
    names = ("chromium", "chromium-browser", "google-chrome")
    binary = next((path for name in names if (path := shutil.which(name))), None)
    driver = shutil.which("chromedriver")
    if binary is None or driver is None:
        pytest.skip("no chromium and chromedriver here (Debian: apt-get install chromium chromium-driver)")
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = binary
    switches = (
        "--headless=new --no-sandbox --disable-gpu --disable-background-networking --no-first-run "
        "--disable-component-update --disable-sync --disable-dev-shm-usage --window-size=1200,900"
    )
    for switch in [*switches.split(), f"--user-data-dir={profile}", "about:blank"]:
        options.add_argument(switch)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    try:
        yield browser
    finally:
        browser.quit()


def load(browser: Any, page: Path) -> None:
    """Open a page and check that it says nothing on the console and asks for nothing but itself."""
    browser.get("about:blank")
    logs(browser)
    browser.get(page.as_uri())
    errors, requests = logs(browser)
    assert not errors
    assert requests == [page.as_uri()]


def logs(browser: Any) -> tuple[list[str], list[str]]:
    """What the console said and which addresses were asked for since the last call; data: addresses are no requests."""
    console = [entry["message"] for entry in browser.get_log("browser")]
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    urls = [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]
    return console, [url for url in urls if not url.startswith(("data:", "about:", "chrome:"))]
