"""Everything that is read is in the standard English of machine learning and EEG.

Tested are help texts, templates, docs, docstrings, comments, messages and names of classes and functions.
"""

from __future__ import annotations

import ast
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "bridgemil"

# Not this: what to write instead. Patterns are applied to text with single spaces, without code in backticks.
PHRASES = {
    r"\blets? in\b|\bletting in\b": "attention weight",
    r"(?<!sigmoid )(?<!column )\bgates?\b": "attention weight (`gate` is the column, `gates()` the method)",
    r"\bsaid\b": "predicted, stated",
    r"\bcame true\b": "observed frequency",
    r"\bmistaken for\b": "confusion matrix",
    r"\bbe believed\b|\bbelieving\b": "calibration, reliability",
    r"\bsurer\b|\bless sure\b|\bhow sure\b": "sharpened, softened, uncertainty",
    r"\bexactly right probabilit": "perfect calibration",
    r"\bunlike the training\b|\bfarther from the training\b": "out of distribution",
    r"\bguess(?:er|ers|ing)\b": "chance level",
    r"\banew\b": "again, with a new seed",
    r"\bleaves? zero out\b|\bno difference (?:is )?shown\b": "excludes zero, no significant difference",
    r"\bdoes not reach\b": "not better than",
    r"(?<!noise )\bfloors?\b|\bbeside it\b|\bno network\b": "baselines",
    r"\bdealt\b|\bdeals? (?:a|the|subjects)\b|\bdealing\b": "assigned to folds",
    r"\bgo(?:es)? on\b|\bwent on\b|\btaken up again\b|\bwhere it stopped\b": "resumes",
    r"\bsame bits\b|\bto the bit\b": "bit-identical",
    r"\bnames its person\b": "subject identification from one window",
    r"\bunder two subjects\b|\bsignal is there\b": "duplicate signals across subjects",
    r"\bsplit apart\b|\btraining sees the test\b": "leaks test data into training",
    r"\bafter holm\b": "Holm-corrected p",
    r"\bstrength at the electrode\b|\bmoving together\b": "log-variance, covariance with other electrodes",
    r"\bdecided nothing\b|\bheld back\b": "unused, held out",
    r"\bdearer\b": "slower",
    r"\b(?:a|one) (?:row|file|line|page|array|entry) an? \w+": "one row per window",
    r"\bmanners\b": "scikit-learn-compatible",
    r"\bspeaks? against\b|\bspoke against\b": "reliability warnings",
    r"\bmeans them\b": "disables the minimum number of steps",
    r"\btaken for\b|\btakes? it for\b|\bbe it good\b|\bname is no text\b": "interpreted as, valid or not, non-UTF-8",
    r"\bpeople\b": "subjects, participants, patients and controls",
}

# Names that gave way to the field's own.
NAMES = (
    r"(?:Desk|Shelf|Case|Wishes|Facts|Verdict|Excerpt|Skeleton|Moment|UnreadBag|RecordingSaid|Likeness|for_machines"
    r"|stretched|skeleton|floors)"
)


def _plain(text: str) -> str:
    """Prose alone: no code blocks, no code in backticks, no parameter names, single spaces."""
    text = re.sub(r"^```.*?^```", " ", text, flags=re.S | re.M)
    text = re.sub(r"``[^`]+``|`[^`\n]+`", "CODE", text)
    text = re.sub(r"^ *[\w, *]+ : ", " : ", text, flags=re.M)  # names of parameters
    return re.sub(r"\s+", " ", text)


def found(text: str) -> list[str]:
    """The phrases in a text, each with its surroundings and what to write instead."""
    plain = _plain(text)
    return [
        f"...{plain[max(0, hit.start() - 40) : hit.end() + 40]}... (write: {instead})"
        for phrase, instead in PHRASES.items()
        for hit in re.finditer(phrase, plain, flags=re.I)
    ]


def _documents() -> list[Path]:
    return [
        *sorted(ROOT.glob("*.md")),
        *sorted((ROOT / "docs").glob("*.md")),
        *sorted(PACKAGE.rglob("*.j2")),
        PACKAGE / "report" / "templates" / "checklist.yaml",
        PACKAGE / "datasets" / "cards.yaml",
    ]


def _texts(file: Path) -> Iterator[str]:
    """String literals, docstrings and comments of a module; a string without a space is a name, not a text."""
    with file.open("rb") as stream:
        yield " ".join(t.string for t in tokenize.tokenize(stream.readline) if t.type == tokenize.COMMENT)
    tree = ast.parse(file.read_text())
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            text = "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            text = node.value
        else:
            continue
        if " " in text.strip():
            yield text


def _id(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("file", _documents(), ids=_id)
def test_documents_and_templates(file: Path) -> None:
    assert not found(file.read_text())


@pytest.mark.parametrize("file", sorted(PACKAGE.rglob("*.py")), ids=_id)
def test_docstrings_messages_and_names_of_the_package(file: Path) -> None:
    assert not [hit for text in _texts(file) for hit in found(text)]
    defined = [n.name for n in ast.walk(ast.parse(file.read_text())) if isinstance(n, (ast.ClassDef, ast.FunctionDef))]
    assert not [name for name in defined if re.fullmatch(NAMES, name)]


def test_help_texts_of_every_verb() -> None:
    from typer.testing import CliRunner

    from bridgemil.cli import VERBS, app

    runner = CliRunner()
    for verb in VERBS:
        shown = runner.invoke(app, [verb, "--help"], env={"COLUMNS": "200"})
        assert shown.exit_code == 0
        assert not found(re.sub(r"[│╭╮╰╯─]", " ", shown.output)), verb


def test_a_planted_phrase_is_found_and_code_is_not() -> None:
    assert found("the windows it lets in most")
    assert found("subjects are\n  dealt to folds")
    assert not found("the column `gate`, `gates()` and a sigmoid gate; a noise floor")
