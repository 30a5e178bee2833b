"""The independent reader of the page on a small trace whose figures are known."""

from __future__ import annotations

import gzip
import json
import tomllib
from fractions import Fraction
from pathlib import Path

import pytest

from tests.fakes.programs import ROOT
from tests.gpu_traces.events import RawTrace, clipped, length, table, union


def _raw(tmp_path: Path) -> RawTrace:
    def event(category: str, name: str, begin: float, ms: float, tid: int = 1) -> dict[str, object]:
        return {"ph": "X", "cat": category, "name": name, "ts": begin, "dur": 1000 * ms, "tid": tid}

    events = [
        event("user_annotation", "ProfilerStep#1", 0, 10),
        event("user_annotation", "enumerate(DataLoader)#x", 4000, 6),
        event("cpu_op", "aten::to", 5000, 1),
        event("cuda_runtime", "cudaLaunchKernel", 100, 0.1),
        event("cuda_runtime", "cudaStreamSynchronize", 200, 3.8),
        event("kernel", "matmul", 1000, 2, 7),
        event("kernel", "ncclKernel_AllReduce", 2000, 2, 8),
        {"ph": "i", "cat": "kernel", "name": "no duration", "ts": 0},
    ]
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"traceEvents": events}).encode()))
    return RawTrace(path)


def test_figures(tmp_path: Path) -> None:
    raw = _raw(tmp_path)
    assert (raw.window_ms, len(raw.steps), raw.launches()) == (10.0, 1, 1)
    assert (raw.busy(), raw.busy(computing=True)) == (pytest.approx(0.3), pytest.approx(0.2))
    assert raw.kernels() == (2, 2000.0)
    assert raw.totals(1) == [("matmul", 1, 2.0)]
    assert raw.idle_during("DataLoader") == pytest.approx(0.6)
    assert [each.name for each in raw.communication()] == ["ncclKernel_AllReduce"]
    assert raw.waits(1)[0].ms == 3.8


def test_gaps_and_what_the_host_did(tmp_path: Path) -> None:
    raw = _raw(tmp_path)
    (begin, end), second = raw.gaps(2)
    assert (begin, end) == (4000, 10_000)
    event, share = raw.host_during(begin, end) or pytest.fail("an event covers it")
    assert (event.name, share) == ("enumerate(DataLoader)#x", 1.0)
    assert second == (0, 1000)
    assert raw.host_during(Fraction(20_000), Fraction(21_000)) is None


def test_spans() -> None:
    spans = [(Fraction(0), Fraction(4)), (Fraction(6), Fraction(9))]
    assert length(clipped(spans, Fraction(2), Fraction(7))) == 3
    assert union([]) == []
    assert table([["a", "b"], ["1", "2"]]) == "| a | b |\n|---|---|\n| 1 | 2 |"


def test_every_trace_has_a_judgement_and_a_section() -> None:
    judgements = tomllib.loads((ROOT / "tests/gpu_traces/judgements.toml").read_text())
    expected = tomllib.loads((ROOT / "tests/run/ingest/trace_verdicts.toml").read_text())
    assert set(judgements) == set(expected)
    page = (ROOT / "reports/traces/README.md").read_text()
    for name, judgement in judgements.items():
        assert judgement["verdict"] in ("right", "partly", "wrong")
        assert f"### {name}\n" in page
        assert judgement["argument"] in page, "write the page again: python -m tests.gpu_traces"
