"""Messages: equal problems are one line, and nothing is lost that tells two problems apart."""

from __future__ import annotations

from bridgemil.errors import BadData, Problem, grouped


def test_more_than_three_equal_problems_are_one_line_with_their_number_and_examples() -> None:
    missing = [Problem(f"missing electrode O2 (it has Fp1, X{i} (a spare))", f"sub-{i}", f"{i}.edf") for i in range(82)]
    other = Problem("missing electrode O1 (it has Fp1)", "sub-99", "99.edf")
    lines = grouped([*missing[:40], other, *missing[40:]])
    assert lines == [
        "82 recordings: missing electrode O2 (it has Fp1, X0 (a spare)): sub-0, 0.edf; sub-1, 1.edf; sub-2, 2.edf; "
        "and 79 more",
        "sub-99, 99.edf: missing electrode O1 (it has Fp1)",
    ]
    assert len(grouped(missing[:3])) == 3
    error = BadData("cohort: 83 problems", [*missing, other])
    assert len(error.problems) == 83
    assert len(str(error).splitlines()) == 3


def test_problems_of_subjects_and_of_the_whole_cohort() -> None:
    labels = [Problem("missing label", f"sub-{i}") for i in range(5)]
    assert grouped(labels) == ["5 subjects: missing label: sub-0; sub-1; sub-2; and 2 more"]
    assert grouped([Problem("only one class (A)")]) == ["only one class (A)"]
    assert grouped([Problem("an open bracket (here", file="a.edf")]) == ["a.edf: an open bracket (here"]
