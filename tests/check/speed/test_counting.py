"""Counted programs: a fixed number of steps after a warm-up, in fresh processes; one that ends too early says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from profiler.check.counters.counted import counted
from profiler.check.speed.controlled_process import measured_spans
from profiler.check.speed.counting import record_steps
from profiler.core.errors import ProfilerError
from profiler.run.load import load
from tests.check.speed.programs import MOMENTS, STEPPING, WORK, program

LATE_MARKS = MOMENTS + (
    "while True:\n    for _ in range(8):\n        optimized()\n        marks.count('syncs', 1)\n    marks.step()\n"
)


def totals(folder: Path, source: str, **settings: int) -> list[tuple[int, float]]:
    """Steps and syncs of two processes."""
    paths = record_steps(program(folder, source), folder / "runs", ["1", "2"], level="light", **settings)
    counts = [counted(load(path), measured_spans(path)) for path in paths]
    return [(count.steps, count.totals["syncs"]) for count in counts]


@pytest.mark.parametrize(
    ("source", "steps", "warmup", "expected"),
    [
        pytest.param(STEPPING, 7, 3, (7, 21), id="marked steps"),
        pytest.param(LATE_MARKS, 5, 2, (5, 40), id="marks that come after optimizers"),
    ],
)
def test_counts_of_given_steps(tmp_path: Path, source: str, steps: int, warmup: int, expected: tuple[int, int]) -> None:
    assert totals(tmp_path, source, steps=steps, warmup=warmup) == [expected] * 2


def test_a_program_that_ends_early_is_counted_over_the_steps_that_it_took(tmp_path: Path) -> None:
    short = WORK + "for _ in range(20):\n    marks.count('syncs', 2)\n    marks.step()\n"
    first, second = totals(tmp_path, short, steps=100, warmup=5)
    assert first == second
    assert 0 < first[0] <= 15
    assert first[1] == 2 * first[0]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (WORK + "for _ in range(8):\n    marks.step()\n", "ended during its 10 warm-up steps"),
        (WORK + "work()\n", r"profiler.step\(\)"),
        ("import sys\nprint('no data')\nsys.exit(5)", "exited with 5: no data"),
        ("import os\nos.kill(os.getpid(), 9)", "signal 9"),
    ],
)
def test_what_goes_wrong_is_one_line(tmp_path: Path, source: str, message: str) -> None:
    with pytest.raises(ProfilerError, match=message) as caught:
        totals(tmp_path, source)
    assert caught.value.exit_code == 2
