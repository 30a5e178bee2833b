"""The verdicts on real GPU traces against a table that was written before the code, and their idle shares.

The traces lie beside the project, not in it: PROFILER_TRACES says where. Skipped where they are not.
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any, Final

import pytest

from profiler import read
from profiler.analyse.model.analysis import Analysis
from profiler.report.finding_text import told
from tests.fakes.programs import ROOT
from tests.run.ingest.test_real_traces import FILES, TRACES

TABLE: Final[dict[str, Any]] = tomllib.loads((ROOT / "tests/run/ingest/trace_verdicts.toml").read_text())
NAMES: Final = {"communicating": "communication", "copying": "copy", "launch": "allocation", "unattributed": "python"}
TOLERANCE: Final = 0.03
_SMALL: Final = 200_000  # bytes: read within half a second

pytestmark = pytest.mark.skipif(not FILES, reason=f"there are no recorded traces in {TRACES}")


def _params() -> list[Any]:
    return [
        pytest.param(file, id=file.name.removesuffix(".json.gz"), marks=[] if small else [pytest.mark.slow])
        for file in FILES
        for small in (file.stat().st_size < _SMALL,)
    ]


def _named(analysis: Analysis) -> list[str]:
    """The categories of what is told, in its order."""
    return [NAMES.get(name, name) for finding in told(analysis.findings) for name in finding.costs]


@pytest.mark.parametrize("file", _params())
def test_verdicts_on_public_traces(file: Path) -> None:
    name = file.name.removesuffix(".json.gz")
    truth = json.loads((TRACES / "truth" / f"{name}.json").read_text())
    analysis = read(file)
    if truth["kernels"]["count"] or truth["memcpy"]:
        of_steps = truth.get("gpu_busy_pct_of_step_window") if truth["steps"] else None
        share = (of_steps if of_steps is not None else truth["gpu_busy_pct_of_wall"]) / 100
        assert analysis.measures["device_utilization"].value == pytest.approx(share, abs=TOLERANCE)
        assert sum(row.share_of_wall for row in analysis.idle) == pytest.approx(1 - share, abs=TOLERANCE)
    named, expected = _named(analysis)[:2], TABLE[name]["causes"]
    if expected:
        assert set(named) & set(expected), TABLE[name]["evidence"]
        assert expected[0] in named or not TABLE[name]["labelled"]
    else:
        assert {finding.rule.name for finding in told(analysis.findings)} <= {"unattributed"}
        assert "no cause to name" in analysis.verdict


@pytest.mark.skipif(not (TRACES / "kineto_resnet50_nw0_v100.json.gz").exists(), reason="the trace is not here")
@pytest.mark.slow
def test_all_idle_time_within_the_loader_is_the_loaders() -> None:
    name = "kineto_resnet50_nw0_v100"
    truth = json.loads((TRACES / "truth" / f"{name}.json").read_text())
    analysis = read(TRACES / f"{name}.json.gz")
    loader, window = truth["gpu_idle"]["during_dataloader_ns"], truth["step_window_ns"]
    assert (analysis.idle[0].category, analysis.idle[0].subject) == ("input", "data")
    assert analysis.idle[0].share_of_wall == pytest.approx(loader / window, abs=0.001)
    in_loader = truth["dataloader"]["total_ns"] / window
    assert [part.share for part in analysis.input] == [pytest.approx(in_loader, abs=0.001)]
    assert analysis.breakdown["input"].value == pytest.approx(
        in_loader * (analysis.value("step_time") or 0.0), rel=0.01
    )


def test_the_table_lists_every_trace() -> None:
    assert {file.name.removesuffix(".json.gz") for file in FILES} <= set(TABLE)
