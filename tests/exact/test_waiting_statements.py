"""Virtual devices count the waits that torch's source tells, statement by statement."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from profiler.exact import virtual_cuda
from tests.exact.waiting_statements import STATEMENTS, run_annotated, traced_waits, virtual_waits

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="virtual devices need a machine without a GPU")


def test_virtual_waits_are_those_of_the_source() -> None:
    assert virtual_waits() == {name: statement.waits for name, statement in STATEMENTS.items()}


def test_every_statement_has_its_annotation_in_a_trace(tmp_path: Path) -> None:
    with virtual_cuda(), torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        run_annotated()
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text(encoding="utf-8"))["traceEvents"]
    assert traced_waits(events) == dict.fromkeys(STATEMENTS, 0)  # a virtual device makes no calls of the CUDA runtime


def event(category: str, name: str, begin: float, *, tid: int = 1, correlation: int = 0) -> dict[str, Any]:
    place = {"ph": "X", "cat": category, "name": name, "ts": begin, "dur": 10.0, "tid": tid}
    return place | {"args": {"correlation": correlation}}


@pytest.mark.parametrize(
    ("events", "waits"),
    [
        ([event("cuda_runtime", "cudaStreamSynchronize", 5.0)], 1),
        ([event("cuda_runtime", "cudaStreamSynchronize", 5.0, tid=2)], 0),
        ([event("cuda_runtime", "cudaStreamSynchronize", 50.0)], 0),
        ([event("cuda_runtime", "cudaLaunchKernel", 5.0)], 0),
        ([event("cuda_runtime", "cudaMemcpyAsync", 5.0, correlation=7)], 0),
        (
            [
                event("cuda_runtime", "cudaMemcpyAsync", 5.0, correlation=7),
                event("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 60.0, tid=9, correlation=7),
            ],
            1,
        ),
        (
            [
                event("cuda_runtime", "cudaMemcpyAsync", 4.0, correlation=7),
                event("cuda_runtime", "cudaStreamSynchronize", 5.0),
                event("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", 60.0, tid=9, correlation=7),
            ],
            1,
        ),
        (
            [
                event("cuda_runtime", "cudaMemcpyAsync", 5.0, correlation=7),
                event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 60.0, tid=9, correlation=7),
            ],
            0,
        ),
    ],
)
def test_waits_of_a_trace(events: list[dict[str, Any]], waits: int) -> None:
    assert traced_waits([event("user_annotation", "item", 0.0), *events]) == {"item": waits}
