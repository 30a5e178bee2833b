"""What steps count: tokens, or what the program says that it is."""

from __future__ import annotations

import pytest

from profiler.analyse.analysis import analyse
from profiler.analyse.timing.throughput import counted_unit
from profiler.report.text import describe
from tests.recorded.builders import MS, RunBuilder


def measured(**facts: object) -> tuple[str, float | None, str]:
    builder = RunBuilder(level="light", **facts)
    builder.steps(4, 10 * MS, tokens=50)
    found = analyse(builder.build())
    (series,) = [series for series in found.series if series.name == "tokens_per_s"]
    assert series.unit == found.measures["tokens_per_s"].unit
    return found.measures["tokens_per_s"].unit, found.measures["tokens_per_s"].value, found.measures["steps_per_s"].unit


def test_steps_count_tokens_unless_their_program_says_otherwise() -> None:
    assert measured() == ("tokens/s", pytest.approx(5000), "steps/s")
    assert measured(unit="points") == ("points/s", pytest.approx(5000), "steps/s")


@pytest.mark.parametrize("said", ["", 3, None, "<b>", "a word too many", "x" * 30])
def test_what_is_no_word_is_no_unit(said: object) -> None:
    assert counted_unit(RunBuilder(unit=said).build().info) == "tokens"


def test_nothing_measured_has_the_unit_all_the_same() -> None:
    found = analyse(RunBuilder(unit="points").build()).measures["tokens_per_s"]
    assert (found.value, found.unit) == (None, "points/s")
    silent = RunBuilder(unit="points")
    silent.steps(2, MS)
    assert describe(analyse(silent.build()).measures["tokens_per_s"].reason) == "the program does not report points"
