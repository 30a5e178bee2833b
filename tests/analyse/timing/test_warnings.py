"""Warnings about a run: what makes its numbers uncertain, and sources that contradict each other."""

from __future__ import annotations

from typing import Any

import pytest

from profiler.analyse.analysis import analyse
from profiler.analyse.model.analysis import Analysis
from profiler.analyse.model.measures import Missing, Topic
from profiler.core.errors import Notice
from profiler.report.notices import describe
from profiler.run.model import CollectorStatus
from profiler.run.tables import CallKind
from tests.fakes.sentences import note
from tests.recorded.builders import MS, PID, TID, RunBuilder, timeline

STEADY = "steps 10 200"
PROGRAM = "sample process.cpu 9 0.7 pid=1; sample process.cpu 9 0.3 pid=2"


def warned(analysis: Analysis) -> list[tuple[str, dict[str, Any]]]:
    return [(warning.code, dict(warning.values)) for warning in analysis.warnings]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (STEADY, []),
        (
            "steps 3 100",
            [
                ("few-steps", {"steps": 3, "needed": 5}),
                ("short-window", {"seconds": pytest.approx(0.3), "needed": 1.0}),
            ],
        ),
        (
            "step 0 600; step 600 1200; step 1200 1820; step 1820 2440; step 2440 3190; step 3190 3940",
            [("drift", {"change": pytest.approx(0.25)})],
        ),
        (
            "; ".join(f"step {at} {at + 100}; step {at + 100} {at + 400}" for at in range(0, 2400, 400)),
            [("spread", {"spread": pytest.approx(0.522, abs=0.001)})],
        ),
        (
            f"{STEADY}; sample machine.cpu_util 9 0.5 pid=0; sample machine.steal 9 0.05 pid=0; {PROGRAM}",
            [("other-machines", {"share": 0.05}), ("other-programs", {"used": 1.0, "cores": 4})],
        ),
        (f"{STEADY}; recording 0 30", [("recording-time", {"share": 0.015})]),
        (f"{STEADY}; step 0 200 thread=777", [("steps-excluded", {"steps": 1})]),
    ],
)
def test_steps_and_the_machine(text: str, expected: list[object]) -> None:
    assert warned(analyse(timeline(text, tick=MS, level="light", host={"cores": 4}))) == expected


def test_what_the_recording_lacks() -> None:
    collectors = (
        CollectorStatus("stacks", "ok", records=900, dropped=100),
        CollectorStatus("host", "ok", records=1248, dropped=1),
        CollectorStatus("gpu", "unavailable", "no NVIDIA driver found"),
        CollectorStatus("hooks", "ok", "1 of 2", code="hooks-loaded", values={"python": 2, "torch": 1}),
    )
    torn = Notice("torn-record", {"file": "calls.bin", "bytes": 7})
    options: dict[str, Any] = {"collectors": collectors, "problems": (torn,), "state": "failed"}
    analysis = analyse(timeline(f"{STEADY}; gauge activities_dropped 1234 step=3", tick=MS, level="light", **options))
    assert warned(analysis) == [
        ("ended-early", {"state": "failed", "exit_code": None}),
        ("torn-record", {"file": "calls.bin", "bytes": 7}),
        ("collector-dropped", {"name": "stacks", "dropped": 100, "records": 1000}),
        ("collector", {"name": "hooks", "reason": "1 of 2"}),
        ("activities-dropped", {"count": 1234}),
    ]
    assert Missing(Topic.COLLECTOR, note("no NVIDIA driver found"), "gpu") in analysis.missing
    complete = CollectorStatus("hooks", "ok", "2 of 2", code="hooks-loaded", values={"python": 2, "torch": 2})
    assert warned(analyse(timeline(STEADY, tick=MS, level="light", collectors=(complete,)))) == []


# ---------------------------------------------------------------- sources that contradict each other

CALLS = "; ".join(
    f"launch {at} {at + 5}; d2h {at + 10} {at + 50} 30 bytes=8; sync {at + 60} {at + 70}; kernel {at + 10} {at + 30}"
    for at in (0, 100)
)


@pytest.mark.parametrize(
    ("counted", "expected"),
    [
        ("syncs 2; launches 1; d2h 1; d2h_bytes 8; h2d 0; allocations 0; device_busy_ns 20; own 99", []),
        (
            "syncs 3; d2h_bytes 16; device_busy_ns 90",
            [
                ("counter-mismatch", {"name": "d2h_bytes", "counted": 16, "recorded": 8}),
                ("counter-mismatch", {"name": "syncs", "counted": 3, "recorded": 2}),
                ("busy-mismatch", {"counted": 0.9, "recorded": 0.2}),
            ],
        ),
    ],
)
def test_counters_against_recorded_calls_and_activities(counted: str, expected: list[object]) -> None:
    counters = [f"counter {each} step={step}" for each in counted.split("; ") for step in (0, 1)]
    warnings = warned(analyse(timeline("; ".join(["steps 2 100", CALLS, *counters]), device="host")))
    assert [each for each in warnings if each[0].endswith("mismatch")] == expected


def compared(*calls: tuple[Any, ...], counters: str = "") -> list[tuple[str, dict[str, Any]]]:
    """The warnings about two steps of 10 ms with these calls (name, kind, begin in ms, end in ms, fields)."""
    builder = RunBuilder()
    builder.steps(2, 10 * MS)
    for name, kind, begin, end, *fields in calls:
        row = {"begin": round(begin * MS), "end": round(end * MS), "tid": TID, "pid": PID, "site": -1}
        builder._add("calls", name=builder.name(name), kind=int(kind), **(row | dict(*fields)))
    for counter in counters.split():
        name, step, value = counter.split(":")
        builder.counter(name, float(value), step=int(step))
    codes = ("counter-mismatch", "debug-mode-syncs", "runtime-calls-seen")
    return [each for each in warned(analyse(builder.build())) if each[0] in codes]


ITEM = ("item", CallKind.SYNC, 1, 2, {"blocked": MS})
RUNTIME = ("cudaStreamSynchronize", CallKind.SYNC, 1, 2, {"blocked": MS})


def test_one_source_alone_or_two_that_agree_give_no_warning() -> None:
    assert compared(ITEM, counters="syncs:0:1") == []
    assert compared(RUNTIME) == [], "without hooks there is nothing to compare a trace with"


@pytest.mark.parametrize(
    ("counters", "hooked", "total", "explanation"),
    [
        ("debug_syncs:0:4 debug_syncs:1:4 debug_syncs_seen:0:3 debug_syncs_seen:1:3", 6, 8, True),
        ("debug_syncs:0:2 debug_syncs_seen:0:2", 2, 2, False),
        ("debug_syncs:0:2", 0, 2, True),
    ],
)
def test_the_debug_mode_tells_how_many_syncs_the_hooks_saw(
    counters: str, hooked: int, total: int, explanation: bool
) -> None:
    [(code, values)] = compared(counters=counters)
    assert (code, values) == ("debug-mode-syncs", {"seen": hooked, "total": total})
    assert (";" in describe(Notice(code, values))) is explanation


def test_the_runtime_tells_how_many_syncs_and_copies_the_hooks_saw() -> None:
    within = ((begin, begin + 0.2) for begin in (1.1, 3.5, 8.0))  # in item, in to, and where no hook was
    assert compared(
        ITEM,
        ("to", CallKind.H2D, 3, 4, {"blocked": MS}),
        ("item", CallKind.MIGHT_SYNC, 7, 9),  # on the CPU, where a runtime sees nothing
        *(("cudaStreamSynchronize", CallKind.SYNC, *times, {"blocked": MS // 5}) for times in within),
        ("cudaStreamSynchronize", CallKind.SYNC, 1.2, 1.4, {"tid": TID + 1}),  # of another thread
        ("cudaMemcpyAsync", CallKind.H2D, 3.1, 3.2),
        ("cudaLaunchKernel", CallKind.LAUNCH, 5, 6),
        counters="syncs:0:2 h2d:0:1 h2d_bytes:0:0",
    ) == [
        ("runtime-calls-seen", {"seen": 2, "total": 4, "kind": "syncs"}),
        ("runtime-calls-seen", {"seen": 1, "total": 1, "kind": "copies"}),
    ]
