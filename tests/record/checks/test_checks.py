"""The doctor's checks, each where it can and where it cannot: made-up files, fakes, small Pythons of our own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from profiler.core.capability import NO, NOT_KNOWN, PARTLY, YES, Answer
from profiler.record import limits
from profiler.record.checks import (
    Place,
    _pyspy,
    _torch,
    attach,
    clocks,
    disk,
    gpu,
    inside,
    kineto,
    libraries,
    load,
    memory,
    numba_cuda,
    preempt,
    python,
    stacks,
    torch_build,
)
from profiler.record.checks import host as host_check
from profiler.record.checks._child import ChildError, answer_of
from tests.fakes.nvml import FakeNvml


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(sys.executable, tmp_path / "reports" / "runs")


def test_a_child_says_why_it_did_not_answer() -> None:
    with pytest.raises(ChildError, match="NameError: name 'x' is not defined"):
        answer_of([sys.executable, "-c", "x"], 30)
    with pytest.raises(ChildError, match="cannot start"):
        answer_of(["/nowhere/python"], 30)
    with pytest.raises(ChildError, match=r"no answer within 0.1 s"):
        answer_of([sys.executable, "-c", "import signal; signal.pause()"], 0.1)


def test_python(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = python.PLUGIN.look(place)
    assert answer.state == YES
    assert sys.executable in answer.why
    said = {
        '[[3, 9, 1], "CPython", false, false]': NO,
        '[[3, 11, 1], "PyPy", false, false]': NO,
        '[[3, 13, 1], "CPython", true, false]': PARTLY,
    }
    for text, state in said.items():
        monkeypatch.setattr(python, "answer_of", lambda command, seconds, text=text: text)
        assert python.PLUGIN.look(place).state == state


def test_hooks_come_in(place: Place) -> None:
    assert inside.PLUGIN.look(place).state == YES


def test_hooks_that_do_not_come_in(place: Place, tmp_path: Path) -> None:
    wrapper = tmp_path / "python"
    wrapper.write_text(f'#!/bin/sh\nunset PYTHONPATH\nexec {sys.executable} "$@"\n')
    wrapper.chmod(0o755)
    answer = inside.PLUGIN.look(Place(str(wrapper), place.runs))
    assert answer.state == NO
    assert answer.why.startswith(f"hooks do not come into {wrapper}: ")
    wrapper.write_text("#!/bin/sh\necho broken >&2\nexit 3\n")
    assert inside.PLUGIN.look(Place(str(wrapper), place.runs)).why == "a recorded Python exits with 3: broken"


def test_stacks_are_tried(place: Place) -> None:
    """Whatever this machine permits, the answer is one of ours and never a guess."""
    own = stacks.PLUGIN.look(place)
    assert own.state == YES or (own.state == NO and own.do), own
    other = attach.PLUGIN.look(place)
    assert other.state == YES or (other.state == NO and other.do), other


@pytest.mark.parametrize("check", [stacks.PLUGIN, attach.PLUGIN], ids=["stacks", "attach"])
def test_ptrace_is_forbidden(check: Any, place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spy = tmp_path / "py-spy"
    spy.write_text(
        "#!/bin/sh\necho 'Error: Permission Denied: Try running again with elevated permissions' >&2\nexit 1\n"
    )
    spy.chmod(0o755)
    monkeypatch.setattr(_pyspy, "program", lambda: str(spy))
    scope = tmp_path / "scope"
    monkeypatch.setattr(_pyspy, "YAMA", scope)
    assert check.look(place).do == "start the container with: docker run --cap-add SYS_PTRACE ..."
    scope.write_text("1\n")
    answer = check.look(place)
    assert (answer.state, answer.do) == (NO, "sudo sysctl kernel.yama.ptrace_scope=0")
    assert answer.why.startswith("ptrace is forbidden here")
    scope.write_text("3\n")
    assert "restart the machine" in check.look(place).do
    monkeypatch.setattr(_pyspy, "program", lambda: None)
    assert check.look(place) == Answer(NO, "py-spy is not installed", "pip install py-spy")


def test_preempting(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for allowed, state in ((True, YES), (False, PARTLY)):
        monkeypatch.setattr(preempt._preempt, "permitted", lambda allowed=allowed: allowed)
        assert preempt.PLUGIN.look(place).state == state


def test_host(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    assert host_check.PLUGIN.look(place).state == YES
    monkeypatch.setattr(host_check, "thread_times", lambda pid, tids: {})
    assert host_check.PLUGIN.look(place).state == PARTLY
    monkeypatch.setitem(sys.modules, "psutil", None)
    assert host_check.PLUGIN.look(place).do == "pip install psutil"


def test_clocks(place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(clocks, "_stolen", lambda: 0.0)
    monkeypatch.setattr(clocks, "_governor", lambda: "performance")
    monkeypatch.setattr(limits, "cores", lambda pid=0: 8)
    monkeypatch.setattr(limits, "cpu_limit", lambda: None)
    assert clocks.PLUGIN.look(place).state == YES
    monkeypatch.setattr(limits, "cpu_limit", lambda: 2.5)
    monkeypatch.setattr(clocks, "_governor", lambda: "powersave")
    answer = clocks.PLUGIN.look(place)
    assert (answer.state, answer.do) == (PARTLY, "export OMP_NUM_THREADS=2")
    assert "2.5 of the 8 cores" in answer.why
    assert "governor powersave" in answer.why


@pytest.mark.parametrize(
    ("text", "state", "said"),
    [
        ("0.30 2.0 3.0 1/9 7", YES, "load 0.3 on 2 cores"),
        ("1.10 0.0 0.0 1/9 7", PARTLY, "other programs are at work"),
        ("10.2 0.0 0.0 1/9 7", PARTLY, "load 10.2 on 2 cores in the last minute: more threads want a core"),
        ("", NOT_KNOWN, "does not say"),
    ],
)
def test_load(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, state: str, said: str) -> None:
    (tmp_path / "loadavg").write_text(text)
    monkeypatch.setattr(load, "_LOADAVG", tmp_path / "loadavg")
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    answer = load.PLUGIN.look(place)
    assert answer.state == state
    assert said in answer.why


def test_disk(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "_LITTLE", 0)
    assert disk.PLUGIN.look(place).why.endswith(f"free at {tmp_path}"), "the nearest folder that is there"
    assert list(tmp_path.iterdir()) == [], "and nothing is left in it"
    monkeypatch.setattr(disk, "_LITTLE", 1 << 60)
    assert disk.PLUGIN.look(place).state == PARTLY
    (tmp_path / "reports").write_text("a file")
    assert disk.PLUGIN.look(place).state == NO


def test_memory(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for limit, state in ((None, YES), (8 << 30, YES), (1 << 28, PARTLY)):
        monkeypatch.setattr(limits, "memory_limit", lambda limit=limit: limit)
        assert memory.PLUGIN.look(place).state == state


def test_gpu(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    fake.nvmlDeviceGetComputeRunningProcesses = lambda gpu: []
    answer = gpu.PLUGIN.look(place)
    assert (answer.state, answer.why) == (YES, "2 × Fake GPU, driver 550.1")
    fake.driver = False
    assert gpu.PLUGIN.look(place).state == NO


CPU = {"version": "2.13", "cuda": None, "hip": None, "file": "/x/torch/__init__.py", "kineto": True, "gpus": 0}
CPU["activities"] = ["CPU"]
CUDA = {**CPU, "cuda": "13.0", "gpus": 2, "activities": ["CPU", "CUDA"]}


@pytest.mark.parametrize(
    ("said", "torch_state", "kineto_state"),
    [
        (CPU, YES, YES),
        (CUDA, YES, YES),
        ({**CUDA, "gpus": 0}, PARTLY, YES),
        ({**CUDA, "error": "out of memory"}, PARTLY, YES),
        ({**CUDA, "activities": ["CPU"]}, YES, PARTLY),
        ({"missing": True}, NO, NO),
        (ChildError("no answer within 45 s"), NO, NOT_KNOWN),
    ],
)
def test_torch_and_its_trace(
    said: Any, torch_state: str, kineto_state: str, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_torch, "_known", {place.python: said})
    assert torch_build.PLUGIN.look(place).state == torch_state
    assert kineto.PLUGIN.look(place).state == kineto_state


def test_torch_is_asked_in_a_process_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_torch, "_known", {})
    (tmp_path / "torch.py").write_text("raise ImportError('libcudart.so.13: cannot open shared object file')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    answer = torch_build.PLUGIN.look(Place(sys.executable, tmp_path))
    assert answer.why == "torch does not come up: ImportError: libcudart.so.13: cannot open shared object file"


def test_numba_cuda_and_libraries(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numba_cuda, "answer_of", lambda command, seconds: "0.30.4\n")
    assert numba_cuda.PLUGIN.look(place).why.startswith("numba-cuda 0.30.4")
    monkeypatch.setattr(libraries, "answer_of", lambda command, seconds: '{"lightning": "2.6"}')
    assert libraries.PLUGIN.look(place).why == "lightning 2.6"

    def refuse(command: list[str], seconds: float) -> str:
        raise ChildError("PackageNotFoundError: numba-cuda")

    monkeypatch.setattr(numba_cuda, "answer_of", refuse)
    assert (answer := numba_cuda.PLUGIN.look(place)).state == NO
    assert answer.do.startswith("pip install")
