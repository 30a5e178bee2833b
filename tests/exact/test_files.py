"""Files that a program opens for writing are counted once each, at the program's line."""

from __future__ import annotations

import _thread
import builtins
import gzip
import io
import os
import pickle
import subprocess
import sys
import tempfile
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import profiler
from profiler.analyse.timing.counts import run_counts, site_counts
from profiler.exact.counting import FileCounter
from profiler.exact.operators import OperatorCounter, OperatorKind
from profiler.report.counts import count_report
from profiler.run.tables import CountKind

ROOT = Path(__file__).parents[2]


@contextmanager
def counting() -> Iterator[Counter[int]]:
    """Receives the number of files of each line of this file."""
    counter = new_counter()
    lines = Counter[int]()
    with ExitStack() as stack:
        FileCounter(counter).install(stack)
        yield lines
    lines.update(taken(counter))


def new_counter() -> OperatorCounter:
    return OperatorCounter(lambda frame: frame.f_lineno, lambda file: file == __file__, lambda: None)


def taken(counter: OperatorCounter) -> Counter[int]:
    lines = Counter[int]()
    for operator, site, calls, _ in counter.take():
        assert operator.kind is OperatorKind.FILE
        lines[site] += calls
    return lines


def here() -> int:
    """The line that calls this."""
    return sys._getframe(1).f_lineno


def opened_low(path: Path) -> None:
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT))


def opened_in_folder(path: Path) -> None:
    folder = os.open(path.parent, os.O_RDONLY)
    os.close(os.open(path.name, flags=os.O_WRONLY | os.O_CREAT, dir_fd=folder))
    os.close(folder)


def opened_by_opener(path: Path) -> None:
    open(path, "w", opener=os.open).close()


def changed(path: Path) -> None:
    path.touch()
    with open(path, "r+b") as file:
        file.write(b"text")


def temporary(path: Path) -> None:
    with tempfile.NamedTemporaryFile(dir=path.parent):
        pass


def zipped(path: Path) -> None:
    with gzip.open(path, "wt") as file:
        file.write("text")


WRITES: dict[str, Callable[[Path], object]] = {
    "text": lambda path: path.write_text("text", encoding="utf-8"),
    "bytes": lambda path: open(path, "wb").close(),
    "appended": lambda path: open(file=path, mode="a").close(),
    "changed": changed,
    "low": opened_low,
    "low, below a folder": opened_in_folder,
    "opener": opened_by_opener,
    "temporary": temporary,
    "compressed": zipped,
    "numpy": lambda path: np.save(path.with_suffix(".npy"), np.ones(3)),
    "torch": lambda path: torch.save(torch.ones(3), path),
    "torch, as text": lambda path: torch.save(torch.ones(3), str(path)),
    "torch, former format": lambda path: torch.save(torch.ones(3), path, _use_new_zipfile_serialization=False),
    "torch, other letters": lambda path: torch.save(torch.ones(3), path.with_name("größe")),
}


@pytest.mark.parametrize("name", WRITES)
def test_a_file_counts_once(name: str, tmp_path: Path) -> None:
    with counting() as lines:
        WRITES[name](tmp_path / "file")
    assert sum(lines.values()) == (2 if name == "changed" else 1), "touch opens the file too"
    assert -1 not in lines


def test_it_counts_at_the_line_that_calls_a_library(tmp_path: Path) -> None:
    with counting() as lines:
        torch.save(torch.ones(3), tmp_path / "one")
        np.save(tmp_path / "two", np.ones(3))
        line = here()
    assert lines == {line - 2: 1, line - 1: 1}


@pytest.mark.parametrize(
    ("module", "file", "expected"),
    [
        ("triton.runtime.cache", "/srv/job/.venv/lib/python3.12/site-packages/triton/runtime/cache.py", 0),
        ("triton.runtime.cache", "/srv/job/src/triton/python/triton/runtime/cache.py", 0),
        ("numba.cuda.cache", "/srv/job/.venv/lib/python3.12/site-packages/numba_cuda/numba/cuda/cache.py", 0),
        ("logger.files", "/srv/job/envs/triton/lib/python3.12/site-packages/logger/files.py", 1),
        ("logger.files", "/srv/job/numba/lib/python3.12/site-packages/logger/files.py", 1),
        ("triton_logger", "/srv/job/.venv/lib/python3.12/site-packages/triton_logger.py", 1),
        ("torch._vendor.quack.cache.jit", "/srv/job/site-packages/torch/_vendor/quack/cache/jit.py", 0),
        (None, "<string>", 1),
    ],
)
def test_what_compilers_write_does_not_count(module: str | None, file: str, expected: int, tmp_path: Path) -> None:
    names: dict[str, Any] = {"__name__": module} if module else {}
    exec(compile("def write(path):\n    path.write_text('text')", file, "exec"), names)
    with counting() as lines:
        names["write"](tmp_path / "file")
        line = here()
    assert lines == ({line - 1: 1} if expected else {})


def test_what_the_compiler_of_torch_stores_does_not_count(tmp_path: Path) -> None:
    codecache = pytest.importorskip("torch._inductor.codecache")
    with counting() as lines:
        codecache.write_atomic(str(tmp_path / "file"), "text")
    assert (tmp_path / "file").read_text(encoding="utf-8") == "text"
    assert lines == {}


def test_many_files_are_taken_before_a_step_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("profiler.exact.operators._MAX_CALLS", 10)
    told: list[int] = []
    counter = OperatorCounter(lambda _: 1, lambda _: True, lambda: told.append(taken(counter)[1]))
    with ExitStack() as stack:
        FileCounter(counter).install(stack)
        for _ in range(25):
            opened_low(tmp_path / "file")
    assert told == [11, 11]
    assert taken(counter) == {1: 3}


def test_what_writes_no_file_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("text", encoding="utf-8")
    with counting() as lines:
        assert (tmp_path / "old").read_text(encoding="utf-8") == "text"
        torch.save(torch.ones(3), io.BytesIO())
        os.close(os.open(tmp_path / "old", os.O_RDONLY))
        open(os.devnull, "w").close()
        with pytest.raises(FileNotFoundError):
            (tmp_path / "absent" / "file").write_text("text", encoding="utf-8")
    assert lines == {}


class Descriptor:
    """Stands for an open file, as a number of NumPy does."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __index__(self) -> int:
        return self.number


def test_an_open_file_is_no_name(tmp_path: Path) -> None:
    numbers = [os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT) for _ in range(2)]
    with counting() as lines:
        open(numbers[0], "w").close()
        open(Descriptor(numbers[1]), "w").close()  # type: ignore[call-overload]
    assert lines == {}


@pytest.mark.parametrize("arguments", [{"mode": None}, {"mode": 5}, {"mode": "we"}])
def test_open_itself_refuses_arguments(arguments: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises((TypeError, ValueError)) as original:
        open(tmp_path / "file", **arguments).close()
    with counting() as lines, pytest.raises(type(original.value)) as counted:
        open(tmp_path / "file", **arguments).close()
    assert str(counted.value) == str(original.value)
    assert lines == {}


def test_flags_may_be_an_object_with_a_number(tmp_path: Path) -> None:
    with counting() as lines:
        os.close(os.open(tmp_path / "file", Descriptor(os.O_WRONLY | os.O_CREAT)))  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="missing required argument 'flags'"):
            os.open(tmp_path / "file")  # type: ignore[call-arg]
    assert sum(lines.values()) == 1


class Name(str):
    """It can tell when the last call that has it as an argument has ended."""

    __slots__ = ("__weakref__",)


@pytest.mark.parametrize(
    ("function", "argument", "expected"),
    [("open", "w", 1), ("open", "r", 0), ("low", os.O_WRONLY, 1), ("low", os.O_RDONLY, 0), ("torch", None, 1)],
)
def test_a_function_without_a_caller_in_python_opens(
    function: str, argument: Any, expected: int, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    ended, failures = threading.Event(), list[str]()
    name = Name(tmp_path / "file")
    weakref.finalize(name, ended.set)
    hook, sys.unraisablehook = sys.unraisablehook, lambda failure: failures.append(repr(failure.exc_value))
    try:
        with counting() as lines:
            functions: dict[str, Any] = {"open": open, "low": os.open, "torch": torch._C.PyTorchFileWriter}
            _thread.start_new_thread(functions[function], (name,) if argument is None else (name, argument))
            del name
            assert ended.wait(60)
    finally:
        sys.unraisablehook = hook
    assert failures == []
    assert lines == ({-1: 1} if expected else {})


def test_it_counts_in_threads(tmp_path: Path) -> None:
    def write() -> None:
        (tmp_path / threading.current_thread().name).write_text("text", encoding="utf-8")

    threads = [threading.Thread(target=write) for _ in range(2)]
    with counting() as lines:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert lines == {write.__code__.co_firstlineno + 1: 2}


def test_a_forked_process_counts_by_itself(tmp_path: Path) -> None:
    counter = new_counter()
    with ExitStack() as stack:
        FileCounter(counter).install(stack)
        child = os.fork()
        if not child:
            status = 255
            try:
                (tmp_path / "file").write_text("text", encoding="utf-8")
                status = sum(taken(counter).values())
            finally:
                os._exit(status)
        _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 1
    assert (tmp_path / "file").exists()
    assert taken(counter) == {}


def test_the_functions_are_as_before_in_use_and_afterwards(tmp_path: Path) -> None:
    before = open, io.open, os.open, torch._C.PyTorchFileWriter

    supports = set(os.supports_dir_fd)
    with counting() as lines:

        class Counted:
            opener: Any = open

        assert io.open is open
        assert open.__name__ == "open"
        Counted().opener(tmp_path / "file", "w").close()  # it is no method, as a function of C is none
        assert pickle.loads(pickle.dumps(open)) is open
        assert pickle.loads(pickle.dumps(os.open)) is os.open
        assert os.open in os.supports_dir_fd
        torch.save({"weight": torch.ones(3)}, tmp_path / "saved")
        assert torch.load(tmp_path / "saved")["weight"].tolist() == [1, 1, 1]
    assert (open, io.open, os.open, torch._C.PyTorchFileWriter) == before
    assert os.supports_dir_fd == supports
    assert sum(lines.values()) == 2
    Counted().opener(tmp_path / "kept", "w").close()
    assert (tmp_path / "kept").exists()


def test_what_the_program_replaces_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def of_program(*args: Any) -> Any:
        return io.open(*args)  # noqa: UP020

    def of_program_low(*args: Any) -> Any:
        return in_use(*args)

    monkeypatch.setattr(os, "open", os.open)  # restore this one
    monkeypatch.setattr(builtins, "open", of_program)
    counter = new_counter()
    with ExitStack() as stack:
        FileCounter(counter).install(stack)
        in_use = os.open
        monkeypatch.setattr(os, "open", of_program_low)
        open(tmp_path / "file", "w").close()
        opened_low(tmp_path / "file")
    assert sum(taken(counter).values()) == 2
    assert (open, os.open) == (of_program, of_program_low)
    opened_low(tmp_path / "file")
    assert taken(counter) == {}, "it has ended"


PROGRAM = """
import atexit
import torch
from pathlib import Path

atexit.register(open, "last", "w")
model = torch.nn.Linear(4, 2)
log = open("log", "w")
for step in range(6):
    model(torch.ones(3, 4)).sum().backward()
    torch.save(model.state_dict(), f"{step}.pt")
    for name in ("a", "b"):
        Path(name).write_text(str(step))
"""


@pytest.mark.parametrize("option", ["--count", pytest.param("--virtual-cuda", marks=pytest.mark.slow)])
def test_a_run_has_the_files_of_a_step_by_line(option: str, tmp_path: Path) -> None:
    if option == "--virtual-cuda" and torch.cuda.is_available():
        pytest.skip("virtual devices need a machine without a GPU")
    (tmp_path / "train.py").write_text(PROGRAM, encoding="utf-8")
    command = [sys.executable, "-m", "profiler", "run", option, "--out", str(tmp_path / "run"), "--"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, sys.executable, "train.py"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "last").exists(), done.stderr
    run = profiler.load(tmp_path / "run")
    counts = site_counts(run)
    files = {
        PROGRAM.splitlines()[count.site.line - 1].split("(")[0].strip(): count
        for count in counts
        if count.kind is CountKind.FILE and count.site
    }
    assert {name: (count.usual[0], len(count.per_step)) for name, count in files.items()} == {
        "log = open": (0, 1),  # all steps have equal counts
        "torch.save": (1, 1),
        "Path": (2, 1),
    }
    assert files["log = open"].before == 1
    (section,) = (each for each in count_report(run_counts(run)).sections if each.key == "file")
    assert section.title == "Files opened for writing"
    assert "Files opened for writing: 3 in a step" in repr(section.brief)
