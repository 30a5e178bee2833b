"""The lines of time in which no step was measured, whether hooks recorded the steps of a run, and how many counted
steps a measured step has."""

from __future__ import annotations

import numpy as np
import pytest

from profiler.analyse.analysis import analyse
from profiler.analyse.model.host import Period
from profiler.analyse.sampling.lines import _counted_steps
from profiler.analyse.sampling.stacks import Stacks, has_hooked_steps
from profiler.analyse.sampling.threads import thread_activities
from profiler.analyse.statistics import share_interval
from profiler.run.model import Table
from profiler.run.source import dtype_of
from profiler.run.steps import add_steps
from profiler.run.tables import CallKind
from tests.recorded.builders import MS, PID, TID, RunBuilder, S

IMPORT = (
    "train.py:1:<module>",
    "<frozen importlib._bootstrap>:1:_find_and_load",
    "/v/site-packages/torch/__init__.py:1:x",
)


def built(end: int | None = 10 * S, *samples: tuple[tuple[str, ...], float, float, int]) -> RunBuilder:
    """Two steps of 1 s of warm-up from 0 s on and four measured ones, with samples (frames, begin, end in s, tid)."""
    builder = RunBuilder(span=(-2 * S, end), device="cpu")
    builder.boundary(0)
    builder.steps(2, 1 * S, warmup=True)
    builder.steps(4, 1 * S, begin=2 * S)
    for frames, begin, last, tid in samples:
        builder.stack(frames, round(begin * S), round(last * S), tid=tid)
    return builder


def test_periods_and_their_lines() -> None:
    builder = built(
        10 * S,
        (IMPORT, -1.5, -0.3, TID),
        (("train.py:9:main",), -0.3, 0, TID),
        (("train.py:9:main", "/v/site-packages/torch/x.py:5:compile"), 0, 2, TID),
        (("train.py:20:main",), 2, 6, TID),
        (("train.py:30:save",), 6, 7, TID),
        (("train.py:99:other",), -2, 10, TID + 1),
    )
    before, warm, after = analyse(builder.build()).startup_teardown
    assert [round(period.seconds, 9) for period in (before, warm, after)] == [2, 2, 4]
    # three quarters of the start were sampled: they stand for all of it
    assert [(line.site.line, line.calls) for line in before.lines] == [(1, "import torch"), (9, "")]
    assert before.lines[0].seconds_per_step == pytest.approx(2 * 1.2 / 1.5)
    assert before.lines[0].low < before.lines[0].share < before.lines[0].high
    assert [(line.site.line, line.calls) for line in warm.lines] == [(9, "torch.x.compile")]
    # a quarter of the end was: it stands for itself
    assert [line.seconds_per_step for line in after.lines] == [pytest.approx(1)]


def test_samples_are_counted_at_the_rate_of_their_own_window_and_process() -> None:
    """The launcher's samples are frequent, those before the first step rare."""
    builder = built(6 * S, (IMPORT, -2, -1, TID), (("train.py:9:main",), -1, 0, TID))
    builder.stack(("train.py:20:main",), 0, 6 * S)
    for end, period, pid in ((0, 0.25, PID), (6, 0.02, PID), (0, 0.001, PID + 1), (6, 0.001, PID + 1)):
        builder.sample("stacks.period_s", end * S, period, pid=pid)
    run = builder.build()
    before, warm = analyse(run).startup_teardown
    assert [line.samples for line in (*before.lines, *warm.lines)] == [4, 4, 100]
    assert (before.lines[0].low, before.lines[0].high) == pytest.approx(share_interval(0.5, 8))
    (thread,) = thread_activities(Stacks(run))
    assert thread.samples == round(8**2 / (2 * 0.25 + 6 * 0.02))


def below_torch(file: str) -> tuple[RunBuilder, str, str]:
    """Four steps of a program that lies beside its own torch, the path of the program, and that of a file of torch."""
    folder = "/home/someone/pytorch"
    builder = RunBuilder(device="cpu", cwd=folder, torch_folder=f"{folder}/torch")
    builder.boundary(0)
    builder.steps(4, 1 * S)
    return builder, f"{folder}/train.py", f"{folder}/torch/{file}"


def test_functions_of_libraries_are_below_the_line_that_calls_them() -> None:
    """Two lines of one function call torch; the user's own function of the same name is none of torch's."""
    builder, train, torch = below_torch("optim/optimizer.py")
    builder.stack((f"{train}:11:main", f"{torch}:5:zero_grad", f"{torch}:6:zero"), 0, 1 * S)
    builder.stack((f"{train}:13:main", f"{torch}:9:step", f"{torch}:8:step"), 1 * S, round(3.5 * S))
    builder.stack((f"{train}:12:main", "/home/someone/pytorch/own.py:5:zero_grad"), round(3.5 * S), 4 * S)
    found = [
        (each.name, each.file, each.below.site.line, each.below.seconds_per_step, each.below.share)
        for each in analyse(builder.build()).library
    ]
    file = "torch/optim/optimizer.py"
    assert found == [
        ("step", file, 13, pytest.approx(0.625), pytest.approx(0.625)),
        ("zero", file, 11, pytest.approx(0.25), pytest.approx(0.25)),
        ("zero_grad", file, 11, pytest.approx(0.25), pytest.approx(0.25)),
    ]


def test_a_function_of_a_library_that_the_program_calls_within_it_counts_once() -> None:
    """As `copy.deepcopy` in a `__deepcopy__` of the program."""
    builder, train, torch = below_torch("copy.py")
    builder.stack(
        (f"{train}:11:main", f"{torch}:5:deepcopy", f"{train}:31:__deepcopy__", f"{torch}:5:deepcopy"), 0, 1 * S
    )
    builder.stack((f"{train}:11:main", f"{torch}:5:deepcopy"), 1 * S, 3 * S)
    builder.stack((f"{train}:12:main", f"{torch}:5:deepcopy"), 3 * S, 4 * S)
    found = [(each.below.site.line, each.below.seconds_per_step) for each in analyse(builder.build()).library]
    assert found == [(11, pytest.approx(0.75)), (12, pytest.approx(0.25))]


def test_lines_of_the_program_that_a_function_of_a_library_calls() -> None:
    builder, train, torch = below_torch("utils/data/dataloader.py")
    builder.stack((f"{train}:11:main", f"{torch}:5:_next_index", f"{train}:31:__iter__"), 0, 1 * S)
    builder.stack((f"{train}:11:main", f"{torch}:5:_next_index", f"{train}:32:__iter__"), 1 * S, 3 * S)
    (function,) = analyse(builder.build()).library
    assert (function.below.site.line, [site.line for site in function.lines]) == (11, [32, 31])


def test_traced_steps_and_pauses_are_no_warm_up() -> None:
    trace = {"state": "recorded", "began": 3 * S, "ended": 5 * S}
    builder = RunBuilder(span=(0, 9 * S), device="cpu", trace=trace)
    builder.boundary(0)
    for number in range(9):
        builder.step(number * S, (number + 1) * S, warmup=number in {0, 3, 4, 7})
    periods = [(period.period, period.seconds) for period in analyse(builder.build()).startup_teardown]
    assert periods == [(Period.WARM_UP, 1), (Period.TRACED, 2), (Period.PAUSE, 1)]


def test_without_samples_periods_have_no_lines() -> None:
    assert [period.lines for period in analyse(built().build()).startup_teardown] == [(), (), ()]


def test_a_run_that_never_ended_ends_with_its_last_sample() -> None:
    assert analyse(built(None).build()).startup_teardown[-1].period is Period.WARM_UP
    sampled = built(None, (("train.py:30:save",), 6, 7, TID))
    assert analyse(sampled.build()).startup_teardown[-1].seconds == 1


def test_files_below_the_working_directory_are_relative_to_it() -> None:
    builder = RunBuilder(device="cpu", cwd="/home/someone/project")
    builder.boundary(0)
    builder.steps(4, 1 * S)
    builder.stack(("/home/someone/project/src/train.py:20:main",), 0, 2 * S)
    builder.stack(("/home/someone/other/x.py:20:main",), 2 * S, 4 * S)
    assert [line.site.file for line in analyse(builder.build()).lines] == ["/home/someone/other/x.py", "src/train.py"]


def test_a_run_has_hooked_steps_if_hooks_found_them_or_are_in_a_program_that_marks_them() -> None:
    builder = RunBuilder()
    builder.boundary(1 * MS)
    assert has_hooked_steps(builder.build())
    builder.step(2 * MS, 10 * MS)
    assert not has_hooked_steps(add_steps(builder.build())), "one boundary before the first mark"
    builder = RunBuilder(package="/somewhere/profiler")
    builder.step(2 * MS, 10 * MS)
    assert has_hooked_steps(add_steps(builder.build()))


def test_a_line_with_calls_that_the_program_marks_has_the_categories_of_the_calls() -> None:
    """Of 8 s at the line that waits, 7 s are the call; no sampler tells Python from a wait that spins."""
    builder = RunBuilder(device="host")
    builder.step(0, 10 * S)
    builder.call(CallKind.SYNC, 1 * S, 8 * S, blocked=7 * S, site="pipeline.py:100:collect")
    frames = "loop.py:5:run", "pipeline.py:100:collect", "host.py:310:wait"
    for begin in range(8):
        builder.stack(frames, begin * S, (begin + 1) * S, active=1)
    for begin in range(8, 10):
        builder.stack(("loop.py:9:run",), begin * S, (begin + 1) * S, active=1)
    analysis = analyse(builder.build())
    assert {line.site.line: dict(line.categories) for line in analysis.lines} == {
        310: {"sync": pytest.approx(7), "python": pytest.approx(1)},
        9: {"python": pytest.approx(2)},
    }
    assert analysis.breakdown["sync"].value == pytest.approx(7)


def marked_steps(*ends: int) -> Table:
    """Marked steps of 100 ms each, which end at these ms."""
    rows = np.zeros(len(ends), dtype_of("steps"))
    rows["end"] = np.array(ends) * MS
    rows["begin"] = rows["end"] - 100 * MS
    return rows


@pytest.mark.parametrize(
    ("window", "parts"),
    [
        ((10, 60), 10.0),  # five steps of an optimizer in 50 ms: ten of them take as long as a marked step
        ((10, 610), 1.0),  # marked steps ended meanwhile
        ((1, 99), 100 / 98 * 5),
        ((350, 1350), 1.0),  # counting took longer than steps do
        ((50, 50), 1.0),
    ],
)
def test_operators_of_an_optimizers_steps_are_those_of_a_part_of_a_marked_step(
    window: tuple[int, int], parts: float
) -> None:
    begin, end = (time * MS for time in window)
    assert _counted_steps(marked_steps(100, 200, 300), {"begin": begin, "end": end}) == pytest.approx(parts)
    assert _counted_steps(marked_steps(), {"begin": begin, "end": end}) == _counted_steps(marked_steps(100), {}) == 1.0
