"""The doctor: its runner on fakes, and each check where it can and where it cannot."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from profiler.core.machine import NO, NOT_KNOWN, PARTLY, YES, Answer
from profiler.core.procfs import CpuTimes
from profiler.record import checks, kernel
from profiler.record.checks import all_checks
from profiler.record.doctor import Check, ProgramError, Setup, examine, output_of
from tests.fakes.nvml import FakeNvml


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return Setup(sys.executable, tmp_path / "reports" / "runs")


# ---------------------------------------------------------------- the runner


def fake(name: str, order: int, answer: Callable[[], Answer], patience_s: float = 60.0) -> Check:
    return Check(name, f"the {name}", order, True, patience_s, lambda setup: answer())


def program(folder: Path, text: str) -> str:
    """The path of a shell script."""
    path = folder / "program"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_a_check_that_raises_is_its_own_row(setup: Setup) -> None:
    def fails() -> Answer:
        raise ValueError("two\nlines")

    first, second = examine(setup, checks=[fake("a", 1, lambda: Answer(NO, "why", "do")), fake("b", 2, fails)])
    assert (first.name, first.title, first.answer, first.lacking) == ("a", "the a", Answer(NO, "why", "do"), True)
    assert second.answer == Answer(NOT_KNOWN, "the check failed: ValueError: two lines")
    assert second.lacking, "what is needed and not known is lacking"


def test_a_check_that_hangs_delays_no_other(setup: Setup) -> None:
    released = threading.Event()

    def hangs() -> Answer:
        released.wait()
        return Answer(YES, "late")

    first, second = examine(setup, checks=[fake("hanging", 0, hangs, 0.05), fake("a", 1, lambda: Answer(YES, ""))])
    released.set()
    assert first.answer.state == NOT_KNOWN
    assert (second.answer.state, second.lacking) == (YES, False)


def test_every_check_has_a_time_a_place_and_a_short_title() -> None:
    every = all_checks()
    assert len({check.order for check in every}) == len({check.name for check in every}) == len(every)
    assert all(0 < check.patience_s < 60 for check in every)
    assert all(len(check.title) <= 21 for check in every), "the column is narrow"


def test_programs_that_do_not_answer() -> None:
    with pytest.raises(ProgramError, match="NameError: name 'x' is not defined"):
        output_of([sys.executable, "-c", "x"], 30)
    with pytest.raises(ProgramError, match="cannot start"):
        output_of(["/nowhere/python"], 30)
    with pytest.raises(ProgramError, match=r"no answer within 0.1 s"):
        output_of([sys.executable, "-c", "import signal; signal.pause()"], 0.1)


# ---------------------------------------------------------------- the Python that trains


def answers(text: str) -> Callable[..., str]:
    return lambda command, seconds: text


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ('[[3, 9, 1], "CPython", false, false]', NO),
        ('[[3, 11, 1], "PyPy", false, false]', NO),
        ('[[3, 13, 1], "CPython", true, false]', PARTLY),
    ],
)
def test_python(setup: Setup, monkeypatch: pytest.MonkeyPatch, text: str, state: str) -> None:
    answer = checks.python.examine(setup)
    assert answer.state == YES
    assert sys.executable in answer.why
    monkeypatch.setattr(checks, "output_of", answers(text))
    assert checks.python.examine(setup).state == state


CPU = {"version": "2.13", "cuda": None, "hip": None, "file": "/x/torch/__init__.py", "kineto": True, "gpus": 0}
CPU["activities"] = ["CPU"]
CUDA = {**CPU, "cuda": "13.0", "gpus": 2, "activities": ["CPU", "CUDA"]}


@pytest.mark.parametrize(
    ("build", "torch_state", "kineto_state"),
    [
        (CPU, YES, YES),
        (CUDA, YES, YES),
        ({**CUDA, "gpus": 0}, PARTLY, YES),
        ({**CUDA, "error": "out of memory"}, PARTLY, YES),
        ({**CUDA, "activities": ["CPU"]}, YES, PARTLY),
        ({"missing": True}, NO, NO),
        (ProgramError("no answer within 45 s"), NO, NOT_KNOWN),
    ],
)
def test_torch_and_its_trace(
    build: Any, torch_state: str, kineto_state: str, setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "torch_build", lambda python: build)
    assert checks.torch.examine(setup).state == torch_state
    assert checks.kineto.examine(setup).state == kineto_state


def test_two_checks_import_torch_once_in_a_separate_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    imports = tmp_path / "imports"
    broken = f"open({str(imports)!r}, 'a').write('x')\nraise ImportError('libcudart.so.13: cannot open')"
    (tmp_path / "torch.py").write_text(broken)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(checks, "_torch_build", checks.cache(checks._torch_build.__wrapped__))
    setup = Setup(sys.executable, tmp_path)
    assert "ImportError: libcudart.so.13: cannot open" in checks.torch.examine(setup).why
    assert checks.kineto.examine(setup).state == NOT_KNOWN
    assert imports.read_text() == "x"


def test_libraries_and_numba_cuda(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(command: list[str], seconds: float) -> str:
        raise ProgramError("PackageNotFoundError: numba-cuda")

    monkeypatch.setattr(checks, "output_of", answers('{"lightning": "2.6"}'))
    assert checks.libraries.examine(setup).why == "lightning 2.6"
    monkeypatch.setattr(checks, "output_of", answers("0.30.4\n"))
    assert checks.numba_cuda.examine(setup).why.startswith("numba-cuda 0.30.4")
    monkeypatch.setattr(checks, "output_of", refuse)
    assert (answer := checks.numba_cuda.examine(setup)).state == NO
    assert answer.do.startswith("pip install")
    assert checks.libraries.examine(setup).state == NOT_KNOWN


# ---------------------------------------------------------------- recording


def test_hooks(setup: Setup, tmp_path: Path) -> None:
    assert checks.hooks.examine(setup).state == YES
    refusing = Setup(program(tmp_path, f'unset PYTHONPATH\nexec {sys.executable} "$@"'), setup.runs)
    answer = checks.hooks.examine(refusing)
    assert answer.state == NO
    assert refusing.python in answer.why
    answer = checks.hooks.examine(Setup(program(tmp_path, "echo broken >&2\nexit 3"), setup.runs))
    assert (answer.state, answer.why) == (NO, "a recorded Python exits with 3: broken")


BOTH = pytest.mark.parametrize("check", [checks.stacks, checks.attach], ids=lambda check: check.name)


@BOTH
def test_stacks_are_really_read(check: Check, setup: Setup) -> None:
    """The answer depends on this machine, but where it is no, it comes with a remedy."""
    answer = check.examine(setup)
    assert answer.state == YES or (answer.state == NO and answer.do), answer


@BOTH
def test_ptrace_is_forbidden(check: Check, setup: Setup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    denied = "echo 'Error: Permission Denied: Try running again with elevated permissions' >&2\nexit 1"
    monkeypatch.setattr(checks, "find_py_spy", lambda: program(tmp_path, denied))
    remedies = {0: "--cap-add SYS_PTRACE", 1: "sudo sysctl kernel.yama.ptrace_scope=0", 3: "restart the machine"}
    for scope, remedy in remedies.items():
        monkeypatch.setattr(kernel, "ptrace_scope", lambda proc="", scope=scope: scope)
        answer = check.examine(setup)
        assert answer.state == NO
        assert remedy in answer.do
    monkeypatch.setattr(checks, "find_py_spy", lambda: None)
    assert check.examine(setup) == Answer(NO, "py-spy is not installed", "pip install py-spy")


def test_the_scope_of_ptrace(tmp_path: Path) -> None:
    assert kernel.ptrace_scope(tmp_path) == 0
    (tmp_path / "sys/kernel/yama").mkdir(parents=True)
    (tmp_path / "sys/kernel/yama/ptrace_scope").write_text("3\n")
    assert kernel.ptrace_scope(tmp_path) == 3


@pytest.mark.parametrize(("permitted", "state"), [(True, YES), (False, PARTLY)])
def test_preempting(permitted: bool, state: str, setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "may_preempt", lambda: permitted)
    assert checks.preempt.examine(setup).state == state


def test_gpu(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    assert checks.gpu.examine(setup) == Answer(YES, "2 × Fake GPU, driver 550.1")
    nvml.driver = False
    assert "--gpus all" in checks.gpu.examine(setup).do
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert checks.gpu.examine(setup).do == "pip install nvidia-ml-py"


# ---------------------------------------------------------------- the machine


def test_host(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    assert checks.host.examine(setup).state == YES
    monkeypatch.setattr(checks, "thread_times", lambda pid, tids: {})
    assert checks.host.examine(setup).state == PARTLY
    monkeypatch.setitem(sys.modules, "psutil", None)
    assert checks.host.examine(setup).do == "pip install psutil"


def test_clocks(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "governor", lambda: "performance")
    monkeypatch.setattr(checks, "cpu_times", lambda: None)
    monkeypatch.setattr(kernel, "cores", lambda pid=0: 8)
    monkeypatch.setattr(kernel, "cpu_limit", lambda: None)
    assert checks.clocks.examine(setup).state == YES
    monkeypatch.setattr(checks, "cpu_times", lambda: CpuTimes(1000, 500, 100))
    assert checks.clocks.examine(setup).state == PARTLY, "10% of the time was stolen"
    monkeypatch.setattr(kernel, "cpu_limit", lambda: 2.5)
    monkeypatch.setattr(kernel, "governor", lambda: "powersave")
    answer = checks.clocks.examine(setup)
    assert (answer.state, answer.do) == (PARTLY, "export OMP_NUM_THREADS=2")
    assert all(part in answer.why for part in ("2.5 of the 8 cores", "governor powersave", "10%"))


@pytest.mark.parametrize(
    ("average", "state", "part"),
    [(0.3, YES, "load 0.3 on 2 cores"), (1.1, PARTLY, "load 1.1"), (10.2, PARTLY, "more threads want a core")],
)
def test_load(setup: Setup, monkeypatch: pytest.MonkeyPatch, average: float, state: str, part: str) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (average, 0.0, 0.0))
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    answer = checks.load.examine(setup)
    assert answer.state == state
    assert part in answer.why


def test_disk(setup: Setup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "_MIN_DISK", 0)
    assert checks.disk.examine(setup).why.endswith(f"free at {tmp_path}"), "the nearest folder that exists"
    assert list(tmp_path.iterdir()) == [], "and nothing is left in it"
    monkeypatch.setattr(checks, "_MIN_DISK", 1 << 60)
    assert checks.disk.examine(setup).state == PARTLY
    (tmp_path / "reports").write_text("a file")
    assert checks.disk.examine(setup).state == NO


@pytest.mark.parametrize(("limit", "state"), [(None, YES), (8 << 30, YES), (1 << 28, PARTLY)])
def test_memory(limit: int | None, state: str, setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "memory_limit", lambda: limit)
    assert checks.memory.examine(setup).state == state
