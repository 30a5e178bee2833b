"""The trace of a run's own process: on the run's clock, with the run's lines, and out of what is measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from profiler.run.load import load
from profiler.run.model import Run, Site
from profiler.run.tables import ActivityKind, CallKind
from tests.recorded.directories import steps as step_rows
from tests.recorded.directories import write_manifest, write_source
from tests.run.ingest.made_up import event, on_device, written

PID, MAIN = 7, 70
DAY = 1_700_000_000_000_000_000
MS = 1_000_000
EVENTS = [
    event("cpu_op", "aten::item", 10, 50, tid=MAIN),
    event("cuda_runtime", "cudaMemcpyAsync", 20, 30, tid=MAIN, correlation=1),
    event("cuda_runtime", "cudaLaunchKernel", 1000, 30, tid=MAIN, correlation=2),
    event("cuda_runtime", "cudaLaunchKernel", 20, 5, tid=99, correlation=3),
    on_device("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", 40, 5, correlation=1, bytes=8),
    on_device("kernel", "sgemm", 1040, 5.5, correlation=2),
]
FACT = {
    "state": "recorded", "began": 20 * MS, "begin": 21 * MS, "end": 39 * MS, "ended": 45 * MS,
    # the time of day gained 200 ns on our clock in 2 ms
    "clock": [[25 * MS, DAY], [27 * MS, DAY + 2 * MS + 200]],
}  # fmt: skip


def recorded(folder: Path, fact: dict[str, Any] | None, *, steps: int = 6, activity: bool = False) -> Path:
    """A run of one process with steps of 10 ms, in which a hook saw `item` at train.py:3; with a trace beside it."""
    at = 25 * MS
    source = write_source(
        write_manifest(folder / "run", level="full"), PID,
        facts={"device": "cuda"} | ({"trace": fact} if fact else {}),
        names={0: "item", 4: "sgemm"}, sites={5: Site("train.py", 3, "main")},
        steps=step_rows(steps, 10 * MS, tid=MAIN, warmup=1),
        calls=[(at + 15_000, at + 60_000, 45_000, 0, 0, MAIN, CallKind.SYNC, 0, 5, 0)],
        activities=[(1, 2, 0, 0, ActivityKind.KERNEL, 4, 0, 0)] if activity else [],
    )  # fmt: skip
    written(source / "kineto.json.gz", EVENTS, baseTimeNanoseconds=DAY)
    return source.parent


def calls(run: Run) -> list[tuple[str, int, int, int, str]]:
    """Name, begin and end from the first pair of clocks, blocked, line."""
    rows = run.calls[["name", "begin", "end", "blocked", "site"]].tolist()
    return [
        (run.names[name], begin - 25 * MS, end - 25 * MS, blocked, str(run.sites[site]) if site >= 0 else "")
        for name, begin, end, blocked, site in rows
    ]


def test_calls_and_activities_are_on_the_runs_clock(tmp_path: Path) -> None:
    run = load(recorded(tmp_path, FACT))
    line = "train.py:3 (main)"
    assert calls(run) == [
        ("item", 15_000, 60_000, 45_000, line),
        ("cudaMemcpyAsync", 20_000 - 2, 50_000 - 5, 30_000 - 3, line),  # its line is that of the `item` around it
        ("cudaLaunchKernel", 1_000_000 - 100, 1_030_000 - 103, 0, ""),
        ("cudaLaunchKernel", 20_000 - 2, 25_000 - 2, 0, ""),  # another thread's
    ]
    assert [run.names[number] for number in run.activities["name"]] == ["Memcpy DtoH (Device -> Pageable)", "sgemm"]
    assert (run.activities["begin"] - 25 * MS).tolist() == [40_000 - 4, 1_040_000 - 104]
    assert run.activities["pid"].tolist() == [PID, PID]
    assert len(run.regions) == 0, "its regions are left to the hooks"
    assert run.problems == ()


@pytest.mark.parametrize(
    ("fact", "steps", "warmup", "codes"),
    [
        (FACT, 6, [1, 0, 1, 1, 1, 0], []),  # from its start to the end of its writing: 20 to 45 ms
        (FACT, 5, [1, 0, 1, 1, 1], ["only-first-steps-measured"]),
        # one that never ended: all that follow
        ({"state": "open", "began": 20 * MS}, 6, [1, 0, 1, 1, 1, 1], ["trace-damaged", "only-first-steps-measured"]),
        ({**FACT, "began": 0}, 4, [1, 0, 0, 0], ["all-steps-traced"]),  # no other step is left
    ],
)
def test_steps_that_tracing_touched_are_not_measured(
    tmp_path: Path, fact: dict[str, Any], steps: int, warmup: list[int], codes: list[str]
) -> None:
    run = load(recorded(tmp_path, fact, steps=steps))
    assert run.steps["warmup"].tolist() == warmup
    assert [problem.code for problem in run.problems] == codes


def test_a_device_that_the_program_tells_of_is_not_there_twice(tmp_path: Path) -> None:
    run = load(recorded(tmp_path, FACT, activity=True))
    assert len(run.activities) == len(run.calls) == 1


@pytest.mark.parametrize("clock", [None, [], [[1, 2]], [["x", 2], [3, 4]]])
def test_without_its_clocks_it_is_left_out(tmp_path: Path, clock: object) -> None:
    run = load(recorded(tmp_path, {**FACT, "clock": clock}))
    assert len(run.activities) == 0
    assert [problem.code for problem in run.problems] == ["trace-damaged"]


@pytest.mark.parametrize("keep", [0, 40])
def test_a_damaged_trace_is_a_problem_of_the_run(tmp_path: Path, keep: int) -> None:
    path = recorded(tmp_path, FACT)
    trace = path / f"source-{PID}" / "kineto.json.gz"
    trace.write_bytes(trace.read_bytes()[:keep])
    run = load(path)
    assert len(run.steps) == 6
    assert len(run.activities) == 0
    [problem] = run.problems
    assert problem.code == "trace-damaged"
    assert problem.values["text"].startswith(f"source-{PID}/kineto.json.gz is ")
