"""What a loop computes before the model, and what only looks like that."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from profiler.analyse.analysis import analyse
from profiler.analyse.model.host import Preparation
from tests.analyse.sampling.test_attribute import GRAPH, Part, program
from tests.analyse.sampling.test_frames import ENGINE, LINEAR, MODULE
from tests.recorded.builders import MS, RunBuilder

FFT = "/v/site-packages/numpy/fft/_pocketfft.py:58:_raw_fft"
BACKWARD = Part(40, ("t.py:6:main", *ENGINE, GRAPH), gil=0.1, region="backward")
MODEL = (Part(20, ("t.py:5:main", MODULE, LINEAR), gil=0.2), BACKWARD)
MAKING = Part(25, ("t.py:4:main", "t.py:21:make", "t.py:31:sweep")), Part(15, ("t.py:4:main", "t.py:22:make", FFT))


def operators(*lines: tuple[int, str, int, float, int]) -> list[object]:
    """The fact about operators: line, function, calls, their ms, and how many of them are small."""
    rows = [(5, "main", 4, 15.0, 0), *lines]
    return [
        [[["t.py", line, name]], False, "", count, ms / 1e3, small, 1e-6 * small]
        for line, name, count, ms, small in rows
    ]


def prepared(parts: Sequence[Part], *lines: tuple[int, str, int, float, int]) -> Preparation | None:
    return analyse(program(3, parts, operators={"lines": operators(*lines)})).preparation


@pytest.mark.parametrize("small", [2, 0])
def test_what_numpy_computes_before_the_model(small: int) -> None:
    found = prepared((*MAKING, *MODEL), (22, "make", 2, 0.05, small))
    assert found is not None
    assert [(site.line, site.function) for site in found.lines] == [(31, "sweep"), (22, "make")]
    assert found.whole.share == pytest.approx(0.4, abs=0.08)
    assert (found.whole.site.line, found.calls) == (4, "make")


@pytest.mark.parametrize(("other", "counts"), [(6, True), (20, False)])
def test_the_rest_of_a_function_that_does_hardly_anything_else_counts(other: int, counts: bool) -> None:
    parts = (Part(30, ("t.py:4:main", "t.py:22:make", FFT)), Part(other, ("t.py:4:main", "t.py:23:make")))
    analysis = analyse(program(3, (*parts, *MODEL), operators={"lines": operators((23, "make", 900, 9.0, 900))}))
    found, samples = analysis.preparation, {line.site.line: line.samples for line in analysis.lines}
    assert found is not None
    assert [site.line for site in found.lines] == [22, *[23] * counts]
    assert found.whole.samples == samples[22] + counts * samples[23]


@pytest.mark.parametrize(
    ("parts", "lines"),
    [
        # after the first line of the model, it may be made of what the model computed
        ((*MODEL, Part(40, ("t.py:7:main", "t.py:31:match"))), ()),
        # torch's operators, of which there may be more than when they were counted
        ((*MAKING, *MODEL), ((31, "sweep", 1, 1.0, 0), (22, "make", 900, 9.0, 900))),
        # Python of the program itself
        ((Part(40, ("t.py:4:main", "t.py:31:loop"), gil=1.0), *MODEL), ()),
        # an operator of the program's own
        (
            (
                Part(40, ("t.py:4:main", "/v/site-packages/torch/autograd/function.py:575:apply", "t.py:31:forward")),
                *MODEL,
            ),
            (),
        ),
        # torch's Python, which calls operators that were not counted
        ((Part(40, ("t.py:4:main", "/v/site-packages/torch/functional.py:9:stft")), *MODEL), ()),
        # a batch that another thread makes
        ((Part(40, ("t.py:4:main", "/usr/lib/python3.11/threading.py:320:wait"), idle=1.0), *MODEL), ()),
    ],
    ids=["after the model", "operators", "Python", "a function with gradients", "torch", "a wait"],
)
def test_what_is_no_preparation(parts: Sequence[Part], lines: Sequence[tuple[int, str, int, float, int]]) -> None:
    assert prepared(parts, *lines) is None


def test_an_operator_of_no_line_may_be_at_each() -> None:
    rows = [[[], False, "", 9, 9e-3, 9, 9e-3], *operators()]
    assert analyse(program(3, (*MAKING, *MODEL), operators={"lines": rows})).preparation is None


def test_without_lines_of_operators_nobody_knows_what_is_torchs() -> None:
    assert analyse(program(3, (*MAKING, *MODEL))).preparation is None


@pytest.mark.parametrize("every", [1, 10])
def test_work_of_few_steps_may_be_operators_that_were_not_counted(every: int) -> None:
    builder = RunBuilder(device="cpu", operators={"lines": operators()})
    builder.boundary(0)
    at = 0
    for step in range(100):
        rare = 20 if step % every == 0 else 0
        for frames, ms in ((MAKING[0].frames, rare), (MODEL[0].frames, 10)):
            for _ in range(0, ms, 2):
                builder.stack(frames, at, at + 2 * MS, active=1)
                at += 2 * MS
        builder.step(at - (rare + 10) * MS, at)
    builder.gil_window(0, at)  # in which nobody held it
    assert (analyse(builder.build()).preparation is not None) == (every == 1)
