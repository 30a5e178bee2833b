"""Device categories: a union over streams in which compute hides what runs beside it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profiler.analyse.analysis import analyse
from profiler.report.text import describe
from profiler.run.model import Run
from profiler.run.tables import ActivityKind, CallKind
from tests.fakes.sentences import warnings
from tests.recorded.builders import MS, RunBuilder


def test_categories_are_exclusive_and_sum_to_the_step() -> None:
    builder = RunBuilder(device="cuda")
    builder.step(100, 200)
    builder.step(300, 400)
    builder.activity(ActivityKind.KERNEL, 50, 120)
    builder.activity(ActivityKind.KERNEL, 110, 130, stream=2)
    builder.activity(ActivityKind.H2D, 125, 150, stream=3)  # 5 of it hidden behind a kernel
    builder.activity(ActivityKind.MEMSET, 190, 310)  # 10 in each step
    builder.activity(ActivityKind.COMMUNICATION, 145, 170, stream=4)  # 5 of it beside the copy
    parts = analyse(builder.build()).device_breakdown
    got = {name: round((measure.value or 0) * 2e9) for name, measure in parts.items()}
    assert got == {"compute": 30, "copy": 20 + 10 + 10, "communication": 20, "idle": 200 - 30 - 40 - 20}
    assert sum(measure.value or 0 for measure in parts.values()) == pytest.approx(100e-9)


def test_of_several_devices_the_mean_counts_and_each_is_told() -> None:
    builder = RunBuilder(device="cuda")
    builder.steps(10, 10 * MS)
    for number in range(10):
        at = number * 10 * MS
        builder.activity(ActivityKind.KERNEL, at, at + 6 * MS)
        builder.activity(ActivityKind.KERNEL, at + 6 * MS, at + 8 * MS, device=1)
        builder.activity(ActivityKind.H2D, at + 8 * MS, at + 10 * MS, device=1)
    found = analyse(builder.build())
    assert found.measures["device_utilization"].value == pytest.approx(0.5)
    parts = {name: 1e3 * (measure.value or 0) for name, measure in found.device_breakdown.items()}
    assert parts == pytest.approx({"compute": 4, "copy": 1, "communication": 0, "idle": 5})
    assert [note for note in warnings(found) if "busy device 0 60%, device 1 40%" in note], warnings(found)


def test_at_level_light_it_is_missing() -> None:
    builder = RunBuilder(device="host", level="light")
    builder.step(0, 10)
    parts = analyse(builder.build()).device_breakdown
    assert {(m.value, describe(m.reason)) for m in parts.values()} == {
        (None, "recorded at level light: record again with --level standard")
    }


def traced() -> Run:
    """Ten steps of 10 ms on CUDA; the trace saw steps 2 and 3, busy 4 ms each and waiting for the rest."""
    trace = {"state": "recorded", "begin": 20 * MS, "end": 40 * MS}
    builder = RunBuilder(level="full", device="cuda", trace=trace)
    for number in range(10):
        builder.step(number * 10 * MS, (number + 1) * 10 * MS, warmup=number in {2, 3})
    for begin in (22, 32):
        builder.call(CallKind.LAUNCH, (begin - 1) * MS, begin * MS, site="train.py:5")
        builder.activity(ActivityKind.KERNEL, begin * MS, (begin + 4) * MS)
    return builder.build()


def test_the_device_is_judged_by_the_steps_that_were_traced() -> None:
    found = analyse(traced())
    assert found.measures["device_utilization"].value == pytest.approx(0.4)
    assert found.measures["device_utilization"].n == 2
    assert found.device_breakdown["idle"].value == pytest.approx(6e-3)
    assert sum(row.seconds_per_step for row in found.idle) == pytest.approx(6e-3)
    assert found.measures["steps"].value == 8


def test_a_step_that_the_trace_saw_in_part_counts_in_part() -> None:
    run = traced()
    trace = {"state": "recorded", "begin": 25 * MS, "end": 40 * MS}
    run = replace(run, info=replace(run.info, facts={**run.info.facts, "trace": trace}))
    assert analyse(run).measures["device_utilization"].value == pytest.approx(5 / 15)
