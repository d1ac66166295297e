"""Files that describe a release agree: pyproject.toml, CITATION.cff, codemeta.json, the conda recipe, CHANGELOG.md."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest
import yaml

import bridgemil

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text())
CODEMETA = json.loads((ROOT / "codemeta.json").read_text())
RECIPE = yaml.safe_load((ROOT / "recipe" / "meta.yaml").read_text())
CONDA_NAMES = {"torch": "pytorch", "matplotlib": "matplotlib-base", "PyYAML": "pyyaml"}


def test_versions_licences_and_descriptions_agree() -> None:
    versions = [PROJECT["version"], CITATION["version"], CODEMETA["version"], RECIPE["package"]["version"]]
    assert set(versions) == {bridgemil.__version__}
    licences = [PROJECT["license"], CITATION["license"], RECIPE["about"]["license"]]
    assert set(licences) == {CODEMETA["license"].rpartition("/")[2]}
    assert {PROJECT["description"], CODEMETA["description"]} == {RECIPE["about"]["summary"]}
    assert PROJECT["keywords"] == CODEMETA["keywords"]
    assert CODEMETA["runtimePlatform"] == f"Python {PROJECT['requires-python']}"


def test_authors_and_the_paper_agree() -> None:
    assert [a["name"] for a in CITATION["authors"]] == [a["name"] for a in CODEMETA["author"]]
    assert [a["name"] for a in PROJECT["authors"]] == [a["name"] for a in CODEMETA["author"]]
    paper, cited = CODEMETA["referencePublication"], CITATION["references"][0]
    assert paper["name"] == cited["title"]
    assert [(a["givenName"], a["familyName"]) for a in paper["author"]] == [
        (a["given-names"], a["family-names"]) for a in cited["authors"]
    ]


def test_the_recipe_has_the_dependencies_of_the_project() -> None:
    split = [re.fullmatch(r"([\w-]+)(.*)", line).groups() for line in PROJECT["dependencies"]]
    wanted = [f"{CONDA_NAMES.get(name, name)} {version}".strip() for name, version in split]
    assert RECIPE["requirements"]["run"] == [f"python {PROJECT['requires-python']}", *wanted]
    scripts = [f"{name} = {place}" for name, place in PROJECT["scripts"].items()]
    assert RECIPE["build"]["entry_points"] == scripts


def test_the_changelog_has_one_section_per_release_newest_first() -> None:
    heads = re.findall(r"^## (.*)", (ROOT / "CHANGELOG.md").read_text(), flags=re.M)
    versions = [tuple(map(int, head.split()[0].split("."))) for head in heads]
    assert versions == sorted(versions, reverse=True)
    assert versions[0] >= tuple(map(int, PROJECT["version"].split(".")))
    assert all(re.fullmatch(r"\d+\.\d+\.\d+ \((unreleased|not released|\d{4}-\d\d-\d\d)\)", head) for head in heads)


@pytest.mark.parametrize("form", sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")), ids=lambda f: f.name)
def test_issue_forms_are_complete(form: Path) -> None:
    content = yaml.safe_load(form.read_text())
    if form.name == "config.yml":
        assert content == {"blank_issues_enabled": True}
        return
    assert {"name", "description", "body"} <= set(content)
    ids = [field["id"] for field in content["body"]]
    assert len(ids) == len(set(ids))
    assert all(field["attributes"]["label"] for field in content["body"])
