"""The doctor's runner: order, a check that fails, and one that never answers."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from profiler.core.capability import NO, NOT_KNOWN, STATES, YES, Answer
from profiler.core.plugins import discover
from profiler.record.checks import Place
from profiler.record.doctor import PACKAGE, examine

PLACE = Place("python", Path("runs"))


class Fake:
    """A check that gives what it was given, or raises it."""

    needed = True

    def __init__(self, name: str, order: int, given: Answer | Exception, patience_s: float = 60.0) -> None:
        self.name, self.title, self.order, self.patience_s = name, f"the {name}", order, patience_s
        self._given = given

    def look(self, place: Place) -> Answer:
        if isinstance(self._given, Exception):
            raise self._given
        return self._given


class Hanging(Fake):
    """Answers when it is released, at the end of the test."""

    def __init__(self) -> None:
        super().__init__("hanging", 0, Answer(YES, "late"), patience_s=0.05)
        self.released = threading.Event()

    def look(self, place: Place) -> Answer:
        self.released.wait()
        return super().look(place)


def test_a_check_that_fails_is_its_own_line() -> None:
    checks = [Fake("b", 2, ValueError("two\nlines")), Fake("a", 1, Answer(NO, "why", "do"))]
    first, second = examine(PLACE, checks=checks)  # type: ignore[arg-type]
    assert (first.name, first.title, first.answer, first.lacking) == ("a", "the a", Answer(NO, "why", "do"), True)
    assert second.answer == Answer(NOT_KNOWN, "the check failed: ValueError: two lines")
    assert second.lacking, "what is needed and not known is lacking"


def test_a_check_that_hangs_stops_nothing() -> None:
    hanging = Hanging()
    first, second = examine(
        PLACE,
        checks=[
            hanging,
            Fake("a", 1, Answer(YES, "")),
        ],
    )  # type: ignore[list-item]
    hanging.released.set()
    assert first.answer == Answer(NOT_KNOWN, "no answer within 0.05 s")
    assert (second.answer.state, second.lacking) == (YES, False)


@pytest.mark.parametrize("check", discover(PACKAGE), ids=lambda check: check.name)
def test_every_check_is_bounded_and_told_apart(check: object) -> None:
    checks = discover(PACKAGE)
    assert 0 < check.patience_s < 60  # type: ignore[attr-defined]
    assert sum(other.order == check.order for other in checks) == 1  # type: ignore[attr-defined]
    assert len(check.title) <= 21, "the column is narrow"  # type: ignore[attr-defined]
    assert len(STATES) == 4
