"""torch.compile with us and without: as many graphs, breaks and frames, the same results, no new warning."""

from __future__ import annotations

import json
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Final

import pytest

from profiler.agent import patching
from profiler.agent.hooks import dynamo
from profiler.agent.patching import STATE
from tests.fakes.programs import ROOT, finished, script
from tests.fakes.watched import watched

pytest.importorskip("torch")

PROGRAM: Final = """
import json, sys, tempfile, warnings
from pathlib import Path
import torch
hooked = sys.argv[1] == "hooked"
if hooked:
    from profiler.agent import patching
    from profiler.agent.hooks import dynamo, tensors
    from profiler.agent.recorder import Recorder
    patching.STATE.recorder = recorder = Recorder(Path(sys.argv[2]), "standard")
    tensors.TENSORS.install(torch)
    tensors.FUNCTIONS.install(torch)
import torch._dynamo
from torch._dynamo.testing import CompileCounterWithBackend
if hooked:
    dynamo.PLUGIN.install(torch._dynamo)

def waiting(x, y):
    y = y + (x * 2).sum().item()
    if (y > 0).any():
        y = y * 2
    mask = y > 0
    values = y[mask]
    y = y.clone()
    y[mask] = 0.5
    found = torch.nonzero(y).sum() + torch.unique(values).sum() + torch.masked_select(y, mask).sum()
    return found + float(y.sum()) + int(y.sum()) + y.tolist()[0] + y[0] + y[1:3].sum() + y.to("cpu").numpy()[0]

def capturable(x, y):
    rows = torch.repeat_interleave(y, 2).sum() + torch.nonzero(y).sum() + torch.where(y > 0)[0].sum()
    return rows + torch.masked_select(y, y > 1).sum() + torch.Tensor.nonzero(y).sum() + y.sum().item() + y[0]

result = []
ways = [("eager", False, waiting), ("eager", True, capturable)]
if sys.argv[3] == "more":
    ways = [("eager", False, capturable), ("aot_eager", True, waiting), ("aot_eager", False, waiting)]
for backend, capture, function in ways:
    torch._dynamo.config.capture_dynamic_output_shape_ops = capture
    torch._dynamo.config.capture_scalar_outputs = capture
    torch._dynamo.reset()
    counters = torch._dynamo.utils.counters
    counters.clear()
    counter = CompileCounterWithBackend(backend)
    compiled = torch.compile(function, backend=counter)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.simplefilter("ignore", ResourceWarning)  # when garbage is collected, is nobody's to say
        there = "cpu"  # where a program that has a GPU would say cuda
        tensors_of = lambda k: (torch.arange(4.0, device=there), torch.arange(4.0, device=there) + k)
        values = [float(compiled(*tensors_of(k))) for k in range(4)]
    result.append({
        "values": values, "graphs": counter.frame_count, "operators": counter.op_count,
        "breaks": sum(counters["graph_break"].values()), "frames": dict(counters["frames"]),
        "recompiles": len(counters["recompiles"]), "warnings": [str(warning.message) for warning in caught],
    })

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.repeat_interleave(x, 2).sum() + x[0]

if sys.argv[3] == "more":
    result.append(torch.export.export(Model(), (torch.arange(3.0),), strict=True).graph_module.code)
torch._dynamo.reset()
again = torch.compile(lambda x: x + 1, backend="eager", dynamic=False)
before = hooked and recorder.counters.get("recompilations", 0)
for length in (2, 2, 3, 3, 4):
    again(torch.ones(length))
if hooked:
    recorder.write_tallies(recorder.clocks()[0])
result.append(hooked and recorder.counters.get("might_sync", 0))
result.append(hooked and recorder.counters.get("recompilations", 0) - before)
print(json.dumps(result))
"""


def run_program(folder: Path, ways: str) -> tuple[list[Any], list[Any]]:
    """Results of the program without the hooks and with them."""
    program = script(folder, PROGRAM, "compiled.py")
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(folder)}
    with ThreadPoolExecutor() as pool:
        commands = [(sys.executable, program, how, folder, ways) for how in ("bare", "hooked")]
        bare, hooked = pool.map(lambda command: finished(command, env=environment), commands)
    for process in (bare, hooked):
        assert process.returncode == 0, process.stderr[-4000:]
    return json.loads(bare.stdout), json.loads(hooked.stdout)


@pytest.mark.slow
def test_graphs_breaks_results_and_warnings_are_the_same(tmp_path: Path) -> None:
    bare, hooked = run_program(tmp_path, "few")
    assert bare[0]["breaks"] > 3, "the program is one that breaks graphs"
    assert bare[1]["breaks"] == 0, "and one that can be captured as a whole"
    assert hooked[:-2] == bare[:-2]
    calls, least = 4, 6  # item, any, nonzero, float, int, tolist at the least, each time that `waiting` ran
    assert hooked[-2] >= calls * least, "what runs between the graphs is counted"
    assert hooked[-1] == 2, "three shapes: neither the first nor a repeated one is a recompilation"


@pytest.mark.slow
def test_other_backends_and_export_too(tmp_path: Path) -> None:
    bare, hooked = run_program(tmp_path, "more")
    assert hooked[:-2] == bare[:-2]


class Dynamo(ModuleType):
    """The parts of torch._dynamo that the hook patches: `compile` and, within it, `guard` note what `work` gives."""

    def __init__(self) -> None:
        super().__init__("torch._dynamo")
        notes: list[int] = []
        program: Any = ModuleType("some_module")
        program.work = len

        class CheckFunctionManager:
            def __init__(self) -> None:
                notes.append(program.work(""))

        class CatchErrorsWrapper:
            def __call__(self, frame: object, compiled_before: object) -> None:
                notes.append(program.work(""))
                CheckFunctionManager()
                notes.append(program.work(""))

        self.notes, self.program, self.cleared = notes, program, 0
        self.convert_frame = SimpleNamespace(CatchErrorsWrapper=CatchErrorsWrapper)
        self.guards = SimpleNamespace(CheckFunctionManager=CheckFunctionManager)
        self.trace_rules = SimpleNamespace(SKIP_DIRS=[], _recompile_re=lambda: None, clear_lru_cache=self._clear)

    def _clear(self) -> None:
        self.cleared += 1


def one_more(original: Any) -> Any:
    return lambda value: original(value) + 1


def test_wrappers_are_restored_for_a_compilation_and_put_back_for_its_guards(tmp_path: Path) -> None:
    module = Dynamo()
    with watched(tmp_path, (dynamo.PLUGIN, module)) as loaded:
        patching.patch(module.program, "work", one_more)
        compile_frame = module.convert_frame.CatchErrorsWrapper()
        compile_frame(None, None)
        compile_frame(None, "a cache entry: its guards failed")
        assert module.program.work("") == 1
        run = loaded()
        assert STATE.recorder is not None
        assert STATE.recorder.counters["compile_ns"] > 0
        assert STATE.recorder.counters["recompilations"] == 1
    assert module.notes == [0, 1, 0] * 2
    assert module.cleared == 1, "caches filled with our wrappers"
    assert [f"{ROOT}/profiler/agent/"] == module.trace_rules.SKIP_DIRS
    assert [(run.names[call["name"]], Path(run.sites[call["site"]].file).name) for call in run.calls] == [
        ("recompilations", "test_dynamo.py")
    ]


def test_a_child_of_a_program_that_compiles_in_another_thread_has_the_wrappers() -> None:
    module: Any = ModuleType("some_module")
    module.work = len
    already = patching.patch_count()
    patching.patch(module, "work", one_more)
    patches = dynamo._Patches(permanent=())
    compiling, done = threading.Event(), threading.Event()

    def compiles() -> None:
        with patches.aside(), patches._lock:
            compiling.set()
            done.wait()

    thread = threading.Thread(target=compiles)
    thread.start()
    try:
        compiling.wait()
        assert module.work("") == 0, "put aside"
        child = os.fork()
        if not child:  # where nobody compiles, or gives the lock back
            before = module.work("")
            with patches.aside():
                meanwhile = module.work("")
            os._exit(0 if (before, meanwhile, module.work("")) == (1, 0, 1) else 1)
        assert os.waitpid(child, 0)[1] == 0
    finally:
        done.set()
        thread.join()
        assert module.work("") == 1
        patching.unpatch(already)


def test_what_the_program_replaces_while_it_is_compiled_stays() -> None:
    module: Any = ModuleType("some_module")
    module.work = len
    already = patching.patch_count()
    patching.patch(module, "work", one_more)
    with dynamo._Patches(permanent=()).aside():
        module.work = str
    patching.unpatch(already)
    assert module.work is str
