"""Programs that are counted: so many steps after a warm-up, in fresh processes; what ends too early says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from profiler.check.counted import counted
from profiler.check.speed.counting import count
from profiler.check.speed.resident import spans_of
from profiler.core.errors import ProfilerError
from profiler.run.load import load
from tests.check.speed.programs import MOMENTS, STEPPING, WORK, program


def totals(folder: Path, source: str, **settings: int) -> list[tuple[int, float]]:
    """Steps and syncs of two processes."""
    paths = count(program(folder, source), folder / "runs", ["1", "2"], level="light", **settings)
    found = [counted(load(path), spans_of(path)) for path in paths]
    return [(one.steps, one.totals["syncs"]) for one in found]


def test_so_many_steps_after_the_warm_up(tmp_path: Path) -> None:
    assert totals(tmp_path, STEPPING, steps=7, warmup=3) == [(7, 21), (7, 21)]


def test_a_program_that_ends_within_its_steps_is_counted_over_those_that_it_took(tmp_path: Path) -> None:
    short = WORK + "for _ in range(20):\n    marks.count('syncs', 2)\n    marks.step()\n"
    (one, other) = totals(tmp_path, short, steps=100, warmup=5)
    assert one == other
    assert 0 < one[0] <= 15
    assert one[1] == 2 * one[0]


def test_a_program_that_ends_within_its_warm_up_is_refused(tmp_path: Path) -> None:
    short = WORK + "for _ in range(8):\n    marks.step()\n"
    with pytest.raises(ProfilerError, match="ended within its 40 steps of warm-up"):
        totals(tmp_path, short, warmup=40)


def test_a_program_without_steps_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ProfilerError, match=r"no step of it was seen: mark its steps with profiler.step\(\)") as caught:
        totals(tmp_path, WORK + "work()\n")
    assert caught.value.exit_code == 2


def test_a_program_that_fails_says_how(tmp_path: Path) -> None:
    with pytest.raises(ProfilerError, match=r"the program exited with 5: no data"):
        totals(tmp_path, "import sys\nprint('no data')\nsys.exit(5)")
    with pytest.raises(ProfilerError, match=r"the program was ended by signal 9"):
        totals(tmp_path / "killed", "import os\nos.kill(os.getpid(), 9)")


def test_steps_are_counted_anew_where_they_turn_out_to_be_others(tmp_path: Path) -> None:
    source = MOMENTS + (
        "while True:\n    for _ in range(8):\n        optimized()\n        marks.count('syncs', 1)\n    marks.step()\n"
    )
    assert totals(tmp_path, source, steps=5, warmup=2) == [(5, 40), (5, 40)]
