"""Device categories: a union over streams in which compute hides what runs beside it."""

from __future__ import annotations

import pytest

from profiler.analyse import analyse
from profiler.run.tables import ActivityKind
from tests.recorded.builders import RunBuilder


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


def test_at_level_light_it_is_missing() -> None:
    builder = RunBuilder(device="host", level="light")
    builder.step(0, 10)
    parts = analyse(builder.build()).device_breakdown
    assert {(m.value, m.reason) for m in parts.values()} == {
        (None, "recorded at level light: record again with --level standard")
    }
