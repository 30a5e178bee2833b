"""Predictions of a replay against programs that are executed with the change, by rules that are written again here."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from profiler.analyse.analysis import analyse
from profiler.analyse.model.analysis import Analysis
from profiler.analyse.model.finding import Cure, GainMethod
from profiler.run.tables import ActivityKind, CallKind
from tests.recorded.builders import US, RunBuilder

STEPS = 6
LAUNCH, LATENCY, GAP, RETURN = 10 * US, 2 * US, 1 * US, 3 * US

Program = list[tuple[str, int]]
"""What the host does in a step: (`sync`, 0), (`kernel`, its length), (`read`, 0) or (name of a region, its length)."""


@dataclass
class Executed:
    """A program that was executed: its records, and when each step ended on the host and on both sides."""

    builder: RunBuilder = field(default_factory=lambda: RunBuilder(device="host", level="standard"))
    host: list[int] = field(default_factory=lambda: [0])
    both: list[int] = field(default_factory=lambda: [0])


def execute(program: Program, *, launch: int = LAUNCH, steps: int = STEPS) -> Executed:
    """Execute a step's program some times, on a host and one queue."""
    done, now, free, correlation = Executed(), 0, 0, 0
    for _ in range(steps):
        begin = now
        for name, length in program:
            if name in ("sync", "read"):
                end = max(now, free) + RETURN
                site = "train.py:7" if name == "read" else "train.py:3"
                done.builder.call(CallKind.SYNC, now, end, blocked=end - now, site=site)
                now = end
            elif name == "kernel":
                correlation += 1
                done.builder.call(CallKind.LAUNCH, now, now + launch, correlation=correlation)
                start = max(now + LATENCY, free + GAP if correlation > 1 else 0)
                free = start + length
                done.builder.activity(ActivityKind.KERNEL, start, free, correlation=correlation)
                now += launch
            else:
                done.builder.region(name, now, now + length)
                now += length
        done.builder.step(begin, now)
        done.host.append(now)
        done.both.append(max(now, free))
    return done


def analysed(program: Program) -> Analysis:
    return analyse(execute(program).builder.build())


def changed(program: Program, cure: Cure) -> Program:
    """The program with a change."""
    if cure.name == "sync":
        return [item for item in program if item[0] not in ("sync", "read")]
    name = "kernel" if cure.name == "compute" else "tokenize" if cure.name == "input" else cure.name
    return [(item, round(cure.factor * length) if item == name else length) for item, length in program]


def random_program(seed: int) -> Program:
    draw = random.Random(seed)
    parts = ["sync", *draw.choices(["kernel", "kernel", "tokenize", "own work", "sync"], k=draw.randint(3, 14))]
    draw.shuffle(parts)
    return [(name, 0 if name == "sync" else draw.randint(20, 900) * US) for name in ["kernel", "tokenize", *parts]]


CURES = (Cure("input"), Cure("input", 0.5), Cure("own work"), Cure("sync"), Cure("compute", 0.5), Cure("input", 2.0))


@pytest.mark.parametrize("seed", range(25))
def test_a_prediction_equals_the_changed_program(seed: int) -> None:
    program = random_program(seed)
    replay = analysed(program).replay
    assert replay is not None
    for cure in CURES:
        if cure.name == "own work" and all(name != "own work" for name, _ in program):
            continue
        prediction = replay.predict((cure,))
        assert prediction is not None
        assert prediction.replayed == pytest.approx(prediction.measured, rel=1e-9)
        after = execute(changed(program, cure), steps=4 * STEPS).both
        assert prediction.after == pytest.approx((after[-1] - after[-1 - STEPS]) / STEPS / 1e9, rel=0.02), cure


def test_host_work_under_a_busy_device_gains_nothing() -> None:
    program = [("kernel", 1000 * US), ("tokenize", 400 * US), ("sync", 0)]
    replay = analysed(program).replay
    assert replay is not None
    prediction = replay.predict((Cure("input"),))
    assert prediction is not None
    assert prediction.method is GainMethod.REPLAY
    assert prediction.factor == pytest.approx(1.0)


def test_without_its_waits_the_host_runs_beside_the_device() -> None:
    program = [("kernel", 500 * US), ("sync", 0), ("tokenize", 490 * US)]
    replay = analysed(program).replay
    assert replay is not None
    prediction = replay.predict((Cure("sync"),))
    assert prediction is not None
    assert prediction.factor == pytest.approx(2.0, rel=0.05)


def test_only_the_waits_of_a_line_are_removed() -> None:
    program = [("kernel", 500 * US), ("read", 0), ("kernel", 500 * US), ("sync", 0), ("tokenize", 490 * US)]
    analysis = analysed(program)
    replay = analysis.replay
    assert replay is not None
    sites = {call.site.line: call.site for call in analysis.call_sites if call.kind == "sync"}
    read = replay.predict((Cure("sync", sites=(sites[7],)),))
    every = replay.predict((Cure("sync"),))
    assert read is not None
    assert every is not None
    assert read.factor < 1.1 < 1.4 < every.factor


def test_what_was_not_recorded_cannot_be_changed() -> None:
    replay = analysed([("kernel", 500 * US), ("sync", 0)]).replay
    assert replay is not None
    assert replay.predict((Cure("checkpoint"),)) is None
    with pytest.raises(KeyError, match="nowhere"):
        replay.predict((Cure("nowhere"),))
    assert analysed([("kernel", 1), ("tokenize", 5 * US)]).replay.names() == ("tokenize",)  # type: ignore[union-attr]


def test_a_program_without_a_queue_has_no_replay() -> None:
    builder = RunBuilder(device="cpu", level="standard")
    builder.steps(3, 10 * US)
    assert analyse(builder.build()).replay is None
