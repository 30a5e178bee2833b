"""torch's own trace of a window of steps: when it opens and closes, whose clock it has, and whom it gives way to."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from profiler.agent.hooks import torch_trace
from profiler.record.launch import record
from profiler.run.ingest.kineto import FACT, TRACE_FILE
from profiler.run.ingest.trace_events import Trace, read_trace
from profiler.run.model import RunSpec
from profiler.run.source import read_source
from profiler.run.tables import SOURCE_META
from tests.fakes.programs import ROOT

PROGRAM = """
import json, os, sys, time, warnings
from pathlib import Path
import torch
from torch.profiler import ProfilerActivity, profile, record_function
from profiler.agent.patching import STATE, patch_count, unpatch
from profiler.agent.hooks import torch_trace
from profiler.agent.recorder import Recorder
from profiler.run.tables import BoundaryKind
root = Path(sys.argv[1])
x = torch.randn(32, 32)
said = {}
def scenario(name):
    unpatch()
    (root / name).mkdir()
    STATE.recorder = Recorder(root / name, "full")
    return STATE.recorder, torch_trace.install(torch.autograd.profiler)
def work(mark="work"):
    with record_function("warm"):
        pass
    begin = time.monotonic_ns()
    with record_function(mark):
        torch.mm(x, x)
    return begin, time.monotonic_ns()
def steps(recorder, count, kind=BoundaryKind.OPTIMIZER, name="SGD"):
    for _ in range(count):
        work()
        recorder.record_boundary(kind, name)
    recorder.flush()
# marked steps, with known moments inside of the window
recorder, trace = scenario("marks")
said["marks"] = []
for number in range(12):
    said["marks"].append(work(f"mark {number}"))
    recorder.step(0, False)
recorder.flush()
said["callbacks left"] = len(recorder.on_step)
# a loader asked three times a step, and two optimizers that take turns
recorder, trace = scenario("optimizers")
for number in range(14):
    for _ in range(3):
        work("batch")
        recorder.record_boundary(BoundaryKind.LOADER, "DataLoader")
    for name in ("G", "D"):
        work(f"{name} {number}")
        recorder.record_boundary(BoundaryKind.OPTIMIZER, name)
recorder.flush()
recorder, trace = scenario("loader")
steps(recorder, 17, BoundaryKind.LOADER, "DataLoader")
# the program's own profiler: inside of our window, before it, around it, and only prepared (its schedule warms up)
recorder, trace = scenario("inside")
steps(recorder, 7)
with profile(activities=[ProfilerActivity.CPU], acc_events=True) as own:
    work("theirs")
said["inside"] = [event.name for event in own.events()]
steps(recorder, 9)
recorder, trace = scenario("before")
with profile(activities=[ProfilerActivity.CPU], acc_events=True) as own:
    work("theirs")
steps(recorder, 12)
said["before"] = [event.name for event in own.events()]
unpatch()
with profile(activities=[ProfilerActivity.CPU], acc_events=True) as own:
    recorder, trace = scenario("around")
    steps(recorder, 12)
    work("theirs")
said["around"] = [event.name for event in own.events()]
recorder, trace = scenario("prepared")
plan = torch.profiler.schedule(wait=0, warmup=6, active=2)
with profile(activities=[ProfilerActivity.CPU], schedule=plan, acc_events=True) as own:
    for _ in range(10):
        steps(recorder, 1)
        own.step()
said["prepared"] = [event.name for event in own.events()]
# a fork collects nothing, and leaves the window to its parent
recorder, trace = scenario("fork")
steps(recorder, 7)
warnings.simplefilter("ignore", DeprecationWarning)  # from 3.12 on Python warns of every fork out of threads
child = os.fork()
if child == 0:
    STATE.recorder = None
    x + 1  # mm would wait for ever for the threads of its library, with or without a profiler
    os._exit(0 if trace._session is None else 1)
said["fork"] = os.waitpid(child, 0)[1]
steps(recorder, 5)
# torch's profiler cannot start, and the file cannot be written: the program goes on
recorder, trace = scenario("broken")
started, torch.profiler._KinetoProfile.start = torch.profiler._KinetoProfile.start, lambda self: 1 / 0
steps(recorder, 12)
torch.profiler._KinetoProfile.start = started
recorder, trace = scenario("full disk")
steps(recorder, 7)
torch.profiler._KinetoProfile.export_chrome_trace, whole = (
    lambda self, path: Path(path).write_text('{"traceEvents": ['), torch.profiler._KinetoProfile.export_chrome_trace
)
steps(recorder, 5)
torch.profiler._KinetoProfile.export_chrome_trace = whole
# one step without end, of operators alone; and a graph that is captured where the window would begin and end
torch_trace.ALARM_PERIOD_S = 0.05  # in half a second there are operators whose trace takes ten to be written
recorder, trace = scenario("endless")
steps(recorder, 7)
torch_trace.CUT_NS = torch_trace.CUT_BYTES = -(1 << 62)
while trace._session is not None:
    x.add_(1)
torch_trace.CUT_NS = 1 << 62
# steps that are long for a trace: it begins after the second one, and ends in the third
os.environ["PROFILER_TRACE_SECONDS"] = "0.000001"
recorder, trace = scenario("long")
steps(recorder, 1)
said["long"] = [trace._session is None]
steps(recorder, 1)
while trace._session is not None:
    x.add_(1)
# such a trace is of measured steps
recorder, trace = scenario("after the warm-up")
for warmup in (True, True, True, False):
    recorder.step(0, warmup)
said["after the warm-up"] = [trace._facts["state"] == "waiting"]
recorder.step(0, False)
said["after the warm-up"].append(trace._facts["state"] == "waiting")
del os.environ["PROFILER_TRACE_SECONDS"]
recorder, trace = scenario("captured")
real = torch_trace._capturing
torch_trace._capturing = lambda torch: True
steps(recorder, 9)
said["captured"] = [trace._session is None]
torch_trace._capturing = real
steps(recorder, 7)
torch_trace._capturing = lambda torch: True
steps(recorder, 9)
said["captured"].append(trace._session is None)
torch_trace._capturing = real
steps(recorder, 1)
recorder, trace = scenario("short")
steps(recorder, 3)
recorder, trace = scenario("taken back")
steps(recorder, 7)
unpatch()
said["taken back"] = [len(recorder.on_step), torch.autograd._profiler_enabled()]
recorder, trace = scenario("exit")
steps(recorder, 7)
said["environment"] = os.environ.get("KINETO_LOG_LEVEL", "")
(root / "said.json").write_text(json.dumps(said))
"""


@dataclass(frozen=True)
class Scenarios:
    root: Path
    said: dict[str, Any]
    output: str

    def folder(self, name: str) -> Path:
        (folder,) = (self.root / name).glob("source-*")
        return folder

    def fact(self, name: str) -> dict[str, Any]:
        return dict(read_source(self.folder(name)).facts[FACT])

    def trace(self, name: str) -> Trace:
        return read_trace(self.folder(name) / TRACE_FILE)


@pytest.fixture(scope="module")
def scenarios(tmp_path_factory: pytest.TempPathFactory) -> Scenarios:
    """All of them in one process: torch takes seconds to import."""
    root = tmp_path_factory.mktemp("traces")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(root)], check=False, capture_output=True, text=True, timeout=280, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    return Scenarios(root, json.loads((root / "said.json").read_text()), done.stdout + done.stderr)


FIRST, COUNT = torch_trace.SKIP, torch_trace.STEPS
TRACED = range(FIRST, FIRST + COUNT)


@pytest.mark.parametrize(
    ("name", "prefix", "annotations"),
    [
        ("marks", "mark", [f"mark {n}" for n in TRACED]),
        ("optimizers", "G ", [f"G {n}" for n in TRACED]),  # not the batches, nor the steps of the other optimizer
        ("loader", "work", ["work"] * COUNT),  # without an optimizer batches count
        ("inside", "work", ["work"] * 2),  # what was traced until then is kept
        ("inside", "theirs", []),
        ("exit", "work", ["work"] * 2),
        ("fork", "work", ["work"] * COUNT),
    ],
)
def test_which_steps_are_traced(scenarios: Scenarios, name: str, prefix: str, annotations: list[str]) -> None:
    events = sorted(scenarios.trace(name).annotations)
    assert [event.name for event in events if event.name.startswith(prefix)] == annotations


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("callbacks left", 0),
        ("captured", [True, False]),  # no window begins or ends while a graph is captured
        ("long", [True]),
        ("after the warm-up", [True, False]),
        ("taken back", [0, False]),  # the recording of a block leaves nothing behind
        ("fork", 0),
        ("environment", ""),
    ],
)
def test_what_the_program_found(scenarios: Scenarios, name: str, value: Any) -> None:
    assert scenarios.said[name] == value
    assert scenarios.output == "", "Kineto writes lines of its own at some versions of torch, unless it is told not to"


@pytest.mark.filterwarnings("error")
def test_torch_does_not_warn_when_our_session_starts() -> None:
    """torch 2.11 warns at every start of a session."""
    module = torch.profiler.profiler
    original = module._warn_once
    with torch_trace._quiet(torch):
        module._warn_once("this session clears the events of the last one")
    assert module._warn_once is original


def test_its_clock_is_tied_to_ours(scenarios: Scenarios) -> None:
    fact, errors = scenarios.fact("marks"), []
    assert fact["reason"] == ""
    assert fact["began"] <= fact["begin"] < fact["end"] <= fact["ended"]
    (ours, day), _ = fact["clock"]
    for event in scenarios.trace("marks").annotations:
        if event.name.startswith("mark"):
            begin, end = scenarios.said["marks"][int(event.name.split()[1])]
            errors.append((event.begin - day + ours - begin, end - (event.end - day + ours)))
    assert len(errors) == torch_trace.STEPS
    # inside of the moments read around it, to some µs; the nearest is free of what else had the CPU meanwhile
    assert min(min(pair) for pair in errors) > -100_000, errors
    assert min(max(pair) for pair in errors) < 1_000_000, errors


def test_starting_and_writing_are_in_the_ledger(scenarios: Scenarios) -> None:
    source, fact = read_source(scenarios.folder("marks")), scenarios.fact("marks")
    (recording,) = (number for number, text in source.names.items() if text == "recording")
    own = source.tables["regions"][source.tables["regions"]["name"] == recording]
    for begin, end in ((fact["began"], fact["begin"]), (fact["end"], fact["ended"])):
        assert ((own["begin"] <= begin) & (own["end"] >= end)).any(), (begin, end, own)


@pytest.mark.parametrize("name", ["inside", "before", "around"])
def test_a_profiler_of_the_program_is_not_disturbed(scenarios: Scenarios, name: str) -> None:
    assert {"theirs", "aten::mm"} <= set(scenarios.said[name])
    assert scenarios.said["prepared"].count("work") == 2, "nor one that warms up"


@pytest.mark.parametrize(
    ("name", "state", "reason"),
    [
        ("marks", "recorded", ""),
        ("optimizers", "recorded", ""),
        ("loader", "recorded", ""),
        ("inside", "recorded", "ended early: the program started torch's profiler"),
        ("before", "skipped", "the program uses torch's profiler"),
        ("around", "skipped", "torch's profiler was running already"),
        ("prepared", "skipped", "the program uses torch's profiler"),
        ("broken", "failed", "ZeroDivisionError"),
        ("full disk", "failed", "is the disk full?"),
        ("endless", "recorded", "ended early: its steps were too long"),
        ("long", "recorded", "ended early: its steps were too long"),
        ("captured", "recorded", ""),
        ("short", "waiting", "the program ended before its 5th step"),
        ("exit", "recorded", "ended early: the program or its recording ended"),
        ("fork", "recorded", ""),
        ("taken back", "recorded", "ended early: the program or its recording ended"),
    ],
)
def test_the_run_says_what_became_of_it(scenarios: Scenarios, name: str, state: str, reason: str) -> None:
    fact = scenarios.fact(name)
    assert fact["state"] == state, fact
    assert reason in fact["reason"], fact
    files = [file.name for file in scenarios.folder(name).iterdir() if file.name.startswith("kineto")]
    assert files == ([TRACE_FILE] if state == "recorded" else [])


MARKED = """
import torch
from profiler import marks
for _ in range(20):
    torch.ones(2).sum().item()
    marks.step()
"""


def test_level_full_traces_a_program_of_which_only_the_marks_are_recorded(tmp_path: Path) -> None:
    """No other hook is installed: what the program counts would be there twice."""
    command = (sys.executable, "-c", MARKED)
    info = record(RunSpec(command, tmp_path / "run", "full", quiet=True, hooks=False, collectors=()))
    assert info.exit_code == 0
    [folder] = (tmp_path / "run").glob("source-*")
    source = json.loads((folder / SOURCE_META).read_text(encoding="utf-8"))
    assert source["hooks"] == {"torch-trace": ""}
    assert source["facts"][FACT]["state"] == "recorded"
