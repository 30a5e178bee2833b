"""Every operator of a run's trace, on the run's clock, read when a timeline is written."""

from __future__ import annotations

import zipfile
from pathlib import Path

from profiler.run.filter import filter_trace
from profiler.run.ingest.kineto import read_traced
from profiler.run.model import Traced
from tests.run.ingest.made_up import event, written
from tests.run.ingest.test_attached import DAY, EVENTS, FACT, MAIN, MS, PID, recorded

NESTED = [event("cpu_op", "aten::linear", 60, 20, tid=MAIN), event("cpu_op", "aten::addmm", 61, 18.5, tid=MAIN)]
MARKED = event("user_annotation", "Optimizer.step#SGD.step", 1000, 100, tid=99)


def run_with(folder: Path, fact: dict[str, object] | None = FACT, *, activity: bool = False) -> Path:
    run = recorded(folder, fact, activity=activity)
    written(run / f"source-{PID}" / "kineto.json.gz", [*EVENTS, *NESTED, MARKED], baseTimeNanoseconds=DAY)
    return run


def read(path: Path) -> Traced:
    traced = read_traced(path)
    assert traced is not None
    return traced


def test_all_of_them_and_the_annotations_on_the_runs_clock(tmp_path: Path) -> None:
    run, archive = run_with(tmp_path), tmp_path / "run.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for one in sorted(run.rglob("*")):
            file.write(one, one.relative_to(tmp_path))
    for path in (run, run / "run.json", archive):
        traced = read(path)
        rows = [
            (begin - 25 * MS, end - 25 * MS, pid, tid, traced.names[name], annotation)
            for begin, end, pid, tid, name, annotation in traced.operators.tolist()
        ]
        assert rows == [
            (10_000 - 1, 60_000 - 6, PID, MAIN, "aten::item", 0),
            (60_000 - 6, 80_000 - 8, PID, MAIN, "aten::linear", 0),
            (61_000 - 6, 79_500 - 8, PID, MAIN, "aten::addmm", 0),
            (1_000_000 - 100, 1_100_000 - 110, PID, 99, "Optimizer.step#SGD.step", 1),
        ]
        assert traced.pids == {PID}
        assert traced.files == (f"source-{PID}/kineto.json.gz",)
        assert traced.problems == ()


def test_only_some_processes_and_threads(tmp_path: Path) -> None:
    traced = read(run_with(tmp_path))
    assert filter_trace(traced, tids=[99]).operators["tid"].tolist() == [99]
    assert len(filter_trace(traced, pids=[PID + 1]).operators) == 0
    assert len(filter_trace(traced).operators) == 4


def test_a_program_that_tells_of_its_device_keeps_its_own_calls_and_activities(tmp_path: Path) -> None:
    traced = read(run_with(tmp_path, activity=True))
    assert len(traced.operators) == 4
    assert traced.pids == set(), "none of its calls and activities is of the trace"


def test_without_a_trace_there_is_nothing(tmp_path: Path) -> None:
    run = recorded(tmp_path, None)
    (run / f"source-{PID}" / "kineto.json.gz").unlink()
    assert read_traced(run) is None
    assert read_traced(tmp_path / "trace.json.gz") is None, "a trace of its own has them in its regions"


def test_a_damaged_trace_is_reported_and_left_out(tmp_path: Path) -> None:
    for fact, data, said in ((None, None, "the pairs that tie its clock"), (FACT, b"\x1f\x8b", "cut off, or damaged")):
        folder = tmp_path / said[:4]
        folder.mkdir()
        run = run_with(folder, fact)
        if data:
            (run / f"source-{PID}" / "kineto.json.gz").write_bytes(data)
        traced = read(run)
        assert len(traced.operators) == 0
        [problem] = traced.problems
        assert problem.code == "trace-damaged"
        assert said in problem.values["text"]
        assert str(tmp_path) not in problem.values["text"]
