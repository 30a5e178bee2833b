"""Two ways of knowing the same thing: what is said when they differ, and how much of one source another saw."""

from __future__ import annotations

from typing import Any

from profiler.analyse.timing.warnings import contradictions
from profiler.analyse.window import measured_window
from profiler.report.text import describe
from profiler.run.tables import CallKind
from tests.recorded.builders import MS, PID, TID, RunBuilder


def stepped() -> RunBuilder:
    builder = RunBuilder()
    builder.steps(2, 10 * MS)
    return builder


def said(builder: RunBuilder) -> tuple[str, ...]:
    run = builder.build()
    return tuple(map(describe, contradictions(run, measured_window(run))))


def named(builder: RunBuilder, name: str, kind: CallKind, begin: float, end: float, **fields: Any) -> None:
    """A call with a name: of a hook's or of the runtime's."""
    times = {"begin": round(begin * MS), "end": round(end * MS)}
    builder._add(
        "calls", name=builder.name(name), kind=int(kind), **({"tid": TID, "pid": PID, "site": -1} | times | fields)
    )


def test_nothing_is_said_without_a_second_source() -> None:
    builder = stepped()
    named(builder, "item", CallKind.SYNC, 1, 2, blocked=MS)
    builder.counter("syncs", 1, step=0)
    assert said(builder) == ()


def test_a_counter_that_the_calls_contradict() -> None:
    builder = stepped()
    named(builder, "item", CallKind.SYNC, 1, 2, blocked=MS)
    builder.counter("syncs", 3, step=0)
    assert said(builder) == ("counter syncs says 1.5 per step, the recorded calls 0.5",)


def test_the_debug_mode_says_how_many_syncs_the_hooks_saw() -> None:
    builder = stepped()
    for step in (0, 1):
        builder.counter("debug_syncs", 4, step=step)
        builder.counter("debug_syncs_seen", 3, step=step)
    (line,) = said(builder)
    assert line.startswith("hooks saw 6 of the 8 syncs of the measured steps that torch's sync debug mode saw;")


def test_agreement_with_the_debug_mode_is_said_too() -> None:
    builder = stepped()
    builder.counter("debug_syncs", 2, step=0)
    builder.counter("debug_syncs_seen", 2, step=0)
    (line,) = said(builder)
    assert line == "hooks saw 2 of the 2 syncs of the measured steps that torch's sync debug mode saw"


def test_a_debug_mode_that_saw_what_no_hook_did() -> None:
    builder = stepped()
    builder.counter("debug_syncs", 2, step=1)
    assert said(builder)[0].startswith("hooks saw 0 of the 2 syncs")


def test_the_runtime_says_how_many_syncs_and_copies_the_hooks_saw() -> None:
    builder = stepped()
    named(builder, "item", CallKind.SYNC, 1, 2, blocked=MS)
    named(builder, "to", CallKind.H2D, 3, 4, blocked=MS)
    named(builder, "item", CallKind.WOULD_SYNC, 7, 9)  # on the CPU: nothing to be seen by a runtime
    builder.counter("syncs", 2, step=0)
    builder.counter("h2d", 1, step=0)
    builder.counter("h2d_bytes", 0, step=0)
    for begin in (1.1, 3.5, 8.0):  # in item, in to, and where nobody looked
        named(builder, "cudaStreamSynchronize", CallKind.SYNC, begin, begin + 0.2, blocked=MS // 5)
    named(builder, "cudaStreamSynchronize", CallKind.SYNC, 1.2, 1.4, tid=TID + 1)  # another thread's
    named(builder, "cudaMemcpyAsync", CallKind.H2D, 3.1, 3.2)
    named(builder, "cudaLaunchKernel", CallKind.LAUNCH, 5, 6)
    assert said(builder) == (
        "hooks saw 2 of the 4 syncs among the runtime's calls in the trace",
        "hooks saw 1 of the 1 copies among the runtime's calls in the trace",
    )


def test_a_trace_alone_has_no_hooks_to_hold_against_it() -> None:
    builder = stepped()
    named(builder, "cudaStreamSynchronize", CallKind.SYNC, 1, 2, blocked=MS)
    assert said(builder) == ()
