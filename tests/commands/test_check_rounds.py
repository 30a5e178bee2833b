"""What is shown while rounds are made: the round, the slow-down so far and the last one, and how long it has taken."""

from __future__ import annotations

import io
import math
import re

import pytest
from rich.console import Console

from profiler.check.model import CONFIRM, MEASURE, Limits, Round
from profiler.check.values import RoundValues
from profiler.commands import _gate_rounds

ELAPSED = r"\d:\d\d:\d\d"


@pytest.fixture(autouse=True)
def _slowdowns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a round: so many percent as its number, of odd ones a gain; the third says nothing."""

    def values(one: Round) -> RoundValues:
        share = one.number / 100 * (-1) ** one.number
        return RoundValues(None, None) if one.number == 3 else RoundValues(math.log1p(share), 0.0)

    monkeypatch.setattr(_gate_rounds, "round_values", values)


def made(measured: int, confirming: int = 0) -> list[Round]:
    kinds = [MEASURE] * measured + [CONFIRM] * confirming
    return [Round(number, kind, (), ()) for number, kind in enumerate(kinds, 1)]


@pytest.mark.parametrize(
    ("rounds", "kind", "line"),
    [
        (made(0), MEASURE, "round 1 of at most 28"),
        (made(1), MEASURE, "round 2 of at most 28: -1.0% so far, last -1.0%"),
        (made(3), MEASURE, "round 4 of at most 28: +0.5% so far, last +2.0%"),
        (made(5, 1), CONFIRM, "round 7 (confirming, 2 of at most 8): +1.1% so far, last +6.0%"),
    ],
)
def test_a_round_says_what_those_before_it_come_to(
    capsys: pytest.CaptureFixture[str], rounds: list[Round], kind: str, line: str
) -> None:
    _gate_rounds._lines(Limits())(rounds, kind)
    assert re.fullmatch(rf"{re.escape(line)} \({ELAPSED}\)\n", capsys.readouterr().err)


@pytest.mark.parametrize("width", [80, 40])
@pytest.mark.parametrize(("rounds", "kind"), [(made(19), MEASURE), (made(20, 7), CONFIRM)])
def test_neither_the_last_slow_down_nor_the_time_is_cut(rounds: list[Round], kind: str, width: int) -> None:
    console = Console(width=width, height=10, file=io.StringIO(), force_terminal=True, color_system=None)
    with _gate_rounds._live(console, Limits()) as show:
        show(rounds, kind)
    shown = " ".join(console.file.getvalue().split())  # type: ignore[attr-defined]
    said = _gate_rounds.so_far(rounds, kind, Limits())
    assert re.search(ELAPSED, shown)
    assert "\u2026" not in shown
    assert said.rpartition(" ")[2] in shown
    assert (f"{said} " in shown) == (width == 80)
