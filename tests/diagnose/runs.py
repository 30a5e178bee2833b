"""Made-up runs with a device of known busy time, and sides made of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from profiler.analyse.analysis import analyse
from profiler.analyse.comparability import SideRuns
from profiler.analyse.model.analysis import Analysis
from profiler.run.tables import ActivityKind
from tests.recorded.builders import MS, RunBuilder, add_records


def slow(length: int = 100 * MS, *, level: str = "standard", **facts: Any) -> Analysis:
    """Busy for the first 10%, idle after a sync for 60% of the step, then tokenizing; 50 syncs counted a step."""
    records = (
        "kernel 0 1; sync 0 1.000001 1 src/train.py:88:loop; launch 7 7.000002 src/train.py:91:loop;"
        "tokenize 7.000002 10"
    )
    return _device_run(records, length, level, facts, syncs=50, busy=1)


def fast(length: int = 10 * MS, *, level: str = "standard", **facts: Any) -> Analysis:
    """Busy for 90%; one sync counted a step."""
    records = "kernel 0 9; sync 0.000005 9.000005 9 src/fixed.py:7:loop; launch 9.999995 10"
    return _device_run(records, length, level, facts, syncs=1, busy=9)


def _device_run(records: str, length: int, level: str, facts: Mapping[str, Any], *, syncs: int, busy: int) -> Analysis:
    """Six steps of `length` ns with these records, whose times are tenths of a step."""
    builder = RunBuilder(level=level, **{"device": "host", **facts})
    for step in range(6):
        begin = step * length
        builder.step(begin, begin + length, tokens=1000)
        for name, count in (("syncs", syncs), ("allocations", 4), ("device_busy_ns", busy * length // 10)):
            builder.counter(name, count, step=step)
        if level != "light":
            add_records(builder, records, begin=begin, tick=length / 10)
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
