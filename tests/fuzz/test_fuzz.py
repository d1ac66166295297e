"""Mutated inputs of every kind: refused in our own words, or harmless; never a traceback, a hang or a silent change.

``make test`` tries 300, ``make fuzz`` 5,000; the seed is fixed, so a case that fails is found again by its number:
``pytest tests/fuzz --kinds edf --case 17``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from fuzz.harness import ALLOWED, FORBIDDEN, Case, Harness
from fuzz.kinds import KINDS


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test a kind, so that processes can share them."""
    chosen = metafunc.config.getoption("--kinds")
    kinds = chosen.split(",") if chosen else list(KINDS)
    if "kind" in metafunc.fixturenames:
        metafunc.parametrize("kind", kinds)


@pytest.fixture(scope="session")
def harness() -> Iterator[Harness]:
    made = Harness()
    yield made
    made.stop()


def test_mutated_input_is_refused_or_harmless(
    kind: str, harness: Harness, request: pytest.FixtureRequest, record_property: Callable[[str, object], None]
) -> None:
    option = request.config.getoption
    each = -(-option("--cases") // len(KINDS))
    numbers = range(each) if option("--case") is None else [option("--case")]
    cases = [harness.run(kind, number) for number in numbers]
    record_property("fuzz", (kind, dict(Counter(case.outcome for case in cases))))
    bad = [case for case in cases if case.outcome not in ALLOWED]
    assert not bad, "\n".join(map(str, bad[:40]))


def test_the_harness_sees_what_it_is_for() -> None:
    """A worker that is killed, and one that waits for ever, are outcomes and not the end."""
    assert set(ALLOWED).isdisjoint(FORBIDDEN)
    made = Harness()
    try:
        assert made.run("split", 0).outcome in ALLOWED
        assert made._worker is not None
        made._worker.kill()
        made._worker.wait()
        with pytest.raises(BrokenPipeError):
            made.run("split", 1)
        made.stop()
        assert isinstance(made.run("split", 1), Case)
    finally:
        made.stop()
