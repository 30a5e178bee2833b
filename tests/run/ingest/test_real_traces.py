"""Real traces of GPUs against facts that an independent script took from them: equal to the nanosecond.

They are others' and lie beside the project, not in it: PROFILER_TRACES says where. Skipped where they are not.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from profiler.analyse.intervals import subtract, union
from profiler.core.errors import ProfilerError
from profiler.report.text import step_text
from profiler.run.ingest.trace_rows import waits_by_itself
from profiler.run.load import load
from profiler.run.model import Run, Table
from profiler.run.tables import ActivityKind
from tests.fakes.programs import ROOT

TRACES: Final = Path(os.environ.get("PROFILER_TRACES") or ROOT.parent / "shared" / "traces")
FILES: Final = sorted(TRACES.glob("*.json.gz"))
ON_DEVICE: Final = ("kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset")

pytestmark = pytest.mark.skipif(not FILES, reason=f"there are no recorded traces in {TRACES}")


def _each(smallest: int, largest: int) -> list[Any]:
    sizes = [(file, file.stat().st_size) for file in FILES]
    kept = [file for file, size in sizes if smallest <= size < largest]
    return [pytest.param(file, id=file.name.removesuffix(".json.gz")) for file in kept]


@cache
def _truth(file: Path) -> dict[str, Any]:
    return dict(json.loads((TRACES / "truth" / file.name.replace(".json.gz", ".json")).read_text()))


def _named(run: Run, table: Table) -> Counter[str]:
    return Counter(run.names[number] for number in table["name"].tolist())


def _length(rows: Table) -> int:
    return int((rows["end"] - rows["begin"]).sum())


def check(file: Path) -> None:
    run, truth = load(file), _truth(file)
    assert run.problems == ()
    _check_device(run, truth)
    _check_host(run, truth)
    _check_steps(run, truth)


def _check_device(run: Run, truth: dict[str, Any]) -> None:
    rows = run.activities
    assert len(rows) == sum(truth["cats_X"].get(category, 0) for category in ON_DEVICE)
    kernels = rows[np.isin(rows["kind"], (ActivityKind.KERNEL, ActivityKind.COMMUNICATION))]
    assert (len(kernels), _length(kernels)) == (truth["kernels"]["count"], truth["kernels"]["total_ns"])
    copies = rows[np.isin(rows["kind"], (ActivityKind.H2D, ActivityKind.D2H, ActivityKind.D2D))]
    found = {}
    for number in np.unique(copies["name"]).tolist():
        own = copies[copies["name"] == number]
        found[run.names[number]] = {"count": len(own), "total_ns": _length(own), "bytes": int(own["bytes"].sum())}
    assert found == truth["memcpy"]
    sets = rows[rows["kind"] == ActivityKind.MEMSET]
    assert {"count": len(sets), "total_ns": _length(sets)} == truth["memset"]
    if not len(rows):
        return
    assert int(rows["end"].max() - rows["begin"].min()) == truth["gpu_span_ns"]
    devices = [rows[rows["device"] == device] for device in np.unique(rows["device"])]
    busy = sum(union(own["begin"], own["end"]).measure() for own in devices)
    assert busy // len(devices) == truth["gpu_busy_ns"]
    if "nccl" in truth:
        talk = rows[rows["kind"] == ActivityKind.COMMUNICATION]
        other = rows[rows["kind"] != ActivityKind.COMMUNICATION]
        talking, working = union(talk["begin"], talk["end"]), union(other["begin"], other["end"])
        assert (len(talk), _length(talk)) == (truth["nccl"]["count"], truth["nccl"]["total_ns"])
        assert talking.measure() == truth["nccl"]["union_ns"]
        assert subtract(talking, working).measure() == truth["nccl"]["exposed_ns"]


def _check_host(run: Run, truth: dict[str, Any]) -> None:
    assert _named(run, run.calls) == truth["runtime_counts"]
    waiting = [number for number, text in enumerate(run.names) if waits_by_itself(text)]
    syncs = run.calls[np.isin(run.calls["name"], waiting)]
    assert (len(syncs), int(syncs["blocked"].sum())) == (truth["blocking_sync_count"], truth["blocking_sync_ns"])
    pageable = run.calls[(run.calls["blocked"] > 0) & ~np.isin(run.calls["name"], waiting)]
    waits = truth.get("host_wait_ns", {})
    assert int(pageable["blocked"].sum()) == waits.get("cudaMemcpyAsync_pageable", 0)


def _check_steps(run: Run, truth: dict[str, Any]) -> None:
    if not truth.get("steps"):
        assert len(run.steps) == 1
        assert step_text(run.step).startswith("the whole trace")
        return
    assert (run.steps["end"] - run.steps["begin"]).tolist() == [step["dur_ns"] for step in truth["steps"]]
    assert int(run.steps["end"].max() - run.steps["begin"].min()) == truth["step_window_ns"]


@pytest.mark.parametrize("file", _each(0, 200_000))
def test_small_traces(file: Path) -> None:
    check(file)


@pytest.mark.slow
@pytest.mark.parametrize("file", _each(200_000, 1 << 60))
def test_large_traces(file: Path) -> None:
    check(file)


def test_recordings_of_nsight_systems_are_named() -> None:
    for file in TRACES.glob("*.sqlite"):
        with pytest.raises(ProfilerError, match="Nsight Systems, which is not read yet"):
            load(file)
