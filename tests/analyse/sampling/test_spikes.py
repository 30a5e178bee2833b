"""Long steps: which are, how often they come, and at which lines their extra time lies."""

from __future__ import annotations

import random

import pytest

from profiler.analyse.model import Spikes
from profiler.analyse.sampling.spikes import spikes
from profiler.analyse.window import measured_window
from tests.recorded.builders import MS, RunBuilder

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

    def found(self) -> Spikes | None:
        run = self.builder.build()
        return spikes(run, measured_window(run))


def lines(found: Spikes) -> list[tuple[str, int, float]]:
    return [(line.site.function, line.site.line, round(line.share, 2)) for line in found.lines]


def test_an_evaluation_every_tenth_step() -> None:
    steps = Steps()
    for number in range(60):
        steps.step(*[(EVALUATE, 250.0)] * (number % 10 == 4))
    found = steps.found()
    assert (found.count, found.steps, found.every) == (6, 60, 10)
    assert found.times == pytest.approx(26)
    assert found.share == pytest.approx(1500 / 2100)
    # the innermost line that has it all
    assert lines(found) == [("forward", 7, 1.0)]


def test_of_an_evaluation_that_calls_much_the_line_that_calls_it_is_named() -> None:
    steps = Steps()
    for number in range(60):
        below = [((*EVALUATE[:2], f"model.py:{line}:forward"), 50.0) for line in (7, 8, 9)]
        steps.step(*below * (number % 10 == 4))
    found = steps.found()
    assert lines(found) == [("evaluate", 36, 1.0)]


def test_two_kinds_below_one_caller_are_two_lines() -> None:
    steps = Steps()
    for number in range(60):
        long = [((LOOP, "train.py:36:evaluate"), 75.0), ((LOOP, "train.py:40:save"), 25.0)]
        steps.step(*long * (number % 10 == 4))
    found = steps.found()
    assert lines(found) == [("evaluate", 36, 0.75), ("save", 40, 0.25)]


def test_hiccups_of_the_machine_beside_them_are_not_counted() -> None:
    steps = Steps()
    for number in range(100):
        steps.step(*[(EVALUATE, 250.0)] * (number % 10 == 4), slow=3.0 if number in (7, 8, 31, 33, 50) else 1.0)
    found = steps.found()
    assert (found.count, found.every) == (10, 10)


def test_every_fifth_batch_is_larger() -> None:
    steps = Steps()
    for number in range(60):
        steps.step(slow=4.0 if number % 5 == 0 else 1.0)
    found = steps.found()
    assert found.every == 5
    assert found.times == pytest.approx(4)
    assert lines(found) == [("step", 10, 0.5)]


def test_a_loaded_machine_has_no_line() -> None:
    chance, steps = random.Random(0), Steps()
    for _ in range(300):
        steps.step(slow=4.0 if chance.random() < 0.08 else 1.0)
    found = steps.found()
    assert (found.every, found.enough, found.lines) == (0, True, ())


def test_many_long_steps_without_a_rule_are_no_exceptions() -> None:
    chance, steps = random.Random(0), Steps()
    for _ in range(300):
        steps.step(slow=4.0 if chance.random() < 0.33 else 1.0)
    assert steps.found() is None


def test_random_steps_with_a_line_of_their_own() -> None:
    chance, steps = random.Random(0), Steps()
    for _ in range(300):
        steps.step(*[((LOOP, "train.py:70:grow"), 30.0)] * (chance.random() < 0.08))
    found = steps.found()
    assert found.every == 0
    assert lines(found) == [("grow", 70, 1.0)]


@pytest.mark.parametrize(("frames", "named"), [(FORWARD, []), ((LOOP, "train.py:40:save"), [("save", 40, 1.0)])])
def test_one_huge_step_is_told_only_where_others_never_are(frames: tuple[str, ...], named: list[object]) -> None:
    steps = Steps()
    for number in range(200):
        steps.step(*[(frames, 1000.0)] * (number == 77))
    found = steps.found()
    assert (found.count, found.every, lines(found)) == (1, 0, named)


def test_too_few_samples_name_nothing() -> None:
    builder = RunBuilder(device="cpu")
    for number in range(40):
        builder.step(number * 100 * MS, number * 100 * MS + (60 * MS if number % 10 == 4 else 10 * MS))
    builder.stack(EVALUATE, 400 * MS, 450 * MS)
    run = builder.build()
    found = spikes(run, measured_window(run))
    assert (found.every, found.samples, found.enough, found.lines) == (10, 5, False, ())


def test_even_steps_and_few_steps_have_none() -> None:
    even, cheap, few = Steps(), Steps(), Steps()
    for number in range(60):
        even.step(slow=1.0 + 0.5 * (number % 3))
        cheap.step(*[(EVALUATE, 20.0)] * (number == 30))
    for number in range(9):
        few.step(*[(EVALUATE, 250.0)] * (number == 4))
    assert [steps.found() for steps in (even, cheap, few)] == [None, None, None]
    assert spikes(RunBuilder().build(), measured_window(RunBuilder().build())) is None


def test_a_sample_stands_for_the_time_around_it() -> None:
    builder = RunBuilder(device="cpu")
    builder.sample("stacks.period_s", 0, 0.01)
    for number in range(60):
        begin = number * 40 * MS
        if number % 10 == 4:  # 40 ms long; the others are 10 ms, and a pause comes after them
            builder.step(begin, begin + 40 * MS)
            builder.stack(EVALUATE, begin + 5 * MS, begin + 45 * MS)
        else:
            builder.step(begin, begin + 10 * MS)
            builder.stack(FORWARD, begin + 5 * MS, begin + 15 * MS)
    run = builder.build()
    found = spikes(run, measured_window(run))
    assert found.samples == 24
    assert lines(found) == [("forward", 7, 1.0)]


def test_without_stacks_the_steps_are_told_all_the_same() -> None:
    builder = RunBuilder(level="light")
    for number in range(40):
        builder.step(number * 100 * MS, number * 100 * MS + (60 * MS if number % 10 == 4 else 10 * MS))
    run = builder.build()
    found = spikes(run, measured_window(run))
    assert (found.every, found.samples, found.enough) == (10, 0, False)
