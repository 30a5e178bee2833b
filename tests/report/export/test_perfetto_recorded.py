"""A real recording at level full, exported as people do it: a valid trace, torch's operators on the run's clock."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.programs import ROOT, command_line, script
from tests.report.export.trace_rules import complaints

pytestmark = pytest.mark.slow
STEPS = 14
PROGRAM = f"""
import time
import torch
import profiler
from profiler import marks
from profiler.run.tables import ActivityKind, CallKind, packer

model = torch.nn.Linear(8, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
recorder = marks.recorder()
for step in range({STEPS}):
    with profiler.region("work <of> \\"mine\\""):
        loss = model(torch.ones(2, 8)).sum()
    loss.backward()
    optimizer.step()
    profiler.gauge("loss", float("nan") if step == 3 else loss.item())
    # a device of its own: a call, and what it caused
    begin, name = time.monotonic_ns(), recorder.names["send"]
    row = begin, begin + 900, 0, 64, step + 1, recorder.thread.tid, CallKind.H2D, name, -1, 1
    recorder.append_records("calls", packer("calls").pack(*row))
    row = begin + 500, begin + 2500, 64, step + 1, ActivityKind.H2D, name, 1, 0
    recorder.append_records("activities", packer("activities").pack(*row))
    time.sleep(0.02 + 0.003 * step)  # far apart, and each from its neighbours by another time
"""


@dataclass(frozen=True)
class Exported:
    run: Path
    text: str
    message: str

    def events(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.text)["traceEvents"]
        return found

    def slices(self, category: str) -> list[tuple[str, float, float]]:
        """Name, begin and end in µs of the slices of this category, in order of their begins."""
        waiting: dict[tuple[int, int], list[dict[str, Any]]] = {}
        found = []
        for event in self.events():
            stack = waiting.setdefault((event["pid"], event.get("tid", 0)), [])
            if event["ph"] == "B":
                stack.append(event)
            elif event["ph"] == "E":
                begun = stack.pop()
                if begun["cat"] == category:
                    found.append((begun["name"], begun["ts"], event["ts"]))
        return sorted(found, key=lambda one: one[1])


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    folder = tmp_path_factory.mktemp("full")
    run = folder / "run"
    program = script(folder, PROGRAM)
    recorded = subprocess.run(
        command_line("run", "--level", "full", "--out", run, "--", sys.executable, program),
        cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert recorded.returncode == 0, recorded.stdout + recorded.stderr
    done = subprocess.run(
        command_line("export", run), cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return Exported(run, gzip.decompress((run / "trace.json.gz").read_bytes()).decode(), done.stderr)


def test_it_keeps_the_rules_of_the_format(exported: Exported) -> None:
    assert complaints(exported.text) == []


def test_everything_that_was_recorded_is_there(exported: Exported) -> None:
    events = exported.events()
    phases = {event["ph"] for event in events}
    assert phases == {"B", "E", "C", "M", "s", "f"}
    kinds = {event.get("cat") for event in events if event["ph"] == "B"}
    assert kinds >= {"step", "region", "call", "activity", "operator", "annotation"}
    assert sum(event["ph"] == "s" for event in events) == STEPS
    tracks = {event["args"]["name"] for event in events if event.get("name") == "thread_name"}
    assert {"main", "steps", "main: torch operators", "queue 1"} <= tracks


def test_operators_are_on_the_clock_of_the_regions(exported: Exported) -> None:
    """torch's annotation of a step of the optimizer lies around what our hook wrote of the same call."""
    ours = [one for one in exported.slices("region") if one[0] == "optimizer"]
    theirs = [one for one in exported.slices("annotation") if one[0].startswith("Optimizer.step")]
    assert len(theirs) > 1
    for _, begin, end in theirs:  # within, and not near: a busy machine makes either longer, and parts neither
        within = [begin - 1_000 < first and last < end + 1_000 for _, first, last in ours]
        assert any(within), "more than a millisecond beside it"
    names = {name for name, *_ in exported.slices("operator")}
    assert {"aten::linear", "aten::addmm"} <= names, "the nested ones too"


def test_the_export_reports_the_window_of_operators(exported: Exported) -> None:
    assert exported.message.startswith("torch operators: from ")
    assert "left out" not in exported.message
    assert json.loads(exported.text)["otherData"]["left out of torch's trace"] == []
