"""The lines of the candidate that take longer than their counterparts in the base."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profiler.analyse.model.analysis import Analysis
from profiler.analyse.model.host import LineCost
from profiler.check.model import Hunk
from profiler.check.places import LineTimes, slower_lines
from profiler.run.model import RunInfo, Site

CHANGE = Hunk("train.py", 8, 8, (" a", "-old", "-older", "+new", "+newer", "+newest", " b", "+added", " c"))
"""Lines 9 and 10 became 9 to 11, line 11 is 12 now, 13 is new, and all later lines have moved by two."""


def side(step: float, samples: int = 1000, /, **shares: float) -> LineTimes:
    """Lines of train.py as `L9=0.3`, their shares measured to a tenth."""
    lines = [
        ("train.py", LineCost(
            Site("train.py", int(name[1:]), "main", f"text {name}"),
            "", share * step, share, 0.9 * share, 1.1 * share, round(samples * share),
        ))
        for name, share in shares.items()
    ]  # fmt: skip
    return LineTimes(lines, step)


def told(base: LineTimes, candidate: LineTimes, *hunks: Hunk) -> list[tuple[int, float, float, bool]]:
    found = slower_lines(base, candidate, hunks)
    return [(line.line, round(line.before, 6), round(line.after, 6), line.is_changed) for line in found]


def test_a_line_that_moved_is_compared_with_itself() -> None:
    base, candidate = side(0.1, L20=0.5, L30=0.5), side(0.15, L22=2 / 3, L32=1 / 3)
    assert told(base, candidate, CHANGE) == [(22, 0.05, 0.1, False)]
    assert told(base, candidate) == [(22, 0.0, 0.1, False), (32, 0.0, 0.05, False)], "no diff tells what they were"


def test_replaced_lines_together_are_compared_with_their_replacement() -> None:
    base, candidate = side(0.1, L9=0.3, L10=0.2, L11=0.5), side(0.15, L9=0.2, L11=0.5, L12=0.3)
    (line,) = slower_lines(base, candidate, [CHANGE])
    assert (line.line, line.source, line.is_changed) == (11, "text L11", True)
    assert (line.before, line.after) == (pytest.approx(0.05), pytest.approx(0.105))


def test_the_functions_of_a_line_are_summed() -> None:
    """A comprehension is a function of its own, at the line of the function around it."""
    base, ((file, cost), *others) = side(0.1, L6=1.0), side(0.4, L7=0.7, L6=0.25).lines
    comprehension = replace(cost, site=replace(cost.site, function="main.<locals>.<listcomp>"), share=0.05, samples=50)
    candidate = LineTimes([(file, cost), *others, (file, comprehension)], 0.4)
    assert told(base, candidate) == [(7, 0.0, 0.3, False)]


def test_an_added_line_took_no_time_before() -> None:
    assert told(side(0.1, L9=1.0), side(0.12, L9=0.8, L13=0.2), CHANGE) == [(13, 0.0, 0.024, True)]


def test_chance_and_small_increases_are_not_told() -> None:
    assert told(side(0.1, L5=0.5, L6=0.5), side(0.105, L5=0.52, L6=0.48)) == [], "within the error of both shares"
    assert told(side(0.1, L6=1.0), side(0.1, L5=0.009, L6=0.99)) == [], "less than a hundredth of a step"
    assert told(side(0.1, L5=0.1, L6=0.9), side(0.2, L5=0.06, L6=0.94)) == [(6, 0.09, 0.188, False)], "2% of the change"
    few = side(0.1, 10, L6=1.0)
    assert told(few, side(0.12, L5=0.1, L6=0.9)) == [], "ten samples may have missed a line of a quarter of a step"


def test_the_load_of_the_machine_during_a_recording_does_not_count() -> None:
    """A recording tells shares; the time of a step is that of the rounds."""
    same = dict.fromkeys(("L5", "L6"), 0.5)
    assert told(side(0.1, **same), side(0.1, **same)) == []


def test_files_have_the_names_that_counters_give_them() -> None:
    """Runs name files relative to the checkout, and a check relative to the folder in which the program starts."""
    info = RunInfo(2, "r", "", ("train.py",), cwd="/b/repo/job", project="/b/repo")
    lines = [LineCost(Site(file, 7, "f"), "", 0.1, 0.5, 0.4, 0.6, 9) for file in ("job/train.py", "lib/model.py")]
    times = LineTimes.of(Analysis(info, {}, {}, {}, lines=tuple(lines)), "/b/repo/job", 0.1)
    assert [(file, cost.site.line) for file, cost in times.lines] == [("train.py", 7), ("../lib/model.py", 7)]
