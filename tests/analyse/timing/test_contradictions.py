"""Notes on sources that contradict each other, and on how much of one source another saw."""

from __future__ import annotations

from typing import Any

import pytest

from profiler.analyse.timing.warnings import contradictions
from profiler.analyse.window import measured_window
from profiler.report.text import describe
from profiler.run.tables import CallKind
from tests.recorded.builders import MS, PID, TID, RunBuilder


def contradicted(*calls: tuple[Any, ...], counters: dict[str, tuple[int, ...]] = {}) -> tuple[str, ...]:  # noqa: B006
    """The notes on two steps of 10 ms with these calls (name, kind, begin in ms, end in ms, fields) and counters."""
    builder = RunBuilder()
    builder.steps(2, 10 * MS)
    for name, kind, begin, end, *fields in calls:
        row = {"begin": round(begin * MS), "end": round(end * MS), "tid": TID, "pid": PID, "site": -1}
        builder._add("calls", name=builder.name(name), kind=int(kind), **(row | dict(*fields)))
    for name, values in counters.items():
        for step, value in enumerate(values):
            builder.counter(name, value, step=step)
    run = builder.build()
    return tuple(map(describe, contradictions(run, measured_window(run))))


ITEM = ("item", CallKind.SYNC, 1, 2, {"blocked": MS})
RUNTIME = ("cudaStreamSynchronize", CallKind.SYNC, 1, 2, {"blocked": MS})


def test_one_source_alone_or_two_that_agree_give_no_note() -> None:
    assert contradicted(ITEM, counters={"syncs": (1,)}) == ()
    assert contradicted(RUNTIME) == (), "without hooks there is nothing to compare a trace with"


def test_a_counter_that_the_calls_contradict() -> None:
    notes = contradicted(ITEM, counters={"syncs": (3,)})
    assert notes == ("counter syncs says 1.5 per step, the recorded calls 0.5",)


@pytest.mark.parametrize(
    ("all_syncs", "hooked", "note", "explained"),
    [
        ((4, 4), (3, 3), "hooks saw 6 of the 8", True),
        ((2,), (2,), "hooks saw 2 of the 2", False),
        ((2,), (), "hooks saw 0 of the 2", True),
    ],
)
def test_the_debug_mode_tells_how_many_syncs_the_hooks_saw(
    all_syncs: tuple[int, ...], hooked: tuple[int, ...], note: str, explained: bool
) -> None:
    (line,) = contradicted(counters={"debug_syncs": all_syncs, "debug_syncs_seen": hooked})
    sentence = f"{note} syncs of the measured steps that torch's sync debug mode saw"
    assert line.startswith(f"{sentence};") if explained else line == sentence


def test_the_runtime_tells_how_many_syncs_and_copies_the_hooks_saw() -> None:
    within = ((begin, begin + 0.2) for begin in (1.1, 3.5, 8.0))  # in item, in to, and where no hook was
    assert contradicted(
        ITEM,
        ("to", CallKind.H2D, 3, 4, {"blocked": MS}),
        ("item", CallKind.WOULD_SYNC, 7, 9),  # on the CPU, where a runtime sees nothing
        *(("cudaStreamSynchronize", CallKind.SYNC, *times, {"blocked": MS // 5}) for times in within),
        ("cudaStreamSynchronize", CallKind.SYNC, 1.2, 1.4, {"tid": TID + 1}),  # of another thread
        ("cudaMemcpyAsync", CallKind.H2D, 3.1, 3.2),
        ("cudaLaunchKernel", CallKind.LAUNCH, 5, 6),
        counters={"syncs": (2,), "h2d": (1,), "h2d_bytes": (0,)},
    ) == (
        "hooks saw 2 of the 4 syncs among the runtime's calls in the trace",
        "hooks saw 1 of the 1 copies among the runtime's calls in the trace",
    )
