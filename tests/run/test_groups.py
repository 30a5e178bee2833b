"""Folders with traces of the ranks of one job, and several recordings that are ranks of one job."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from profiler import analyse_run, compare, load, read_ranks
from profiler.commands._comparing import compare_runs
from profiler.core.errors import ProfilerError
from profiler.run.load import are_ranks_of_one_job

STEP, STEPS = 10_000, 12  # µs


def trace(
    path: Path, rank: int, compute: int, *, size: int | None = 2, clock: int = 0, pid: int = 7, device: bool = True
) -> Path:
    """A trace in which a rank computes for `compute` µs of each step, and communicates until the step of 10 ms ends."""
    events: list[dict[str, Any]] = []

    def add(category: str, name: str, begin: int, duration: int, tid: int = pid, **args: Any) -> None:
        place = {"pid": pid, "tid": tid}
        events.append(
            {"ph": "X", "cat": category, "name": name, "ts": clock + begin, "dur": duration, **place, "args": args}
        )

    for step in range(STEPS):
        begin = step * STEP
        add("user_annotation", f"ProfilerStep#{step + 5}", begin, STEP)
        add("cpu_op", "aten::mm", begin, 100)
        if device:
            add("cuda_runtime", "cudaLaunchKernel", begin + 10, 5, correlation=2 * step + 1)
            add("kernel", "gemm", begin + 20, compute - 20, stream=7, device=0, correlation=2 * step + 1)
            add("kernel", "ncclKernel_AllReduce", begin + compute, STEP - compute, stream=8, device=0)
        else:
            add("user_annotation", "gloo:all_reduce", begin + compute, STEP - compute, tid=pid + 1)
    distributed = {"distributedInfo": {"backend": "nccl", "rank": rank, "world_size": size}} if size else {}
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({**distributed, "traceEvents": events}))
    return path


@pytest.mark.parametrize("clock", [0, 3_000_000])
@pytest.mark.parametrize("device", [True, False])
def test_a_folder_of_traces_is_one_job(tmp_path: Path, clock: int, *, device: bool) -> None:
    """Ranks on several machines have clocks that differ, and may have the same pid."""
    trace(tmp_path / "a.json", 1, 2_000, device=device)
    trace(tmp_path / "b.pt.trace.json", 0, 8_000, clock=clock, device=device)
    (tmp_path / "report.json").write_text("{}")
    run = load(tmp_path)
    assert sorted(set(run.steps["rank"].tolist())) == [0, 1]
    assert len(set(run.steps["pid"].tolist())) == 2
    ranks = analyse_run(run).ranks
    assert ranks is not None
    assert ranks.straggler is not None
    assert (ranks.straggler.rank, ranks.analysed) == (0, 0)
    assert ranks.straggler.lead == pytest.approx(0.006)
    assert [rank.last for rank in ranks.ranks] == [1.0, 0.0]
    assert (ranks.straggler.category == "device compute") == device


def test_part_of_a_job_says_so(tmp_path: Path) -> None:
    for rank in (3, 5):
        trace(tmp_path / f"{rank}.json", rank, 5_000, size=64)
    assert "Only 2 of 64 ranks were recorded" in analyse_run(load(tmp_path)).verdict


def test_one_trace_in_a_folder_is_that_trace(tmp_path: Path) -> None:
    trace(tmp_path / "only.json", 0, 5_000)
    assert analyse_run(load(tmp_path)).ranks is None


def test_traces_without_ranks_take_them_from_their_names(tmp_path: Path) -> None:
    for rank in (4, 2):
        trace(tmp_path / f"rank-{rank}.json", 0, 5_000, size=None, pid=rank)
    ranks = analyse_run(load(tmp_path)).ranks
    assert ranks is not None
    assert [(rank.rank, rank.pid) for rank in ranks.ranks] == [(2, 2), (4, 4)]


def test_a_folder_of_two_jobs_is_refused(tmp_path: Path) -> None:
    trace(tmp_path / "one.json", 0, 5_000)
    trace(tmp_path / "two.json", 0, 5_000)
    with pytest.raises(ProfilerError, match=r"one.json and two.json are both of rank 0"):
        load(tmp_path)
    trace(tmp_path / "two.json", 1, 5_000, size=4)
    with pytest.raises(ProfilerError, match="jobs of different sizes"):
        load(tmp_path)


def test_ranks_of_one_job_are_not_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [trace(tmp_path / f"{rank}.json", rank, 2_000 + 5_000 * rank, pid=rank) for rank in (0, 1)]
    assert compare_runs(paths, out=tmp_path / "out", anyway=False) == 0
    out = capsys.readouterr().out
    assert "2 ranks of one job" in out
    assert "Rank 1 makes the other rank wait 5.00 ms" in (tmp_path / "out" / "report.html").read_text()
    with pytest.raises(ProfilerError, match="ranks of one job"):
        compare({"a": paths[:1], "b": paths[1:]})
    assert compare({"a": paths[:1], "b": paths[1:]}, anyway=True).sides[1].label == "b"


def test_two_runs_of_a_job_are_compared(tmp_path: Path) -> None:
    """The same rank twice, or ranks of jobs at different times, are no job."""
    paths = [trace(tmp_path / f"{number}.json", number, 5_000, clock=number * 10**9) for number in (0, 1)]
    assert not are_ranks_of_one_job([load(path) for path in paths])
    assert read_ranks([load(paths[0]), load(paths[0])]) is None
