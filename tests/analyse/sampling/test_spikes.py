"""Long steps: which are, how often they come, and at which lines their extra time lies."""

from __future__ import annotations

import random
from collections.abc import Container
from typing import Any

import pytest

from profiler.analyse.analysis import analyse
from profiler.analyse.model.host import Spikes
from profiler.run.tables import StageKind
from tests.recorded.builders import MS, PID, RunBuilder

LOOP, CALLS = "train.py:50:main", "train.py:60:main"
FORWARD, BACKWARD = (LOOP, "train.py:10:step"), (LOOP, "train.py:11:step")
NET = "model.py:7:forward"
EVALUATE = (CALLS, "train.py:36:evaluate", NET)


class Steps:
    """Steps of 10 ms, half of it forward and half backward, of which some take longer."""

    def __init__(self) -> None:
        self.builder = RunBuilder(device="cpu", cwd="/home/someone")
        self.now = 0

    def part(self, frames: tuple[str, ...], ms: float) -> None:
        end = self.now + round(ms * MS)
        self.builder.stack(frames, self.now, end)
        self.now = end

    def step(self, *extra: tuple[tuple[str, ...], float], slow: float = 1.0) -> None:
        begin = self.now
        self.part(FORWARD, 5 * slow)
        self.part(BACKWARD, 5 * slow)
        for frames, ms in extra:
            self.part(frames, ms)
        self.builder.step(begin, self.now)

    def spikes(self) -> Spikes | None:
        self.builder.sample("stacks.period_s", self.now, 0.01)
        return analyse(self.builder.build()).spikes


def lines(spikes: Spikes) -> list[tuple[str, int, float]]:
    return [(line.calls or line.site.function, line.site.line, round(line.share, 2)) for line in spikes.lines]


def every_tenth(*extra: tuple[tuple[str, ...], float], count: int = 60, hiccups: Container[int] = ()) -> Steps:
    steps = Steps()
    for number in range(count):
        steps.step(*extra * (number % 10 == 4), slow=3.0 if number in hiccups else 1.0)
    return steps


CALLEES = [((*EVALUATE[:2], f"model.py:{line}:forward"), 50.0) for line in (7, 8, 9)]
TWO_KINDS = [((LOOP, "train.py:36:evaluate"), 75.0), ((LOOP, "train.py:40:save"), 25.0)]


@pytest.mark.parametrize(
    ("steps", "count", "named"),
    [
        pytest.param(every_tenth((EVALUATE, 250.0)), 6, [("evaluate", 60, 1.0)], id="the call of a function"),
        pytest.param(every_tenth(*CALLEES), 6, [("evaluate", 60, 1.0)], id="many lines below one call"),
        pytest.param(every_tenth(*TWO_KINDS), 6, [("evaluate", 36, 0.75), ("save", 40, 0.25)], id="two callees"),
        pytest.param(
            every_tenth((EVALUATE, 250.0), count=100, hiccups=(7, 8, 31, 33, 50)), 10, None, id="hiccups of the machine"
        ),
    ],
)
def test_every_tenth_step_is_long(steps: Steps, count: int, named: list[tuple[str, int, float]] | None) -> None:
    spikes = steps.spikes()
    assert (spikes.count, spikes.every) == (count, 10)
    if named is not None:
        assert lines(spikes) == named


def test_the_functions_of_a_library_that_drives_the_steps() -> None:
    fit = ("train.py:5:main", "/env/lib/python3.11/site-packages/lib/trainer.py:80:fit")
    steps = Steps()
    for number in range(60):
        begin = steps.now
        steps.part((*fit, "/env/lib/python3.11/site-packages/lib/trainer.py:90:train"), 10)
        if number % 10 == 4:
            steps.part((*fit, "/env/lib/python3.11/site-packages/lib/trainer.py:70:collect"), 250)
        steps.builder.step(begin, steps.now)
    assert lines(steps.spikes()) == [("lib.trainer.collect", 5, 1.0)]


def test_how_long_they_take() -> None:
    spikes = every_tenth((EVALUATE, 250.0)).spikes()
    assert (spikes.steps, spikes.times, spikes.share) == (60, pytest.approx(26), pytest.approx(1500 / 2100))
    assert sum(spikes.categories.values()) == pytest.approx(1.0)


def test_samples_of_long_steps_are_counted_at_the_rate_of_their_own_process() -> None:
    steps = every_tenth((EVALUATE, 250.0))
    steps.builder.sample("stacks.period_s", steps.now, 0.0001, pid=PID + 1)
    assert steps.spikes().samples == 6 * 26


def test_every_fifth_batch_is_larger() -> None:
    steps = Steps()
    for number in range(60):
        steps.step(slow=4.0 if number % 5 == 0 else 1.0)
    spikes = steps.spikes()
    assert (spikes.every, spikes.times, lines(spikes)) == (5, pytest.approx(4), [("step", 10, 0.5)])


@pytest.mark.parametrize(
    ("share", "extra", "slow", "named"),
    [
        pytest.param(0.08, [], 4.0, [], id="a loaded machine has no line"),
        pytest.param(0.33, [], 4.0, None, id="many long steps are no exceptions"),
        pytest.param(0.08, [((LOOP, "train.py:70:grow"), 30.0)], 1.0, [("grow", 70, 1.0)], id="a line of their own"),
    ],
)
def test_long_steps_at_random(share: float, extra: list[Any], slow: float, named: list[Any] | None) -> None:
    chance, steps = random.Random(0), Steps()
    for _ in range(300):
        long = chance.random() < share
        steps.step(*extra * long, slow=slow if long else 1.0)
    spikes = steps.spikes()
    assert (spikes and (spikes.every, spikes.enough, lines(spikes))) == (None if named is None else (0, True, named))


@pytest.mark.parametrize(("frames", "named"), [(FORWARD, []), ((LOOP, "train.py:40:save"), [("save", 40, 1.0)])])
def test_a_single_long_step_is_set_apart_with_its_line_where_only_it_has_that(
    frames: tuple[str, ...], named: list[object]
) -> None:
    steps = Steps()
    for number in range(200):
        steps.step(*[(frames, 1000.0)] * (number == 77))
    steps.spikes()
    analysis = analyse(steps.builder.build())
    assert analysis.spikes is None
    assert (analysis.one_offs.count, analysis.one_offs.every, lines(analysis.one_offs)) == (1, 0, named)


@pytest.mark.parametrize(("level", "samples"), [("standard", 5), ("light", 0)])
def test_too_few_samples_name_nothing(level: str, samples: int) -> None:
    builder = RunBuilder(device="cpu", level=level)
    for number in range(40):
        builder.step(number * 100 * MS, number * 100 * MS + (60 * MS if number % 10 == 4 else 10 * MS))
    if samples:
        builder.stack(EVALUATE, 400 * MS, 450 * MS)
        builder.sample("stacks.period_s", 450 * MS, 0.01)
    run = builder.build()
    spikes = analyse(run).spikes
    assert (spikes.every, spikes.samples, spikes.enough, spikes.lines) == (10, samples, False, ())


@pytest.mark.parametrize(("region", "stage"), [("garbage collection", True), ("loader start", True), ("other", False)])
def test_a_recorded_region_explains_long_steps(region: str, stage: bool) -> None:
    builder = RunBuilder(device="cpu")
    for number in range(40):
        begin, long = number * 100 * MS, number % 10 == 4
        builder.step(begin, begin + (60 * MS if long else 10 * MS))
        if long:
            builder.region(region, begin + MS, begin + 46 * MS)
    assert analyse(builder.build()).spikes.stage == (region if stage else "")


def test_a_loader_that_starts_anew_explains_the_wait_for_its_first_batch() -> None:
    builder = RunBuilder(device="cpu")
    for number in range(40):
        begin, long = number * 100 * MS, number % 10 == 4
        builder.step(begin, begin + (60 * MS if long else 10 * MS))
        builder.region("data", begin + (11 if long else 1) * MS, begin + (46 if long else 2) * MS)
        if long:
            builder.region("loader start", begin + MS, begin + 10 * MS)
    assert analyse(builder.build()).spikes.stage == "loader start"


def test_a_recorded_stage_explains_long_steps_without_samples() -> None:
    builder = RunBuilder(device="cpu", level="light")
    for number in range(40):
        begin, long = number * 100 * MS, number % 10 == 4
        builder.step(begin, begin + (60 * MS if long else 10 * MS))
        builder.boundary(begin + (60 * MS if long else 10 * MS))
        if long:
            builder.stage(StageKind.COMPILE, begin + MS, begin + 46 * MS)
    spikes = analyse(builder.build()).spikes
    assert (spikes.every, spikes.stage, spikes.stage_share) == (10, "compile", pytest.approx(0.9))


def test_even_steps_and_few_steps_have_none() -> None:
    even, cheap, few = Steps(), Steps(), Steps()
    for number in range(60):
        even.step(slow=1.0 + 0.5 * (number % 3))
        cheap.step(*[(EVALUATE, 20.0)] * (number == 30))
    for number in range(9):
        few.step(*[(EVALUATE, 250.0)] * (number == 4))
    assert [steps.spikes() for steps in (even, cheap, few)] == [None, None, None]
    assert analyse(RunBuilder().build()).spikes is None


def test_a_sample_belongs_to_the_step_in_which_it_was_taken() -> None:
    builder, end, sampled = RunBuilder(device="cpu"), 0, 0
    for number in range(800):
        begin, end = end, end + (20 if number % 20 == 4 else 2) * MS
        builder.step(begin, end)
        while sampled < end:  # six steps later than the sample before
            evaluating = number % 20 == 4 and sampled < end - 2 * MS
            builder.stack(EVALUATE if evaluating else FORWARD, sampled, sampled + 13 * MS)
            sampled += 13 * MS
    spikes = analyse(builder.build()).spikes
    assert spikes is not None
    assert [(line.calls, line.site.line) for line in spikes.lines] == [("evaluate", 60)]


def test_a_recorded_checkpoint_makes_a_long_step_of_less_than_twice_the_median() -> None:
    def saving(*names: str) -> Spikes | None:
        steps = every_tenth(((LOOP, "train.py:40:save"), 6.0))
        for number in range(6):
            begin = ((10 * number + 4) * 10 + 6 * number + 10) * MS
            for name, at in zip(names, (begin, begin + 3 * MS), strict=False):
                steps.builder.region(name, at, at + 3 * MS)
        return steps.spikes()

    assert saving() is None
    half = saving("checkpoint")
    assert half is not None
    assert (half.count, half.every, half.times) == (6, 10, pytest.approx(1.6))
    whole = saving("checkpoint", "fsync")
    assert whole is not None
    assert (whole.stage, whole.stage_share) == ("checkpoint", pytest.approx(1.0)), "it waits for the disk"
