"""Time before the first step, in warm-up and after the last, by line."""

from __future__ import annotations

import pytest

from profiler.analyse.analysis import analyse
from profiler.analyse.model import Period
from tests.recorded.builders import MS, TID, RunBuilder, S

IMPORT = (
    "train.py:1:<module>",
    "<frozen importlib._bootstrap>:1:_find_and_load",
    "/v/site-packages/torch/__init__.py:1:x",
)


def built(end: int | None = 10 * S) -> RunBuilder:
    builder = RunBuilder(span=(-2 * S, end), device="cpu")
    builder.boundary(0)
    builder.steps(2, 1 * S, warmup=True)
    builder.steps(4, 1 * S, begin=2 * S, warmup=False)
    return builder


def test_stretches_and_their_lines() -> None:
    builder = built()
    builder.stack(IMPORT, -1500 * MS, -300 * MS)
    builder.stack(("train.py:9:main",), -300 * MS, 0)
    builder.stack(("train.py:9:main", "/v/site-packages/torch/x.py:5:compile"), 0, 2 * S)
    builder.stack(("train.py:20:main",), 2 * S, 6 * S)
    builder.stack(("train.py:30:save",), 6 * S, 7 * S)
    builder.stack(("train.py:99:other",), -2 * S, 10 * S, tid=TID + 1)
    before, warm, after = analyse(builder.build()).startup_teardown
    assert [round(one.seconds, 9) for one in (before, warm, after)] == [2, 2, 4]
    # three quarters of the start were sampled: they stand for all of it
    assert [(line.site.line, line.calls) for line in before.lines] == [(1, "import torch"), (9, "")]
    assert before.lines[0].seconds_per_step == pytest.approx(2 * 1.2 / 1.5)
    assert [(line.site.line, line.calls) for line in warm.lines] == [(9, "torch.x.compile")]
    # a quarter of the end was: it stands for itself
    assert [line.seconds_per_step for line in after.lines] == [pytest.approx(1)]
    assert before.lines[0].low < before.lines[0].share < before.lines[0].high


def test_traced_steps_and_pauses_are_no_warm_up() -> None:
    trace = {"state": "recorded", "began": 3 * S, "ended": 5 * S}
    builder = RunBuilder(span=(0, 9 * S), device="cpu", trace=trace)
    builder.boundary(0)
    for number in range(9):
        builder.step(number * S, (number + 1) * S, warmup=number in {0, 3, 4, 7})
    found = [(one.period, one.seconds) for one in analyse(builder.build()).startup_teardown]
    assert found == [(Period.WARM_UP, 1), (Period.TRACED, 2), (Period.PAUSE, 1)]


def test_without_samples_the_time_is_told_all_the_same() -> None:
    before, warm, after = analyse(built().build()).startup_teardown
    assert (before.lines, warm.lines, after.lines) == ((), (), ())


def test_a_run_that_never_ended_ends_with_its_last_sample() -> None:
    builder = built(end=None)
    assert analyse(builder.build()).startup_teardown[-1].period is Period.WARM_UP
    builder.stack(("train.py:30:save",), 6 * S, 7 * S)
    assert analyse(builder.build()).startup_teardown[-1].seconds == 1


def test_files_below_the_working_directory_are_told_from_there() -> None:
    builder = RunBuilder(device="cpu", cwd="/home/someone/work")
    builder.boundary(0)
    builder.steps(4, 1 * S)
    builder.stack(("/home/someone/work/src/train.py:20:main",), 0, 2 * S)
    builder.stack(("/home/someone/other/x.py:20:main",), 2 * S, 4 * S)
    assert [line.site.file for line in analyse(builder.build()).lines] == ["/home/someone/other/x.py", "src/train.py"]
