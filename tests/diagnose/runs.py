"""Made-up runs with a device of known busy time, and sides made of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from profiler.analyse.analysis import analyse
from profiler.analyse.compare.ratios import SideRuns
from profiler.analyse.model import Analysis
from profiler.run.tables import ActivityKind, CallKind
from tests.recorded.builders import MS, RunBuilder


def slow(length: int = 100 * MS, *, level: str = "standard", steps: int = 6, **facts: Any) -> Analysis:
    """Busy for the first 10%, idle after a sync for 60% of the step, then tokenizing; 50 syncs counted a step."""
    builder = RunBuilder(level=level, **{"device": "host", **facts})
    for step in range(steps):
        begin, tenth = step * length, length // 10
        builder.step(begin, begin + length, tokens=1000)
        builder.counter("syncs", 50, step=step)
        builder.counter("allocations", 4, step=step)
        builder.counter("device_busy_ns", tenth, step=step)
        if level != "light":
            builder.activity(ActivityKind.KERNEL, begin, begin + tenth)
            builder.call(CallKind.SYNC, begin, begin + tenth + 10, blocked=tenth, site="src/train.py:88:loop")
            builder.call(CallKind.LAUNCH, begin + 7 * tenth, begin + 7 * tenth + 20, site="src/train.py:91:loop")
            builder.region("tokenize", begin + 7 * tenth + 20, begin + length)
    return analyse(builder.build())


def fast(length: int = 10 * MS, *, level: str = "standard", steps: int = 6, **facts: Any) -> Analysis:
    """Busy for 90%; one sync counted a step."""
    builder = RunBuilder(level=level, **{"device": "host", **facts})
    for step in range(steps):
        begin, tenth = step * length, length // 10
        builder.step(begin, begin + length, tokens=1000)
        builder.counter("syncs", 1, step=step)
        builder.counter("allocations", 4, step=step)
        builder.counter("device_busy_ns", 9 * tenth, step=step)
        if level != "light":
            builder.activity(ActivityKind.KERNEL, begin, begin + 9 * tenth)
            builder.call(CallKind.SYNC, begin + 5, begin + 9 * tenth + 5, blocked=9 * tenth, site="src/fixed.py:7:loop")
            builder.call(CallKind.LAUNCH, begin + length - 5, begin + length)
    return analyse(builder.build())


def sides(
    base: Callable[..., Analysis], side: Callable[..., Analysis], pairs: int = 3, *, detail: bool = True
) -> tuple[SideRuns, SideRuns]:
    """As-found and fixed, with light runs of slightly different lengths."""
    made = []
    for number, (label, make) in enumerate((("as-found", base), ("fixed", side))):
        scale = 1 if make is slow else 10
        runs = tuple(make((100 + number + pair) * MS // scale, level="light") for pair in range(pairs))
        made.append(SideRuns(label, "", runs, make() if detail else None))
    return made[0], made[1]


def idle_in_region(length: int, idle: int, *, level: str = "standard", region: str = "tokenize") -> Analysis:
    """A step of `length`, of which `idle` in a region; the device is busy for the remainder."""
    builder = RunBuilder(level=level, device="host")
    builder.step(0, length, tokens=1000)
    if level != "light":
        builder.activity(ActivityKind.KERNEL, 0, length - idle)
        builder.region(region, length - idle, length)
    return analyse(builder.build())
